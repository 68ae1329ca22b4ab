"""Networks by registered name, and what every one of them promises.

A network is an ``nn.Module`` whose constructor takes ``num_in_ch``, ``num_out_ch`` and ``scale`` beside arguments of
its own, raises ``ValueError`` for arguments that no network can be built from, and carries three attributes:

* ``num_in_ch``: channels of the input it takes,
* ``scale``: its output is (N, num_out_ch, H * scale, W * scale) for an input of (N, num_in_ch, H, W),
* ``size_requirements``: the sides that training crops should have. A network pads smaller and odd images itself and
  cuts its output back, so that whole images of any size can be validated.

A discriminator judges images instead: it maps (N, num_in_ch, H, W), of any size, to logits with N first, says so with
the class attribute ``is_discriminator = True``, and has neither ``scale`` nor ``size_requirements``. Both kinds are
networks by name and share one registry, as in BasicSR; the attribute tells which key of an option file may name which.
One that judges images of a single size says which by ``input_size``, in pixels; it mirrors smaller ones up to it. One
that judges a batch as a whole has ``couples_samples = True``.

Images are floats in [0, 1]. BatchNorm, too, couples the samples of a batch, which then runs whole; EIMN, ELAN, EMT
and Sebica have it.
"""

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from trainauto.core.registry import Registry
from trainauto.tasks.sr.archs.foreign_networks import advice_about

ARCHS: Registry[Callable[..., nn.Module]] = Registry("network", advice_about=advice_about)
"""Networks by registered name."""


def register_preset(network: type[nn.Module], *names: str, about: str, **defaults: object) -> None:
    """Register a network under further names, with other defaults; every argument can still be given.

    Args:
        network: class of the network.
        names: of the preset; the first is the one shown.
        about: what the preset is, for the reference of options.
        defaults: arguments whose defaults differ.
    """
    signature = inspect.signature(network)
    parameters = [one.replace(default=defaults.get(one.name, one.default)) for one in signature.parameters.values()]

    def build(*positional: Any, **arguments: Any) -> nn.Module:
        return network(**{**defaults, **signature.bind_partial(*positional, **arguments).arguments})

    build.__name__ = build.__qualname__ = names[0]
    build.__module__ = network.__module__
    build.__doc__ = f"{about}; see ``{ARCHS.name_of(network)}`` for the arguments."
    build.__signature__ = signature.replace(parameters=parameters, return_annotation=network)  # type: ignore[attr-defined]
    ARCHS.register(*names)(build)


def is_discriminator(constructor: Callable[..., nn.Module]) -> bool:
    """Whether a registered network judges images; one that does not say enlarges them."""
    return bool(getattr(constructor, "is_discriminator", False))
