"""What people script with: an option file, a change, a run, a question. ``trainauto`` shows these names at its top.

Nothing here may import torch at the top: options are checked, and the environment set, before it is loaded.
"""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainauto.commands.common_arguments import prepare_environment
from trainauto.core.errors import InputError
from trainauto.options.load import LoadedOptions
from trainauto.options.load import load_options as load

if TYPE_CHECKING:
    from trainauto.engine.run import Run
    from trainauto.forecast.card_plan import CardPlan


def load_options(file: str | os.PathLike[str], changes: Mapping[str, Any] | None = None) -> LoadedOptions:
    """Read and check an option file.

    Args:
        file: the YAML file.
        changes: values by key, e.g. ``{"train:total_iter": 500}``, in place of the file's.

    Raises:
        InputError: with one problem for each thing that is wrong, in file order.
    """
    loaded = load(Path(file))
    return loaded.changed(changes) if changes else loaded


def build_run(options: LoadedOptions, *, auto_resume: bool = False) -> "AbstractContextManager[Run]":
    """Build the run of an option file; leaving the context takes it down.

    Call it before anything else imports torch where the options hold a memory budget: what that needs of the process
    can only be set before; a warning says where it came too late.

    Args:
        options: of the run.
        auto_resume: resume the latest run of this name, if there is one.

    Raises:
        InputError: options, plugins, data or weights cannot be used, or another process trains the run.
        CheckpointError: the run to resume cannot be read.
    """
    prepare_environment(options.options)
    from trainauto.build import build_run as build

    return build(options, auto_resume=auto_resume)


def plan(options: LoadedOptions, card: str | None = None, *, vram: str | None = None) -> "CardPlan":
    """Say what a run would do on a card, without one: its crop and batch, and the memory they take.

    One step is followed on tensors without data, in a process of its own; that takes seconds, and nothing is written.

    Args:
        options: of the run.
        card: its name, e.g. ``"RTX 3060 12GB"``; ``python -m trainauto plan --list-cards`` lists them.
        vram: or its memory, e.g. ``"16GiB"``.

    Raises:
        InputError: no card is called so, ``vram`` is no size, or the options cannot be used.
        ValueError: neither a card nor a size was given, or both were.
        TraceError: the model cannot be followed.
    """
    from trainauto.core.process import parse_size_bytes, set_environment
    from trainauto.core.worker_process import start_tracing

    if (card is None) == (vram is None):
        raise ValueError('name a card ("RTX 3060 12GB"), or its memory (vram="16GiB")')
    try:
        sizes = [parse_size_bytes(vram)] if vram is not None else []
    except ValueError as error:
        raise InputError(str(error)) from None
    set_environment()
    with start_tracing(like_cuda=True) as child:
        from trainauto.forecast import card_plan, card_plans

        cards = card_plan.chosen_cards([card] if card is not None else [], sizes)
        return card_plans.plan_for_cards(options, cards, child=child).cards[0]
