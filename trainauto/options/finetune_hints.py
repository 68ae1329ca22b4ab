"""Keys of other tools' files that files of fine-tuning spell otherwise."""

from typing import Any

from trainauto.options.source_locations import KeyPath

_LENGTH = "Write num_train_epochs or max_steps under training."
_PRECISION = "Write use_amp: true at the top level: forward and loss then run in bfloat16."
_DATA = "Write it as path under dataset."
_TRACKERS = "Write logger: {wandb: {project: NAME}} at the top level; mlflow and trackio stand there, too."

_HINTS = {
    "model_name": "Write it as name under model.",
    "model_name_or_path": "Write it as name under model.",
    "pretrained": "Write it as name under model.",
    "quantization": "Write load_in_4bit under model.",
    "min_pixels": "Remove it: pictures are only reduced, to max_pixels.",
    "alpha": "Write lora_alpha under lora.",
    "dropout": "Write lora_dropout under lora.",
    "rank": "Write r under lora.",
    "epochs": _LENGTH,
    "num_epochs": _LENGTH,
    "total_epochs": _LENGTH,
    "total_iter": _LENGTH,
    "batch_size": "Write per_device_train_batch_size under training.",
    "batch_size_per_gpu": "Write per_device_train_batch_size under training.",
    "accum_iter": "Write gradient_accumulation_steps under training.",
    "lr": "Write learning_rate under training.",
    "scheduler": "Write lr_scheduler_type under training, e.g. cosine.",
    "grad_clip": "Write max_grad_norm under training.",
    "train": "Write training: files of fine-tuning call it so.",
    "print_freq": "Write logging_steps under training.",
    "save_checkpoint_freq": "Write save_steps under training.",
    "use_tb_logger": "Remove it: curves are always written.",
    "report_to": _TRACKERS,
    "wandb_project": _TRACKERS,
    "path": "Write output_dir under training.",
    "datasets": "Write dataset: {path: ...}.",
    "data": "Write dataset: {path: ...}.",
    "train_path": _DATA,
    "file": _DATA,
    "bf16": _PRECISION,
    "fp16": "Write use_amp: true and amp_bf16: false at the top level.",
    "seed": "Write manual_seed at the top level.",
    "gradient_checkpointing": "Write it under memory.",
    "num_worker_per_gpu": "Write dataloader_num_workers under training.",
    "distributed": "Remove it: ranks of torchrun share the conversations of each step equally.",
    "save_total": "Write save_total_limit under training.",
    "eval_steps": "Write eval_every_epoch under training.",
    "capture": "Write its conversations as JSON lines, and name the file: dataset: {path: ...}.",
}


def finetune_hint(path: KeyPath, tree: Any) -> str:
    """Return what to write instead of the unknown key at ``path``; empty where no hint is known."""
    del tree
    return _HINTS.get(str(path[-1]), "")
