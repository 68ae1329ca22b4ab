"""``export`` through its door: what lies there afterwards, what is said, what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load as load_bytes
from safetensors.torch import load_file

import trainauto
from tests.golden.test_manifests import manifest
from tests.integration.commands import (
    command,
    latest_weights,
    plugins_forgotten,
    run_directory,
    tiny_options,
    train,
    write_options,
)
from tests.integration.test_commands import PLUGIN_NETWORK
from tests.made_runs import make_run, options_of
from trainauto.cli import main

COMPACT = {"type": "compact", "num_feat": 8, "num_conv": 1}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_run(tmp_path, options_of(COMPACT), steps=(10, 20), best=10)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def weights_of(folder: Path, step: int, name: str) -> dict[str, torch.Tensor]:
    return load_file(folder / f"experiments/made/current/checkpoints/step_{step:08d}/{name}.safetensors")


def equal(state: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return set(state) == set(other) and all(torch.equal(tensor, other[name]) for name, tensor in state.items())


def test_safetensors_say_what_they_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "experiments/made"]) == 0
    file = folder / "made_x2_10.safetensors"
    assert equal(load_file(file), weights_of(folder, 10, "net_g_ema"))
    with safe_open(file, "pt") as opened:
        facts = opened.metadata()
    arguments = facts.pop("arguments")
    assert json.loads(arguments) == {"num_feat": 8, "num_conv": 1}
    assert facts == {
        "format": "pt",
        "name": "made",
        "architecture": "compact",
        "scale": "2",
        "weights": "averaged weights",
        "trainauto_version": trainauto.__version__,
        "step": "10",
    }
    said = capsys.readouterr().out
    assert said.startswith("made_x2_10.safetensors: compact x2, averaged weights of step 10, ")
    assert max(map(len, said.splitlines())) <= 80
    assert file.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    import os

    old = os.umask(0)
    os.umask(old)
    return old


def test_a_run_that_was_trained(
    tmp_path: Path,
    write_images: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "my_exported_module.py").write_text(PLUGIN_NETWORK.replace("my_net", "my_exported_net"))
    changes = {"plugins": ["my_exported_module"], "network_g": {"type": "my_exported_net", "width": 6}}
    file = write_options(tmp_path / "run.yml", tiny_options(write_images("gt", 3), **changes))
    done = train(file)
    assert done.returncode == 0, done.stderr
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # the plugin lies beside the option file
    for which, step in (("best", None), ("latest", 12)):
        out = tmp_path / f"{which}.safetensors"
        with plugins_forgotten(tmp_path):
            assert main(["export", str(tmp_path / "experiments/tiny"), str(out), "--checkpoint", which]) == 0
        assert "my_exported_module defines this network: spandrel, and" in capsys.readouterr().out
        with safe_open(out, "pt") as opened:
            facts = opened.metadata()
        pointer = json.loads((run_directory(file) / "checkpoints/latest.json").read_text())
        assert int(facts["step"]) == (step or pointer["best"]["step"])
        weights = latest_weights(run_directory(file))
        assert "net_g.safetensors" in weights
    assert equal(load_file(out), load_bytes(weights.get("net_g_ema.safetensors", weights["net_g.safetensors"])))


def test_pth_has_both_entries(folder: Path) -> None:
    assert main(["export", "experiments/made", "out.pth", "--checkpoint", "latest"]) == 0
    entries = torch.load("out.pth", weights_only=True)
    assert list(entries) == ["params", "params_ema"]
    assert equal(entries["params"], weights_of(folder, 20, "net_g"))
    assert equal(entries["params_ema"], weights_of(folder, 20, "net_g_ema"))
    assert list(entries["params"]) == list(entries["params_ema"])


def test_from_an_option_file_and_weights(folder: Path) -> None:
    assert main(["export", "experiments/made", "out.pth"]) == 0
    given = ["-opt", "experiments/made/current/given.yml", "--weights", "out.pth"]
    assert main(["export", *given, "--param_key", "params", "again.pth", "--half"]) == 0
    entries = torch.load("again.pth", weights_only=True)
    assert list(entries) == ["params"]
    assert equal(entries["params"], {name: t.half() for name, t in weights_of(folder, 10, "net_g").items()})
    assert main(["export", *given, "--param_key", "params_ema", "ema.pth"]) == 0
    assert list(torch.load("ema.pth", weights_only=True)) == ["params", "params_ema"]


@pytest.mark.parametrize(
    ("name", "network", "scale"),
    [
        ("realesr-animevideov3", {"type": "compact"}, 4),
        ("RealESRGAN_x4plus", {"type": "rrdbnet"}, 4),
        ("SPAN_x4_ch48", {"type": "span"}, 4),
        ("SwinIR_lightweight_x2", {"type": "swinir_light"}, 2),
    ],
)
def test_names_are_those_of_the_published_files(tmp_path: Path, name: str, network: dict[str, Any], scale: int) -> None:
    run = make_run(tmp_path, options_of(network, scale), averages=False)
    out = tmp_path / "out.pth"
    assert main(["export", str(run.path), str(out)]) == 0
    weights = torch.load(out, weights_only=True, mmap=True)["params"]
    assert {key: list(tensor.shape) for key, tensor in weights.items()} == manifest(name)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["which network?", "experiments/NAME"]),
        (["experiments/made", "-opt", "a.yml"], ["RUN and -opt are given"]),
        (["experiments/made", "there.pth"], ["there.pth is there already", "--overwrite"]),
        (["experiments/made", "out.pht"], ["'.pht' is no format", "Did you mean 'pth'?"]),
        (["experiments/made", "out"], ["no suffix", "--format"]),
        (["experiments/made", "out.pth", "--format", "onnx"], ["contradict"]),
        (["experiments/made", "experiments"], ["no suffix"]),
        (["experiments/made", "experiments", "--format", "pth"], ["is a folder", "Name a file in it"]),
        (["experiments/made", "nowhere/out.pth"], ["there is no folder nowhere"]),
        (["experiments/made", "out.onnx", "--size", "64"], ["--size 64 is no size", "256x256"]),
        (["experiments/made", "out.pth", "--size", "64x64"], ["--size is for onnx"]),
        (["experiments/made", "out.pth", "--checkpoint", "11"], ["no checkpoint of step 11", "10, 20"]),
        (["experiments/mode", "out.pth"], ["experiments/mode does not exist"]),
    ],
)
def test_what_cannot_be_done_is_said(
    folder: Path, arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "there.pth").write_bytes(b"mine")
    assert main(["export", *arguments]) == 2
    said = capsys.readouterr()
    assert all(word in said.err for word in words), said.err
    assert said.out == ""
    assert sorted(path.name for path in folder.iterdir()) == ["experiments", "there.pth"]
    assert (folder / "there.pth").read_bytes() == b"mine"


def test_the_usual_name_is_not_written_over_either(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "made_x2_10.pth").write_bytes(b"mine")
    assert main(["export", "experiments/made", "--format", "pth"]) == 2
    assert "made_x2_10.pth is there already" in capsys.readouterr().err
    assert main(["export", "experiments/made", "--format", "pth", "--overwrite"]) == 0
    assert "params" in torch.load("made_x2_10.pth", weights_only=True)


def test_onnx_in_a_process_of_its_own_says_its_facts_and_nothing_else(folder: Path) -> None:
    done = command("export", "experiments/made", "out.onnx", cwd=folder, own_process=True)
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("out.onnx: compact x2", "opset 18", "(batch, 3, height, width)", "(batch, 3, 2*height, 2*width)"):
        assert words in done.stdout
    assert "differs by at most" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_onnx_needs_its_packages(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("trainauto.commands.export.NEEDED", {"onnx": ("onnx", "no_such_package_here")})
    assert main(["export", "experiments/made", "out.onnx"]) == 2
    said = capsys.readouterr().err
    assert "onnx files need no_such_package_here" in said
    assert "pip install 'trainauto[export]'" in said


def test_a_network_that_onnx_cannot_hold_ends_with_1(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("trainauto.tasks.sr.models.onnx_file.LIMIT", -1.0)
    assert main(["export", "experiments/made", "out.onnx", "--size", "24x32"]) == 1
    assert "it is not kept" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["experiments"]
