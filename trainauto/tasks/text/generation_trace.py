"""What ``generate`` of a Transformers model takes, known before it runs.

``generate`` itself cannot be traced: it stops by what it generates. Its peak is that of two steps which can: the first,
in which the prompt (or the encoder) is run, and the last, on a cache of keys and values that has grown to its final
length. The cache is made by the model itself, out of a prompt that is as long, so that it is of the kind and of the
sizes (windows, groups of heads) that the model's own cache has. Nothing here imports transformers.

Beside the model's own calls, what ``generate`` keeps from step to step and makes of the logits is made, too. That is
the prompt and its mask, the tokens so far, scores in float32 of this step and of the last with what is made of them
(``next_tokens.py``). With beams come their log probabilities, and the cache anew in another order. Processors of scores
that :class:`Generation` does not name are not in the trace.
"""

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainauto.memory.tracing.live_module import FakeTwin
from trainauto.memory.tracing.trace import Trace, TraceError
from trainauto.tasks.text.next_tokens import Generation, chosen_tokens

__all__ = ["Generation", "GenerationTrace", "GenerationTracer"]


class GenerationTrace(NamedTuple):
    """The two moments of ``generate`` one of which is its peak.

    Attributes:
        first: the encoder and the first step, or the prompt.
        last: the last step.
    """

    first: Trace
    last: Trace

    @property
    def held_bytes(self) -> int:
        """The model itself."""
        return min(self.first.persistent_bytes, self.last.persistent_bytes)

    @property
    def peak_bytes(self) -> int:
        """Most that is live at one time, the model included."""
        return max(self.first.peak_bytes, self.last.peak_bytes)

    @property
    def batch_bytes(self) -> int:
        """What a batch takes beside the model."""
        return self.peak_bytes - self.held_bytes


class GenerationTracer:
    """Traces the generation of texts by a live model, which stays as it is.

    Batches are as padded ones are, with a mask: without padding transformers leaves out the mask, which is at most as
    much memory less.

    Args:
        model: a decoder or an encoder with a decoder, of Transformers' classes or with the same arguments.
        generation: how texts are generated.

    Raises:
        TraceError: the model cannot be copied.
        ValueError: beams are to be sampled or penalised, which is not known.
    """

    def __init__(self, model: nn.Module, generation: Generation) -> None:
        generation.check()
        self.generation = generation
        self._twin = FakeTwin(model)
        self._parameters = inspect.signature(model.forward).parameters
        # Transformers 5.24 renamed it; the old name warns there, and ends with 5.40.
        self._cache_name = "cache" if "cache" in self._parameters else "past_key_values"
        self._has_encoder = bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))

    @property
    def held_bytes(self) -> int:
        """What the model itself takes: weights and buffers, tied ones once."""
        tensors = [*self._twin.module.parameters(), *self._twin.module.buffers()]
        return sum({storage._cdata: storage.nbytes() for storage in (t.untyped_storage() for t in tensors)}.values())

    def trace(self, samples: int, tokens: int) -> GenerationTrace:
        """Trace a batch of so many texts, padded to so many tokens.

        Raises:
            TraceError: the model cannot be traced, or keeps no cache.
            CudaAutocastError: it runs under CUDA autocast.
        """
        if samples < 1 or tokens < 1:
            raise ValueError(f"samples and tokens must be at least 1, got {samples} and {tokens}")
        with torch.no_grad():
            first = self._twin.trace(lambda: self._step(*self._begun(samples, tokens)))
            if self.generation.max_new_tokens == 1:
                return GenerationTrace(first, first)
            with self._twin.world():
                state = self._before_last(samples, tokens)
            last = self._twin.trace(lambda: self._step(state, state.take_scores()), held=state.held())
        return GenerationTrace(first, last)

    def _begun(self, samples: int, tokens: int) -> "tuple[_State, list[Tensor]]":
        """Return what the first step begins with."""
        ids, mask = _ids(samples, tokens), _ids(samples, tokens)
        beams = self.generation.beams
        if self._has_encoder:
            state = self._encoded(ids, mask, samples * beams, 1)
        else:
            wide, wide_mask = ids, mask
            if beams > 1:
                wide, wide_mask = ids.repeat_interleave(beams, 0), mask.repeat_interleave(beams, 0)
            state = _State((ids, mask), wide, {"attention_mask": wide_mask})
        # Beams are kept at their final length from the beginning: those that run, and those that have ended.
        state.sequences = [self._sequences(state) for _ in range(2 if beams > 1 else 0)]
        return state, []

    def _encoded(self, ids: Tensor, mask: Tensor, rows: int, decoded: int) -> "_State":
        encoder = self._twin.module.get_encoder()  # type: ignore[operator]
        encoded = encoder(input_ids=ids, attention_mask=mask, return_dict=True)
        prompt = (ids, mask)
        if rows > len(ids):
            beams = self.generation.beams
            encoded["last_hidden_state"] = encoded["last_hidden_state"].repeat_interleave(beams, 0)
            mask = mask.repeat_interleave(beams, 0)
        return _State(prompt, _ids(rows, decoded), {"encoder_outputs": encoded, "attention_mask": mask})

    def _before_last(self, samples: int, tokens: int) -> "_State":
        """Return what the last step begins with: all but one of the tokens that it will see are in the cache."""
        ids, mask, new = _ids(samples, tokens), _ids(samples, tokens), self.generation.max_new_tokens
        rows = samples * self.generation.beams
        # The last of those is added by a step, too: what a prompt leaves in a cache may be parts of larger tensors.
        alone = int(new > 2)
        if self._has_encoder:
            state = self._encoded(ids, mask, rows, new - 1 - alone)
        else:
            long = _ids(rows, tokens + new - 2 - alone)
            state = _State((ids, mask), long, {"attention_mask": _ids(*long.shape)})
        logits = self._forward(state, state.decoded)
        for _ in range(alone):
            self._lengthen(state)
            logits = self._forward(state, state.decoded[:, -1:])
        self._lengthen(state)
        has_beams = self.generation.beams > 1
        kept = 2 if has_beams else self.generation.kept_scores()
        state.scores = [logits[:, -1].float().clone() for _ in range(kept)]
        # As in the first step, and twice as many candidates, of which the step before chose.
        state.sequences = [_ids(*state.decoded.shape) for _ in range(4 * has_beams)]
        return state

    def _lengthen(self, state: "_State") -> None:
        state.decoded = _ids(state.decoded.shape[0], state.decoded.shape[1] + 1)
        if not self._has_encoder:
            state.arguments["attention_mask"] = _ids(*state.decoded.shape)

    def _sequences(self, state: "_State") -> Tensor:
        rows, tokens = state.decoded.shape
        return _ids(rows, tokens + self.generation.max_new_tokens)

    def _step(self, state: "_State", scores: list[Tensor]) -> None:
        _take(scores)
        fed = state.decoded if state.cache is None else state.decoded[:, -1:]
        logits = self._forward(state, fed)
        beams = self.generation.beams
        if beams == 1:
            chosen = chosen_tokens(logits, state.decoded, scores, self.generation)
            del logits
        else:
            last = logits[:, -1].to(copy=True, dtype=torch.float32)
            scores[:1] = [last]
            scores[1:] = [last.log_softmax(dim=-1)]
            del logits, last
            scores[1] = scores[1] + scores[1].new_empty(len(state.decoded), 1)
            chosen = scores[1].view(len(state.decoded) // beams, -1).topk(2 * beams).indices[:, :beams].reshape(-1)
            state.cache.reorder_cache(chosen)
        state.decoded = torch.cat([state.decoded, chosen[:, None]], dim=-1)

    def _forward(self, state: "_State", fed: Tensor) -> Tensor:
        name = "decoder_input_ids" if self._has_encoder else "input_ids"
        arguments = {name: fed, "use_cache": True, "return_dict": True, **state.arguments}
        if state.cache is not None:
            arguments[self._cache_name] = state.cache
        if "position_ids" in self._parameters and not self._has_encoder:
            arguments["position_ids"] = _ids(*fed.shape)
        if "logits_to_keep" in self._parameters and not self._has_encoder:
            arguments["logits_to_keep"] = 1
        out: Mapping[str, Any] = self._twin.module(**arguments)
        state.cache = out.get(self._cache_name)
        if state.cache is None:
            raise TraceError(f"the model returned no {self._cache_name}: it generates without a cache")
        logits: Tensor = out["logits"]
        return logits


class _State:
    """What is kept from step to step.

    Attributes:
        prompt: tokens and mask that ``generate`` was called with.
        decoded: tokens of every row so far.
        arguments: what every call of the model gets.
        cache: keys and values.
        scores: what the last step made of its logits.
        sequences: tokens of beams beside those in ``decoded``.
    """

    def __init__(self, prompt: tuple[Tensor, ...], decoded: Tensor, arguments: dict[str, Any]) -> None:
        self.prompt, self.decoded, self.arguments = prompt, decoded, arguments
        self.cache: Any = None
        self.scores: list[Tensor] = []
        self.sequences: list[Tensor] = []

    def held(self) -> list[Tensor]:
        """Return what stays until ``generate`` ends."""
        encoded = self.arguments.get("encoder_outputs")
        outputs = [] if encoded is None else list(encoded.values())
        return [*self.prompt, *self.sequences, self.arguments["attention_mask"], *outputs]

    def take_scores(self) -> list[Tensor]:
        """Hand the scores over: they end when those of the next step are there."""
        scores, self.scores = self.scores, []
        return scores


def _take(tensors: list[Tensor]) -> None:
    """Have an operator take tensors, which tells the trace that they are there."""
    for tensor in tensors:
        tensor.detach()


def _ids(rows: int, tokens: int) -> Tensor:
    return torch.empty(rows, tokens, dtype=torch.long)
