"""Keys of the source's configuration, and of Hugging Face's arguments, that files of several tasks spell otherwise."""

from typing import Any

from trainauto.options.source_locations import KeyPath

_LENGTH = "Write total_epochs, total_samples or total_iter under train."
_BUDGET = "Write it as budget under memory, e.g. budget: 30000MiB."
_STEPS = "Write base_batch_size (a forward pass) and target_batch_size (a step) under train."

_HINTS = {
    "num_epochs": _LENGTH,
    "num_train_epochs": _LENGTH,
    "epochs": _LENGTH,
    "max_steps": _LENGTH,
    "max_memory_mb": _BUDGET,
    "memory_budget": _BUDGET,
    "memory_margin_percent": "Write margin under memory: a share, e.g. 0.10.",
    "enable_gradient_checkpointing": "Write gradient_checkpointing: true under memory.",
    "gradient_accumulation_steps": "Remove it: it is target_batch_size divided by base_batch_size, rounded up.",
    "batch_size": _STEPS,
    "batch_size_per_gpu": _STEPS,
    "per_device_train_batch_size": _STEPS,
    "accum_iter": _STEPS,
    "tokens_per_batch": _STEPS,
    "target_vram_usage": "Write margin under memory: 0.1 leaves a tenth free.",
    "lr": "Write learning_rate under train.",
    "optim_g": "Write learning_rate and weight_decay, and optim for another optimizer than AdamW.",
    "max_grad_norm": "Write grad_clip.",
    "lr_scheduler_type": "Write scheduler, e.g. {type: cosine}.",
    "task_loss_weights": "Write initial_task_loss_weights.",
    "losses": "Remove it: models bring their losses.",
    "network_g": "Write model: {type: ...}.",
    "output_dir": "Write experiments_root under path.",
    "seed": "Write manual_seed.",
    "fp16": "Write use_amp: true and amp_bf16: false.",
    "bf16": "Write use_amp: true; amp_bf16 is true already.",
    "distributed": "Remove it: ranks of torchrun share the samples of each step equally.",
    "val": "Remove it: accuracy by task is counted at the end.",
    "ema_decay": "Remove it: the weights of the last step are kept.",
}


def multitask_hint(path: KeyPath, tree: Any) -> str:
    """Return what to write instead of the unknown key at ``path``; empty where no hint is known."""
    del tree
    return _HINTS.get(str(path[-1]), "")
