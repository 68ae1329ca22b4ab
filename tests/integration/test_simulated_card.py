"""Everything that is only for CUDA, over PyTorch's real allocator, on a card whose kernels do nothing."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.integration.commands import write_options
from tests.integration.sharded_cases import sharded_cases
from tests.integration.simulated_card import PROGRAMS, ROOT, in_acceptance, on_card, simulated_card
from trainauto.memory.tracing.kernels import KERNELS

__all__ = ["simulated_card"]

pytestmark = pytest.mark.usefixtures("simulated_card")

SMALL = {"card": "T4 16GB", "others": "15GiB"}
"""Memory runs out, and address space does not."""


def last_json(output: str) -> dict[str, Any]:
    found = [line for line in output.splitlines() if line.startswith("{")]
    return json.loads(found[-1])


@pytest.mark.parametrize("expandable", [False, True], ids=["native", "expandable"])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=in_acceptance) for seed in (2, 3, 4))])
def test_the_simulated_allocator_does_as_the_real_one(expandable: bool, seed: int) -> None:
    """Addresses, reserved bytes, flushes and out-of-memory errors are equal after each of 6,000 random events."""
    output = on_card("python", PROGRAMS / "random_allocations.py", str(seed), "6000", expandable=expandable, **SMALL)
    found = last_json(output)
    assert found["expandable"] is expandable
    assert min(found["out_of_memory"], found["retries"]) > 50
    assert found["allocations"] > 2000


@in_acceptance
@pytest.mark.parametrize("version", ["2.11.0", "2.12.0"])
@pytest.mark.parametrize("expandable", [False, True], ids=["native", "expandable"])
def test_older_releases_take_equal_blocks_by_other_rules(version: str, expandable: bool) -> None:
    command = ("python", PROGRAMS / "random_allocations.py", "5", "6000")
    found = last_json(on_card(*command, expandable=expandable, torch=version, **SMALL))
    assert found["torch"].startswith(version)
    assert found["retries"] > 50


@pytest.mark.parametrize(
    ("seed", "calls"), [(1, 800), *(pytest.param(seed, 1500, marks=in_acceptance) for seed in (2, 3, 4))]
)
def test_kernels_take_beside_their_results_what_traces_say(seed: int, calls: int) -> None:
    output = on_card("python", PROGRAMS / "kernel_buffers.py", str(seed), str(calls), card="RTX 4090 24GB")
    compared = json.loads(output.splitlines()[-1])
    others = re.compile(r"aten::(index_put_?|_safe_softmax|reflection_pad[13]d(_backward)?)$")
    assert [name for name in KERNELS if name not in compared and not others.match(name)] == []


@pytest.mark.parametrize(
    ("card", "calls"),
    [
        ("RTX 4090 24GB", 24),
        *(pytest.param(card, 150, marks=in_acceptance) for card in ("RTX 4090 24GB", "H100 80GB", "T4 16GB")),
    ],
)
def test_attention_takes_the_kernel_and_the_bytes_that_traces_say(card: str, calls: int) -> None:
    """Formats, sizes of heads, masks, dropout, allowed kernels and layouts at random, forward and backward."""
    found = last_json(on_card("python", PROGRAMS / "attention.py", "2", str(calls), card=card))
    assert found["efficient"] > calls / 5
    assert found["math"] > calls / 10


@pytest.mark.parametrize("version", [None, pytest.param("2.11.0", marks=in_acceptance)])
def test_the_quick_start_fills_the_card_and_takes_what_was_predicted(version: str | None, tmp_path: Path) -> None:
    largest = "training_automations:DynamicBatchSizeOptimizer:max_batch_size=8"
    short = ["train:total_iter=16", "train:warmup_steps=4", "logger:use_tb_logger=false"]
    changes = [*short, largest, f"path:experiments_root={tmp_path}"]
    options = ROOT / "options/train/quickstart.yml"
    output = on_card("python", ROOT / "train.py", "-opt", options, "--force_yml", *changes, torch=version)
    assert "cuda:0 RTX 3060 (simulated) (12.0 GiB), fp32" in output
    assert re.search(r"^OOM +none$", output, re.MULTILINE)
    row = re.search(r"^ +batch (\d+) x (\d+) px +16 +([\d.]+) MiB +([\d.]+) MiB", output, re.MULTILINE)
    assert row is not None, output[-3000:]
    assert (row[1], row[2]) == ("8", "48")
    assert float(row[3]) == pytest.approx(float(row[4]), rel=0.001)
    assert list(tmp_path.glob("quickstart/*/checkpoints/step_00000016/net_g_ema.safetensors"))


def test_a_loop_gives_way_to_another_program_and_comes_back() -> None:
    command = ("python", PROGRAMS / "loop_beside_a_neighbour.py", ROOT / "tests/simulated_card/neighbour.py")
    found = last_json(on_card(*command, card="T4 2GB"))
    assert found["beside"] < 0.7 * found["before"]
    assert found["after"] > 1.2 * found["beside"]
    assert found["errors"] <= 2


def test_the_doctor_sees_the_card_and_who_is_on_it() -> None:
    output = on_card("python", "-m", "trainauto", "doctor", card="RTX 4090 24GB", others="2GiB")
    assert "RTX 4090 (simulated)" in output
    assert re.search(r"^ok +cuda:0 memory 21\.\d+ GiB of 24\.00 GiB free", output, re.MULTILINE)


@in_acceptance
def test_text_files_train(tmp_path: Path) -> None:
    options = ROOT / "options/text/tiny_gpt.yml"
    changes = ["train:total_epochs=1", f"path:experiments_root={tmp_path}"]
    assert "completed" in on_card("python", ROOT / "train.py", "-opt", options, "--force_yml", *changes)


@in_acceptance
def test_several_tasks_train(tmp_path: Path) -> None:
    options = ROOT / "options/multitask/digits.yml"
    changes = ["train:total_epochs=1", f"path:experiments_root={tmp_path}"]
    output = on_card("python", ROOT / "train.py", "-opt", options, "--force_yml", *changes)
    assert "the model lies on cpu" not in output
    assert re.search(r"^completed ", output, re.MULTILINE)


def test_without_a_compiler_one_block_says_what_to_install(tmp_path: Path) -> None:
    """What a person sees on a fresh machine, read off the script itself: it needs no card."""
    code = (
        "import sys; sys.path.insert(0, 'scripts'); import shutil, simulated_card; "
        "shutil.which = lambda *a, **k: None; sys.exit(simulated_card.main(['run', '--here', '--', 'python']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        "simulated card: the card is compiled, and this machine lacks g++, gcc, nm, objdump.",
        "  What to try: apt install g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora), then run again.",
    ]


PLACES = [
    *("optimizer g", "optimizer d", "net_g forward", "net_g backward", "net_d forward", "net_d backward", "validation")
]


@in_acceptance
def test_memory_runs_out_in_every_pass_of_a_run_with_a_discriminator(tmp_path: Path) -> None:
    """The card is full once at each place; checkpoints are written while it is full."""
    quick = ["train:total_iter=60", "logger:use_tb_logger=false", f"path:experiments_root={tmp_path}"]
    on_card("python", ROOT / "train.py", "-opt", ROOT / "options/train/quickstart.yml", "--force_yml", *quick)
    weights = tmp_path / "quickstart/current/checkpoints/step_00000060/net_g_ema.safetensors"
    changes = ["train:total_iter=30", "val:val_freq=20", f"path:experiments_root={tmp_path}"]
    start = f"path:pretrain_network_g={weights}"
    options = ROOT / "options/train/gan_small.yml"
    output = on_card("python", PROGRAMS / "memory_runs_out.py", options, *changes, start, card="T4 16GB")
    assert last_json(output) == {"failed": PLACES, "status": "completed", "step": 30}
    said = output.replace("\n    ", " ")
    assert said.count("not enough memory for a step of Adam that updates all weights at once") == 2
    assert "runs again in 2 micro-batches of 32 px" in said
    assert "continuing in tiles of" in said


@in_acceptance
def test_two_ranks_train_on_two_cards(tmp_path: Path) -> None:
    largest = "training_automations:DynamicBatchSizeOptimizer:max_batch_size=8"
    changes = ["train:total_iter=60", largest, f"path:experiments_root={tmp_path}", "logger:use_tb_logger=false"]
    start = ["python", "-m", "torch.distributed.run", "--nproc-per-node", "2", PROGRAMS / "train_over_gloo.py"]
    options = ["-opt", ROOT / "options/train/quickstart.yml", "--launcher", "pytorch", "--force_yml"]
    output = on_card(*start, *options, *changes, count=2)
    assert re.search(r"^trained +60 steps, 960 samples", output, re.MULTILINE)
    assert re.search(r"^OOM +none$", output, re.MULTILINE)


@in_acceptance
def test_commands_around_a_run_work_on_a_card(tmp_path: Path) -> None:
    options = ["-opt", ROOT / "options/train/quickstart.yml"]
    changes = ["train:total_iter=60", "logger:use_tb_logger=false", f"path:experiments_root={tmp_path}"]
    on_card("python", ROOT / "train.py", *options, "--force_yml", *changes)
    run = tmp_path / "quickstart"
    command = ("python", "-m", "trainauto")
    assert "can be trained" in on_card(*command, "validate", *options)
    planned = on_card(*command, "plan", *options, "--measure")
    assert re.search(r"^ +48 px +64 +[\d.]+ MiB +[\d.]+ MiB", planned, re.MULTILINE)
    assert "memory never ran out in training" in on_card(*command, "report", run)
    Image.new("RGB", (60, 40)).save(tmp_path / "small.png")
    on_card(*command, "upscale", run, tmp_path / "small.png", tmp_path / "large.png")
    with Image.open(tmp_path / "large.png") as large:
        assert large.size == (120, 80)


@in_acceptance
@pytest.mark.parametrize("example", ["digits_batchnorm", "gan", "gpt_tokens"])
def test_loops_of_the_examples_fill_their_budget(example: str) -> None:
    output = on_card("python", ROOT / f"examples/{example}.py")
    assert re.search(r"^plan reached: ", output, re.MULTILINE)
    assert re.search(r"^out of memory: 0 times$", output, re.MULTILINE)


@in_acceptance
def test_functions_over_texts_and_batches_run_in_parts_that_fit() -> None:
    found = last_json(on_card("python", PROGRAMS / "functions_on_a_card.py", card="T4 2GB"))
    assert found["texts"] >= 2
    assert found["parts"] == [2, 2, 2, 2]  # four do not fit in 1.7 GiB, two do
    assert found["refused"] == "device: 'cuda:7' is not there; this machine has cuda:0 to cuda:0"
    assert 2**30 < found["limit"] < 1.7 * 2**30
    assert found["expandable"]


@in_acceptance
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("expandable", [False, True], ids=["native", "expandable"])
def test_a_rank_of_spread_weights_reserves_what_was_predicted(expandable: bool, tmp_path: Path) -> None:
    """Live bytes are equal, reserved ones within 3 %: collectives take theirs on streams of their own."""
    cases = sharded_cases(tmp_path, width=512, layers=6, tokens=4096)
    for name, (options, plan) in cases.items():
        options.pop("device")
        file = write_options(tmp_path / "run.yml", options)
        words = ("python", "-W", "ignore", PROGRAMS / "sharded_steps.py", "8", file, json.dumps(plan))
        (found,) = last_json(on_card(*words, card="RTX 4090 24GB", expandable=expandable)).values()
        predicted, real = found["predicted"], found["real"]
        assert found["streams"] == 3, name
        assert predicted["live"] == real["live"], name
        assert predicted["reserved"] == pytest.approx(real["reserved"], rel=0.03), name
        print(
            f"{name}: reserved {real['reserved'] / 2**20:.0f} MiB, ours {predicted['reserved'] / real['reserved']:.3f}"
        )
