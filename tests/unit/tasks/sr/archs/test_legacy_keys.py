"""Weights under ESRGAN's two older namings find their places in RRDBNet."""

import re

import pytest
import torch

from trainauto.tasks.sr.archs import RRDBNet, modern_keys

RELEASE = {"conv_body": "trunk_conv", "conv_up": "upconv", "conv_hr": "HRconv"}
"""Names of ESRGAN's RRDBNet_arch.py, by those of today."""


def numbered(state_dict: dict[str, torch.Tensor], blocks: int, doublings: int) -> dict[str, torch.Tensor]:
    """Name weights as ESRGAN's first release did: one flat chain, activations and enlargements counted too."""
    layers = {"conv_first": "model.0", "conv_body": f"model.1.sub.{blocks}"}
    layers |= {f"conv_up{step}": f"model.{3 * step}" for step in range(1, doublings + 1)}
    layers |= {"conv_hr": f"model.{3 * doublings + 2}", "conv_last": f"model.{3 * doublings + 4}"}

    def old(key: str) -> str:
        layer, kind = key.rsplit(".", 1)
        if match := re.fullmatch(r"body\.(\d+)\.rdb(\d)\.conv(\d)", layer):
            return "model.1.sub.{}.RDB{}.conv{}.0.{}".format(*match.groups(), kind)
        return f"{layers[layer]}.{kind}"

    return {old(key): value for key, value in state_dict.items()}


def released(state_dict: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    def old(key: str) -> str:
        key = re.sub(r"^body\.(\d+)\.rdb(\d)", r"RRDB_trunk.\1.RDB\2", key)
        for new, name in RELEASE.items():
            key = re.sub(f"^{new}", name, key)
        return key

    return {old(key): value for key, value in state_dict.items()}


def weights(scale: int = 4, blocks: int = 12) -> dict[str, torch.Tensor]:
    return RRDBNet(scale=scale, num_feat=4, num_block=blocks, num_grow_ch=2).state_dict()


@pytest.mark.parametrize(("scale", "doublings"), [(1, 2), (2, 2), (4, 2), (8, 3)])
def test_numbered_names_come_back(scale: int, doublings: int):
    new = weights(scale)
    old = numbered(new, 12, doublings)
    assert {"model.0.weight", "model.1.sub.11.RDB3.conv5.0.bias", "model.1.sub.12.weight", "model.3.bias"} <= set(old)
    back = modern_keys(old)
    assert back.keys() == new.keys()
    assert all(back[key] is value for key, value in new.items())


def test_the_published_chain_of_x4_by_its_numbers():
    old = numbered(weights(blocks=23), 23, 2)
    top = {re.sub(r"\.(weight|bias)$", "", key) for key in old if "RDB" not in key}
    assert top == {"model.0", "model.1.sub.23", "model.3", "model.6", "model.8", "model.10"}


@pytest.mark.parametrize("scale", [2, 4])
def test_released_names_come_back(scale: int):
    new = weights(scale)
    old = released(new)
    assert {"RRDB_trunk.11.RDB3.conv5.bias", "trunk_conv.weight", "upconv2.bias", "HRconv.weight"} <= set(old)
    back = modern_keys(old)
    assert back.keys() == new.keys()
    assert all(back[key] is value for key, value in new.items())


def test_other_names_are_left_alone():
    new = weights()
    copied = modern_keys(new)
    assert copied is not new
    assert list(copied) == list(new)
    assert modern_keys({"model.0.weight": 1, "model.2.weight": 2}) == {"model.0.weight": 1, "model.2.weight": 2}
    assert modern_keys({}) == {}


def test_the_input_is_left_as_it_was():
    old = released(weights())
    before = list(old)
    modern_keys(old)
    assert list(old) == before


@pytest.mark.parametrize("extra", ["model.1.sub.0.RDB1.conv1x1.weight", "something.else"])
def test_numbered_weights_without_a_place_are_named(extra: str):
    with pytest.raises(ValueError, match=f"no place for 1 weight.*'{re.escape(extra)}'"):
        modern_keys({**numbered(weights(), 12, 2), extra: torch.zeros(1)})


def test_released_weights_without_a_place_are_named():
    with pytest.raises(ValueError, match=r"'RRDB_trunk\.0\.RDB1\.conv1x1\.weight'"):
        modern_keys({**released(weights()), "RRDB_trunk.0.RDB1.conv1x1.weight": torch.zeros(1)})
