"""neosr's keys."""

from typing import Any

from trainauto.conversion.answers import ITS_NAME, ITS_PLACE, KEPT, NOTHING, Default, Left, Moved, Rule
from trainauto.conversion.draft import Draft
from trainauto.conversion.projects.shared import NOT_NEEDED, SHARED

_WAVELET = Left("losses guided by wavelets are left out", "ffloss and fftloss weigh frequencies")
_SAM = Left("there is no sharpness-aware optimizer here", "train.grad_clip and a smaller rate calm a run")
_ECO = Left("there is no such curriculum here", "train.losses.weight_schedule has losses begin later")
CLAMP = Left(
    "neosr clips what the network makes to 1/255 to 1 before losses see it, by default; losses see it as it is here"
)


def _clamp(value: Any, draft: Draft) -> Any:
    del draft
    return CLAMP if value else NOTHING


def _tile(value: Any, draft: Draft) -> Any:
    del draft
    return int(value) if isinstance(value, int) and value > 0 else NOTHING


def _average(value: Any, draft: Draft) -> Any:
    del draft
    return value if isinstance(value, int | float) and value > 0 else 0


RULES: dict[str, Rule] = {
    **SHARED,
    "use_amp": KEPT,
    "bfloat16": Moved("amp_bf16", ITS_NAME),
    "fast_matmul": KEPT,
    "compile": Moved("use_compile", ITS_NAME),
    "datasets.train.patch_size": Moved("datasets.train.lq_size", ITS_NAME),
    "datasets.train.batch_size": Moved("datasets.train.batch_size_per_gpu", ITS_NAME),
    "datasets.train.accumulate": Moved("datasets.train.accum_iter", ITS_NAME),
    "datasets.train.augmentation": KEPT,
    "datasets.train.aug_prob": KEPT,
    "train.ema": Moved("train.ema_decay", "of the generator alone", _average),
    "train.wavelet_*": _WAVELET,
    "train.clamp": Moved("train.losses", "", _clamp, "losses see outputs as they are, which is so here"),
    "train.match_lq_colors": Left(
        "colours are compared with the target", "consistency_loss with blur: true compares blurred colours"
    ),
    "train.sam": _SAM,
    "train.sam_init": _SAM,
    "train.eco": _ECO,
    "train.eco_*": _ECO,
    "val.tile": Moved("val.tile_size", ITS_NAME, _tile, "whole images are the default here"),
    "val.save_lq": Left("low-quality images lie where they are"),
    "logger.total_iter": Moved("train.total_iter", ITS_PLACE),
    "logger.save_tb_img": Left("pictures of validations lie in the run's folder, and on its page"),
    "path.print_network": Left(NOT_NEEDED, "plan shows its size"),
    "print_network": Left(NOT_NEEDED, "plan shows its size"),
    "dist": Left("--launcher pytorch says it"),
}

DEFAULTS = (
    Default("train.ema_decay", 0, "neosr keeps no average by default", (), ("train.ema",)),
    Default("train.grad_clip", 1.0, "neosr's default: gradients above a norm of 1", (), ("train.grad_clip",)),
    Default("train.total_iter", 1000000, "neosr's default", (), ("logger.total_iter",)),
    Default("manual_seed", 0, "neosr draws one at random", (), ("manual_seed",)),
    Default("amp_bf16", False, "neosr's default", ("use_amp",), ("bfloat16",)),
    Default("use_channels_last", True, "neosr does so with use_amp", ("use_amp",)),
    Default(
        "datasets.train.num_worker_per_gpu",
        4,
        "neosr's default",
        ("datasets.train",),
        ("datasets.train.num_worker_per_gpu",),
    ),
    Default("val.tile_overlap", 0, "neosr's tiles do not overlap", ("val.tile_size",)),
)
