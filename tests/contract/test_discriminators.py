"""What every registered discriminator must do; networks that enlarge have a suite of their own."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from trainauto.tasks.sr.archs import ARCHS, is_discriminator
from trainauto.tasks.sr.archs.dysample import DySample
from trainauto.tasks.sr.archs.spectral_norm import SpectralNormConv2d
from trainauto.tasks.sr.models.sr_model import couples_samples

SMALL: dict[str, dict[str, object]] = {
    "dunet": {"num_feat": 4},
    # What is drawn at random differs between a batch and its parts.
    "metagan": {
        "n_class": 1,
        "dims": (8, 8, 8),
        "blocks": (1, 1, 1),
        "downs": (4, 2, 2),
        "drop_path": 0.0,
        "end_drop": 0.0,
    },
    "multiscalepatchgandiscriminatorsn": {"ndf": 4, "n_layers": 2, "num_d": 2},
    "patchgan": {"num_feat": 4, "num_layers": 2},
    "patchgandiscriminatorsn": {"ndf": 4, "n_layers": 2},
    "unetdiscriminatorsn": {"num_feat": 4},
    "vggstylediscriminator": {"num_feat": 2},
}
"""Arguments that make each discriminator small; every registered one has an entry."""
PARAMETERS = {
    "dunet": 3_231_457,
    "metagan": 6_017_241,
    "multiscalepatchgandiscriminatorsn": 8_294_211,
    "patchgan": 2_764_737,
    "patchgandiscriminatorsn": 2_764_737,
    "unetdiscriminatorsn": 4_376_897,
    "vggstylediscriminator": 14_499_401,
}
"""Of the published networks, with default arguments."""
CHANNELS = {"metagan": "in_ch", "multiscalepatchgandiscriminatorsn": "input_nc", "patchgandiscriminatorsn": "input_nc"}
"""What the argument ``num_in_ch`` is called elsewhere."""
COUPLED = {"multiscalepatchgandiscriminatorsn", "vggstylediscriminator"}


def build(name: str, seed: int = 7, **arguments: object) -> nn.Module:
    torch.manual_seed(seed)
    return ARCHS.get(name)(**{**SMALL[name], **arguments})


def picture(n: int = 2, channels: int = 3, height: int = 16, width: int = 24) -> Tensor:
    return torch.rand(n, channels, height, width, generator=torch.Generator().manual_seed(11))


@pytest.fixture(params=sorted(SMALL))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_every_registered_discriminator_is_tested() -> None:
    assert {name for name in ARCHS if is_discriminator(ARCHS.get(name))} == set(SMALL)
    assert "UNetDiscriminatorSN" in ARCHS


def test_it_judges_each_sample_of_any_size(name: str) -> None:
    judge = build(name)
    for height, width in [(16, 24), (17, 9), (8, 8), (1, 1), (3, 50)]:
        judgements = judge(picture(2, 3, height, width))
        assert judgements.shape[:1] == (torch.Size() if name.startswith("multiscale") else (2,))
        assert judgements.isfinite().all()


def test_channels_of_its_images_are_told_and_taken(name: str) -> None:
    for channels in (1, 3):
        judge = build(name, **{CHANNELS.get(name, "num_in_ch"): channels})
        assert judge.num_in_ch == channels
        assert judge(picture(channels=channels)).isfinite().all()
    assert not hasattr(judge, "scale")


def test_parameters_are_those_of_the_published_network(name: str) -> None:
    with torch.device("meta"):
        assert sum(value.numel() for value in ARCHS.get(name)().parameters()) == PARAMETERS[name]


def test_gradient_reaches_every_weight_and_the_image(name: str) -> None:
    judge, image = build(name), picture(height=15, width=13).requires_grad_()
    judgements = judge(image)
    (judgements * torch.linspace(-1, 2, judgements.numel()).view_as(judgements)).sum().backward()
    assert [key for key, value in judge.named_parameters() if value.grad is None or not value.grad.any()] == []
    assert image.grad is not None
    assert image.grad.any(dim=1).all()


def test_two_forward_passes_before_one_backward_pass(name: str) -> None:
    judge = build(name)
    (judge(picture()).mean() - judge(1 - picture()).mean()).backward()
    assert all(value.grad is not None and value.grad.isfinite().all() for value in judge.parameters())


@pytest.mark.parametrize("training", [True, False])
def test_samples_do_not_touch_each_other(name: str, training: bool) -> None:
    if name in COUPLED:
        has_batch_norm = any(isinstance(module, nn.BatchNorm2d) for module in build(name).modules())
        assert has_batch_norm or couples_samples(build(name))
        return
    judge, image = build(name), picture(height=13)
    state = copy.deepcopy(judge.state_dict())
    alone = []
    with torch.no_grad():
        for sample in image:
            judge.load_state_dict(state)
            alone.append(judge.train(training)(sample[None]))
        judge.load_state_dict(state)
        torch.testing.assert_close(judge(image), torch.cat(alone), rtol=1e-4, atol=1e-5)


def test_evaluation_repeats_itself_and_leaves_it_as_it_was(name: str) -> None:
    judge = build(name).eval()
    before = copy.deepcopy(judge.state_dict())
    with torch.no_grad():
        assert torch.equal(judge(picture()), judge(picture()))
    assert all(torch.equal(value, before[key]) for key, value in judge.state_dict().items())


def test_everything_it_goes_on_from_is_in_its_state_dict(name: str) -> None:
    """After training passes too: a resumed run computes the same bits."""
    judge, other = build(name), build(name, seed=8)
    judge(picture())
    other.load_state_dict(judge.state_dict())
    for _ in range(2):
        assert torch.equal(other(picture()), judge(picture()))


def test_copies_are_equal_and_separate_while_it_trains(name: str) -> None:
    judge = build(name)
    judge(picture()).sum().backward()
    other = copy.deepcopy(judge)
    before = copy.deepcopy(judge)(picture())
    assert torch.equal(other(picture()), before)
    with torch.no_grad():
        for value in other.parameters():
            value.add_(0.05)
    assert not torch.equal(other(picture()), before)
    assert torch.equal(judge(picture()), before)


def test_bfloat16_autocast(name: str) -> None:
    judge = build(name)
    other = copy.deepcopy(judge)
    plain = judge(picture())
    with torch.autocast("cpu", torch.bfloat16):
        judgements = other(picture())
    assert (judgements.float() - plain).abs().max() < 0.05 * plain.abs().max()
    judgements.float().square().mean().backward()
    assert all(value.grad is not None and value.grad.isfinite().all() for value in other.parameters())


def test_channels_last(name: str) -> None:
    judge, image = build(name), picture()
    other = copy.deepcopy(judge).to(memory_format=torch.channels_last)
    torch.testing.assert_close(other(image.contiguous(memory_format=torch.channels_last)), judge(image))


def test_runs_on_fake_tensors_and_on_the_meta_device(name: str) -> None:
    with FakeTensorMode():
        judge = ARCHS.get(name)(**SMALL[name])
        judge(torch.empty(2, 3, 15, 16)).sum().backward()
    assert all(value.grad is not None for value in judge.parameters())
    with torch.device("meta"):
        assert ARCHS.get(name)(**SMALL[name])(torch.empty(2, 3, 15, 16)).is_meta


@pytest.mark.parametrize("value", [0, 8.0])
def test_bad_arguments_are_refused_in_words(name: str, value: object) -> None:
    for argument in (CHANNELS.get(name, "num_in_ch"), next(iter(SMALL[name]))):
        with pytest.raises(ValueError, match=f"{argument} must be a whole number of at least 1"):
            build(name, **{argument: value})


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("dunet", {"num_feat": 7}, "num_feat must be even"),
        ("metagan", {"dims": (12, 8, 8)}, "dims must be multiples of 8 where downs is 4, got 12"),
        ("metagan", {"blocks": (1, 1)}, "dims must be as many as blocks and downs, got 3, 2, 3"),
        ("metagan", {"downs": (4, 3, 2)}, "downs must be one of 2, 4"),
        ("patchgan", {"norm_type": "layer"}, "norm_type must be one of 'none', 'batch'"),
        ("vggstylediscriminator", {"input_size": 64}, "input_size must be one of 128, 256"),
    ],
)
def test_arguments_of_one_are_refused_in_words(name: str, arguments: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        build(name, **arguments)


def test_vgg_judges_one_size_and_mirrors_smaller_images_up_to_it() -> None:
    judge = build("vggstylediscriminator").eval()
    assert sum(value.numel() for value in ARCHS.get("vggstylediscriminator")(input_size=256).parameters()) == 21_055_049
    with pytest.raises(ValueError, match="judges images of 128 px a side, and got 128x136"):
        judge(picture(height=128, width=136))
    small = picture(height=64, width=128)
    assert torch.equal(judge(small), judge(torch.cat([small, small.flip(2)], dim=2)))


def test_dunet_pads_what_is_no_multiple_of_8() -> None:
    judge, image = build("dunet").eval(), picture(1, 3, 13, 24)
    padded = torch.cat([image, image.flip(2)[:, :, :3]], dim=2)
    with torch.no_grad():
        assert judge(image).shape == (1, 1, 13, 24)
        torch.testing.assert_close(judge(image), judge(padded)[:, :, :13])


def test_dysample_begins_as_plain_enlargement() -> None:
    enlarge, features = DySample(8), picture(channels=8)
    nn.init.zeros_(enlarge.offset.weight)
    nn.init.zeros_(enlarge.offset.bias)
    expected = nn.functional.interpolate(features, scale_factor=2, mode="bilinear", align_corners=False)
    torch.testing.assert_close(enlarge(features), expected)


def test_unet_judges_every_pixel_and_pads_what_is_no_multiple_of_8() -> None:
    judge, image = build("unetdiscriminatorsn").eval(), picture(1, 3, 13, 22)
    padded = torch.cat([image, image.flip(2)[:, :, :3]], dim=2)
    padded = torch.cat([padded, padded.flip(3)[:, :, :, :2]], dim=3)
    with torch.no_grad():
        judgements = judge(image)
        assert judgements.shape == (1, 1, 13, 22)
        torch.testing.assert_close(judgements, judge(padded)[:, :, :13, :22])


def test_unet_without_skips_sees_no_detail() -> None:
    with_skips, without = (build("unetdiscriminatorsn", skip_connection=skip).eval() for skip in (True, False))
    fine = torch.zeros(1, 3, 16, 16)
    fine[..., ::2] = 1
    with torch.no_grad():
        spread = [float((network(fine)[..., 4:-4, 4:-4]).std()) for network in (with_skips, without)]
    assert spread[0] > 10 * spread[1]


@pytest.mark.parametrize(("kernel_size", "stride", "padding"), [(3, 1, 1), (4, 2, 1)])
def test_spectral_norm_is_that_of_torch(kernel_size: int, stride: int, padding: int) -> None:
    theirs = nn.utils.spectral_norm(nn.Conv2d(5, 7, kernel_size, stride, padding, bias=False))
    ours = SpectralNormConv2d(5, 7, kernel_size, stride, padding)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    image = picture(channels=5)
    for training in (True, True, False, True):
        outputs = [network.train(training)(image) for network in (theirs, ours)]
        for output in outputs:
            output.square().sum().backward()
        torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-6, atol=1e-6)
        assert ours.weight_orig.grad is not None
        torch.testing.assert_close(ours.weight_orig.grad, theirs.weight_orig.grad, rtol=1e-5, atol=1e-5)
    for key, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[key], value)


def test_spectral_norm_is_near_one_at_once_and_comes_nearer() -> None:
    torch.manual_seed(0)
    conv = SpectralNormConv2d(16, 24, 3, 1, 1)
    norms = [float(torch.linalg.matrix_norm(conv._normalized_weight().detach().flatten(1), 2)) for _ in range(30)]
    assert norms[0] == pytest.approx(1, abs=0.05)
    assert norms[-1] == pytest.approx(1, abs=0.005)
    assert all(later <= earlier + 1e-6 for earlier, later in pairwise(norms))


def test_spectral_norm_takes_one_step_a_pass_where_one_is_told() -> None:
    conv, other = SpectralNormConv2d(16, 24, 3, 1, 1), SpectralNormConv2d(16, 24, 3, 1, 1)
    other.load_state_dict(conv.state_dict())
    image = picture(channels=16)
    for _ in range(2):
        conv.begin_pass()
        first = conv(image)
        checkpointed = checkpoint(conv, image, use_reentrant=False)  # runs again in the backward pass
        checkpointed.sum().backward()
        conv.end_pass()
        assert torch.equal(first, other(image))
        assert torch.equal(first, checkpointed)
        assert torch.equal(conv.weight_u, other.weight_u)
    assert not torch.equal(conv(image), first)


def test_spectral_norm_loads_the_weights_of_both_of_torch() -> None:
    theirs = nn.utils.parametrizations.spectral_norm(nn.Conv2d(5, 7, 3, 1, 1)).eval()
    ours = nn.Sequential(SpectralNormConv2d(5, 7, 3, 1, 1, bias=True)).eval()
    ours.load_state_dict({f"0.{key}": value for key, value in theirs.state_dict().items()})
    torch.testing.assert_close(ours(picture(channels=5)), theirs(picture(channels=5)))


def test_spectral_norm_is_found_in_float32_under_autocast() -> None:
    conv = SpectralNormConv2d(16, 24, 3, 1, 1).eval()
    expected = conv._normalized_weight()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(conv._normalized_weight(), expected)
