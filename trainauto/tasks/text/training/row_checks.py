"""Whether a causal model reads texts in rows as it reads each alone: tried on a few tokens, before training."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainauto.core.errors import InputError, Problem
from trainauto.tasks.text.training.row_layouts import PackedRows, PaddedRows, RowLayout

LENGTHS = (7, 4, 6)
"""Tokens of the texts that are tried; the shorter ones are padded, or share a row."""

TOLERANCE = 1e-3
"""Of the largest logit: sums in another order differ by far less, what leaks from another text by far more."""


@torch.no_grad()
def check_rows(network: nn.Module, layout: RowLayout) -> None:
    """Refuse a causal model whose logits of a text follow from what stands beside it in its row.

    Positions alone keep packed texts apart, which models without them (recurrent ones, ALiBi) do not heed; and what
    stands behind a text must not matter, since rows come without a mask.

    Args:
        network: on any device; in training mode it is again afterwards.
        layout: of the rows that it is to read.

    Raises:
        InputError: it does.
    """
    lengths, device = np.array(LENGTHS), next(network.parameters()).device
    packs = isinstance(layout, PackedRows)
    tried = PackedRows(int(lengths.sum())) if packs else PaddedRows()
    words = network.get_input_embeddings().num_embeddings  # type: ignore[operator]
    tokens = (torch.arange(int(lengths.sum()), device=device) * 37 + 11) % words
    own_places, positions = tried.lay_out(lengths)
    places = torch.tensor(own_places, device=device)
    rows = torch.cat([tokens, tokens[:1]])[places]  # any token will do behind a text
    extra = {} if positions is None else {"position_ids": torch.tensor(positions, device=device)}
    was_training = network.training
    network.eval()
    try:
        together = _logits(network, rows, extra)
        alone = torch.cat([_logits(network, text[None], {})[0] for text in tokens.split(list(LENGTHS))])
    finally:
        network.train(was_training)
    is_text = places < len(tokens)
    in_rows = torch.empty_like(alone).index_put((places[is_text],), together[is_text])
    if bool((in_rows - alone).abs().max() > TOLERANCE * alone.abs().max()):
        name = getattr(getattr(network, "config", None), "model_type", type(network).__name__)
        if packs:
            message = f"a {name} model does not keep packed texts apart: one changes what it says of the next"
            raise InputError(Problem(message, advice="Leave packed out.", argument="packed"))
        message = f"what stands behind a text changes what a {name} model says of it: it is no causal model"
        raise InputError(Problem(message, advice="Take another model.", argument="kind"))


def _logits(network: nn.Module, rows: Tensor, extra: dict[str, Tensor]) -> Tensor:
    output: Any = network(input_ids=rows, use_cache=False, **extra)
    logits: Tensor = output.logits
    return logits.float()
