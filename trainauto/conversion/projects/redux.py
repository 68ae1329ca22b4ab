"""traiNNer-redux's keys."""

from trainauto.conversion.answers import KEPT, NOTHING, Default, Left, Moved, Rule
from trainauto.conversion.draft import Draft
from trainauto.conversion.projects.shared import NOT_NEEDED, SHARED
from trainauto.options.source_locations import KeyPath

_ONNX = Left("ONNX files are made by a command", "export RUN FILE --format onnx")
_TEACHER = Left("there is no training from a teacher here", "path.pretrain_network_g starts from its weights")
_AUTOENCODER = Left("there are no autoencoders here", "network_g")
_SET_BY_ITSELF = Left("traiNNer-redux sets it itself; nothing here needs it")
_PAUSES = Left("the discriminator never pauses here", "train.net_d_iters spaces the generator's steps")

RULES: dict[str, Rule] = {
    **SHARED,
    "use_amp": KEPT,
    "amp_bf16": KEPT,
    "use_channels_last": KEPT,
    "fast_matmul": KEPT,
    "use_compile": KEPT,
    "compile_mode": KEPT,
    "detect_anomaly": Left("a loss or gradient that is not finite ends the run and is named, always"),
    "input_pixel_format": KEPT,
    "output_pixel_format": KEPT,
    "onnx": _ONNX,
    "onnx.*": _ONNX,
    "network_g_teacher.*": _TEACHER,
    "path.pretrain_network_g_teacher": _TEACHER,
    "train.eco": _TEACHER,
    "train.eco.*": _TEACHER,
    "network_ae.*": _AUTOENCODER,
    "path.pretrain_network_ae*": _AUTOENCODER,
    "train.optim_ae.*": _AUTOENCODER,
    "path.pretrain_network_g_ema": Left("the average begins with the weights", "path.pretrain_network_g"),
    "path.pretrain_network_g_path": _SET_BY_ITSELF,
    "path.models": _SET_BY_ITSELF,
    "path.resume_models": _SET_BY_ITSELF,
    "path.training_states": _SET_BY_ITSELF,
    "path.log": _SET_BY_ITSELF,
    "path.visualization": _SET_BY_ITSELF,
    "dataroot_lq_prob": KEPT,
    "train.ema_decay": KEPT,
    "train.ema_power": KEPT,
    "train.ema_update_after_step": KEPT,
    "train.ema_switch_iter": KEPT,
    "train.use_moa": KEPT,
    "train.moa_augs": KEPT,
    "train.moa_probs": KEPT,
    "train.moa_debug": KEPT,
    "train.moa_debug_limit": KEPT,
    "train.adaptive_d": _PAUSES,
    "train.adaptive_d_*": _PAUSES,
    "train.restart_scheduler": Left("a resumed run has the schedule of its file"),
    "val.val_enabled": KEPT,
    "val.metrics_enabled": Moved("val.metrics", "", lambda *_: NOTHING, "all that val.metrics names is computed"),
    "val.tile_size": KEPT,
    "val.tile_overlap": KEPT,
    "logger.save_checkpoint_format": Left(
        "checkpoints are safetensors", "export RUN FILE.pth writes a .pth of the network"
    ),
    **dict.fromkeys(
        ("dist", "launcher", "rank", "world_size", "auto_resume", "is_train", "root_path", "start_iter"), _SET_BY_ITSELF
    ),
    "watch": Left(NOT_NEEDED),
    "switch_iter_per_epoch": Left(NOT_NEEDED),
    "contents": _SET_BY_ITSELF,
}

DEFAULTS = (
    Default("train.ema_decay", 0, "traiNNer-redux keeps no average by default", (), ("train.ema_decay",)),
    Default("train.ema_power", 10, "traiNNer-redux's default", ("train.ema_decay",), ("train.ema_power",)),
    Default("manual_seed", 0, "traiNNer-redux draws one at random", (), ("manual_seed",)),
    Default("amp_bf16", False, "traiNNer-redux's default", ("use_amp",), ("amp_bf16",)),
    Default("use_channels_last", True, "traiNNer-redux's default with use_amp", ("use_amp",), ("use_channels_last",)),
    Default(
        "compile_mode", "max-autotune-no-cudagraphs", "traiNNer-redux's default", ("use_compile",), ("compile_mode",)
    ),
    Default("val.tile_overlap", 0, "traiNNer-redux's default", ("val.tile_size",), ("val.tile_overlap",)),
)

_WITHOUT_HALF = (
    *("atd", "dat", "dctlsa", "drct", "dwt", "elan", "emt", "fdat", "grl", "hat", "hit", "moesr", "rcan", "rgt"),
    *("seemore", "srformer", "swin2sr", "swinir", "tscunet"),
)
"""How names of networks begin that traiNNer-redux trains in bfloat16, where the card can, and never in float16."""


def takes_half(network: str) -> bool:
    """Return whether traiNNer-redux trains a network in float16 where its file says so."""
    return not network.lower().startswith(_WITHOUT_HALF) or network.lower() == "fdat_tiny"


def settle_half_precision(draft: Draft) -> None:
    """Write bfloat16 where traiNNer-redux takes it in place of the float16 that its file names."""
    name = str(draft.written("network_g", "type")).lower()
    if not draft.written("use_amp") or draft.written("amp_bf16") is not False or takes_half(name):
        return
    why = f"traiNNer-redux trains {name} in bfloat16 all the same: float16 overflows"
    path: KeyPath = ("amp_bf16",)
    draft.take_back(path)
    if draft.get(*path) is None:
        draft.add(path, True, why)
    else:
        draft.write(path, True, [path], why)
