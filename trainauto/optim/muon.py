"""Which weights of a network Muon steps, and which AdamW."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from trainauto.core.registry import in_one_word
from trainauto.core.words import counted
from trainauto.optim.adamw import is_kept


def is_muon(optimizer: str) -> bool:
    """Return whether an optimizer of that name takes its weights in the groups of a :class:`MuonSplit`."""
    return "muon" in in_one_word(optimizer) or in_one_word(optimizer) == "adago"


@dataclass(frozen=True)
class MuonSplit:
    """Weights of a network by who steps them.

    Attributes:
        hidden: matrices and kernels between the first and the last layer, by name; Muon steps them.
        others: all others, by name; AdamW steps them.
        ends: names of the first and the last layer's weights among ``others``.
    """

    hidden: dict[str, Tensor]
    others: dict[str, Tensor]
    ends: tuple[str, ...]

    def groups(self, keeps_vectors: bool = False) -> list[dict[str, Any]]:
        """Return parameter groups of the package's Muon; with ``keeps_vectors`` biases and norms do not decay."""
        decaying = {name: one for name, one in self.others.items() if not (keeps_vectors and is_kept(name))}
        kept = [one for name, one in self.others.items() if name not in decaying]
        groups: list[dict[str, Any]] = [
            {"params": list(self.hidden.values()), "use_muon": True},
            {"params": list(decaying.values()), "use_muon": False},
            {"params": kept, "use_muon": False, "weight_decay": 0.0},
        ]
        return [group for group in groups if group["params"]]

    def __str__(self) -> str:
        """Say how many numbers of how many weights Muon steps, and which layers it leaves to AdamW."""
        numbers = [sum(weight.numel() for weight in weights.values()) for weights in (self.hidden, self.others)]
        share = 100 * numbers[0] / max(1, sum(numbers))
        ends = f" ({' and '.join(self.ends)})" if self.ends else ""
        return (
            f"Muon steps {counted(len(self.hidden), 'hidden weight')}, {share:.1f} % of all numbers; "
            f"AdamW steps the first and the last layer{ends}, embeddings and vectors"
        )


def split_for_muon(network: nn.Module, trained: Iterable[Tensor]) -> MuonSplit:
    """Return which of the ``trained`` weights of a network Muon steps (K. Jordan 2024, https://kellerjordan.github.io/posts/muon).

    Muon is for weights that map hidden features to hidden features: matrices, and kernels of convolutions as matrices
    (output channels, all else). The first and the last such weight in the order of registration read the input and make
    the output. Embeddings, tables of positions, and everything that is a vector are AdamW's as well.
    """
    wanted = {id(weight) for weight in trained}
    embedded = {id(module.weight) for module in network.modules() if isinstance(module, nn.Embedding)}
    # With duplicates: an output layer tied to an embedding is still the last layer.
    places = dict(network.named_parameters(remove_duplicate=False))
    layers = [name for name, weight in places.items() if weight.ndim > 1 and not _is_table(name)]
    ends = tuple(dict.fromkeys((layers[0], layers[-1]))) if layers else ()
    aside = embedded | {id(places[name]) for name in ends}
    hidden: dict[str, Tensor] = {}
    others: dict[str, Tensor] = {}
    for name, weight in network.named_parameters():
        if id(weight) in wanted:
            is_hidden = name in layers and id(weight) not in aside and _is_matrix(weight)
            (hidden if is_hidden else others)[name] = weight
    return MuonSplit(hidden, others, tuple(name for name in ends if id(places[name]) in wanted))


def _is_table(name: str) -> bool:
    return any(part in name.rpartition(".")[2].lower() for part in ("bias", "embed", "position"))


def _is_matrix(weight: Tensor) -> bool:
    return weight.shape[0] > 1 and weight.numel() // weight.shape[0] > 1
