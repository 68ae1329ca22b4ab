"""Networks compute what the published ones compute.

``arch_outputs.json`` holds outputs of the published implementations as packaged in spandrel 0.4.2, for weights and
images made of sines. Those of discriminators are of the modules of xinntao/Real-ESRGAN (unetdiscriminatorsn),
the-database/traiNNer-redux at 68629319 (dunet, patchgandiscriminatorsn, multiscale, vgg-style; dunet with
``torch.nn.utils.spectral_norm``), muslll/neosr at dc4e374 (patchgan) and its copy 0ZL0/neosr at ac89127 (metagan, also
with that norm), in training mode, where the power method makes unit vectors of the sines. Those of edsr, msrresnet and
ecbsr are of XPixelGroup/BasicSR at 8d56e3a. Those of spanplus, man, span_s, swinir_l, and from artcnn on are of
traiNNer-redux at 68629319, with seven digits, but those of esc: neosr-project/neosr at 31c7022, whose head was replaced
by that of dslisleedh/ESC at e7e6938 for the authors'. A case that names neosr is of it, too. Heads of the published
scunet_aaf6aa were narrowed to four channels. All were computed with torch 2.13 on CPU.
"""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from trainauto.tasks.sr.archs import ARCHS

CASES = json.loads((Path(__file__).parent / "arch_outputs.json").read_text())
BATCH_NORMS = ("project_inp.1", "norm1", "norm2", ".norm", "attn.1", "head.1", "conv.1", "conv.4", "ffn.1", "ffn.4")
"""Those of networks that enlarge; files hold what they count, which is not learned."""
NOT_LEARNED = (
    *("attn_mask", "relative_position_index", "no_norm", "MetaUpsample", ".mask"),
    *("upsampler.init_pos", "to_img.init_pos", "to_img.2.init_pos"),
    *("sub_mean.weight", "sub_mean.bias", "add_mean.weight", "add_mean.bias", "shift_conv.weight"),
    *("eval_conv.weight", "eval_conv.bias", "conv_3x3_rep.weight", "conv_3x3_rep.bias"),
    *("conv5x5_reparam.weight", "conv5x5_reparam.bias", "window_size", "scale_factor", ".flash"),
    *(f"{norm}.{kept}" for norm in BATCH_NORMS for kept in ("running_mean", "running_var", "num_batches_tracked")),
)


def sines(count: int, step: float, offset: float = 0.0) -> Tensor:
    return torch.sin(torch.arange(count, dtype=torch.float64) * step + offset)


def sine_weights(state_dict: dict[str, Tensor]) -> None:
    """Fill weights in place, in the order of their names, scaled by their fan-in."""
    for index, key in enumerate(sorted(key for key in state_dict if not key.endswith(NOT_LEARNED))):
        value = state_dict[key]
        wave = sines(value.numel(), 0.37, index).view(value.shape)
        if value.dim() > 1:
            wave = wave * (0.5 / value[0].numel() ** 0.5)
        else:
            wave = 0.1 * wave + ("norm" in key and key.endswith("weight"))
        value.copy_(wave.float())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_output_is_that_of_the_published_network(case: dict):
    channels, height, width = case["input"]
    image = (0.5 + 0.5 * sines(channels * height * width, 0.11)).float().view(1, channels, height, width)
    network = ARCHS.get(case["network"])(**case["arguments"]).train(case.get("training", False))
    if case.get("float64"):  # values above a hundred, which float32 holds to 1e-5 at best
        network, image = network.double(), image.double()
    torch.set_num_threads(1)
    with torch.no_grad():
        sine_weights(network.state_dict())
        judged = network(image)
    output = judged[0] if judged.dim() == 4 else judged.reshape(1, 1, -1)  # a judgement of a whole image or batch
    assert list(output.shape) == case["output"]
    assert output.mean().item() == pytest.approx(case["mean"], abs=1e-5)
    assert output.std(correction=min(1, output.numel() - 1)).item() == pytest.approx(case["std"], abs=1e-5)
    sample = output[:, :: max(1, output.shape[1] // 3), :: max(1, output.shape[2] // 4)].flatten()[:24]
    torch.testing.assert_close(sample, torch.tensor(case["sample"], dtype=sample.dtype), rtol=0, atol=1e-5)
