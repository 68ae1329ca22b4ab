"""Networks. Importing this package registers them all; :mod:`.registry` says what each promises."""

from trainauto.tasks.sr.archs.compact_arch import SRVGGNetCompact
from trainauto.tasks.sr.archs.dunet_arch import DUnet
from trainauto.tasks.sr.archs.ecbsr_arch import ECBSR
from trainauto.tasks.sr.archs.edsr_arch import EDSR
from trainauto.tasks.sr.archs.legacy_keys import modern_keys
from trainauto.tasks.sr.archs.man_arch import MAN, man_light, man_tiny
from trainauto.tasks.sr.archs.metagan_arch import MetaGAN
from trainauto.tasks.sr.archs.msrresnet_arch import MSRResNet
from trainauto.tasks.sr.archs.patchgan_arch import (
    MultiscalePatchGANDiscriminatorSN,
    PatchGAN,
    PatchGANDiscriminatorSN,
)
from trainauto.tasks.sr.archs.registry import ARCHS, is_discriminator
from trainauto.tasks.sr.archs.rrdbnet_arch import RRDBNet
from trainauto.tasks.sr.archs.span_arch import SPAN, span_s
from trainauto.tasks.sr.archs.spanplus_arch import SPANPlus, spanplus_s, spanplus_st, spanplus_sts
from trainauto.tasks.sr.archs.swinir_arch import SwinIR, swinir_l, swinir_light
from trainauto.tasks.sr.archs.unet_discriminator_arch import UNetDiscriminatorSN
from trainauto.tasks.sr.archs.vgg_discriminator_arch import VGGStyleDiscriminator

__all__ = [
    "ARCHS",
    "ECBSR",
    "EDSR",
    "MAN",
    "SPAN",
    "DUnet",
    "MSRResNet",
    "MetaGAN",
    "MultiscalePatchGANDiscriminatorSN",
    "PatchGAN",
    "PatchGANDiscriminatorSN",
    "RRDBNet",
    "SPANPlus",
    "SRVGGNetCompact",
    "SwinIR",
    "UNetDiscriminatorSN",
    "VGGStyleDiscriminator",
    "is_discriminator",
    "man_light",
    "man_tiny",
    "modern_keys",
    "span_s",
    "spanplus_s",
    "spanplus_st",
    "spanplus_sts",
    "swinir_l",
    "swinir_light",
]
