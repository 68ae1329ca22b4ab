"""The published networks of the library, whole: their sizes, and what a step of them and of our own takes."""

from pathlib import Path

import pytest

from tests.acceptance import only_in_acceptance
from tests.contract.small_archs import PRESETS, SMALL, scales_of
from tests.integration.commands import tiny_options, write_options
from trainauto.archs import ARCHS
from trainauto.core.plan import Plan
from trainauto.core.units import MIB
from trainauto.forecast.traced_run import FakeRun
from trainauto.options.load import load_options
from trainauto.tasks.sr.spandrel_archs import LIBRARY_NETWORKS, all_architectures

PUBLISHED_MILLIONS = {
    "atd": 20.26,
    "craft": 0.753,
    "dat": 14.80,
    "dat_2": 11.21,
    "dat_s": 11.21,
    "drct": 14.14,
    "drct_l": 27.58,
    "grl_b": 20.20,
    "grl_s": 3.49,
    "grl_t": 0.91,
    "hat_l": 40.85,
    "hat_m": 20.77,
    "hat_s": 9.62,
    "nafnet32": 29.16,
    "nafnet64": 115.98,
    "plksr": 7.39,
    "plksr_tiny": 2.37,
    "rcan": 15.59,
    "rgt": 13.37,
    "rgt_s": 10.20,
    "safmn": 0.240,
    "safmn_l": 5.60,
    "seemore_t": 0.232,
}
"""Parameters that papers and their repositories give, of scale 4 (NAFNet: 1)."""
IN_EVERY_RUN = {"craft", "grl_t", "safmn", "seemore_t"}
TRACED_IN_EVERY_RUN = {"safmn"}


def marked(names: list[str], usual: set[str]) -> list[object]:
    return [pytest.param(name, marks=() if name in usual else only_in_acceptance, id=name) for name in names]


@pytest.mark.parametrize("name", marked(sorted(PUBLISHED_MILLIONS), IN_EVERY_RUN))
def test_a_preset_is_as_large_as_it_was_published(name: str) -> None:
    count = sum(value.numel() for value in ARCHS.get(name)().parameters())
    published = PUBLISHED_MILLIONS[name]
    digits = len(str(published).partition(".")[2])
    assert round(count / 1e6, digits) == pytest.approx(published, abs=1.01 * 10**-digits)


ALL = [name for table in LIBRARY_NETWORKS for name in table.presets]


@pytest.mark.parametrize("name", marked(ALL, {"craft", "dat_light", "omnisr", "realplksr_tiny"}))
def test_a_preset_is_recognised_by_its_weights(name: str) -> None:
    """The few arguments that weights do not tell (rates of dropping, ``img_size``) leave the others to decide."""
    table = ARCHS.get(name).library_network
    scale = 1 if table.scales == (1,) else 2 if name == "rcan_unshuffle" else 4  # at scale 4 it is RCAN
    described = all_architectures().load(dict(ARCHS.get(name)(scale=scale).state_dict()))
    recognised = {"scale": scale, **table.defaults_of(name), **table.from_library(described.model.hyperparameters)}
    nearest, differing = table.nearest_preset(recognised)
    assert (nearest, described.scale) == (name, scale)
    assert set(differing) <= {"img_size", "drop_path_rate", "expansion_factor"}


@pytest.mark.filterwarnings("ignore:'saved_variables' is deprecated")  # OmniSR's and NAFNet's own layer norm
@pytest.mark.parametrize("name", marked([*ALL, *{**SMALL, **PRESETS}], TRACED_IN_EVERY_RUN))
def test_a_preset_is_traced(tmp_path: Path, name: str) -> None:
    """Weights, gradients and two moments are four times the weights; activations come on top."""
    network = ARCHS.get(name)
    scale = 1 if (network.library_network.scales if name in ALL else scales_of(name)) == (1,) else 4
    options = tiny_options(tmp_path / "nothing_is_read", scale=scale, network_g={"type": name})
    if scale == 1:
        del options["datasets"]["val"]
        options["val"] = {"val_enabled": False}
        options["datasets"]["train"].update(type="PairedImageDataset", dataroot_lq="nor_this")
    loaded = load_options(write_options(tmp_path / "run.yml", options))
    built = network(scale=scale)
    held = 16 * sum(value.numel() for value in built.parameters() if value.requires_grad)
    side = max(16, built.size_requirements.minimum)
    run = FakeRun.of(loaded)
    first, second = (run.trace(Plan.of(batch_size=samples, lq_size=side)).peak_bytes for samples in (1, 2))
    print(f"{name}: {held / MIB:.0f} MiB held, {first / MIB:.0f} and {second / MIB:.0f} MiB at {side} px")
    assert held < first < second
