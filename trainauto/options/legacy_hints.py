"""Keys of files of BasicSR, traiNNer and traiNNer-redux that are spelled otherwise here, or are not needed."""

from typing import Any

from trainauto.options.source_locations import KeyPath

_LOSSES = "Write it as an item of train.losses, e.g. `- {type: l1loss, loss_weight: 1.0}`."
_NEVER_PAUSES = "Remove it: here the discriminator steps with every batch; net_d_iters spaces the generator's steps."
_NOT_NEEDED = "Remove it: nothing here needs it."
_NO_SWA = "Remove it: ema_decay under train averages weights, in every run."
_HIGH_QUALITY, _LOW_QUALITY = "Write dataroot_gt.", "Write dataroot_lq."
_RATE_AND_MORE = "Write it under train.optim_g, e.g. {type: Adam, lr: 1e-4}."

_HINTS = {
    "batch_size": "Write batch_size_per_gpu.",
    "num_worker": "Write num_worker_per_gpu.",
    "n_workers": "Write num_worker_per_gpu.",
    "virtual_batch_size": "Write accum_iter: virtual_batch_size / batch_size.",
    "dataroot_HR": _HIGH_QUALITY,
    "dataroot_B": _HIGH_QUALITY,
    "dataroot_LR": _LOW_QUALITY,
    "dataroot_A": _LOW_QUALITY,
    "use_flip": "Write use_hflip.",
    "accumulate": "Write accum_iter.",
    "num_gpu": "Remove it: device says where to train, and --launcher pytorch uses several GPUs.",
    "gpu_ids": "Remove it: device says where to train, and CUDA_VISIBLE_DEVICES says which GPU.",
    "io_backend": "Remove it: a folder that ends in .lmdb is read as a database, any other as files.",
    "meta_info_file": "Write meta_info.",
    "use_shuffle": "Remove it: samples are always shuffled.",
    "dataset_enlarge_ratio": "Remove it: the stream of samples has no end.",
    "prefetch_mode": "Remove it: lookahead says how many batches are drawn ahead.",
    "num_prefetch_queue": "Remove it: lookahead says how many batches are drawn ahead.",
    "pin_memory": _NOT_NEEDED,
    "persistent_workers": _NOT_NEEDED,
    "phase": _NOT_NEEDED,
    "dist": "Remove it and pass --launcher pytorch.",
    "dist_params": "Remove it and pass --launcher pytorch.",
    "find_unused_parameters": _NOT_NEEDED,
    "total_epochs": "Write total_iter (optimizer steps) or total_samples.",
    "epochs": "Write total_iter (optimizer steps) or total_samples.",
    "max_steps": "Write total_iter.",
    "niter": "Write total_iter.",
    "lr_G": _RATE_AND_MORE,
    "beta1_G": _RATE_AND_MORE,
    "weight_decay_G": _RATE_AND_MORE,
    "lr_scheme": "Write it as type under train.scheduler, e.g. {type: multistep, milestones: [...], gamma: 0.5}.",
    "lr_steps": "Write milestones under train.scheduler.",
    "lr_gamma": "Write gamma under train.scheduler.",
    "model": "Remove it, or write model_type: SRGANModel to train against a discriminator.",
    "pretrain_model_G": "Write pretrain_network_g.",
    "pretrain_model_D": "Write pretrain_network_d.",
    **dict.fromkeys(("use_swa", "swa_start_iter", "swa_start_iter_rel", "swa_lr", "swa_lr_scheme"), _NO_SWA),
    "lr": "Write it under train.optim_g.",
    "milestones": "Write it under train.scheduler, e.g. {type: multistep, milestones: [...], gamma: 0.5}.",
    "gamma": "Write it under train.scheduler, e.g. {type: multistep, milestones: [...], gamma: 0.5}.",
    "manual_random_seed": "Write manual_seed.",
    "seed": "Write manual_seed.",
    "resume_state": "Remove it and pass --auto_resume: a run resumes in its own directory.",
    "ignore_resume_networks": "Remove it and start from weights: path.pretrain_network_g.",
    "strict_load": "Write strict_load_g.",
    "param_key": "Write param_key_g.",
    "amp": "Write use_amp.",
    "fp16": "Write use_amp: true and amp_bf16: false.",
    "bf16": "Write use_amp: true; amp_bf16 is true already.",
    "compile": "Write use_compile.",
    "channels_last": "Write use_channels_last.",
    "ema": "Write ema_decay under train.",
    "adaptive_d": _NEVER_PAUSES,
    "adaptive_d_ema_decay": _NEVER_PAUSES,
    "adaptive_d_threshold": _NEVER_PAUSES,
    "resume_id": "Remove it: --auto_resume goes on with the same run of the tracker.",
    "entity": "Remove it, and set the variable WANDB_ENTITY.",
    "metrics_enabled": "Remove it: metrics are computed where val.metrics names some.",
    "pbar": _NOT_NEEDED,
    "suffix": _NOT_NEEDED,
    "use_hflip_rot": "Write use_hflip and use_rot.",
    **dict.fromkeys(
        ("wavelet_guided", "wavelet_init"),
        "Remove it: losses guided by wavelets are left out; ffloss and fftloss weigh frequencies.",
    ),
}


_OF_SETS = {
    "mode": "Write type: GTImageDataset makes low-quality images, PairedImageDataset reads them from dataroot_lq, "
    "RealESRGANDataset degrades at random.",
}
"""Of keys of data sets that are none of what they are called elsewhere."""


def hint(path: KeyPath, tree: Any) -> str:
    """Return what to write instead of the unknown key at ``path``; empty where no hint is known.

    Args:
        path: path of the key.
        tree: the whole file, which fills in figures.
    """
    key = str(path[-1])
    if path[0] == "datasets" and key in _OF_SETS:
        return _OF_SETS[key]
    if key in ("gt_size", "HR_size"):
        return _gt_size_hint(path, tree)
    if key == "warmup_iter":
        return _warmup_hint(_value_at(tree, path))
    if key.endswith("_opt") and path[0] == "train":
        return _LOSSES
    return _HINTS.get(key, "")


def _gt_size_hint(path: KeyPath, tree: Any) -> str:
    key, value, scale = path[-1], _value_at(tree, path), tree.get("scale", 4)
    if isinstance(value, int) and isinstance(scale, int) and scale > 0 and value % scale == 0:
        return f"Write lq_size: {value // scale} ({key} / scale)."
    return f"Write lq_size: {key} / scale."


def _warmup_hint(value: Any) -> str:
    if isinstance(value, int | float) and value <= 0:
        return "Remove it: without warmup_steps there is no warm-up."
    return "Write warmup_steps."


def _value_at(tree: Any, path: KeyPath) -> Any:
    for key in path:
        tree = tree[key]
    return tree
