"""The Trainer of vision-language models: conversations as batches, rates of ours, endings of fine-tuning."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from trainauto.automations.low_loss import LOW_STEPS, StopAtLowLoss
from trainauto.core.run_events import LengthUnit, RunEnd
from trainauto.engine.training import Training
from trainauto.integrations.huggingface.arguments import MemoryAwareTrainingArguments
from trainauto.integrations.huggingface.session import MemorySession
from trainauto.integrations.huggingface.trainer import MemoryAwareTrainer
from trainauto.optim.schedules import RateSchedule
from trainauto.storage.run_directory import RunDirectory
from trainauto.tasks.finetune.conversation_samples import for_model
from trainauto.tasks.finetune.datasets import ConversationCollator, ConversationDataset, PlannedConversations
from trainauto.tasks.finetune.endings import Ending, check_finite
from trainauto.tasks.finetune.pictures import Pictures
from trainauto.tasks.finetune.smaller_pictures import SmallerPictures

LESS_MEMORY = (
    "Take a smaller model, fewer max_pixels, use_amp, load_in_4bit, or more memory (memory: budget:): plan -opt FILE "
    "--recipes says what each takes."
)
CHECKPOINTING_ADVICE = "`memory: gradient_checkpointing: true` would help"
"""What option files call what a Trainer's own words are for code."""

MakeSchedule = Callable[[int, LengthUnit, float], RateSchedule]
"""Makes the schedule of a run of a length, in a unit, whose steps begin with so many conversations."""


class FinetuneTrainer(MemoryAwareTrainer):
    """A :class:`~trainauto.integrations.huggingface.trainer.MemoryAwareTrainer` of conversations with pictures.

    Args:
        model: takes what its processor makes, and returns a loss.
        args: of the Trainer.
        train_dataset: to learn from.
        eval_dataset: to measure on; ``None`` for none.
        collate: makes batches.
        pictures: of the training conversations.
        make_schedule: of rates.
        directory: of the run, for its logs.
    """

    def __init__(
        self,
        model: nn.Module,
        args: MemoryAwareTrainingArguments,
        train_dataset: ConversationDataset,
        eval_dataset: ConversationDataset | None,
        collate: ConversationCollator,
        *,
        pictures: Pictures,
        make_schedule: MakeSchedule,
        directory: RunDirectory | None = None,
    ) -> None:
        self.own_run_directory = directory
        self.batch_parts = collate.samples
        self.end = Ending()
        self._pictures, self._make_schedule = pictures, make_schedule
        super().__init__(
            model=model, args=args, data_collator=collate, train_dataset=train_dataset, eval_dataset=eval_dataset
        )
        self.can_return_loss = True

    @property
    def session(self) -> MemorySession:
        """The memory of the call of ``train`` on its way, or of the last one."""
        if self.memory is None:
            raise RuntimeError("training has not begun")
        return self.memory

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss of a part of a batch, of the words that are learned."""
        given = {**for_model(inputs), "use_cache": False}
        return super().compute_loss(model, given, return_outputs, num_items_in_batch)

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Compute the gradients of a step.

        Raises:
            NonFiniteError: its loss is no number.
        """
        loss = super().training_step(model, inputs, num_items_in_batch)
        check_finite(float(loss), "the loss", self.state.global_step + 1, self.args.learning_rate)
        return loss

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)
        if norm is not None and not self.args.fp16:  # a scaler leaves such a step out
            check_finite(float(norm), "the gradient norm", self.state.global_step + 1, self.args.learning_rate)
        return norm

    def largest_sample(self) -> int:
        """Return the number of the conversation with most tokens."""
        return self._pictures.longest

    def own_last_resort(self, run: Training, redraw: Callable[[], None]) -> SmallerPictures:
        """Return what is done where not even one conversation fits: pictures are reduced, as far as the file allows."""
        run.model.less_memory, run.model.checkpointing_advice = LESS_MEMORY, CHECKPOINTING_ADVICE
        return SmallerPictures(self._pictures, run, redraw)

    def own_workload(self, one: Mapping[str, Any]) -> PlannedConversations:
        """Return how batches are divided: tokens by samples, rows of pictures by how many each sample has."""
        return PlannedConversations.of(self.data_collator.samples, one)

    def own_schedule(self, total: int, unit: LengthUnit, step_samples: float) -> RateSchedule:
        """Return the schedule of the option file."""
        return self._make_schedule(total, unit, step_samples)

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Go on counting steps of a low loss where a checkpoint of an earlier version had counted them itself."""
        for automation in self.session.watchers.automations:
            if isinstance(automation, StopAtLowLoss) and LOW_STEPS in state:
                automation.load_state_dict({LOW_STEPS: state[LOW_STEPS]})

    def data_checksums(self) -> Mapping[str, int]:
        """Return the checksum of all words, and of names and sizes of pictures."""
        return {"conversations": self.train_dataset.checksum}

    def ending(self) -> RunEnd:
        """Return how the run has ended."""
        if self.memory is not None and self.memory.training is not None and self.memory.stop_reason:
            self.end.stop(self.memory.stop_reason, self.memory.training.controls.termination)
        return self.end.as_run_end()
