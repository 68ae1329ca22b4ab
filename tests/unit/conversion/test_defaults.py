"""Values that decide together, and defaults of theirs that differ from those here."""

from typing import Any

import pytest

from trainauto.conversion.answers import Kind
from trainauto.conversion.convert import Conversion, convert
from trainauto.options.foreign_files import Project

BASE: dict[str, Any] = {"name": "x", "scale": 2, "network_g": {"type": "compact"}}


def of(project: Project, train: dict[str, Any], **more: Any) -> Conversion:
    sets = {"train": {"type": "PairedImageDataset", "dataroot_gt": "a", "dataroot_lq": "b"}}
    return convert({**BASE, "datasets": sets, "train": train, **more}, project)


@pytest.mark.parametrize(
    ("project", "train", "expected"),
    [
        (Project.REDUX, {"grad_clip": True}, {"grad_clip": 100.0}),
        (Project.REDUX, {"grad_clip": True, "grad_clip_max_norm": 3}, {"grad_clip": 3.0}),
        (Project.REDUX, {"grad_clip": False, "grad_clip_max_norm": 3}, {"grad_clip": None}),
        (Project.NEOSR, {}, {"grad_clip": 1.0, "ema_decay": 0, "total_iter": 1000000}),
        (Project.NEOSR, {"grad_clip": False, "ema": -1}, {"grad_clip": None, "ema_decay": 0}),
        (Project.BASICSR, {}, {"ema_decay": 0, "grad_clip": None}),
        (Project.REDUX, {"warmup_iter": 30}, {"warmup_steps": 30}),
        (Project.REDUX, {"warmup_iter": -1}, {"warmup_steps": None}),
        (Project.REDUX, {"ema_decay": 0.99}, {"ema_power": 10}),
        (Project.REDUX, {"ema_decay": 0, "ema_power": 0.75}, {"ema_power": None}),
    ],
)
def test_switches_with_numbers_are_numbers(project: Project, train: dict[str, Any], expected: dict[str, Any]) -> None:
    written = of(project, train).tree.get("train", {})
    assert {key: written.get(key) for key in expected} == expected


def test_the_average_of_neosr_gives_way_to_that_of_the_optimizer() -> None:
    optim = {"type": "adan_sf", "lr": 1e-3, "schedule_free": True}
    conversion = of(Project.NEOSR, {"ema": 0.999, "optim_g": optim})
    assert conversion.tree["train"]["ema_decay"] == 0
    (answer,) = [answer for answer in conversion.answers if ("train", "ema") in answer.source]
    assert "averages weights itself" in answer.why
    assert conversion.tree["train"]["optim_g"]["weight_decay"] == 0.02


@pytest.mark.parametrize("name", ["AdanScheduleFree", "adamwschedulefree"])
@pytest.mark.parametrize("decay", [0.999, None])
def test_the_average_of_redux_gives_way_in_any_case(name: str, decay: float | None) -> None:
    train = {"ema_decay": decay, "ema_power": 0.75, "optim_g": {"type": name, "lr": 1e-3}}
    conversion = of(Project.REDUX, train)
    assert conversion.tree["train"]["ema_decay"] == 0
    assert ("train", "ema_decay") in [source for answer in conversion.answers for source in answer.source]
    assert "ema_power" not in conversion.tree["train"]
    assert conversion.tree["train"]["optim_g"]["type"] == name
    assert conversion.tree["train"]["optim_g"]["weight_lr_power"] == 2.0


def test_a_clip_of_outputs_is_named_though_the_file_does_not_write_it() -> None:
    named = [answer for answer in of(Project.NEOSR, {}).of(Kind.LEFT_OUT) if answer.source == (("train", "clamp"),)]
    assert len(named) == 1
    unclamped = of(Project.NEOSR, {"clamp": False})
    assert not [answer for answer in unclamped.of(Kind.LEFT_OUT) if answer.source == (("train", "clamp"),)]


@pytest.mark.parametrize(
    ("loss", "why"),
    [
        ({"type": "lumaloss", "loss_weight": -1.0}, "a negative weight"),
        ({"type": "perceptualloss", "loss_weight": 1.0, "criterion": "pd"}, "there is no criterion pd"),
        ({"type": "adistsloss", "loss_weight": 1.0}, "there is no loss adistsloss here"),
        ({"type": "adistsloss", "loss_weight": 0}, "and it weighs nothing"),
        ({"loss_weight": 1.0}, "it names no type"),
    ],
)
def test_losses_that_are_not_here_are_left_out_with_a_reason(loss: dict[str, Any], why: str) -> None:
    conversion = of(Project.REDUX, {"losses": [{"type": "l1loss", "loss_weight": 1.0}, loss]})
    assert conversion.tree["train"]["losses"] == [{"type": "l1loss", "loss_weight": 1.0}]
    (answer,) = [one for one in conversion.of(Kind.LEFT_OUT) if one.source == (("train", "losses", 1),)]
    assert why in answer.why


def test_half_of_a_criterion_is_kept() -> None:
    loss = {"type": "perceptualloss", "loss_weight": 0.1, "criterion": "fd+l1", "num_proj_fd": 64}
    conversion = of(Project.REDUX, {"losses": [loss]})
    assert conversion.tree["train"]["losses"] == [{"type": "perceptualloss", "loss_weight": 0.1, "criterion": "l1"}]
    assert ("train", "losses", 0, "num_proj_fd") in [one.source[0] for one in conversion.of(Kind.LEFT_OUT)]


def test_losses_of_both_forms_are_those_of_the_list() -> None:
    train = {"losses": [{"type": "l1loss", "loss_weight": 1.0}], "pixel_opt": {"type": "mseloss", "loss_weight": 1.0}}
    conversion = of(Project.REDUX, train)
    assert [loss["type"] for loss in conversion.tree["train"]["losses"]] == ["l1loss"]
    assert (("train", "pixel_opt"),) in [answer.source for answer in conversion.of(Kind.LEFT_OUT)]


def test_an_opponent_without_a_loss_is_left_out() -> None:
    losses = [{"type": "l1loss", "loss_weight": 1.0}, {"type": "ganloss", "gan_type": "vanilla", "loss_weight": 0}]
    optim = {"type": "AdamW", "lr": 1e-4}
    conversion = of(Project.REDUX, {"losses": losses, "optim_d": optim}, network_d={"type": "dunet"})
    assert conversion.tree["model_type"] == "SRModel"
    assert "network_d" not in conversion.tree
    assert "optim_d" not in conversion.tree["train"]


@pytest.mark.parametrize(
    ("optimizer", "near"), [("adamw_win", "AdamW"), ("soap_sf", "SOAP"), ("nothing", "Adam, AdamW")]
)
def test_an_optimizer_that_is_not_here_is_written_as_it_was(optimizer: str, near: str) -> None:
    conversion = of(Project.NEOSR, {"optim_g": {"type": optimizer, "lr": 1e-3, "beta2_scale": 0.8}})
    assert conversion.tree["train"]["optim_g"] == {"type": optimizer, "lr": 1e-3, "beta2_scale": 0.8}
    (missing,) = conversion.of(Kind.MISSING)
    assert missing.near.startswith(near)


def test_schedules_and_models_that_are_not_here_are_written_as_they_were() -> None:
    train = {"scheduler": {"type": "CyclicLR", "max_lr": 1e-3}}
    conversion = of(Project.BASICSR, train, model_type="EDVRModel", network_g={"type": "EDVR", "num_frame": 5})
    assert conversion.tree["train"]["scheduler"] == {"type": "CyclicLR", "max_lr": 1e-3}
    assert conversion.tree["network_g"] == {"type": "EDVR", "num_frame": 5}
    assert {answer.old for answer in conversion.of(Kind.MISSING)} == {"CyclicLR", "EDVRModel", "EDVR"}
    assert not conversion.is_complete


def test_rcan_of_basicsr_has_its_arguments_and_defaults() -> None:
    network = {"type": "RCAN", "num_in_ch": 3, "num_out_ch": 3, "num_feat": 32, "num_group": 5, "upscale": 2}
    network |= {"img_range": 255.0, "rgb_mean": [0.4488, 0.4371, 0.4040]}
    conversion = of(Project.BASICSR, {}, model_type="SRModel", network_g=network)
    expected = {"type": "RCAN", "n_colors": 3, "n_feats": 32, "n_resgroups": 5, "n_resblocks": 16}
    assert conversion.tree["network_g"] == {**expected, "norm": True, "rgb_range": 255.0}


def test_degradations_of_paired_sets_are_left_out() -> None:
    conversion = of(Project.REDUX, {}, blur_prob=0.5, jpeg_range=[40, 50])
    assert not {"blur_prob", "jpeg_range", "degradation_preset"} & conversion.tree.keys()
    whys = {answer.source[0]: answer.why for answer in conversion.of(Kind.LEFT_OUT)}
    assert whys["blur_prob",] == "no set of this file makes low-quality images"


@pytest.mark.parametrize(
    ("network", "keys", "expected"),
    [
        ("swinir_s", {"use_amp": True}, True),
        ("swinir_s", {"use_amp": True, "amp_bf16": False}, True),
        ("swinir_s", {"use_amp": False, "amp_bf16": False}, False),
        ("compact", {"use_amp": True, "amp_bf16": False}, False),
        ("compact", {"use_amp": True}, False),
    ],
)
def test_networks_that_redux_never_trains_in_float16_are_in_bfloat16(
    network: str, keys: dict[str, Any], expected: bool
) -> None:
    conversion = of(Project.REDUX, {}, network_g={"type": network}, **keys)
    assert conversion.tree["amp_bf16"] is expected
    sources = [source for answer in conversion.answers for source in answer.source]
    assert len(sources) == len(set(sources))


@pytest.mark.parametrize(
    ("project", "network", "here"),
    [
        (Project.NEOSR, {"type": "srformer_light"}, {"type": "srformer_light", "embed_dim": 60}),
        (Project.NEOSR, {"type": "dat_m", "drop_rate": 0.1}, {"type": "dat", "drop_rate": 0.1}),
        (Project.NEOSR, {"type": "realplksr", "dysample": True}, {"upsampler": "dysample", "layer_norm": False}),
        (Project.REDUX, {"type": "esrgan", "in_nc": 3, "num_filters": 32}, {"num_in_ch": 3, "num_feat": 32}),
        (Project.REDUX, {"type": "span", "feature_channels": 48}, {"feature_channels": 48, "norm": False}),
        (Project.REDUX, {"type": "dat_s", "use_chk": True, "qk_scale": None}, {"type": "dat_s"}),
        (Project.NEOSR, {"type": "cugan"}, {"type": "realcugan", "pro": True}),
        (Project.NEOSR, {"type": "cugan", "pro": False}, {"type": "realcugan", "pro": False}),
        (Project.NEOSR, {"type": "metaflexnet", "upsampler": "n+c"}, {"dim": 48, "upsampler": "nearest+conv"}),
        (Project.NEOSR, {"type": "flexnet", "upsampler": "pixelshuffle"}, {"upsampler": "pixelshuffle"}),
        (Project.NEOSR, {"type": "esc", "attn_type": "flex", "realsr": True}, {"type": "esc", "realsr": True}),
        (Project.REDUX, {"type": "gaterv3_s", "in_ch": 3, "flash": True}, {"num_in_ch": 3, "flash": True}),
        (Project.BASICSR, {"type": "SwinIR", "upscale": 2, "in_chans": 3}, {"embed_dim": 96, "upsampler": ""}),
    ],
)
def test_networks_have_their_names_arguments_and_defaults(
    project: Project, network: dict[str, Any], here: dict[str, Any]
) -> None:
    written = of(project, {}, network_g=network).tree["network_g"]
    assert {**written, **here} == written
    assert ("scale" in written, "upscale" in written) == (False, False)


@pytest.mark.parametrize(
    ("project", "name", "given", "kind"),
    [
        (Project.REDUX, "AdanScheduleFree", {}, Kind.ADDED),
        (Project.REDUX, "AdanScheduleFree", {"warmup_steps": 1600}, Kind.MAPPED),
        (Project.REDUX, "AdamWScheduleFree", {"warmup_steps": 9}, Kind.MAPPED),
        (Project.NEOSR, "adan_sf", {"warmup_steps": 600, "schedule_free": True}, Kind.MAPPED),
    ],
)
@pytest.mark.parametrize("key", ["optim_g", "optim_d"])
def test_the_rate_warms_up_once(project: Project, name: str, given: dict[str, Any], kind: Kind, key: str) -> None:
    optimizer = {"type": name, "lr": 1e-3, **given}
    losses = {"losses": [{"type": "ganloss", "gan_type": "vanilla", "loss_weight": 0.1}]}
    conversion = of(project, {**losses, key: optimizer, "warmup_iter": 500}, network_d={"type": "dunet"})
    assert conversion.tree["train"]["warmup_steps"] == 500
    assert conversion.tree["train"][key]["warmup_steps"] == 0
    (answer,) = [one for one in conversion.answers if one.target == ("train", key, "warmup_steps")]
    assert (answer.kind, "warmup_iter warms the rate" in answer.why) == (kind, True)
    alone = of(project, {**losses, key: optimizer, "warmup_iter": -1}, network_d={"type": "dunet"})
    assert alone.tree["train"][key]["warmup_steps"] == given.get("warmup_steps", 10000)


def test_a_warm_up_of_an_optimizer_that_has_none_is_left_out() -> None:
    conversion = of(Project.REDUX, {"optim_g": {"type": "AdamW", "lr": 1e-3, "warmup_steps": 5}, "warmup_iter": 9})
    assert conversion.tree["train"]["optim_g"] == {"type": "AdamW", "lr": 1e-3}
    assert ("train", "optim_g", "warmup_steps") in [answer.source[0] for answer in conversion.of(Kind.LEFT_OUT)]


def test_what_differs_stays_in_the_report_beside_an_average_that_is_taken_back() -> None:
    optim = {"type": "AdanScheduleFree", "lr": 1e-3}
    train = {"ema_decay": 0.9, "ema_power": 0.75, "optim_g": optim}
    moves, warms = of(Project.REDUX, train).of(Kind.DIFFERS)
    assert "moves weights otherwise" in moves.why
    assert "here the rate rises in them" in warms.why
    assert len(of(Project.REDUX, {**train, "warmup_iter": 5}).of(Kind.DIFFERS)) == 1


@pytest.mark.parametrize(("flag", "differs"), [({"schedule_free": False}, 1), ({}, 1), ({"schedule_free": True}, 0)])
def test_adamw_of_neosr_is_schedule_free_whatever_the_flag_says(flag: dict[str, Any], differs: int) -> None:
    conversion = of(Project.NEOSR, {"ema": 0.999, "optim_g": {"type": "adamw_sf", "lr": 1e-3, **flag}})
    assert conversion.tree["train"]["optim_g"]["type"] == "AdamWScheduleFree"
    assert conversion.tree["train"]["ema_decay"] == 0
    found = [
        answer.why for answer in conversion.of(Kind.DIFFERS) if "validates and saves those in training" in answer.why
    ]
    assert len(found) == differs


def test_adan_of_neosr_is_plain_where_the_flag_says_so() -> None:
    optim = {"type": "adan_sf", "lr": 1e-3, "schedule_free": False}
    assert of(Project.NEOSR, {"optim_g": optim}).tree["train"]["optim_g"]["type"] == "Adan"


SUM = {"type": "L1Loss", "loss_weight": 0.5, "reduction": "sum"}
BATCH = {"batch_size_per_gpu": 8, "lq_size": 16}


@pytest.mark.parametrize(
    ("project", "sizes", "more", "values"),
    [
        (Project.REDUX, BATCH, {}, 8 * 3 * 32 * 32),
        (Project.REDUX, BATCH, {"input_pixel_format": "y"}, 8 * 32 * 32),
        (Project.NEOSR, {"batch_size": 8, "patch_size": 16}, {}, 8 * 3 * 32 * 32),
        (Project.BASICSR, {"batch_size_per_gpu": 8, "gt_size": 32, "color": "y"}, {}, 8 * 32 * 32),
        (Project.BASICSR, {"batch_size_per_gpu": 8}, {"gt_size": 32}, 8 * 3 * 32 * 32),
    ],
)
def test_a_sum_is_so_many_times_the_mean(
    project: Project, sizes: dict[str, Any], more: dict[str, Any], values: int
) -> None:
    sets = {"train": {"type": "PairedImageDataset", "dataroot_gt": "a", "dataroot_lq": "b", **sizes}}
    conversion = of(project, {"pixel_opt": SUM}, datasets=sets, **more)
    assert conversion.tree["train"]["losses"] == [{"type": "L1Loss", "loss_weight": 0.5 * values}]
    assert conversion.is_complete


@pytest.mark.parametrize(("loss", "sizes"), [(SUM, {}), ({**SUM, "type": "fftloss"}, BATCH)])
def test_a_sum_of_unknown_length_stays_and_has_to_be_changed(loss: dict[str, Any], sizes: dict[str, Any]) -> None:
    sets = {"train": {"type": "PairedImageDataset", "dataroot_gt": "a", "dataroot_lq": "b", **sizes}}
    conversion = of(Project.REDUX, {"losses": [loss]}, datasets=sets)
    assert conversion.tree["train"]["losses"] == [loss]
    (missing,) = conversion.of(Kind.MISSING)
    assert missing.source == (("train", "losses", 0, "reduction"),)
    assert "a loss is a mean here" in missing.why


@pytest.mark.parametrize(
    ("train", "more", "path", "near"),
    [
        ({"losses": [{"type": "L1Loss", "lossweight": 1}]}, {}, ("train", "losses", 0, "lossweight"), "'loss_weight'"),
        ({"losses": [{"type": "L1Loss", "z": 1}]}, {}, ("train", "losses", 0, "z"), "it takes loss_weight, reduction"),
        ({"optim_g": {"type": "Adam", "weight_dcay": 1}}, {}, ("train", "optim_g", "weight_dcay"), "'weight_decay'"),
        ({"scheduler": {"type": "StepLR", "stepsize": 1}}, {}, ("train", "scheduler", "stepsize"), "'step_size'"),
        (
            {"scheduler": {"type": "LinearLR", "start_factor": 1, "total_itr": 9}},
            {},
            ("train", "scheduler", "total_itr"),
            "'total_iters'",
        ),
        ({}, {"network_g": {"type": "compact", "num_feats": 8}}, ("network_g", "num_feats"), "'num_feat'"),
    ],
)
def test_an_argument_that_nobody_takes_is_unknown(
    train: dict[str, Any], more: dict[str, Any], path: tuple[Any, ...], near: str
) -> None:
    (answer,) = of(Project.REDUX, train, **more).of(Kind.UNKNOWN)
    assert (answer.source, answer.near) == ((path,), near)
    assert "takes no such argument, here or in traiNNer-redux" in answer.why


def test_an_argument_that_only_they_take_is_left_out() -> None:
    conversion = of(Project.REDUX, {}, network_g={"type": "compact", "learn_residual": False})
    assert ("network_g", "learn_residual") in [answer.source[0] for answer in conversion.of(Kind.LEFT_OUT)]
    assert not conversion.of(Kind.UNKNOWN)


def test_checkpointing_is_an_option_of_every_network() -> None:
    conversion = of(Project.REDUX, {}, network_g={"type": "dat_s", "use_chk": True})
    assert conversion.tree["memory"] == {"gradient_checkpointing": True}
    assert "memory" not in of(Project.REDUX, {}, network_g={"type": "dat_s", "use_chk": False}).tree
