"""Small language models with random weights, and texts as random tokens; nothing from a hub."""

from functools import cache
from typing import Any

import numpy as np
import torch

from trainauto.optim.precision import Precision
from trainauto.tasks.text.training.language_model import LanguageModel
from trainauto.tasks.text.training.networks import NetworkSettings, make_network
from trainauto.tasks.text.training.text_dataset import TextDataset
from trainauto.tasks.text.training.tokenized_samples import NOT_LEARNED, EncodingCounts, TokenizedSamples
from trainauto.tasks.text.training.tokenizers import Vocabulary, train_tokenizer

WORDS = 512
VOCABULARY = Vocabulary.of_trained(WORDS)

GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
}
OPT = {
    "model_type": "opt",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "ffn_dim": 32,
    "word_embed_proj_dim": 32,
}
BERT = {
    "model_type": "bert",
    "is_decoder": True,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
T5 = {"model_type": "t5", "d_model": 32, "num_layers": 2, "d_kv": 8, "num_heads": 4, "d_ff": 48}
WITHOUT_DROPOUT = {
    "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "t5": {"dropout_rate": 0.0},
}


def causal_samples(lengths: Any, seed: int = 0, unlearned: int = 1) -> TokenizedSamples:
    """Return texts of these lengths, of which the first ``unlearned`` tokens are not learned."""
    numbers = np.random.default_rng(seed)
    rows = [numbers.integers(8, WORDS, length).astype(np.int32) for length in lengths]
    labels = [row.copy() for row in rows]
    for row in labels:
        row[:unlearned] = NOT_LEARNED
    counts = np.array(lengths, np.int64)
    places = [f"texts.txt:{number + 1}" for number in range(len(rows))]
    return TokenizedSamples(
        places, np.concatenate(rows), counts, np.concatenate(labels), counts, EncodingCounts(len(rows))
    )


def pair_samples(lengths: Any, target_lengths: Any, seed: int = 0) -> TokenizedSamples:
    """Return pairs of these lengths."""
    sources, targets = causal_samples(lengths, seed), causal_samples(target_lengths, seed + 1, unlearned=0)
    return TokenizedSamples(
        sources.places, sources.tokens, sources.lengths, targets.labels, targets.label_lengths, sources.counts
    )


def language_model(
    dataset: TextDataset, config: dict[str, Any], *, dtype: torch.dtype = torch.float64, **settings: Any
) -> LanguageModel:
    """Return a model for a dataset without dropout, the same whenever it is asked for."""
    torch.manual_seed(3)
    kind = dataset.workload.kind
    keys = {**config, **WITHOUT_DROPOUT.get(config["model_type"], {})}
    network = make_network(NetworkSettings(kind, keys, **settings), VOCABULARY, longest=dataset.row_tokens)
    return LanguageModel(
        network.to(dtype),
        kind,
        dataset.workload.layout,
        VOCABULARY.pad,
        lambda weights: torch.optim.SGD(weights, lr=0.1),
        Precision(torch.device("cpu")),
    )


@cache
def small_tokenizer() -> Any:
    """Return a tokenizer that was trained on a few sentences."""
    return train_tokenizer(SENTENCES, 300)


SENTENCES = (
    "Assignment statements are used to (re)bind names to values.",
    "The import statement finds a module, loads it and binds a name in the local scope.",
    "Names refer to objects; objects have types, and types say what one can do with them.",
)
