"""What losses compare with, and in which steps they count."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from tests.integration.commands import tiny_options, write_options
from tests.traced_networks import PLAN, write_traced_options
from tests.unit.engine.test_step import batch_of, step
from tests.unit.tasks.sr.models.test_srgan_model import Judge, gan
from trainauto.builders.data import build_train_set
from trainauto.builders.image_model import build_model, build_network
from trainauto.builders.precision import choose_precision
from trainauto.core.errors import InputError
from trainauto.engine.step import StepSettings, optimize_parameters
from trainauto.engine.step_outcome import Stepped
from trainauto.forecast.traced_run import FakeRun
from trainauto.models import ESRGANModel, SRGANModel
from trainauto.options.load import load_options
from trainauto.tasks.sr.losses import GANLoss
from trainauto.tasks.sr.losses.term import LossTerm

RAMP = LossTerm(is_scheduled=True, start_iter=2, ramp_iters=3, end_iter=8)


@pytest.mark.parametrize(
    ("step", "share"), [(1, 0), (2, 0), (3, 0.25), (4, 0.5), (5, 0.75), (6, 1), (8, 1), (9, 0), (None, 1)]
)
def test_a_weight_rises_and_ends(step: int | None, share: float) -> None:
    assert RAMP.share(step) == share


def test_a_schedule_without_keys_is_none() -> None:
    always = LossTerm(is_scheduled=True)
    assert [always.share(step) for step in (1, 2, 10**6)] == [1, 1, 1]


@pytest.mark.parametrize("kind", [SRGANModel, ESRGANModel])
def test_each_loss_compares_with_its_own_target(kind: type[SRGANModel]) -> None:
    def losses_of(sharp: bool, terms: dict[str, LossTerm]) -> dict[str, float]:
        batch = batch_of(3)
        gt = batch.tensors["gt"]
        batch.tensors["gt_usm"] = 255 - gt  # type: ignore[index]
        if sharp:
            batch.tensors["gt"] = 255 - gt  # type: ignore[index]
        losses = {"l1": nn.L1Loss(), "mse": nn.MSELoss(), "gan": GANLoss("lsgan")}
        return dict(step(gan(Judge(), losses, kind=kind, terms=terms), batch).losses)

    plain, sharp = losses_of(sharp=False, terms={}), losses_of(sharp=True, terms={})
    mixed = losses_of(sharp=False, terms={"mse": LossTerm("gt_usm"), "gan": LossTerm("gt_usm")})
    judged = {"l_d_real", "l_d_fake"} | ({"l_g_gan"} if kind is ESRGANModel else set())
    of_the_first_pass = mixed.keys() - {"l_d_real", "l_d_fake"}
    for name in of_the_first_pass:
        assert mixed[name] == (sharp if name in judged | {"l_g_mse"} else plain)[name]
    assert mixed["l_d_real"] == pytest.approx(sharp["l_d_real"], rel=1e-3)
    assert abs(plain["l_d_real"] - sharp["l_d_real"]) > 10 * abs(mixed["l_d_real"] - sharp["l_d_real"])


def test_a_scheduled_loss_counts_as_much_as_it_is_told_to() -> None:
    """The discriminator learns from the first step on; its term of the generator begins later."""
    losses = {"l1": nn.L1Loss(), "gan": GANLoss("lsgan", loss_weight=0.2)}
    terms = {"l1": LossTerm(is_scheduled=True, end_iter=1), "gan": RAMP}
    found = []
    for number in (1, 4, 8):
        outcome = optimize_parameters(gan(Judge(), losses, terms=terms), batch_of(3), StepSettings(step=number))
        assert isinstance(outcome, Stepped)
        assert outcome.told == ("l_g_l1_weight", "l_g_gan_weight")
        found.append(outcome.losses)
    first, half, whole = found
    assert [each["l_g_gan_weight"] for each in found] == pytest.approx([0, 0.1, 0.2])
    assert [each["l_g_l1_weight"] for each in found] == [1, 0, 0]
    assert first["l_g_gan"] == half["l_g_l1"] == 0 != first["l_g_l1"]
    assert half["l_g_gan"] == pytest.approx(whole["l_g_gan"] / 2)
    assert first["l_d_real"] == whole["l_d_real"] > 0


def test_the_first_step_takes_the_memory_of_any(tmp_path: Path) -> None:
    late = {"type": "mssimloss", "weight_schedule": {"start_iter": 11}}
    cases = ([{"type": "l1loss"}, late], [{"type": "l1loss"}, {"type": "mssimloss"}], [{"type": "l1loss"}])
    peaks = []
    for losses in cases:
        file = write_traced_options(tmp_path, train={"losses": losses}, plugins=[])
        peaks.append(FakeRun.of(load_options(file)).trace(PLAN).peak_bytes)
    assert abs(peaks[0] - peaks[1]) <= 1024 < peaks[0] - peaks[2]


@pytest.mark.parametrize(
    ("term", "said"),
    [
        ({"taget": "gt"}, "'target'"),
        ({"target": "lq"}, "'gt_usm'"),
        ({"weight_schedule": {"start": 3}}, "start_iter"),
        ({"weight_schedule": {"start_iter": 9, "end_iter": 9}}, "cannot begin after step 9"),
        ({"weight_schedule": {"start_iter": 1}, "alone": True}, "nothing would be learned in step 1"),
        ({"weight_schedule": {"end_iter": 7}, "alone": True}, "nothing would be learned in step 8"),
        ({"weight_schedule": {"end_iter": 12}, "alone": True}, ""),
        ({"weight_schedule": {"start_iter": 12}}, ""),
        ({"target": "gt_usm"}, "compares with gt_usm, which a GTImageDataset does not make"),
        ({"target": "gt_usm", "loss_weight": 0}, ""),
    ],
)
def test_what_cannot_be_is_refused_before_the_run(
    tmp_path: Path, write_images: Callable[..., Path], term: dict[str, Any], said: str
) -> None:
    others = [] if term.pop("alone", False) else [{"type": "l1loss"}]
    options = tiny_options(tmp_path, train={"losses": [*others, {"type": "mseloss", **term}]})
    write_images(Path(options["datasets"]["train"]["dataroot_gt"]).name, count=2)

    def build() -> None:
        loaded = load_options(write_options(tmp_path / "run.yml", options))
        network = build_network(loaded)
        build_model(loaded, network, choose_precision(loaded))
        build_train_set(loaded, network)

    if not said:
        build()
        return
    with pytest.raises(InputError) as refused:
        build()
    text = str(refused.value)
    assert said in text, text
    assert "run.yml:" in text


def test_options_of_a_run_from_before_have_not_changed(tmp_path: Path) -> None:
    options = load_options(write_options(tmp_path / "run.yml", tiny_options(tmp_path))).options
    assert "target" not in json.dumps(options.model_dump(mode="json"))
