"""Keys of Hugging Face's arguments and of super-resolution that files of language models spell otherwise."""

from typing import Any

from trainauto.options.source_locations import KeyPath

_BATCHES = "Write tokens_per_batch under train: a batch holds as many texts as fit, and a step is one batch."
_LENGTH = "Write total_epochs, total_samples or total_iter under train."
_RATE = "Write it under train.optim, e.g. {type: AdamW, lr: 3e-4}."

_HINTS = {
    "batch_size": _BATCHES,
    "batch_size_per_gpu": _BATCHES,
    "per_device_train_batch_size": _BATCHES,
    "per_device_eval_batch_size": "Write tokens_per_batch under val.",
    "gradient_accumulation_steps": _BATCHES,
    "accum_iter": _BATCHES,
    "auto_find_batch_size": "Remove it: steps that run out of memory are run in parts.",
    "lr": _RATE,
    "learning_rate": _RATE,
    "weight_decay": _RATE,
    "optim_g": "Write optim.",
    "losses": "Remove it: the loss is the mean cross-entropy of supervised tokens.",
    "lr_scheduler_type": "Write scheduler, e.g. {type: cosine}.",
    "num_train_epochs": _LENGTH,
    "epochs": _LENGTH,
    "max_steps": _LENGTH,
    "max_grad_norm": "Write grad_clip.",
    "lr_scaling": "Remove it: batches are as many texts as fit, and rates do not follow their number.",
    "lq_size": "Write max_length under datasets.train.",
    "block_size": "Write row_length under train, with packed: true.",
    "packing": "Write packed under train.",
    "model_name_or_path": "Write pretrained under model.",
    "network_g": "Write model: {config: {model_type: gpt2, ...}}, or {pretrained: ...}.",
    "dataroot_gt": "Write path.",
    "output_dir": "Write experiments_root under path.",
    "seed": "Write manual_seed.",
    "fp16": "Write use_amp: true and amp_bf16: false.",
    "bf16": "Write use_amp: true; amp_bf16 is true already.",
    "torch_compile": "Remove it: models of transformers are not compiled here.",
    "use_compile": "Remove it: models of transformers are not compiled here.",
    "best_metric": "Remove it: perplexity decides which checkpoint is the best.",
    "metrics": "Remove it: loss and perplexity are measured.",
}


def text_hint(path: KeyPath, tree: Any) -> str:
    """Return what to write instead of the unknown key at ``path``; empty where no hint is known."""
    del tree
    return _HINTS.get(str(path[-1]), "")
