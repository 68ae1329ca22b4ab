"""Steps and validations of texts, several tasks and fine-tuning that run out of memory at any of their operators.

A step comes to the weights, losses and losses of tasks of one that does not fail, or it ends the run; a validation
comes to the same figures, or its error is one block.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.acceptance import ACCEPTANCE, only_in_acceptance
from tests.integration.commands import train, write_options
from tests.integration.finetune_runs import finetune_options, write_chats, write_model
from tests.integration.multitask_runs import multitask_options
from tests.integration.text_runs import text_options, write_texts
from tests.optimizer_failures import FailsAt
from trainauto.builders.task_parts import PartsRequest, TaskParts
from trainauto.core.batch import Batch
from trainauto.core.errors import TrainautoError
from trainauto.distributed.communicator import SINGLE_PROCESS
from trainauto.engine.random_state import seed_everything
from trainauto.engine.run_errors import OptimizerOutOfMemoryError
from trainauto.engine.signals import StopSignals
from trainauto.engine.snapshot import StepSnapshot
from trainauto.engine.step import StepSettings, optimize_parameters
from trainauto.engine.step_outcome import DoesNotFit, Stepped
from trainauto.forecast.task import ready_task
from trainauto.memory.monitor import onednn
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.models.base_model import BaseModel
from trainauto.optim.precision import Precision
from trainauto.options.load import load_options
from trainauto.storage.run_directory import RunDirectory
from trainauto.tasks.multitask.task_sets import TaskSampleSet

CPU = Precision(torch.device("cpu"))
ADAM = {"type": "AdamW", "eps": 1e-3}
"""Where gradients are next to nothing, their rounding decides about nothing."""
DROPOUTS = ("resid_pdrop", "embd_pdrop", "attn_pdrop")
"""Parts of a batch draw other numbers than the whole of it."""
PLACES = 3
"""Operators of a step that are failed at, evenly spread; all of them in acceptance."""


def option_file(task: str, folder: Path) -> Path:
    """Write the option file of a small run of a task, and what it reads."""
    if task == "text":
        train = {"ema_decay": 0.9, "tokens_per_batch": 128, "grad_clip": 0.1, "optim": ADAM}
        options = text_options(write_texts(folder, 40), train=train, model={"config": dict.fromkeys(DROPOUTS, 0.0)})
    elif task == "several tasks":
        options = multitask_options(train={"grad_clip": 0.1, "optim": ADAM})
    else:
        model, chats = write_model(folder / "model"), write_chats(folder / "chats.jsonl")
        adapters: dict[str, Any] = {"lora": {"r": 2}} if task == "adapters" else {}
        options = finetune_options(model, chats, training={"optim": ADAM}, dataset={"val_share": 0.3}, **adapters)
    return write_options(folder / "run.yml", options)


class Runs:
    """A run that is begun again and again, in one process."""

    def __init__(self, file: Path) -> None:
        loaded = load_options(file)
        seed_everything(loaded.options.manual_seed)
        request = PartsRequest(CPU, SINGLE_PROCESS, pretrained=True, check_samples=lambda _set: None)
        self.parts: TaskParts = ready_task(loaded).parts(loaded, request)
        self._weights = {name: weight.clone() for name, weight in self.parts.network.state_dict().items()}
        with self.parts.build_loader(self.parts.first_plan(), CPU) as loader:
            self.batches = list(islice(iter(loader), 3))
        self.settings = StepSettings(max_norm=loaded.options.settings.max_norm)
        self.validators: Any = self.parts.build_validators(RunDirectory(file.parent), CPU.device)

    def begin(self) -> "Steps":
        self.parts.network.load_state_dict(self._weights)
        return Steps(self.parts.build_model(CPU, pretrained=False), self.batches, self.settings)


class Steps:
    """The steps of one of them."""

    def __init__(self, model: BaseModel, batches: list[Batch], settings: StepSettings) -> None:
        self.model, self.batches, self.settings = model, batches, settings
        self.snapshot = StepSnapshot.of(model)
        self.told: list[Stepped] = []
        torch.manual_seed(3)

    def step(self, number: int, mode: Any = None) -> None:
        """Train a batch; one that goes back comes again, as the loop has it."""
        with mode or nullcontext():
            for _ in range(3):
                outcome = optimize_parameters(self.model, self.batches[number], self.settings, snapshot=self.snapshot)
                if not isinstance(outcome, DoesNotFit):
                    self.told.append(outcome)
                    return
        raise AssertionError("the batch did not fit three times")

    def seen(self) -> dict[str, Tensor]:
        (network,) = self.model.networks.values()
        averages = [average.network.state_dict() for average in self.model.averages.values()]
        values = {f"{place}/{name}": value for place, one in enumerate(averages) for name, value in one.items()}
        losses = {name: value for told in self.told for name, value in told.losses.items()}
        of_tasks = {f"task/{name}": loss for told in self.told for name, (loss, _) in told.task_losses.items()}
        told = {name: torch.tensor(value) for name, value in (losses | of_tasks).items()}
        return {name: value.clone() for name, value in {**network.state_dict(), **values, **told}.items()}


def places_of(operators: int) -> Iterator[int]:
    return iter(range(1, operators + 1, 1 if ACCEPTANCE else max(1, operators // PLACES)))


@pytest.mark.timeout(3600 if ACCEPTANCE else 300)
@pytest.mark.parametrize(
    "task", ["text", "several tasks", "fine-tuning", pytest.param("adapters", marks=only_in_acceptance)]
)
def test_failing_at_any_operator_is_survived_or_ends_the_run(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onednn, "leave_if_broken", bool)  # its own operators are none of the step
    runs = Runs(option_file(task, tmp_path))
    for failing in (0, 1):
        plain, counts = runs.begin(), FailsAt(0)
        for number in range(failing + 2):
            plain.step(number, counts if number == failing else None)
        expected, recovered = plain.seen(), 0
        for place in places_of(counts.seen):
            steps = runs.begin()
            for number in range(failing):
                steps.step(number)
            try:
                steps.step(failing, FailsAt(place))
            except OptimizerOutOfMemoryError as error:
                if error.is_whole:  # it would have run again
                    raise
                continue
            steps.step(failing + 1)
            recovered += 1
            torch.testing.assert_close(steps.seen(), expected, rtol=1e-4, atol=1e-5)
        assert recovered > counts.seen // 2 if ACCEPTANCE else recovered > PLACES // 2
    assert_validations_are_right_or_refused(runs)


def assert_validations_are_right_or_refused(runs: Runs) -> None:
    steps = runs.begin()
    for validator in runs.validators:

        def measured(validator: Any = validator) -> dict[str, float]:
            ran = validator.validate(steps.model, 1, SINGLE_PROCESS, StopSignals())
            assert ran is not None
            return dict(ran[0].metrics)

        with (counts := FailsAt(0)):
            expected = measured()
        survived, most = 0, validator.most
        for place in places_of(counts.seen):
            validator.most = most  # it shrinks for good
            try:
                with FailsAt(place):
                    found = measured()
            except (TrainautoError, RuntimeError, MemoryError) as error:  # the run says it in one block
                if not isinstance(error, TrainautoError) and not is_out_of_memory(error):
                    raise
                continue
            survived += 1
            assert found == pytest.approx(expected, rel=1e-4), place
        assert survived


NO_MEMORY = "[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory"


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError(NO_MEMORY)], ids=["Python", "torch"])
def test_memory_that_runs_out_before_the_first_step_is_told_in_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Sets of validation make their largest sample while the run is built."""

    def fail(*_given: Any) -> None:
        raise error

    monkeypatch.setattr(TaskSampleSet, "__getitem__", fail)
    done = train(write_options(tmp_path / "run.yml", multitask_options()))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    said = " ".join(done.stderr.split())
    assert said.startswith("memory ran out: ")
    assert "Use smaller batches or a smaller model" in said
