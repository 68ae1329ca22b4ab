"""Networks. Importing this package registers them all; :mod:`.registry` says what each promises."""

from trainauto.tasks.sr.archs.compact_arch import SRVGGNetCompact
from trainauto.tasks.sr.archs.legacy_keys import modern_keys
from trainauto.tasks.sr.archs.registry import ARCHS, is_discriminator
from trainauto.tasks.sr.archs.rrdbnet_arch import RRDBNet
from trainauto.tasks.sr.archs.span_arch import SPAN
from trainauto.tasks.sr.archs.swinir_arch import SwinIR, swinir_light
from trainauto.tasks.sr.archs.unet_discriminator_arch import UNetDiscriminatorSN

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
