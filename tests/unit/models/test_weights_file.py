"""Files of weights in every layout that people share, and those that are refused."""

import collections
import os
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from trainauto.core.errors import InputError
from trainauto.models.weights_file import read_weights

State = dict[str, Tensor]
OTHER = {"body.0.weight": torch.zeros(1), "body.0.bias": torch.zeros(1)}


def state() -> State:
    generator = torch.Generator().manual_seed(5)
    return {
        "body.0.weight": torch.rand(2, 3, 3, 3, generator=generator),
        "body.0.bias": torch.rand(2, generator=generator),
    }


def prefixed(prefix: str) -> State:
    return {prefix + name: tensor for name, tensor in state().items()}


def wrapped_state() -> Mapping[str, Any]:
    return collections.OrderedDict(
        nn.DataParallel(nn.ModuleDict({"body": nn.Sequential(nn.Conv2d(3, 2, 3))})).state_dict()
    )


LAYOUTS: dict[str, tuple[Any, str, tuple[str, ...], str]] = {
    "bare": (state(), "", (), ""),
    "params_ema": ({"params": OTHER, "params_ema": state()}, "params_ema", ("params",), ""),
    "params-ema": ({"params-ema": state(), "params": OTHER}, "params-ema", ("params",), ""),
    "params": ({"params": state()}, "params", (), ""),
    "state_dict": (
        {"epoch": 7, "state_dict": prefixed("module."), "optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}}},
        "state_dict",
        (),
        "module.",
    ),
    "model_state_dict": (
        {"model_state_dict": prefixed("netG.module."), "loss": 0.5},
        "model_state_dict",
        (),
        "netG.module.",
    ),
    "model": ({"model": {"params": state()}, "step": torch.tensor(3)}, "model.params", (), ""),
    "net": ({"net": prefixed("_orig_mod.model.")}, "net", (), "_orig_mod.model."),
    "a name of its own": ({"generator": state(), "iter": 5}, "generator", (), ""),
    "averaged by torch": ({**prefixed("module."), "n_averaged": torch.tensor(9)}, "", (), "module."),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, tmp_path: Path) -> None:
    content, entry, others, prefix = LAYOUTS[layout]
    torch.save(content, tmp_path / "x.pth")
    found = read_weights(tmp_path / "x.pth")
    assert found.tensors.keys() == state().keys()
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in state().items())
    assert (found.entry, found.others, found.prefix) == (entry, others, prefix)
    assert found.is_average == (entry in ("params_ema", "params-ema"))
    assert all(word in found.in_words() for word in (entry, *others, prefix))


def test_what_was_chosen_in_words(tmp_path: Path) -> None:
    torch.save({"params": prefixed("module."), "params_ema": prefixed("module.")}, tmp_path / "x.pth")
    words = "entry params_ema is taken (it also holds params), names without 'module.'"
    assert read_weights(tmp_path / "x.pth").in_words() == words
    torch.save(state(), tmp_path / "x.pth")
    assert read_weights(tmp_path / "x.pth").in_words() == ""


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".ckpt"])
def test_a_file_is_what_its_content_says(suffix: str, tmp_path: Path) -> None:
    save_file(prefixed("module."), tmp_path / f"a{suffix}")
    torch.save({"params": state()}, tmp_path / f"b{suffix}")
    torch.save({"params": state()}, tmp_path / f"c{suffix}", _use_new_zipfile_serialization=False)
    for name in "abc":
        found = read_weights(tmp_path / f"{name}{suffix}")
        assert torch.equal(found.tensors["body.0.bias"], state()["body.0.bias"]), name


def test_names_that_networks_have_themselves_stay(tmp_path: Path) -> None:
    torch.save(prefixed("net."), tmp_path / "x.pth")
    assert read_weights(tmp_path / "x.pth").prefix == "net."
    assert read_weights(tmp_path / "x.pth", own_names=["net.body.0.weight"]).prefix == ""
    chain = {"model.0.weight": torch.ones(1), "model.1.sub.0.RDB1.conv1.0.weight": torch.ones(1)}  # old ESRGAN
    torch.save({f"module.{name}": tensor for name, tensor in chain.items()}, tmp_path / "x.pth")
    assert read_weights(tmp_path / "x.pth").tensors.keys() == chain.keys()


def test_an_entry_that_is_named(tmp_path: Path) -> None:
    torch.save({"params": OTHER, "params_ema": OTHER, "mine": {"state_dict": state()}}, tmp_path / "x.pth")
    found = read_weights(tmp_path / "x.pth", "mine")
    assert torch.equal(found.tensors["body.0.bias"], state()["body.0.bias"])
    assert (found.entry, found.others) == ("mine.state_dict", ("params_ema", "params"))


REFUSED: dict[str, tuple[Any, str | None, list[str]]] = {
    "several": ({"a": state(), "b": state()}, None, ["holds 2 sets of weights: a, b", "param_key_g"]),
    "no such entry": ({"params": state()}, "parms", ["has no entry 'parms'", "Did you mean 'params'?"]),
    "an empty entry": ({"params": state(), "meta": {"x": 1}}, "meta", ["'meta' of", "no tensors", "params"]),
    "no tensors": ({"epoch": 3}, None, ["holds no tensors"]),
    "nothing by name": ([torch.ones(1)], None, ["holds a list, not weights by name"]),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_files_without_weights_to_take(kind: str, tmp_path: Path) -> None:
    content, key, words = REFUSED[kind]
    torch.save(content, tmp_path / "x.pth")
    with pytest.raises(InputError) as caught:
        read_weights(tmp_path / "x.pth", key)
    assert all(word in str(caught.value) for word in words), str(caught.value)


class Hostile:
    """Its pickle asks the reader to run a command."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("zipped", [True, False])
def test_pickled_code_is_named_and_not_run(zipped: bool, tmp_path: Path) -> None:
    content = {"params": state(), "more": Hostile(tmp_path / "ran")}
    torch.save(content, tmp_path / "x.pth", _use_new_zipfile_serialization=zipped)
    with pytest.raises(InputError) as caught:
        read_weights(tmp_path / "x.pth")
    assert "holds more than tensors: it asks for posix.mkdir" in str(caught.value)
    assert "no pickled code" in str(caught.value)
    assert not (tmp_path / "ran").exists()
    (tmp_path / "bare.pth").write_bytes(pickle.dumps(Hostile(tmp_path / "ran"), protocol=2))
    with pytest.raises(InputError):
        read_weights(tmp_path / "bare.pth")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_files_that_are_cut_off(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"x{suffix}"
    if suffix == ".pth":
        torch.save(state(), file)
    else:
        save_file(state(), file)
    whole = file.read_bytes()
    for length in (5, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"cannot read weights from .*\n.*cut off or damaged"):
            read_weights(file)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\n<!DOCTYPE html><html><title>Download</title>", "is a web page, not weights"),
        (b"7z\xbc\xaf'\x1c\x1b[31m", r"is neither a .pth nor a .safetensors: it begins with 7z"),
        (b"", "is neither a .pth nor a .safetensors: it is empty"),
        (b"\x80\x02garbage", "it holds code, or is damaged"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a pointer of Git LFS"),
    ],
)
def test_downloads_that_are_something_else(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.pth").write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_weights(tmp_path / "x.pth")


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_compiled_program_is_no_file_of_weights(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.trace(nn.Conv2d(1, 1, 1), torch.zeros(1, 1, 2, 2)), tmp_path / "x.pt")
    with pytest.raises(InputError, match="is a TorchScript program, not weights"):
        read_weights(tmp_path / "x.pt")


def test_an_archive_is_to_be_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.pth", "w") as archive:
        archive.writestr("RealESRGAN_x4plus.pth", "")
    with pytest.raises(InputError, match=r"is a zip archive of RealESRGAN_x4plus.pth\n  Unpack it first"):
        read_weights(tmp_path / "x.pth")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "x4.pth").touch()
    with pytest.raises(InputError, match=r"Did you mean 'x4.pth'"):
        read_weights(tmp_path / "4x.pth")
    with pytest.raises(InputError, match="the run that writes it has not come so far"):
        read_weights(tmp_path / "checkpoints" / "step_1" / "net_g.safetensors")
    with pytest.raises(InputError, match="There is no folder"):
        read_weights(tmp_path / "nowhere" / "net_g.safetensors")


def test_counts_of_operations_are_no_weights(tmp_path: Path) -> None:
    counted = {"model_g.a.weight": torch.ones(2), "model_g.a.total_ops": torch.ones(1), "total_params": torch.ones(1)}
    torch.save(counted, tmp_path / "x.pth")
    weights = read_weights(tmp_path / "x.pth")
    assert (list(weights.tensors), weights.prefix) == (["a.weight"], "model_g.")
