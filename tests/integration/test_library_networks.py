"""Networks of the library and our own in runs: the controller, resumes, plans, predicted bytes, exported files."""

import json
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

sys.path.append(str(Path(__file__).parents[2] / "scripts" / "bench"))
import trace_accuracy
from trace_cases import option_case

from tests.acceptance import only_in_acceptance
from tests.contract.small_archs import IN_RUNS, build
from tests.integration.commands import (
    command,
    latest_weights,
    merged,
    run_directory,
    step_records,
    tiny_options,
    train,
    write_options,
)
from tests.integration.ranks import finish, train_ranks
from tests.small_library_networks import SMALL_LIBRARY, scale_of
from trainauto.archs import ARCHS
from trainauto.builders.image_model import build_model, build_network
from trainauto.builders.precision import choose_precision
from trainauto.core.plan import Plan
from trainauto.core.units import MIB
from trainauto.options.load import load_options
from trainauto.tasks.sr.recognition import recognise
from trainauto.tasks.sr.spandrel_archs import all_architectures
from trainauto.tasks.sr.spandrel_archs.network import any_size_class

Write = Callable[..., Path]

HELD_MIB = {"grl_b": 700, "realcugan": 160, "craft": 96, "metaflexnet": 96, "emt": 160, "scunet_aaf6aa": 320}
"""Budgets of networks whose smallest crops take more than those of the others."""
STEPS = 20
TRIED = {**SMALL_LIBRARY, **IN_RUNS}
"""Arguments by name."""


def networks(*usual: str) -> pytest.MarkDecorator:
    """Try all networks in an acceptance run, and those named in every run."""
    marks = {name: () if name in usual else only_in_acceptance for name in TRIED}
    return pytest.mark.parametrize("name", [pytest.param(name, marks=mark, id=name) for name, mark in marks.items()])


def side_of(name: str) -> int:
    """Return the side (px) of crops to train small networks on."""
    if name in IN_RUNS:
        return max(16, build(name).size_requirements.minimum)
    table = ARCHS.get(name).library_network
    return max(16, table.size_requirements({"scale": 2, **table.defaults, **SMALL_LIBRARY[name]}).minimum)


def network_of(name: str) -> dict[str, Any]:
    return {"type": name, **TRIED[name]}


def options_of(name: str, images: Path, /, **changes: Any) -> dict[str, Any]:
    """Return a run of a few steps; one at scale 1 learns to keep its images."""
    options = tiny_options(images, scale=scale_of(name), network_g=network_of(name))
    sets = options["datasets"]
    sets["train"].update(lq_size=side_of(name), batch_size_per_gpu=2)
    if scale_of(name) == 1:
        low = shutil.copytree(images, images.with_name("lq"), dirs_exist_ok=True)
        for one_set in sets.values():
            one_set.update(type="PairedImageDataset", dataroot_gt=str(images), dataroot_lq=str(low))
    return merged(options, changes)


@pytest.mark.skipif(platform.system() != "Linux", reason="the CPU budget is enforced on Linux only")
@networks("mosr", "spanplus")
def test_the_controller_trains_it_within_a_budget(tmp_path: Path, write_images: Write, name: str) -> None:
    images = write_images("gt", 3, (160, 160))
    budget_mib = HELD_MIB.get(name, 64)
    controller = {"DynamicBatchSizeOptimizer": {"adjustment_frequency": 4, "max_batch_size": 8}}
    options = options_of(
        name,
        images,
        memory={"budget": f"{budget_mib}MiB", "calibration": False},
        training_automations=controller,
        train={"total_iter": STEPS},
        val={"val_freq": STEPS},
    )
    file = write_options(tmp_path / "run.yml", options)
    done = train(file, timeout_s=280)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    records = step_records(run_directory(file))
    assert [record["step"] for record in records] == list(range(1, STEPS + 1))
    assert all(torch.tensor(list(record["losses"].values())).isfinite().all() for record in records)
    assert max(record["peak"]["allocated"] for record in records) <= budget_mib * MIB
    plans = {(record["plan"]["batch_size"], record["plan"]["lq_size"]) for record in records}
    assert plans != {(2, side_of(name))}, done.stdout  # it went where the memory is
    assert "cannot trace memory" not in done.stdout


@networks("mosr", "rcan")
def test_a_resumed_run_has_the_weights_of_one_that_was_never_stopped(
    tmp_path: Path, write_images: Write, name: str
) -> None:
    images = write_images("gt", 3, (160, 160))
    weights = []
    for folder, stops in (("whole", [4]), ("resumed", [2, 4])):
        file = write_options(tmp_path / folder / "run.yml", options_of(name, images, val={"val_freq": 4}))
        for stop in stops:
            done = train(file, "--auto_resume", "--force_yml", f"train:total_iter={stop}")
            assert done.returncode == 0, done.stdout + done.stderr
        weights.append(latest_weights(run_directory(file)))
    assert weights[0] == weights[1]


@networks("mosr")
def test_plan_says_what_fits(tmp_path: Path, write_images: Write, name: str) -> None:
    controller = {"DynamicBatchSizeOptimizer": {"max_batch_size": 8, "max_lq_size": 2 * side_of(name)}}
    images = write_images("gt", 2, (320, 320))
    file = write_options(tmp_path / "run.yml", options_of(name, images, training_automations=controller))
    done = command("plan", "-opt", file.name, "--vram", "2GiB", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (card,) = json.loads(done.stdout)["cards"]
    assert 0 < card["expected_peak_bytes"] <= card["upper_peak_bytes"] <= 2 * 1024 * MIB
    assert card["plan"]["lq_size"] % side_of(name) == 0 or card["plan"]["lq_size"] >= side_of(name)


@pytest.mark.filterwarnings("ignore:'saved_variables' is deprecated")  # OmniSR's and NAFNet's own layer norm
@networks("omnisr", "rcan", "spanplus")
def test_live_bytes_are_predicted(tmp_path: Path, name: str) -> None:
    """Within .1 %, which is what the figures of docs/benchmarks/trace.md are for our own networks."""
    options = {"scale": scale_of(name), "network_g": network_of(name)}
    if scale_of(name) == 1:
        pairs = {"type": "PairedImageDataset", "dataroot_gt": "nothing_is_read", "dataroot_lq": "nor_this"}
        options["datasets"] = {"train": pairs}
    plan = Plan.of(batch_size=2, lq_size=side_of(name))
    row = trace_accuracy.measure(option_case(name, tmp_path, options, [plan]), torch.float32)["plans"][0]
    print(f"{name}: {row['predicted_bytes']} predicted, {row['measured_bytes']} measured, {row['error']:+.5%}")
    assert abs(row["error"]) < 1e-3


@networks("dat", "rcan")
def test_what_is_exported_is_read_as_the_same_network(tmp_path: Path, write_images: Write, name: str) -> None:
    images = write_images("gt", 2, (160, 160))
    file = write_options(tmp_path / "run.yml", options_of(name, images, train={"total_iter": 2}, val={"val_freq": 2}))
    assert train(file).returncode == 0
    image = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(5))
    network = ARCHS.get(name)(scale=scale_of(name), **TRIED[name]).eval()
    for suffix in ("safetensors", "pth"):
        done = command("export", "experiments/tiny", f"out.{suffix}", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        out = tmp_path / f"out.{suffix}"
        weights = load_file(out) if suffix == "safetensors" else torch.load(out, weights_only=True)["params_ema"]
        network.load_state_dict(weights)
        with torch.no_grad():
            assert torch.equal(read_from(name, weights).eval()(image), network(image))


def read_from(name: str, weights: dict[str, torch.Tensor]) -> torch.nn.Module:
    """Return the network that a file is read as: by spandrel where it has it, by ourselves otherwise."""
    if name in SMALL_LIBRARY:
        described = all_architectures().load(dict(weights))
        table = ARCHS.get(name).library_network
        assert (described.architecture.id, described.scale) == (table.architecture, scale_of(name))
        return described.model
    told = recognise(weights)
    assert told is not None
    # Window sizes of ELAN and EMT have no weights, and the guess says so; files of runs name them beside the weights.
    network = ARCHS.get(told.name)(scale=told.scale, **{**TRIED[name], **told.arguments})
    network.load_state_dict(weights)
    return network


@pytest.mark.parametrize("overlaps", [False, pytest.param(True, marks=only_in_acceptance)])
def test_weights_that_get_no_gradient_are_no_matter_to_several_ranks(
    tmp_path: Path, write_images: Write, overlaps: bool
) -> None:
    """Blocks of FDAT hold weights of both directions and use those of one."""
    images = write_images("gt", 8, (160, 160))
    losses = []
    for count in (1, 2):
        options = options_of(
            "fdat_medium",
            images,
            name=f"ranks_{count}",
            network_g={**network_of("fdat_medium"), "drop_path_rate": 0.0},
            datasets={"train": {"batch_size_per_gpu": 4 // count}},
            train={"total_iter": 6},
            val={"val_freq": 6},
            **({"distributed": {"ddp_overlap": True}} if overlaps and count > 1 else {}),
        )
        file = write_options(tmp_path / f"{count}.yml", options)
        if count == 1:
            assert train(file).returncode == 0
        else:
            done = finish(train_ranks(file, count))
            assert [code for code, _ in done] == [0, 0], "\n".join(said for _, said in done)
        records = step_records(run_directory(file, f"ranks_{count}"))
        losses.append([sum(record["losses"].values()) for record in records])
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)


@pytest.mark.parametrize(("name", "divided"), [("dat", False), ("dctlsa", False), ("omnisr", True)])
def test_batches_that_batch_norm_sees_are_made_smaller_rather_than_divided(
    tmp_path: Path, write_images: Write, name: str, divided: bool
) -> None:
    loaded = load_options(write_options(tmp_path / "run.yml", options_of(name, write_images("gt", 1))))
    model = build_model(loaded, build_network(loaded), choose_precision(loaded))
    assert [objective.splittable for objective in model.objectives()] == [divided]


def test_without_the_library_an_option_file_is_told_how_to_install_it(
    tmp_path: Path, write_images: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_options(tmp_path / "run.yml", options_of("omnisr", write_images("gt", 1)))
    monkeypatch.setitem(sys.modules, "spandrel", None)
    any_size_class.cache_clear()
    done = train(file)
    any_size_class.cache_clear()
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "the network is taken from spandrel, which is not installed" in said
    assert "Install it: pip install --no-deps spandrel spandrel_extra_arches einops" in said
    assert "run.yml:" in said
