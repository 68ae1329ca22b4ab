"""BasicSR's keys."""

from trainauto.conversion.answers import ITS_PLACE, KEPT, Default, Left, Moved, Rule
from trainauto.conversion.projects.shared import SHARED, STYLEGAN, VIDEO
from trainauto.conversion.sets import lq_side

MODELS = {
    "srmodel": "SRModel",
    "srganmodel": "SRGANModel",
    "esrganmodel": "ESRGANModel",
    "realesrnetmodel": "SRModel",
    "realesrganmodel": "SRGANModel",
    "swinirmodel": "SRModel",
}
"""Models here by those of theirs in lower case; the training set makes low-quality images here, not the model."""

RULES: dict[str, Rule] = {
    **SHARED,
    "gt_size": Moved("datasets.train.lq_size", "gt_size / scale", lq_side),
    "save_img": Moved("val.save_img", ITS_PLACE),
    "suffix": SHARED["val.suffix"],
    "crop_border": Left("each metric has its own", "crop_border of a metric"),
    "path.pretrain_network_*": Left("there is no such network here", "path.pretrain_network_g"),
    "train.net_d_iters": KEPT,
    "train.net_d_init_iters": KEPT,
    "train.ema_decay": KEPT,
    "train.fix_flow": VIDEO,
    "train.flow_lr_mul": VIDEO,
    "train.lr_flow": VIDEO,
    "train.dcn_lr_mul": VIDEO,
    "train.tsa_iter": VIDEO,
    "train.r1_reg_weight": STYLEGAN,
    "train.path_batch_shrink": STYLEGAN,
    "train.path_reg_weight": STYLEGAN,
    "train.net_g_reg_every": STYLEGAN,
    "train.net_d_reg_every": STYLEGAN,
    "train.mixing_prob": STYLEGAN,
    "val.flip_seq": VIDEO,
    "val.center_frame_only": VIDEO,
}

DEFAULTS = (
    Default("train.ema_decay", 0, "BasicSR keeps no average by default", (), ("train.ema_decay",)),
    Default("manual_seed", 0, "BasicSR draws one at random", (), ("manual_seed",)),
    Default(
        "path.param_key_g",
        "params",
        "BasicSR's default",
        ("path.pretrain_network_g",),
        ("path.param_key_g",),
        lambda draft: not str(draft.written("path", "pretrain_network_g")).endswith(".safetensors"),
    ),
)
