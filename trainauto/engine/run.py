"""Everything a run consists of, and how it is saved and taken up again."""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from trainauto.core.decisions import PlanChange
from trainauto.core.plan import Plan
from trainauto.core.process import without_memory_limit
from trainauto.core.records import Progress
from trainauto.core.run_events import ReporterLike, RunSummary
from trainauto.engine.best import Best
from trainauto.engine.checkpoint import Checkpoints
from trainauto.engine.epochs import Epochs
from trainauto.engine.oom_notes import clear_oom_note
from trainauto.engine.random_state import packed_state, random_state, seed_rank, set_random_state, unpacked_state
from trainauto.engine.reduce import check_same_weights
from trainauto.engine.run_errors import NoMemoryToSaveError
from trainauto.engine.training import Training
from trainauto.engine.validation_set import ValidationSet
from trainauto.memory.monitor.oom import shortage_in
from trainauto.memory.monitor.release import release_memory
from trainauto.optim.schedules import RateSchedule
from trainauto.storage.run_lock import RunLock

logger = logging.getLogger(__name__)


Closing = Callable[[Progress], Sequence[tuple[str, str]]]
"""Further (label, text) lines of the end of a run, which has trained so much."""


def _no_more(_progress: Progress) -> Sequence[tuple[str, str]]:
    return ()


@dataclass(frozen=True)
class Frequencies:
    """How often things happen, in steps; 0 is never.

    Attributes:
        validate: steps between validations.
        save: steps between checkpoints.
        best_metric: metric of the first validation set that decides which checkpoint is the best.
        validates_epochs: whether validation also follows each pass over the training samples.
        saves_epochs: whether a checkpoint does.
        validates_end: whether validation also follows the last step, whatever ended the run, a signal aside.
    """

    validate: int
    save: int
    best_metric: str | None = None
    validates_epochs: bool = False
    saves_epochs: bool = False
    validates_end: bool = False


@dataclass(kw_only=True)
class Run(Training):
    """The parts of one run; ``build`` puts them together, :func:`trainauto.engine.loop.train` sets them going.

    Attributes:
        first_plan: the plan the option file starts with.
        validated_every: steps between validations of the run that was resumed; ``None`` where that is not known.
        missed: sets whose validation after the last step was not made; it is made up before the next one.
        lock: the first rank's right to write into the run's folder.
        length_key: option that says how long it is; that of its unit by default.
        epochs: passes over the training samples, and what is done at the end of each.
        closing: says what the end of a run says besides; called once, where no error has ended it.
        resume_command: the command that resumes it, said where it stops before its end; empty if unknown.
    """

    summary: RunSummary
    schedule: RateSchedule
    checkpoints: Checkpoints
    reporter: ReporterLike
    frequencies: Frequencies
    first_plan: Plan
    epochs: Epochs
    last_checkpoint: Path | None = None
    lock: RunLock = field(default_factory=RunLock)
    missed: Sequence[ValidationSet] = ()
    validated_every: int | None = None
    resume_command: str = ""
    closing: Closing = _no_more
    length_key: str = ""
    _saved_state: str = field(init=False, default="")
    _saved_best: Best | None = field(init=False, default=None)

    @property
    def finished(self) -> bool:
        """Whether the run has come to its length."""
        return self.schedule.done(self.progress) >= self.schedule.total

    @property
    def is_stopping(self) -> bool:
        """Whether a signal or an automation ends the run after this step. All ranks say the same.

        One that received a signal continues until the others know of it.
        """
        if self.ranks.world_size == 1:
            self.signals.agreed = self.signals.received
        return bool(self.signals.agreed or self.controls.stop_reason)

    def is_due(self, every: int) -> bool:
        """Say whether something is due that is done every so many steps and after the last one; 0 is never."""
        return every > 0 and (self.progress.steps % every == 0 or self.finished)

    @property
    def is_validation_due(self) -> bool:
        """Whether validation follows the step that was trained last."""
        return self.is_due(self.frequencies.validate) or self.is_validation_due_besides

    @property
    def is_validation_due_besides(self) -> bool:
        """Whether it does for another reason than the number of the step: a pass or the run has ended."""
        frequencies, has_ended = self.frequencies, self.finished or bool(self.controls.stop_reason)
        return (frequencies.validates_epochs and self.epochs.is_due(self.progress)) or (
            frequencies.validates_end and has_ended
        )

    @property
    def exit_code(self) -> int:
        """Return 128 + the signal that ended the run, as shells have it; 0 without one."""
        return 128 + self.signals.agreed if self.signals.agreed else 0

    @property
    def is_saved(self) -> bool:
        """Whether there is a checkpoint of this step."""
        return self.last_checkpoint == self.checkpoints.path(self.progress.steps)

    def save(self) -> Path:
        """Write a checkpoint of this moment. Every rank must ask, and the first one writes.

        Once is enough for the weights of a step; what a validation has decided since, and which checkpoint is the best,
        is added to one that is there.

        Raises:
            TrainautoError: the weights of the ranks are no longer the same, or another process has taken the run over.
            NoMemoryToSaveError: memory ran out, also without gradients, which are not needed after a step.
            CheckpointNotWrittenError: there is no room, or the disk fails.
        """
        self.lock.check()
        with without_memory_limit():
            if not self.is_saved:
                check_same_weights(self.ranks, self.model)
                state = self._state()
                if self.ranks.is_first:
                    self.reporter.sync()
                    alone = not self.model.is_sharded
                    save = partial(self.checkpoints.save, self.progress.steps, state, self._save_weights, again=alone)
                    self._written(save) if alone else save()
                    clear_oom_note(self.checkpoints.folder)
                elif self.model.is_sharded:
                    self._save_weights(None)
                self.last_checkpoint = self.checkpoints.path(self.progress.steps)
            else:
                self._renew()
        self._note_saved()
        return self.checkpoints.path(self.progress.steps)

    def _written(self, write: Callable[[], object]) -> None:
        """Write, where memory runs out once more without gradients."""
        for is_last in (False, True):
            try:
                write()
            except (RuntimeError, MemoryError) as error:
                message = shortage_in(error)
            else:
                return
            # Outside the handler: the error's traceback holds what was made for the file.
            if is_last:
                raise NoMemoryToSaveError(self.progress.steps, message, self.last_checkpoint)
            for optimizer in self.model.optimizers.values():
                optimizer.zero_grad(set_to_none=True)
            release_memory(self.model.device)

    def _renew(self) -> None:
        if self.ranks.broadcast_object(lambda: self._decided_state() != self._saved_state):
            state = self._state()
            if self.ranks.is_first:
                self.reporter.sync()
                self._written(partial(self.checkpoints.renew, self.progress.steps, state))
        if self.ranks.is_first and self.checkpoints.best != self._saved_best:
            self.checkpoints.point_at(self.progress.steps)

    def _note_saved(self) -> None:
        self._saved_state, self._saved_best = self._decided_state(), self.checkpoints.best

    def _save_weights(self, folder: Path | None) -> None:
        """Write the weights; where they are spread over the ranks, all of them write into the first one's folder."""
        if self.model.is_sharded:
            folder = Path(self.ranks.broadcast_object(lambda: str(folder)))
            self.model.save(folder)
            self.ranks.all_gather_object({})  # the folder is put in its place once all have written
        elif folder is not None:
            self.model.save(folder)

    def restore(self, checkpoint: Path) -> None:
        """Resume from a checkpoint.

        Raises:
            NetworkMismatchError: it is of another network.
            CheckpointError: it cannot be read, or an optimizer does not take its state.
            InputError: the dataset has changed its number of samples.
        """
        state = Checkpoints.read_state(checkpoint)
        self.model.load(checkpoint)
        self.model.load_state_dict(state["model"])
        self.load_decided_parts(state)
        self.progress = Progress.from_dict(state["progress"])
        begins_anew = self.loader.begins_anew
        self.epochs.load_state_dict(state.get("epochs"), self.progress, begins_anew=begins_anew)
        self.validated_every = state.get("validates_every")
        self.last_checkpoint = checkpoint
        self._note_saved()
        self._take_changed_plan(Plan.from_dict(state["first_plan"]))
        # Last, because building and loading may have drawn from the generators.
        known = [state["random"], *state.get("random_of_others", ())]
        if self.ranks.rank < len(known):
            set_random_state(known[self.ranks.rank])
        else:
            seed_rank(self.progress.samples, self.ranks.rank)

    def decided_parts(self) -> dict[str, Any]:
        """Return what changes between steps, for a checkpoint."""
        return {**super().decided_parts(), "epochs": self.epochs.state_dict()}

    def _take_changed_plan(self, before: Plan) -> None:
        """Where the option file's first plan has changed, take what has changed of it; the rest is the run's own."""
        now = self.first_plan
        changed = {name: value for name, value in now.values if name not in before or value != before[name]}
        if changed or now.micro_batches != before.micro_batches:
            pieces = now.micro_batches if now.micro_batches != before.micro_batches else None
            change = PlanChange(
                self.loader.plan.changed(micro_batches=pieces, **changed), "the option file has changed", early=True
            )
            self.journal.follow([change])

    def _state(self) -> dict[str, Any]:
        """Return all that the next step reads besides the weights; every rank must ask."""
        others = self.ranks.gather(packed_state())[1:]
        return {
            "first_plan": self.first_plan.to_dict(),
            "progress": vars(self.progress).copy(),
            "model": self.model.state_dict(),
            **self.decided_parts(),
            "validates_every": self.frequencies.validate,
            "random": random_state(),
            "random_of_others": [unpacked_state(packed) for packed in others],
        }

    def _decided_state(self) -> str:
        return json.dumps(self.decided_parts(), default=repr)
