"""Option files of other projects, written for these tests, each beside one of trainauto that means the same."""

from pathlib import Path
from typing import Any

from trainauto.conversion.convert import Conversion, convert
from trainauto.conversion.writing import text_of
from trainauto.options.foreign_files import read_foreign, recognised

FOLDER = Path(__file__).parent / "assets" / "foreign_options"
FILES = sorted(file for file in FOLDER.iterdir() if not file.name.endswith(".ours.yml"))


def ours(file: Path) -> Path:
    """Return the file of trainauto that means the same."""
    return FOLDER / f"{file.stem}.ours.yml"


def converted(file: Path) -> Conversion:
    theirs = read_foreign(file).value
    project = recognised(theirs)
    assert project is not None, f"{file} is not recognised"
    return convert(theirs, project)


def written(conversion: Conversion, folder: Path, name: str = "theirs.yml") -> Path:
    """Write a converted file into a folder."""
    path = folder / "converted.yml"
    path.write_text(text_of(conversion, name), encoding="utf-8")
    return path


def components(options: Any) -> dict[str, Any]:
    """Return all components of options with their arguments; `Component` compares arguments, too."""
    train = options.train
    named = {"network_g": options.network_g, "network_d": options.network_d, "scheduler": train.scheduler}
    named |= {"optim_g": train.optim_g, "optim_d": train.optim_d, **options.val.metrics}
    named |= {f"loss {number}": loss for number, loss in enumerate(train.losses)}
    return {name: (one.type.lower(), one.arguments) for name, one in named.items() if one is not None}
