"""Gradient checkpointing in traces: less is foreseen, and as much as really is needed."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from trainauto.core.errors import InputError
from trainauto.core.plan import Plan

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))
from trace_cases import GAN, option_case

PLAN = Plan.of(batch_size=2, lq_size=16)
NETWORKS: dict[str, tuple[dict[str, Any], float]] = {
    "compact": ({"network_g": {"type": "compact", "num_feat": 16}}, 0.8),
    "rrdbnet": ({"network_g": {"type": "rrdbnet", "num_feat": 16, "num_grow_ch": 8, "num_block": 6}}, 0.8),
    "swinir": (
        {
            "network_g": {
                "type": "swinir_light",
                "embed_dim": 12,
                "depths": [3, 3],
                "num_heads": [2, 2],
                "window_size": 4,
            }
        },
        0.5,
    ),
    "gan": (
        {
            **GAN,
            "network_g": {"type": "compact", "num_feat": 32},
            "network_d": {"type": "unetdiscriminatorsn", "num_feat": 4},
        },
        0.9,
    ),
}
"""By name: options, and the largest share of the bytes above the persistent ones that remains."""


@pytest.mark.parametrize("name", NETWORKS)
def test_less_is_foreseen_and_it_is_what_real_steps_take(name: str, tmp_path: Path) -> None:
    options, largest = NETWORKS[name]
    plain = option_case("plain", tmp_path, options, {}).fake(torch.float32).trace(PLAN)
    checked = option_case("checked", tmp_path, {**options, "memory": {"gradient_checkpointing": True}}, {})
    fake, real = (how(torch.float32).trace(PLAN) for how in (checked.fake, checked.real))
    assert fake.peak_bytes == pytest.approx(real.peak_bytes, rel=0.01)
    assert fake.persistent_bytes == real.persistent_bytes == plain.persistent_bytes
    for phase, peak in real.phase_peaks_bytes.items():
        assert fake.phase_peaks_bytes[phase] == pytest.approx(peak, rel=0.01), phase
    transient = [step.peak_bytes - step.persistent_bytes for step in (fake, plain)]
    assert transient[0] < largest * transient[1]


def test_what_has_no_blocks_is_refused_at_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = {"memory": {"gradient_checkpointing": True}}
    for network, why in (("rrdbnet", "has no list of repeated blocks"), ("compact", "with use_compile")):
        small = {"type": network, **({"num_block": 1} if network == "rrdbnet" else {})}
        options = {**memory, "network_g": small, "use_compile": network == "compact"}
        monkeypatch.setattr(torch, "compile", lambda network, **_how: lambda image: network(image))
        with pytest.raises(InputError, match="gradient checkpointing is not possible") as caught:
            option_case("refused", tmp_path, options, {}).real(torch.float32)
        (problem,) = caught.value.problems
        assert why in problem.message
        assert problem.place is not None
        assert "gradient_checkpointing" in problem.place.text
