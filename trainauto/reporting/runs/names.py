"""Short names that tell runs apart."""

from collections.abc import Sequence
from pathlib import Path

from trainauto.storage.run_directory import TRAINER_RUNS

_SEPARATORS = "_-/ "


def names_of(paths: Sequence[str], longest: int) -> list[str]:
    """Return the shortest name of each run that no other has: of its experiment, else of its folder, else both.

    Where one is longer than ``longest`` characters, all lose the words that all begin with; where that is not enough,
    runs are called A, B, C.
    """
    kinds = [[of(Path(path)) for path in paths] for of in (_experiment, _folder, _both)]
    names = [
        next((kind[number] for kind in kinds if kind.count(kind[number]) == 1), path)
        for number, path in enumerate(paths)
    ]
    if max(map(len, names)) > longest:
        start = _first_other_word(names)
        names = [name[start:] for name in names]
    if max(map(len, names)) > longest or len(set(names)) < len(names):
        return [chr(ord("A") + number) if number < 26 else f"run {number + 1}" for number in range(len(paths))]
    return names


def _experiment(path: Path) -> str:
    """Return what a folder of runs is called: of a Trainer, its output directory."""
    return path.parent.parent.name if path.parent.name == TRAINER_RUNS else path.parent.name


def _folder(path: Path) -> str:
    return path.name


def _both(path: Path) -> str:
    return f"{_experiment(path)}/{path.name}"


def _first_other_word(names: Sequence[str]) -> int:
    """Return where the first word begins that is not the same in all names."""
    same = names[0][: same_start(names)]
    return max(same.rfind(separator) for separator in _SEPARATORS) + 1


def same_start(texts: Sequence[str]) -> int:
    """Return how many characters all texts begin with alike."""
    columns = enumerate(zip(*texts, strict=False))  # as long as the shortest
    return next((place for place, letters in columns if len(set(letters)) > 1), min(map(len, texts)))
