"""Networks of the library as trainauto wants them: any size of image, an input that is left alone, clear errors."""

import re
import warnings
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.errors import InputError
from trainauto.core.plan import SizeRequirements
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.tasks.sr.archs.argument_checks import require_choice, require_positive_integers
from trainauto.tasks.sr.archs.padding import pad_to, pad_to_multiple
from trainauto.tasks.sr.spandrel_archs.library import library_module
from trainauto.tasks.sr.spandrel_archs.table import SCALE, LibraryNetwork

if TYPE_CHECKING:
    _Base = nn.Module
else:
    _Base = object

USUAL_CHANNELS = 3


class AnySize(_Base):
    """What is put before the library's own class: images of any size, and an input that stays what it is.

    Weights have the names that the library's class gives them, so that files are exchanged as they are.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Sides that training crops should have, in whole windows."""
    accepted_sides: SizeRequirements
    """Sides that the library's own forward takes."""
    kept_in_training: tuple[str, ...]
    """Classes of modules whose evaluation mode takes one sample alone; training mode computes the same."""

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, C, H * scale, W * scale)."""
        height, width = image.shape[-2:]
        least, multiple = self.accepted_sides.minimum, self.accepted_sides.multiple
        padded = pad_to_multiple(image, multiple) if multiple > 1 else image
        if min(height, width) < least:
            padded = pad_to(padded, least, least)
        # RCAN multiplies its input in place: bicubic enlargement of the same image would be compared with nonsense.
        output: Tensor = super().forward(image.clone() if padded is image else padded)
        return output[..., : height * self.scale, : width * self.scale]

    def train(self, mode: bool = True) -> "AnySize":
        """Set training or evaluation mode, but for modules that are kept in training mode."""
        super().train(mode)
        for module in self.modules() if self.kept_in_training else ():
            if type(module).__name__ in self.kept_in_training:
                module.training = True
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        library_class = type(self).__mro__[2]
        return _empty, (library_class.__module__, library_class.__name__), self.__dict__


class NormOfOne(nn.BatchNorm2d):
    """BatchNorm that takes a single value a channel in training too, and normalises it by the running statistics.

    DAT has it behind a mean over the image: of one sample there is one value, which has no variance, and torch refuses
    it. A batch of one sample is all that fits some cards, and what memory is predicted and warmed up with.
    """

    def forward(self, features: Tensor) -> Tensor:
        """Normalise (N, C, H, W)."""
        if not self.training or features.numel() > features.shape[1]:
            return super().forward(features)
        return F.batch_norm(
            features, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
        )


def build(network: LibraryNetwork, arguments: Mapping[str, Any]) -> nn.Module:
    """Build a network of the library.

    Args:
        network: which.
        arguments: all of them by traiNNer's key, scale included.

    Raises:
        InputError: the library is not installed.
        ValueError: no network can be built from these arguments.
    """
    scale, channels = arguments[SCALE], arguments.get(network.channels, USUAL_CHANNELS)
    require_positive_integers(**{SCALE: scale, **({network.channels: channels} if network.channels else {})})
    if network.scales and scale not in network.scales:
        does = ", ".join(map(str, network.scales))
        raise ValueError(f"scale {scale} is none that {network.architecture} does: {does}")
    for key, choices in network.choices.items():
        require_choice(key, arguments[key], choices)
    accepted_sides, size_requirements = network.accepts(arguments), network.size_requirements(arguments)
    constructor = any_size_class(network.module, network.class_name(arguments))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.meshgrid: in an upcoming release", UserWarning)
            built: Any = constructor(**network.to_library(arguments))
    except InputError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        said = next(iter(str(error).splitlines()), "")
        raise ValueError(f"{network.architecture} refuses these arguments: {type(error).__name__} {said}") from error
    for module in built.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = NormOfOne
    for key, weight in built.named_parameters() if network.unread else ():
        weight.requires_grad_(re.fullmatch(network.unread, key) is None)
    built.scale, built.num_in_ch = scale, channels
    built.kept_in_training = network.kept_in_training
    built.accepted_sides, built.size_requirements = accepted_sides, size_requirements
    return cast(nn.Module, built)


@cache
def any_size_class(module: str, name: str) -> type[Any]:
    """Return the library's class of this name with :class:`AnySize` put before it.

    Raises:
        InputError: the library is not installed, or has no such class.
    """
    library_class = getattr(library_module(module), name)
    return type(name, (AnySize, library_class), {"__doc__": library_class.__doc__, "__module__": __name__})


def _empty(module: str, name: str) -> nn.Module:
    """Return a network without contents, which copies and pickles fill."""
    constructor = any_size_class(module, name)
    return cast(nn.Module, nn.Module.__new__(constructor))
