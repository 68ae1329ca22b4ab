"""Keys that several projects have."""

from typing import Any

from trainauto.conversion.answers import ITS_NAME, KEPT, Left, Moved, Rule
from trainauto.conversion.draft import Draft
from trainauto.conversion.optimizers import limit_of_gradients, norm_of_gradients
from trainauto.conversion.sets import as_a_name, lq_side
from trainauto.conversion.warmup import steps_of_warmup
from trainauto.options.degradation_options import DegradationOptions, KernelOptions


def results_of_tests(value: Any, draft: Draft) -> Any:
    """Return the folder of a test's results; training has none."""
    return value if draft.is_test else Left("training writes its results into the folder of the run")


RESUMES = "a run resumes in its own folder"
NO_END = "the stream of samples has no end"
NOT_NEEDED = "nothing here needs it"
VIDEO = Left("it is about video, and there are no video networks here", "single images: PairedImageDataset")
STYLEGAN = Left("it is about StyleGAN2, which is not here", "SRGANModel trains against a discriminator")

_SET: dict[str, Rule] = {
    "type": KEPT,
    "dataroot_gt": KEPT,
    "dataroot_lq": KEPT,
    "meta_info": KEPT,
    "meta_info_file": Moved("datasets.*.meta_info", ITS_NAME),
    "filename_tmpl": KEPT,
    "color": KEPT,
    "io_backend.*": Left("a root whose name ends in .lmdb is read as a database, any other as files"),
    "mean": Left("images are numbers from 0 to 1", "a network that centres them itself, such as swinir"),
    "std": Left("images are numbers from 0 to 1", "a network that scales them itself"),
    "num_frame": VIDEO,
    "cache_data": VIDEO,
    "padding": VIDEO,
    "clip_size": VIDEO,
    "phase": Left(NOT_NEEDED),
    "scale": Left(NOT_NEEDED, "scale of the top level"),
    "pin_memory": Left(NOT_NEEDED),
    "persistent_workers": Left(NOT_NEEDED),
    "num_prefetch_queue": Left(NOT_NEEDED, "lookahead"),
    "prefetch_factor": Left(NOT_NEEDED, "lookahead"),
    "prefetch_mode": Left("batches are always drawn ahead", "lookahead"),
    "dataset_enlarge_ratio": Left(NO_END),
    "use_shuffle": Left("samples are always shuffled"),
}

_TRAINING_SET: dict[str, Rule] = {
    **_SET,
    "name": KEPT,
    "use_hflip": KEPT,
    "use_rot": KEPT,
    "num_worker_per_gpu": KEPT,
    "batch_size_per_gpu": KEPT,
    "accum_iter": KEPT,
    "lq_size": KEPT,
    "lq_resize_mode": KEPT,
    "gt_size": Moved("datasets.train.lq_size", "gt_size / scale", lq_side),
    "test_mode": Left(NOT_NEEDED),
    "interval_list": VIDEO,
    "random_reverse": VIDEO,
    "dataroot_flow": VIDEO,
    "val_partition": VIDEO,
    "flip_sequence": VIDEO,
    **dict.fromkeys(KernelOptions.model_fields, KEPT),
}

_EVALUATED_SET: dict[str, Rule] = {
    **_SET,
    "name": Moved("datasets.*.name", "a name of a folder", as_a_name),
    "lq_resize_mode": KEPT,
    "use_duf_downsampling": VIDEO,
    "use_hflip": Left("images are validated as they are"),
    "use_rot": Left("images are validated as they are"),
    "batch_size_per_gpu": Left("images are validated one by one"),
    "num_worker_per_gpu": Left("images are validated one by one"),
}

SHARED: dict[str, Rule] = {
    "name": Moved("name", "a name of a folder", as_a_name),
    "scale": KEPT,
    "num_gpu": Left("device says where to train", "torchrun -m trainauto train ... --launcher pytorch"),
    "manual_seed": KEPT,
    "deterministic": KEPT,
    "dist_params.*": Left("torchrun knows them", "--launcher pytorch"),
    "find_unused_parameters": Left(NOT_NEEDED),
    **{f"datasets.train.{key}": rule for key, rule in _TRAINING_SET.items()},
    **{f"datasets.val*.{key}": rule for key, rule in _EVALUATED_SET.items()},
    **{f"datasets.test*.{key}": rule for key, rule in _EVALUATED_SET.items()},
    "path.experiments_root": KEPT,
    "path.results_root": Moved("path.results_root", "", results_of_tests),
    "path.pretrain_network_g": KEPT,
    "path.param_key_g": KEPT,
    "path.strict_load_g": KEPT,
    "path.pretrain_network_d": KEPT,
    "path.param_key_d": KEPT,
    "path.strict_load_d": KEPT,
    "path.resume_state": Left(RESUMES, "train --auto_resume"),
    "path.ignore_resume_networks": Left(RESUMES, "path.pretrain_network_g starts from weights"),
    "train.total_iter": KEPT,
    "train.warmup_iter": Moved("train.warmup_steps", "", steps_of_warmup, "-1 is none, which is the default here"),
    "train.grad_clip": Moved(
        "train.grad_clip", "the largest norm itself", limit_of_gradients, "off is the default here"
    ),
    "train.grad_clip_max_norm": Moved("train.grad_clip", "the largest norm itself", norm_of_gradients),
    "val.val_freq": KEPT,
    "val.save_img": KEPT,
    "val.suffix": Left("pictures are named after their step and image"),
    "val.pbar": Left(NOT_NEEDED),
    "logger.print_freq": KEPT,
    "logger.save_checkpoint_freq": KEPT,
    "logger.use_tb_logger": KEPT,
    "logger.wandb.project": Moved("logger.wandb.project", "a name of a folder", as_a_name),
    "logger.wandb.resume_id": Left("a resumed run goes on with the same run of the tracker", "train --auto_resume"),
    **dict.fromkeys(DegradationOptions.model_fields, KEPT),
}
