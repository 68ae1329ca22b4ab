"""The automations of a run: as the option file asks for them, with what fills in where it is silent."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from trainauto.automations import AUTOMATIONS, Automation
from trainauto.automations.dynamic_batch_size import LQ_SIZE
from trainauto.builders.components import build_component, checked_arguments, locate_errors
from trainauto.builders.memory import BOUNDS, MAX_TOKENS, controller_defaults, log_bounds, preset_for
from trainauto.core.decisions import RunFacts
from trainauto.core.errors import InputError, Problem
from trainauto.core.plan import BATCH_SIZE, TOKENS
from trainauto.options.cards import CardPreset
from trainauto.options.load import LoadedOptions
from trainauto.options.nested import SECTION
from trainauto.options.parameters import is_plain, parameters_of
from trainauto.options.run_options import Automations, AutomationSwitch, FileOptions


@dataclass(frozen=True)
class AutomationChoice:
    """An automation that is to run.

    Attributes:
        name: as the option file calls it.
        arguments: its arguments as they stand there.
        written: the same, as its constructor takes them.
        filled_in: its arguments that a preset gives, or that had to yield to what is written.
        foreign: arguments that bound what the plans of this run have not.
    """

    name: str
    arguments: Mapping[str, Any]
    written: Mapping[str, Any]
    filled_in: Mapping[str, Any]
    foreign: frozenset[str] = frozenset()

    @property
    def constructor(self) -> Callable[..., Automation]:
        """What builds it."""
        return AUTOMATIONS.get(self.name)

    @property
    def in_force(self) -> dict[str, Any]:
        """All its arguments by name, but for defaults that only code can hold."""
        plain = {
            parameter.name: parameter.default
            for parameter in parameters_of(self.constructor)
            if is_plain(parameter.default) and parameter.name not in self.foreign
        }
        return {**plain, **self.filled_in, **self.arguments}

    def build(self, loaded: LoadedOptions[FileOptions]) -> Automation:
        """Return it.

        Raises:
            InputError: it refuses its arguments.
        """
        path = (SECTION, self.name)
        built: Automation = build_component(loaded, AUTOMATIONS, path, self.name, self.arguments, self.filled_in)()
        return built


def is_controller(name: str) -> bool:
    """Say whether the automation called so steers by memory; one that is not registered does not."""
    registered = AUTOMATIONS.get(name) if name in AUTOMATIONS else None
    return isinstance(registered, type) and issubclass(registered, Automation) and registered.steers_memory


def controller_arguments(options: FileOptions) -> Mapping[str, Any] | None:
    """Return what the file gives the automation that steers by memory; ``None`` where there is none."""
    active = options.training_automations.active
    return next((switch.arguments for name, switch in active.items() if is_controller(name)), None)


def choose_automation(
    loaded: LoadedOptions[FileOptions],
    name: str,
    arguments: Mapping[str, Any],
    preset: CardPreset | None,
    facts: RunFacts,
) -> AutomationChoice:
    """Return an automation with what fills in for it on a card, or under a budget.

    Args:
        loaded: the options.
        name: what it is called.
        arguments: its arguments in the option file.
        preset: of the card or the budget.
        facts: axes and first plan of the run.

    Raises:
        InputError: it is not known, or does not take these arguments.
    """
    foreign = _foreign_bounds(facts)
    parameters = inspect.signature(AUTOMATIONS.get(name)).parameters
    fillable = frozenset((*BOUNDS, MAX_TOKENS)).difference(foreign).intersection(parameters)
    if preset is None and not is_controller(name):
        fillable = frozenset()
    written = checked_arguments(loaded, AUTOMATIONS, (SECTION, name), name, arguments, filled_in=fillable)
    if is_controller(name):
        _check_axes(loaded, name, arguments, foreign, facts)
    # Controllers of plugins may take null where ours take a number.
    numbers = {key: written[key] for key in fillable & written.keys() if isinstance(written[key], int | float)}
    defaults = controller_defaults(preset, facts, numbers)
    filled_in = {key: value for key, value in defaults.items() if key in fillable - arguments.keys()}
    return AutomationChoice(name, arguments, written, filled_in, foreign)


def _foreign_bounds(facts: RunFacts) -> frozenset[str]:
    """Return arguments of controllers that bound axes which a run has not."""
    names = {LQ_SIZE, BATCH_SIZE, TOKENS}.difference(axis.name for axis in facts.axes)
    return frozenset(f"{end}_{name}" for name in names for end in ("min", "max"))


def _check_axes(
    loaded: LoadedOptions[FileOptions],
    name: str,
    arguments: Mapping[str, Any],
    foreign: frozenset[str],
    facts: RunFacts,
) -> None:
    """Refuse bounds of what the plans of this run have not.

    Raises:
        InputError: nothing would read them.
    """
    counts_samples = any(axis.is_count for axis in facts.axes)
    for key in arguments:
        if key in foreign or (key == "target_batch_size" and not counts_samples):
            axes = " and ".join(axis.name for axis in facts.axes)
            own = ", ".join(f"min_{axis.name}, max_{axis.name}" for axis in facts.axes)
            with locate_errors(loaded, (SECTION, name, key)):
                raise InputError(
                    Problem(
                        f"'{key}' means nothing here: what changes in this run is {axes}", advice=f"There are {own}."
                    )
                )


def build_automations(
    loaded: LoadedOptions[FileOptions], facts: RunFacts, device: torch.device
) -> tuple[list[Automation], LoadedOptions[FileOptions]]:
    """Return the automations of a run in the order they are asked, and its options with all their arguments in force.

    Args:
        loaded: the options as given.
        facts: axes and first plan of the run.
        device: where it trains.

    Raises:
        InputError: an automation is not known, or refuses its arguments or the run.
    """
    section = loaded.options.training_automations
    for name in section.model_extra or {}:
        with locate_errors(loaded, (SECTION, name)):
            AUTOMATIONS.get(name)  # a misspelt name would switch nothing off
    preset = preset_for(device, loaded.options.memory.budget_bytes(device.type)) if section.active else None
    chosen = [
        choose_automation(loaded, name, switch.arguments, preset, facts) for name, switch in section.active.items()
    ]
    built = [_checked(loaded, choice, facts) for choice in chosen]
    for choice in chosen:
        if is_controller(choice.name):
            log_bounds(AUTOMATIONS.shown(choice.name), preset, choice.written, choice.filled_in)
    return sorted(built, key=lambda automation: automation.priority), with_all_arguments(loaded, chosen)


def _checked(loaded: LoadedOptions[FileOptions], chosen: AutomationChoice, facts: RunFacts) -> Automation:
    automation = chosen.build(loaded)
    with locate_errors(loaded, (SECTION, chosen.name)):
        try:
            automation.check(facts)
        except ValueError as error:
            raise InputError(Problem(str(error))) from error
    return automation


def with_all_arguments(
    loaded: LoadedOptions[FileOptions], chosen: list[AutomationChoice]
) -> LoadedOptions[FileOptions]:
    """Return options in which automations have the names they are registered by, and those that run all arguments."""
    section = loaded.options.training_automations
    arguments = {choice.name: choice.in_force for choice in chosen}
    switches = {
        AUTOMATIONS.shown(name): AutomationSwitch(enabled=switch.enabled, **arguments.get(name, switch.arguments))
        for name, switch in (section.model_extra or {}).items()
    }
    keys = (
        f"{SECTION}.{AUTOMATIONS.shown(choice.name)}.{key}"
        for choice in chosen
        for key in choice.in_force.keys() - choice.arguments.keys()
    )
    options = loaded.options.model_copy(update={SECTION: Automations(enabled=section.enabled, **switches)})
    return replace(loaded, options=options, unwritten=frozenset(keys))
