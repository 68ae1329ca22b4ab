"""The controller of a loop that is not the engine's, by its settings."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from trainauto.automations.controller_automation import ControllerAutomation
from trainauto.control.bounds import Bounds
from trainauto.control.control_settings import ControlSettings
from trainauto.control.controller import Controller
from trainauto.control.effective_batch import EffectiveBatch
from trainauto.core.errors import InputError, nearest
from trainauto.core.plan import Axis


class LoopController(ControllerAutomation):
    """The controller of a loop of one's own."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], axes: tuple[Axis, ...], steps: EffectiveBatch | None = None) -> Self:
        """Return one that goes by these settings, within these bounds.

        With ``steps`` a step is of so many samples, whatever fits into one forward pass.

        Raises:
            InputError: a setting is unknown, or a value cannot be.
        """
        return cls(Controller(cls.name, settings_of(settings), Bounds({}, axes), steps or EffectiveBatch()))


def settings_of(settings: Mapping[str, Any]) -> ControlSettings:
    """Return what a controller goes by.

    Raises:
        InputError: a name is unknown, or a value cannot be.
    """
    known = [field.name for field in fields(ControlSettings)]
    for name in settings:
        if name not in known:
            is_bound = name.startswith(("min_", "max_"))
            advice = "Bounds are those of Range(start, maximum, minimum)." if is_bound else nearest(name, known)
            raise InputError(f"settings: '{name}' is unknown. {advice}")
    for name, kind in get_type_hints(ControlSettings).items():
        if get_origin(kind) is Literal and name in settings and settings[name] not in get_args(kind):
            raise InputError(f"settings: {name} is {settings[name]!r}; there are {', '.join(get_args(kind))}")
    try:
        return ControlSettings(**settings)
    except (TypeError, ValueError) as error:
        raise InputError(f"settings: {error}") from None
