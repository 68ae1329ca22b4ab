"""The place where plugins find these names; what they are lies in :mod:`trainauto.tasks.sr.archs`."""

from trainauto.tasks.sr.archs import (
    ARCHS,
    SPAN,
    RRDBNet,
    SRVGGNetCompact,
    SwinIR,
    UNetDiscriminatorSN,
    is_discriminator,
    modern_keys,
    swinir_light,
)

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
