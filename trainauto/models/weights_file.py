"""Files of weights as people share them: in whatever layout they were written, and without running pickled code."""

import pickle
import re
import warnings
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from trainauto.core.errors import InputError, Problem, nearest
from trainauto.core.files import found_at
from trainauto.core.words import visible
from trainauto.models.usable_weights import check_dense

AVERAGED_ENTRIES = ("params_ema", "params-ema")
USUAL_ENTRIES = (*AVERAGED_ENTRIES, "params", "model_state_dict", "state_dict", "model", "net")
"""Entries that hold weights, those to be taken first first: averages are what a model was published for."""
WRAPPERS = ("module.", "_orig_mod.", "netG.", "net_g.", "model_g.", "netD.", "net_d.")
"""What names begin with that were saved from inside a wrapper (DataParallel, torch.compile), or from a model of two."""
ATTRIBUTES = ("generator.", "discriminator.", "network.", "model.", "net.")
"""The same, where a network may have called a part of its own so: only taken away where no layer's number follows."""
_COUNTS = ("total_ops", "total_params")
"""What names end with that thop left in a network it counted the operations of (OmniSR's published files)."""

_DEEPEST = 3
"""Entries within entries that are looked into."""
_HEAD_BYTES = 512
_ZIP = b"PK\x03\x04"
_TORCH = (_ZIP, b"\x80")
"""What torch's files begin with: those of today, and bare pickles as before torch 1.6."""
_DAMAGED = "It may be cut off or damaged: fetch it again."
_TENSORS_ONLY = "Only plain tensors are read, no pickled code."


@dataclass(frozen=True)
class FileWeights:
    """Weights by name, and how they lay in their file.

    Attributes:
        tensors: by the names a network has.
        entry: the entry they were under; empty where the file is the weights.
        others: other entries that hold weights.
        prefix: what all names began with and was taken away.
        metadata: what a .safetensors says of them.
    """

    tensors: dict[str, Tensor]
    entry: str = ""
    others: tuple[str, ...] = ()
    prefix: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_average(self) -> bool:
        """Whether their entry is called as averages are."""
        return self.entry in AVERAGED_ENTRIES

    def without_made(self, network: nn.Module) -> "FileWeights":
        """Return these without buffers that a network makes itself, and in these shapes: tables of positions, masks."""
        own = network.state_dict().keys()
        made = {name: buffer.shape for name, buffer in network.named_buffers() if name not in own}
        kept = {name: tensor for name, tensor in self.tensors.items() if made.get(name) != tensor.shape}
        return replace(self, tensors=kept)

    def in_words(self) -> str:
        """Return which of several was taken, and what was done to names; empty where there was nothing to choose."""
        parts = [f"entry {visible(self.entry)} is taken"] if self.entry else []
        if self.others:
            parts[-1] += f" (it also holds {', '.join(map(visible, self.others))})"
        return ", ".join([*parts, *([f"names without '{visible(self.prefix)}'"] if self.prefix else [])])


def read_weights(file: Path, key: str | None = None, own_names: Collection[str] = ()) -> FileWeights:
    """Read the weights in a .safetensors, .pth, .pt or .ckpt file; what it is, its content says.

    Args:
        file: what to read; pickled code in it is refused.
        key: entry that holds the weights; ``None`` tries ``params_ema``, ``params-ema``, ``params``,
            ``model_state_dict``, ``state_dict``, ``model``, ``net``, then the file itself.
        own_names: names of the network they are for: a beginning that it has itself is left alone.

    Raises:
        InputError: missing, damaged, with code inside, no weights, several of which none is usual, without that key, or
            sparse, quantised or without data.
    """
    check_there(file)
    content, metadata = _content_of(file)
    if not isinstance(content, Mapping):
        raise InputError(f"{file} holds a {type(content).__name__}, not weights by name")
    if key is not None and key not in content:
        raise InputError(Problem(f"{file} has no entry '{key}'", advice=nearest(key, map(visible, map(str, content)))))
    entries = _chosen(content, file, key)
    sets = _sets_in(content)
    holder: Mapping[object, object] = content
    for entry in entries:
        holder = holder[entry]  # type: ignore[assignment]
    named = {
        str(name): tensor
        for name, tensor in holder.items()
        if isinstance(tensor, Tensor) and not str(name).endswith(_COUNTS)
    }
    named.pop("n_averaged", None)  # how often torch's AveragedModel was updated
    check_dense(file, named)
    tensors, prefix = _without_prefix(named, own_names)
    others = tuple(name for name in sets if entries and name != entries[0])
    return FileWeights(tensors, ".".join(map(str, entries)), others, prefix, metadata)


def check_there(file: Path) -> None:
    """Refuse a file of weights that is missing.

    Raises:
        InputError: names the nearest beside it.
    """
    if found_at(file) != "file":
        raise InputError(Problem(f"there is no weights file {visible(str(file), 300)}", advice=_what_is_there(file)))


def _content_of(file: Path) -> tuple[object, dict[str, str]]:
    """Return what a file holds, and what a .safetensors says of it."""
    with file.open("rb") as opened:
        head = opened.read(_HEAD_BYTES)
    if (problem := _problem_of_kind(file, head)) is not None:
        raise InputError(problem)
    try:
        if not head.startswith(_TORCH):
            with safe_open(file, "pt") as opened_tensors:
                return load_file(file), dict(opened_tensors.metadata() or {})
        with file.open("rb") as opened, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what torch makes of a damaged pickle is of no use to anybody
            # Not by its name: torch would take what ends in .safetensors for that.
            return torch.load(opened, "cpu", weights_only=True), {}
    except pickle.UnpicklingError as error:
        raise InputError(_problem_of_pickle(file, error)) from error
    except (SafetensorError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        said = str(error).partition("\n")[0].partition(". ")[0] or type(error).__name__
        raise InputError(Problem(f"cannot read weights from {file}: {visible(said)}", advice=_DAMAGED)) from error


def _problem_of_kind(file: Path, head: bytes) -> Problem | None:
    """Say what a file is that begins so, where it is no file of weights; ``None`` of one that may be."""
    if head.startswith(b"version https://git-lfs"):
        return Problem(
            f"{file} is a pointer of Git LFS, not the weights it stands for", advice="git lfs pull gets them."
        )
    if re.match(rb"\s*(<!doctype|<html)", head, re.IGNORECASE):
        return Problem(f"{file} is a web page, not weights", advice="Fetch the file that the page offers.")
    if head.startswith(_ZIP):
        names = _names_in(file)
        if any(name.endswith("/constants.pkl") for name in names):
            return Problem(f"{file} is a TorchScript program, not weights", advice=_TENSORS_ONLY)
        if names and not any(name.endswith("data.pkl") for name in names):
            return Problem(f"{file} is a zip archive of {visible(', '.join(names[:3]))}", advice="Unpack it first.")
        return None
    is_known = head.startswith(_TORCH) or head[8:9] == b"{" or file.suffix == ".safetensors"
    if is_known:
        return None
    words = f"it begins with {visible(repr(head[:12])[2:-1])}" if head else "it is empty"
    return Problem(f"{file} is neither a .pth nor a .safetensors: {words}", advice=_DAMAGED)


def _names_in(file: Path) -> list[str]:
    """Return the names in a zip archive; none where it cannot be read."""
    with suppress(zipfile.BadZipFile, OSError), zipfile.ZipFile(file) as archive:
        return archive.namelist()
    return []


def _problem_of_pickle(file: Path, error: pickle.UnpicklingError) -> Problem:
    """Say which classes and functions a file asks for, where it asks for any beside those of tensors."""
    names: list[str] = []
    with suppress(RuntimeError, ValueError, EOFError, pickle.UnpicklingError):
        names = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(file))
    if not names and (first := re.search(r"GLOBAL ([\w.]+)", str(error))):
        names = [first[1]]  # of a bare pickle torch names the one that it came upon
    if not names:
        return Problem(f"cannot read weights from {file}: it holds code, or is damaged", advice=_TENSORS_ONLY)
    more = f" and {len(names) - 3} more" if names[3:] else ""
    message = f"{file} holds more than tensors: it asks for {visible(', '.join(names[:3]))}{more}"
    advice = f"{_TENSORS_ONLY} Take a .safetensors of the same weights, or save them alone: a state_dict."
    return Problem(message, advice=advice)


def _what_is_there(file: Path) -> str:
    """Return advice for a file that is missing: the nearest beside it, or that a run has yet to write it."""
    folder = file.parent
    if found_at(folder) == "folder":
        return nearest(file.name, (path.name for path in folder.iterdir()), f"{folder} is empty.")
    if folder.parent.name == "checkpoints":
        return f"There is no folder {folder} either: the run that writes it has not come so far. Train it first."
    return f"There is no folder {folder} either."


def _sets_in(content: Mapping[object, object]) -> list[str]:
    """Return the entries that hold weights, the usual ones first."""
    found = [str(name) for name, held in content.items() if isinstance(held, Mapping) and _place_in(held) is not None]
    return sorted(found, key=lambda name: USUAL_ENTRIES.index(name) if name in USUAL_ENTRIES else len(USUAL_ENTRIES))


def _place_in(content: Mapping[object, object], depth: int = _DEEPEST) -> tuple[object, ...] | None:
    """Return the entries that lead to weights: first usual ones, then the content itself; ``None`` where none do."""
    for name in USUAL_ENTRIES if depth else ():
        held = content.get(name)
        if isinstance(held, Mapping) and (place := _place_in(held, depth - 1)) is not None:
            return (name, *place)
    return () if any(isinstance(value, Tensor) for value in content.values()) else None


def _chosen(content: Mapping[object, object], file: Path, key: str | None) -> tuple[object, ...]:
    """Return the entries that lead to the weights of a file.

    Raises:
        InputError: none does, or several that are not usual.
    """
    if key is not None:
        held = content[key]
        place = _place_in(held) if isinstance(held, Mapping) else None
        if place is None:
            raise InputError(Problem(f"entry '{key}' of {file} holds no tensors", advice=_known(_sets_in(content))))
        return (key, *place)
    if (place := _place_in(content)) is not None:
        return place
    sets = _sets_in(content)
    if not sets:
        names = nearest("params", map(visible, map(str, content)), "It is empty.")
        raise InputError(Problem(f"{file} holds no tensors", advice=names))
    if len(sets) > 1:
        message = f"{file} holds {len(sets)} sets of weights: {', '.join(map(visible, sets))}"
        raise InputError(Problem(message, advice="Say which with param_key_g (--param_key of a command)."))
    name = next(name for name in content if str(name) == sets[0])
    inner: Mapping[object, object] = content[name]  # type: ignore[assignment]
    return (name, *(_place_in(inner) or ()))


def _known(sets: Sequence[str]) -> str:
    return f"Entries with weights: {', '.join(map(visible, sets))}." if sets else "No entry of it does."


def _without_prefix(named: Mapping[str, Tensor], own_names: Collection[str]) -> tuple[dict[str, Tensor], str]:
    """Take away what all names begin with and no network of ours does; return the names without it, and it."""
    tensors, taken = dict(named), ""
    while prefix := next(_prefixes(tensors, own_names), ""):
        tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
        taken += prefix
    return tensors, taken


def _prefixes(named: Collection[str], own_names: Collection[str]) -> Iterator[str]:
    for prefix in (*WRAPPERS, *ATTRIBUTES):
        if not named or any(not name.startswith(prefix) for name in named):
            continue
        numbered = prefix in ATTRIBUTES and any(name[len(prefix) :][:1].isdigit() for name in named)
        if not numbered and not any(name.startswith(prefix) for name in own_names):
            yield prefix
