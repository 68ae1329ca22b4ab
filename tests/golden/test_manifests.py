"""State dicts equal the published checkpoints' in names and shapes, and files with those contents load."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from trainauto.tasks.sr.archs import ARCHS
from trainauto.tasks.sr.recognition import recognise

MANIFESTS = Path(__file__).parent / "manifests"
NETWORKS = {
    "realesr-animevideov3": ("compact", {"num_conv": 16, "scale": 4}),
    "realesr-general-x4v3": ("compact", {"num_conv": 32, "scale": 4}),
    "RealESRGAN_x4plus": ("rrdbnet", {"scale": 4}),
    "RealESRGAN_x2plus": ("rrdbnet", {"scale": 2}),
    "RealESRGAN_x4plus_netD": ("unetdiscriminatorsn", {}),
    "SPAN_x4_ch48": ("span", {"scale": 4}),
    "SwinIR_lightweight_x2": ("swinir_light", {"scale": 2}),
}
TENSORS_AND_ELEMENTS = {
    "realesr-animevideov3": (53, 621_424),
    "realesr-general-x4v3": (101, 1_213_296),
    "RealESRGAN_x4plus": (702, 16_697_987),
    "RealESRGAN_x2plus": (702, 16_703_171),
    "RealESRGAN_x4plus_netD": (28, 4_394_753),
    "SPAN_x4_ch48": (204, 2_236_728),
    "SwinIR_lightweight_x2": (366, 4_154_184),
}
"""Counts reported by people who had the files; see manifests/README.md (that of SwinIR's elements follows from 910 152
parameters, 12 masks of 64 x 64 x 64 and 24 indices of 64 x 64; nobody's count of the
discriminator's was found, so that these follow from the published structure alone)."""


def manifest(name: str) -> dict[str, list[int]]:
    return json.loads((MANIFESTS / f"{name}.json").read_text())


def test_every_manifest_is_tested():
    assert {path.stem for path in MANIFESTS.glob("*.json")} == set(NETWORKS)


@pytest.mark.parametrize("name", NETWORKS)
def test_manifest_has_the_size_that_others_report(name: str):
    shapes = manifest(name).values()
    assert (len(shapes), sum(torch.Size(shape).numel() for shape in shapes)) == TENSORS_AND_ELEMENTS[name]


@pytest.mark.parametrize("name", NETWORKS)
def test_state_dict_equals_the_manifest(name: str):
    network, arguments = NETWORKS[name]
    with torch.device("meta"):
        state_dict = ARCHS.get(network)(**arguments).state_dict()
    assert {key: list(value.shape) for key, value in state_dict.items()} == manifest(name)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_file_with_these_contents_loads_strictly(name: str, tmp_path: Path):
    integers = "relative_position_index"
    contents = {
        key: torch.full(shape, index, dtype=torch.int64 if key.endswith(integers) else torch.float32)
        for index, (key, shape) in enumerate(manifest(name).items())
    }
    save_file(contents, tmp_path / "weights.safetensors")
    network, arguments = NETWORKS[name]
    with torch.device("meta"):
        model = ARCHS.get(network)(**arguments)
    model = model.to_empty(device="cpu")
    model.load_state_dict(load_file(tmp_path / "weights.safetensors"), strict=True)
    for key, value in [*model.named_parameters(), *model.named_buffers()]:
        if key in contents and not key.endswith("attn_mask"):  # the mask is always our own
            assert torch.equal(value, contents[key]), key


PRESETS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "preset_digests.json").read_text())
"""Names and shapes of published networks, of which no file was at hand: see manifests/README.md."""


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_names_and_shapes_of_the_published_code_and_is_recognised_by_them(name: str):
    published = PRESETS[name]
    with torch.device("cpu" if name.startswith("dwt") else "meta"):  # its masks tell DWT from SwinIR
        network = ARCHS.get(published["network"])(**published["arguments"])
    state = network.state_dict()
    lines = sorted(f"{key} {list(value.shape)}" for key, value in state.items())
    assert sum(value.numel() for value in network.parameters()) == published["trained"]
    assert (len(state), sum(value.numel() for value in state.values())) == (published["tensors"], published["elements"])
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == published["sha256"]
    recognised = recognise(state)
    assert recognised is not None
    told = {"scale": recognised.scale, **recognised.arguments}
    assert recognised.name == published["network"]
    assert told.items() >= published["arguments"].items()
    assert told.keys() - published["arguments"].keys() <= {"res_scale"}  # of EDSR's large size
