"""Gradients and updates are those of plain PyTorch: a few cells of the bench, whose verdicts are to be trusted."""

import gc
import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))
from gradients_cases import LOSSES, MISUSES, WAYS, Cell, all_cells, cells_for_tests, samples_of
from gradients_models import MODELS
from gradients_page import page
from gradients_scripts import RULES
from gradients_verdict import EQUAL, REFUSED, WRONG, Verdict, judge, right_outcomes

MODULES = ("trainauto.huggingface", "transformers.trainer", "transformers.models.llama.modeling_llama")
FACTS = {"command": "c", "date": "d", "machine": "m", "cpu_s": "1"}


@pytest.fixture(scope="module", autouse=True)
def _short_collections() -> Iterator[None]:
    """Collecting garbage after memory ran out takes ten times as long as a step with all of transformers imported."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for module in MODULES:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    torch.set_num_threads(threads)


@pytest.mark.parametrize("cell", cells_for_tests(), ids=lambda cell: cell.key)
def test_updates_are_those_of_plain_pytorch(cell: Cell) -> None:
    verdict = judge(cell)
    assert verdict.outcome != WRONG, verdict.words


def test_all_of_it_is_ten_losses_five_models_and_each_misuse_in_each_way() -> None:
    assert (len(LOSSES), len(MODELS), len(WAYS)) == (10, 5, 3)
    cells = all_cells()
    assert len({cell.key for cell in cells}) == len(cells) >= 10 * 5 * (3 * (len(MISUSES) - 3) + 4)
    chosen = cells_for_tests()
    assert {cell.misuse.name for cell in chosen} == {misuse.name for misuse in MISUSES}
    assert {(cell.way, cell.loss.name) for cell in chosen} == {(way, loss.name) for way in WAYS for loss in LOSSES}


def of(way: str, loss: str, model: str, misuse: str = "none") -> Cell:
    return next(cell for cell in all_cells() if cell.key == f"{way} | {misuse} | {loss} | {model}")


class MisWeighed(Cell):
    """A loop that is told wrong weights."""

    def weigh(self, batch: Mapping[str, Tensor]) -> float:
        return samples_of(batch)


def test_wrong_weights_are_found_out() -> None:
    cell = of("loop", "masked MSE", "super-resolution")
    verdict = judge(MisWeighed(cell.way, cell.loss, cell.model, cell.misuse))
    assert verdict.outcome == WRONG
    assert verdict.error > 1e-3


@pytest.mark.parametrize("way", WAYS)
def test_a_coupled_loss_that_runs_in_parts_is_found_out(way: str) -> None:
    """It is taken for a mean over samples; a Trainer is told so, too."""
    cell = of(way, "contrastive", "super-resolution", "declared to the Trainer" if way == "trainer" else "none")
    verdict = judge(replace(cell, loss=replace(cell.loss, couples=False)))
    assert (verdict.outcome, verdict.error > 1e-3) == (WRONG, True)


def test_what_a_step_leaves_behind_is_compared_with_what_is_right() -> None:
    right, why = right_outcomes(of("loop", "L1", "dropout", "optimizer, half of its second update"))
    assert (right, why) == ({REFUSED}, "some weights have moved, and nothing can be repeated")
    assert right_outcomes(of("loop", "L1", "dropout"))[0] == {EQUAL}


def test_the_page_names_what_is_wrong() -> None:
    cells = [of("loop", "L1", "dropout"), of("loop", "L1", "llama")]
    verdicts = [Verdict(cells[0].key, EQUAL, 2e-16), Verdict(cells[1].key, WRONG, 0.5, "another update")]
    text = page(cells, verdicts, [Verdict("script | a.py", REFUSED, None, "in words")], FACTS)
    assert "| none | = **WRONG** | - |" in text
    assert "| a.py | refused | in words |" in text
    assert "| loop , none , L1 , llama | 5.0e-01 | another update |" in text


@pytest.mark.parametrize(
    ("script", "right", "wrong"),
    [
        ("01a_batchnorm_start.py", "said\nok Plan", "nothing"),
        ("01b_batchnorm_remainder.py", "samples 3 trained True\n" * 3, "samples 3 trained True\n" * 2),
        ("03a_hf_inplace.py", "step's update, memory ran out against not: 3e-08", "memory ran out against not: 3.1"),
        ("04_weigh_float.py", "a: rel err 1.2e-07 norm\nb: rel err 0.00e+00", "a: rel err 1.5e-01\nb: rel err 0.0"),
        (
            "05_hf_step_samples.py",
            "cap 99 steps 20 samples of steps [16, 16]\ncap 4 steps 20 samples of steps [16, 16]",
            "cap 99 steps 20 samples of steps [16, 16]\ncap 4 steps 76 samples of steps [16, 8]",
        ),
        ("06_resume_dropout.py", "by the user: False bit for bit: True", "by the user: False bit for bit: False"),
        ("09_step_twice.py", "distinct samples 64 of 64; progress 64", "distinct samples 32 of 64; progress 64"),
        ("12_total_and_components.py", "update / that of the total: 1.0000001", "update / that of the total: 2.0"),
        ("13_batch_additions.py", "a -> trained\nb -> trained\nc -> trained", "a -> trained\nb -> InputError"),
        (
            "15_accumulation_coupled.py",
            *(
                f"as given - samples of the last passes [4, 4]\nwith a budget - samples of the last passes [{other}, 4]"
                "\nwhere 3 fit - samples of the last passes [2, 2]"
                for other in (4, 8)
            ),
        ),
    ],
)
def test_rules_of_scripts_tell_right_from_wrong(script: str, right: str, wrong: str) -> None:
    holds, _ = RULES[script]
    assert holds(right)
    assert not holds(wrong)
    assert not holds("")
