"""VGGStyleDiscriminator: the discriminator of ESRGAN."""

from typing import ClassVar

from torch import Tensor, nn

from trainauto.tasks.sr.archs.argument_checks import require_choice, require_positive_integers
from trainauto.tasks.sr.archs.padding import pad_to
from trainauto.tasks.sr.archs.registry import ARCHS

SIDE_AT_END = 4
HIDDEN = 100


@ARCHS.register("vggstylediscriminator")
class VGGStyleDiscriminator(nn.Module):
    """Halves images of one size down to 4 px and judges each as a whole.

    Its BatchNorm couples the samples of a batch: such a batch runs whole. Smaller images (crops that were cut because
    memory ran out) are mirrored up to its size; the published code fails on them.

    Args:
        num_in_ch: channels of the images it judges.
        num_feat: channels at full size; doubled with each of the first three halvings.
        input_size: side of the images, 128 or 256 px.

    Raises:
        ValueError: an argument is out of its range.

    References:
        C. Ledig et al., "SRGAN", CVPR 2017, https://arxiv.org/abs/1609.04802; X. Wang et al., "ESRGAN", ECCVW 2018,
        https://arxiv.org/abs/1809.00219.
    """

    is_discriminator: ClassVar[bool] = True
    num_in_ch: int
    """Channels of the input."""
    input_size: int
    """Side of the only images it judges, in pixels."""

    def __init__(self, num_in_ch: int = 3, num_feat: int = 64, input_size: int = 128) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_feat=num_feat)
        require_choice("input_size", input_size, (128, 256))
        self.num_in_ch = num_in_ch
        self.input_size = input_size
        self.halvings = (input_size // SIDE_AT_END).bit_length() - 1
        channels = num_in_ch
        for number in range(self.halvings):
            width = num_feat * min(2**number, 8)
            self.add_module(f"conv{number}_0", nn.Conv2d(channels, width, 3, padding=1, bias=not number))
            if number:
                self.add_module(f"bn{number}_0", nn.BatchNorm2d(width))
            self.add_module(f"conv{number}_1", nn.Conv2d(width, width, 4, stride=2, padding=1, bias=False))
            self.add_module(f"bn{number}_1", nn.BatchNorm2d(width))
            channels = width
        self.linear1 = nn.Linear(channels * SIDE_AT_END**2, HIDDEN)
        self.linear2 = nn.Linear(HIDDEN, 1)
        self.lrelu = nn.LeakyReLU(0.2, inplace=True)

    def forward(self, image: Tensor) -> Tensor:
        """Judge images (N, num_in_ch, input_size, input_size): a logit each, (N, 1).

        Raises:
            ValueError: they are larger.
        """
        if max(image.shape[-2:]) > self.input_size:
            raise ValueError(
                f"this discriminator judges images of {self.input_size} px a side, and got "
                f"{image.shape[-2]}x{image.shape[-1]}"
            )
        features = pad_to(image, self.input_size, self.input_size)
        for number in range(self.halvings):
            for layer in range(2):
                features = self.get_submodule(f"conv{number}_{layer}")(features)
                if number or layer:
                    features = self.get_submodule(f"bn{number}_{layer}")(features)
                features = self.lrelu(features)
        judgements: Tensor = self.linear2(self.lrelu(self.linear1(features.flatten(1))))
        return judgements
