"""What is kept of runs, damaged or made by enemies: logs, checkpoints, weights."""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from faults_forks import Ended, run
from faults_tasks import Outcome, command, newest_checkpoint, run_of, trained
from faults_verdicts import BLOCK, SURVIVED, WRONG, Bench, Fault, Verdict, block_of, plainly_bad, refused, shown

DEEP = '{"step": ' + "[" * 100_000 + "]" * 100_000 + "}"
RUN = "experiments/tiny"
LOGS = ("training_log.jsonl", "validation.jsonl", "decisions.jsonl")
OTHERS = ("config.json", "origin.json", "given.yml", "training_log.json")


def replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return what puts something else in a file's place."""

    def replace(file: Path) -> None:
        file.unlink(missing_ok=True)
        make(file)

    return replace


def appended(text: str) -> Callable[[Path], None]:
    """Return what adds a line to a file."""

    def append(file: Path) -> None:
        with file.open("a") as opened:
            opened.write(text + "\n")

    return append


def last_line(**changes: Any) -> Callable[[Path], None]:
    """Return what adds a copy of the last line, of the next step, with changes."""

    def append(file: Path) -> None:
        lines = file.read_text().splitlines() if file.is_file() else ["{}"]
        record = json.loads(lines[-1]) if lines else {}
        appended(json.dumps({**record, "step": 13, **changes}))(file)

    return append


def zeros(file: Path) -> None:
    """Leave zeros where the last third was, as a power cut does."""
    content = file.read_bytes()
    kept = content[: 2 * len(content) // 3]
    file.write_bytes(kept + b"\0" * (len(content) - len(kept)))


HOSTILE: Mapping[str, Callable[[Path], None]] = {
    "100,000 deep": appended(DEEP),
    "step 1e300": last_line(step=1e300),
    "step of 400 digits": last_line(step=10**400),
    "step a text": last_line(step="2"),
    "step -1": last_line(step=-1),
    "samples 1e300": last_line(samples=1e300),
    "seconds a list": last_line(step_s=[]),
    "NaN and infinity": last_line(step_s=float("nan"), losses={"l1loss": float("inf")}),
    "a plan of texts": last_line(plan={"lq_size": "x"}),
    "a folder": replaced(Path.mkdir),
    "a FIFO": replaced(os.mkfifo),
    "link to /dev/zero": replaced(lambda file: file.symlink_to("/dev/zero")),
    "NULs": zeros,
    "a line of 20 MB": appended('{"step": 13, "x": "' + "a" * 20_000_000 + '"}'),
    "bytes": lambda file: file.write_bytes(bytes(range(256)) * 40) and None,
    "a list": replaced(lambda file: file.write_text("[]\n")),
    "escape codes": last_line(dataset="\x1b[2J\x1b]0;owned\x07", metrics={"\x1b[31m": 1.0}),
}
READERS: Mapping[str, tuple[str, ...]] = {
    "report": ("report", RUN),
    "report --json": ("report", RUN, "--json"),
    "page": ("report", RUN, "--html", "--out", "page.html"),
    "list": ("report", "experiments", "--list"),
    "replay": ("replay", RUN),
}
MORE = ("--force_yml", "train:total_iter=15")


def _meet_log(bench: Bench, *, log: str, what: str, reader: str) -> Verdict:
    place = bench.begin("sr", trained_before=True)
    directory = run_of(place)
    if directory is None:
        raise FileNotFoundError(place)
    HOSTILE[what](directory / log)
    if reader == "resume":
        ended = run(lambda: trained("sr", *MORE), place, "first")
        return judged_resume(bench, ended, place)
    ended = run(lambda: command(*READERS[reader]), place, "first")
    bad = plainly_bad(ended)
    if bad is not None:
        return bad
    if ended.code:
        block, flaw = block_of(ended)
        return Verdict(WRONG if flaw else BLOCK, shown(block), flaw)
    if "\x1b]0;" in ended.said + ended.block:
        return Verdict(WRONG, "", "the terminal obeys what a log says")
    return Verdict(SURVIVED, shown(ended.said))


def judged_resume(bench: Bench, ended: Ended, place: Path) -> Verdict:
    """Judge a resume to 15 steps: the weights of a run of 15 steps, or one block that leaves all as it was."""
    bad = plainly_bad(ended)
    if bad is not None:
        return bad
    if ended.code:
        block, flaw = block_of(ended)
        return Verdict(WRONG if flaw else BLOCK, shown(block), flaw)
    if Outcome.of(place).weights != bench.undisturbed("sr15").weights:
        return Verdict(WRONG, shown(ended.said[-160:]), "other weights than a run of 15 steps")
    at = ended.words.find("resum")
    return Verdict(SURVIVED, shown(ended.words[max(0, at - 80) :]))


def logs(seed: int) -> Iterator[Fault]:
    """Yield logs that were made by enemies, each with some of its readers."""
    numbers = random.Random(f"{seed} logs")
    readers = [*READERS, "resume"]
    for number, what in enumerate(HOSTILE):
        for turn, log in enumerate(LOGS):
            reader = readers[(number + 2 * turn) % len(readers)]
            yield Fault(
                "logs of enemies", f"{log}, {what}: {reader}", partial(_meet_log, log=log, what=what, reader=reader)
            )
    for log in OTHERS:
        for what in numbers.sample(["100,000 deep", "a folder", "a FIFO", "bytes", "a list"], 2):
            reader = numbers.choice(readers)
            yield Fault(
                "logs of enemies", f"{log}, {what}: {reader}", partial(_meet_log, log=log, what=what, reader=reader)
            )


class Flagged:
    """Makes a folder when it is unpickled: what must not run."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("executed",)


def pickled(file: Path) -> None:
    """Put a pickle into its place that runs code."""
    import pickle

    file.write_bytes(pickle.dumps(Flagged()))


def pickled_by_torch(file: Path) -> None:
    """The same, in torch's format."""
    import torch

    torch.save({"format": 1, "params": Flagged()}, file)


def flipped(place: float) -> Callable[[Path], None]:
    """Return what changes one bit of a file."""

    def flip(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[int(place * (len(content) - 1))] ^= 1
        file.write_bytes(content)

    return flip


def cut(share: float) -> Callable[[Path], None]:
    """Return what leaves a share of a file."""
    return lambda file: os.truncate(file, int(share * file.stat().st_size))


DAMAGE: Mapping[str, Callable[[Path], None]] = {
    "empty": cut(0.0),
    "cut to a tenth": cut(0.1),
    "cut by a byte": cut(0.999),
    "a bit of its beginning": flipped(0.02),
    "a bit of its middle": flipped(0.5),
    "its last bit": flipped(1.0),
    "gone": Path.unlink,
    "a folder": replaced(Path.mkdir),
    "a FIFO": replaced(os.mkfifo),
    "zeros": lambda file: file.write_bytes(bytes(file.stat().st_size)) and None,
    "a pickle that runs code": pickled,
    "torch's pickle that runs code": pickled_by_torch,
}
KEPT_FILES = ("state.pt", "net_g.safetensors", "net_g_ema.safetensors")


def _meet_checkpoint(bench: Bench, *, file: str, what: str, every: bool) -> Verdict:
    place = bench.begin("sr", trained_before=True)
    directory = run_of(place)
    newest = newest_checkpoint(directory) if directory is not None else None
    if directory is None or newest is None:
        raise FileNotFoundError(place)
    for checkpoint in directory.glob("checkpoints/step_*") if every else [newest]:
        DAMAGE[what](checkpoint / file)
    ended = run(lambda: trained("sr", *MORE), place, "first")
    if (place / "executed").exists():
        return Verdict(WRONG, "", "code of the file ran")
    return judged_resume(bench, ended, place)


def _meet_pointer(bench: Bench, *, what: str) -> Verdict:
    place = bench.begin("sr", trained_before=True)
    directory = run_of(place)
    if directory is None:
        raise FileNotFoundError(place)
    POINTERS[what](directory / "checkpoints" / "latest.json")
    return judged_resume(bench, run(lambda: trained("sr", *MORE), place, "first"), place)


POINTERS: Mapping[str, Callable[[Path], None]] = {
    "a folder": replaced(Path.mkdir),
    "a FIFO": replaced(os.mkfifo),
    "gone": Path.unlink,
    "empty": cut(0.0),
    "100,000 deep": replaced(lambda file: file.write_text(DEEP)),
    "another step": replaced(lambda file: file.write_text('{"step": 1e300, "folder": "../../..", "best": null}')),
}


def checkpoints(seed: int) -> Iterator[Fault]:
    """Yield checkpoints that are damaged: the newest, or all of them."""
    numbers = random.Random(f"{seed} checkpoints")
    for file in KEPT_FILES:
        for what in DAMAGE:
            every = numbers.random() < 0.25
            which = "all checkpoints" if every else "the newest checkpoint"
            name = f"{file} of {which}, {what}"
            yield Fault("damaged checkpoints", name, partial(_meet_checkpoint, file=file, what=what, every=every))
    for what in POINTERS:
        yield Fault("damaged checkpoints", f"latest.json, {what}", partial(_meet_pointer, what=what))


USES: Mapping[str, tuple[str, ...]] = {
    "start from it": ("train", "-opt", "run.yml", "--force_yml", "path:pretrain_network_g=given.pth", "name=other"),
    "upscale": ("upscale", "--weights", "given.pth", "val", "large"),
    "export": ("export", "--weights", "given.pth", "out.safetensors"),
}


def _meet_weights(bench: Bench, *, what: str, use: str) -> Verdict:
    place = bench.begin("sr", trained_before=True)
    directory = run_of(place)
    newest = newest_checkpoint(directory) if directory is not None else None
    if newest is None:
        raise FileNotFoundError(place)
    shutil.copy(newest / "net_g.safetensors", place / "given.pth")
    DAMAGE[what](place / "given.pth")
    ended = run(lambda: command(*USES[use]), place, "first")
    if (place / "executed").exists():
        return Verdict(WRONG, "", "code of the file ran")
    return refused(ended)


def given_weights() -> Iterator[Fault]:
    """Yield weights of others that are damaged, or run code where they are unpickled."""
    for what in ("a pickle that runs code", "torch's pickle that runs code", "cut to a tenth", "zeros"):
        for use in USES:
            yield Fault("weights of others", f"{what}: {use}", partial(_meet_weights, what=what, use=use))


def faults(base: Path, seed: int) -> Iterator[Fault]:
    """Yield all of this subject."""
    del base
    yield from logs(seed)
    yield from checkpoints(seed)
    yield from given_weights()
