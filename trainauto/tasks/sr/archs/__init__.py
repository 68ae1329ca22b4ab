"""Networks. Importing this package registers them all; :mod:`.registry` says what each promises."""

from trainauto.tasks.sr.archs.compact_arch import SRVGGNetCompact
from trainauto.tasks.sr.archs.dunet_arch import DUnet
from trainauto.tasks.sr.archs.legacy_keys import modern_keys
from trainauto.tasks.sr.archs.metagan_arch import MetaGAN
from trainauto.tasks.sr.archs.patchgan_arch import (
    MultiscalePatchGANDiscriminatorSN,
    PatchGAN,
    PatchGANDiscriminatorSN,
)
from trainauto.tasks.sr.archs.registry import ARCHS, is_discriminator
from trainauto.tasks.sr.archs.rrdbnet_arch import RRDBNet
from trainauto.tasks.sr.archs.span_arch import SPAN
from trainauto.tasks.sr.archs.swinir_arch import SwinIR, swinir_light
from trainauto.tasks.sr.archs.unet_discriminator_arch import UNetDiscriminatorSN
from trainauto.tasks.sr.archs.vgg_discriminator_arch import VGGStyleDiscriminator

__all__ = [
    "ARCHS",
    "SPAN",
    "DUnet",
    "MetaGAN",
    "MultiscalePatchGANDiscriminatorSN",
    "PatchGAN",
    "PatchGANDiscriminatorSN",
    "RRDBNet",
    "SRVGGNetCompact",
    "SwinIR",
    "UNetDiscriminatorSN",
    "VGGStyleDiscriminator",
    "is_discriminator",
    "modern_keys",
    "swinir_light",
]
