"""A language model as the engine trains models."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from trainauto.core.batch import Batch
from trainauto.core.objectives import LossTerms, MicroBatch, Objective
from trainauto.data.packing import IntArray
from trainauto.models.base_model import BaseModel
from trainauto.models.parallel import Parallel
from trainauto.optim.ema import PLAIN, Averaging
from trainauto.optim.precision import Precision
from trainauto.tasks.text.training.row_layouts import PaddedRows, RowLayout
from trainauto.tasks.text.training.token_samples import INPUT_IDS, LABEL_LENGTHS, LABELS, LENGTHS
from trainauto.tasks.text.training.tokenized_samples import NOT_LEARNED, ModelKind

MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]

NETWORK = "model"
"""Name of the network, of its pass and of the file of its weights."""

LOSS = "loss"


class LanguageModel(BaseModel):
    """One network of transformers and its own loss: the mean over the tokens that are learned.

    Args:
        network: causal, or with an encoder and a decoder; in training mode it gets rows of the layout.
        kind: which of both.
        layout: how texts become rows.
        pad: id of the token that fills rows of encoders.
        make_optimizer: builds the optimizer for the parameters that are trained.
        precision: number format, and the device.
        ema_decay: decay of the moving average of weights; 0 keeps none.
        averaging: how that begins.
        parallel: makes the network one of several ranks; see :mod:`trainauto.models.parallel`.
    """

    less_memory = (
        "Take a smaller model, shorter texts (max_length), gradient checkpointing, use_amp, or more memory "
        "(memory: budget:). The last checkpoint stands."
    )
    finite_numbers = "Try a lower rate, train.grad_clip, or float32 (use_amp: false); look at these texts."

    def __init__(
        self,
        network: nn.Module,
        kind: ModelKind,
        layout: RowLayout,
        pad: int,
        make_optimizer: MakeOptimizer,
        precision: Precision,
        *,
        ema_decay: float = 0.0,
        averaging: Averaging = PLAIN,
        parallel: Parallel | None = None,
    ) -> None:
        super().__init__(precision.device)
        self._precision = precision
        self._kind = kind
        self._layout = layout
        # Of causal rows any token will do: it stands behind texts. Transformers would warn of its own.
        self._filling = pad if kind == "encoder_decoder" else int(pad == 0)
        self._network = self.networks[NETWORK] = network.to(self.device).train()
        self.keep_average(NETWORK, ema_decay, averaging, NETWORK)
        averages = [average.network for average in self.averages.values()]
        self._forward = parallel(self._network, averages) if parallel is not None else self._network
        trained = [parameter for parameter in self._network.parameters() if parameter.requires_grad]
        self.optimizers[NETWORK] = make_optimizer(trained)
        scaler, without_sum = precision.new_scaler(), getattr(self._forward, "no_sync", None)
        optimizer = self.optimizers[NETWORK]
        self._objectives = (Objective(NETWORK, optimizer, self._loss, scaler=scaler, without_sum=without_sum),)

    def objectives(self) -> Sequence[Objective]:
        """Return the one pass."""
        return self._objectives

    def words_for(self, objective: str) -> str:
        """Return what a person calls the pass."""
        return "the language model's pass" if objective == NETWORK else super().words_for(objective)

    def feed_data(self, batch: Batch) -> MicroBatch:
        """Move tokens to the device; lengths stay on the host."""
        return {
            name: leaf.to(self.device, non_blocking=True) if isinstance(leaf, Tensor) else leaf
            for name, leaf in batch.tensors.items()
        }

    @torch.no_grad()
    def mean_loss(self, tensors: Mapping[str, Any]) -> float:
        """Return the mean loss over the learned tokens of padded samples, as the finished model has it.

        By the averaged network where there is one, else by the network in evaluation mode.

        Args:
            tensors: of a batch, on the device.
        """
        network = self.finished
        was_training = network.training
        network.eval()
        try:
            with self._precision.autocast():
                return float(network(**self._rows(tensors, PaddedRows()), use_cache=False).loss)
        finally:
            network.train(was_training)

    @property
    def finished(self) -> nn.Module:
        """The network, averaged where an average is kept."""
        return self.averages[NETWORK].network if NETWORK in self.averages else self._network

    def _loss(self, micro_batch: MicroBatch) -> LossTerms:
        with self._precision.autocast():
            loss: Tensor = self._forward(**self._rows(micro_batch, self._layout), use_cache=False).loss
        return {LOSS: loss.float()}

    def _rows(self, tensors: Mapping[str, Any], layout: RowLayout) -> dict[str, Tensor]:
        """Return what the network is called with.

        A causal model gets no mask: padding stands behind texts, where it sees nothing, and an all-ones mask would let
        packed texts see each other.
        """
        tokens = tensors[INPUT_IDS]
        own_places, positions = layout.lay_out(tensors[LENGTHS])
        places = self._on_device(own_places)
        if self._kind == "causal":
            labels = _taken(tensors[LABELS], places, NOT_LEARNED)
            rows = {INPUT_IDS: _taken(tokens, places, self._filling), LABELS: labels}
            return rows if positions is None else {**rows, "position_ids": self._on_device(positions)}
        targets = self._on_device(layout.lay_out(tensors[LABEL_LENGTHS])[0])
        return {
            INPUT_IDS: _taken(tokens, places, self._filling),
            "attention_mask": (places < len(tokens)).long(),
            LABELS: _taken(tensors[LABELS], targets, NOT_LEARNED),
        }

    def _on_device(self, numbers: IntArray) -> Tensor:
        return torch.tensor(np.ascontiguousarray(numbers), device=self.device)


def _taken(flat: Tensor, places: Tensor, filling: int) -> Tensor:
    """Return the entries of a flat tensor at these places; places behind its end are filled."""
    return functional.pad(flat, (0, 1), value=filling)[places]
