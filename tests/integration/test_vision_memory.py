"""Predicted bytes of fine-tuning steps against those of the same steps on real tensors: Qwen-VL and LLaVA models."""

import platform
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.tiny_vlm import make_all
from tests.acceptance import only_in_acceptance
from tests.four_bits import needs_bitsandbytes
from tests.integration.commands import step_records, train, write_options
from tests.integration.finetune_runs import finetune_options

pytest.importorskip("peft", reason="the package needs it nowhere; where it is, predictions are compared with it")
sys.path.append(str(Path(__file__).parents[2] / "scripts" / "bench"))
import vision_memory as bench
from vision_memory import Case, Sizes

pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning")]
"""What transformers and peft say of each other."""

SMALL = Sizes(layers=2, width=64, words=512, samples=3, tokens=64, patches=8)
MOST_ERROR = 1e-3
"""Of 3 to 20 MiB, of which numbers of 8 bytes, some 50, are 0.01 %."""

IN_4_BITS = {"model": {"load_in_4bit": True}, "lora": {"r": 4}}

CASES = {
    "windows of patches": Case("qwen2_5_vl", sizes=SMALL),
    "patches into several layers, computed again": Case("qwen3_vl", "bf16", checkpoints=True, sizes=SMALL),
    "adapters and casts": Case("qwen3_vl", "autocast", lora=True, sizes=SMALL),
    "one alone, which is never padded": Case("qwen2_vl", sizes=SMALL._replace(samples=1)),
    "casts computed again": Case("llava", "autocast", checkpoints=True, sizes=SMALL),
}


PACKED: dict[str, tuple[Case, int]] = {
    "4 bits": (Case("qwen3_vl", lora=True, sizes=SMALL, packed=True), 7_121_816),
    "4 bits, computed again": (Case("qwen2_5_vl", "bf16", True, True, SMALL, True), 4_228_448),
    "4 bits, cast": (Case("qwen2_vl", "autocast", True, False, SMALL, True), 6_435_092),
}
"""And the bytes of real steps through bitsandbytes 0.50.2, which most environments lack."""


@pytest.mark.parametrize("name", CASES)
def test_predicted_bytes_are_those_of_the_real_step(name: str) -> None:
    measured = bench.measure(CASES[name])
    assert measured.predicted == pytest.approx(measured.real, rel=MOST_ERROR)


@pytest.mark.parametrize("name", PACKED)
def test_bytes_are_planned_where_nothing_can_be_packed(name: str) -> None:
    case, real = PACKED[name]
    assert bench.predicted_peak(case, case.build(planned=True)) == pytest.approx(real, rel=MOST_ERROR)


@needs_bitsandbytes
@pytest.mark.parametrize("name", PACKED)
def test_predicted_bytes_in_4_bits_are_those_of_the_real_step(name: str) -> None:
    """Of the live model, too; what was noted still holds."""
    case, noted = PACKED[name]
    measured = bench.measure(case)
    assert measured.real == noted
    assert abs(measured.error) < MOST_ERROR


@needs_bitsandbytes
@only_in_acceptance
@pytest.mark.parametrize("case", list(bench.packed_cases(list(bench.MODELS))), ids=str)
def test_they_are_in_4_bits_from_100_mib_on(case: Case) -> None:
    assert bench.measure(case).is_exact


@only_in_acceptance
@pytest.mark.parametrize("case", list(bench.cases(list(bench.MODELS))), ids=str)
def test_they_are_in_every_combination_from_100_mib_on(case: Case) -> None:
    assert bench.measure(case).is_exact


@pytest.mark.skipif(platform.system() != "Linux", reason="a CPU budget is enforced on Linux only")
@pytest.mark.parametrize("changes", [{}, pytest.param(IN_4_BITS, marks=needs_bitsandbytes)], ids=["usual", "4 bits"])
def test_the_first_batch_of_a_run_is_drawn_under_a_plan_that_was_foreseen(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    make_all(data, seed=0, pictures=32, held_back=24)
    steps = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8, "num_train_epochs": 1}
    options = finetune_options(data / "model", data / "train", memory={"budget": "64MiB"}, training=steps, **changes)
    done = train(write_options(tmp_path / "tiny.yml", options))
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "traced 3 plans" in said
    assert "cannot trace memory" not in said
    records = step_records((tmp_path / "training_output" / "current").resolve())
    assert [(record["samples"], record["plan"]["micro_batches"], record["ooms"]) for record in records] == [
        (16, 1, 0)
    ] * 2
    for record in records:
        assert record["predicted"] == pytest.approx(record["peak"]["allocated"], rel=0.15)
