"""Networks. Importing this package registers them all; :mod:`trainauto.archs.registry` says what each promises."""

from trainauto.archs.compact_arch import SRVGGNetCompact
from trainauto.archs.legacy_keys import modern_keys
from trainauto.archs.registry import ARCHS, is_discriminator
from trainauto.archs.rrdbnet_arch import RRDBNet
from trainauto.archs.span_arch import SPAN
from trainauto.archs.swinir_arch import SwinIR, swinir_light
from trainauto.archs.unet_discriminator_arch import UNetDiscriminatorSN

__all__ = [
    "ARCHS",
    "SPAN",
    "RRDBNet",
    "SRVGGNetCompact",
    "SwinIR",
    "UNetDiscriminatorSN",
    "is_discriminator",
    "modern_keys",
    "swinir_light",
]
