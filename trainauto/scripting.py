"""What people script with: an option file, a change, a run, a question. ``trainauto`` shows these names at its top.

Nothing here may import torch at the top: options are checked, and the environment set, before it is loaded.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from trainauto.commands.common_arguments import prepare_environment
from trainauto.core.errors import InputError
from trainauto.options.load import LoadedOptions
from trainauto.options.load import load_options as load

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from trainauto.engine.run import Run
    from trainauto.forecast.batch_shapes import Bounds, Shapes
    from trainauto.forecast.card_answer import CardPlan
    from trainauto.forecast.plan_request import MakeOptimizer, PlanRequest
    from trainauto.integrations.loop_model import Loss
    from trainauto.options.cards import CardPreset
    from trainauto.options.run_options import FileOptions


def load_options(
    file: str | os.PathLike[str], changes: Mapping[str, Any] | None = None
) -> "LoadedOptions[FileOptions]":
    """Read and check an option file.

    Args:
        file: the YAML file.
        changes: values by key, e.g. ``{"train:total_iter": 500}``, in place of the file's.

    Raises:
        InputError: with one problem for each thing that is wrong, in file order.
    """
    loaded = load(Path(file))
    return loaded.changed(changes) if changes else loaded


def build_run(options: "LoadedOptions[FileOptions]", *, auto_resume: bool = False) -> "AbstractContextManager[Run]":
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


@overload
def plan(subject: "LoadedOptions[FileOptions]", *, card: str | None = None, vram: str | None = None) -> "CardPlan": ...


@overload
def plan(subject: "PlanRequest", *, card: str | None = None, vram: str | None = None) -> "CardPlan": ...


@overload
def plan(
    subject: "nn.Module | Callable[[], nn.Module]",
    loss: "Loss",
    shapes: "Shapes",
    *,
    optimizer: "Optimizer | MakeOptimizer | str | None" = "AdamW",
    bounds: "Bounds | None" = None,
    target_vram_usage: float | None = None,
    card: str | None = None,
    vram: str | None = None,
) -> "CardPlan": ...


def plan(
    subject: "LoadedOptions[FileOptions] | PlanRequest | nn.Module | Callable[[], nn.Module]",
    loss: "Loss | None" = None,
    shapes: "Shapes | None" = None,
    *,
    card: str | None = None,
    vram: str | None = None,
    **code: Any,
) -> "CardPlan":
    """Say what a run would do on a card, without one: its batch and size, and the memory they take.

    One step is followed on tensors without data; that takes seconds, and nothing is written. The run is that of an
    option file, traced in a process of its own, or code, traced in this one on a copy of the model. Tensors of other
    threads are left alone meanwhile.

    Args:
        subject: options, or the model of the code: a module, which stays as it is, or a function that makes it; or all
            of the code in one, as the command line's factories return it.
        loss: of code: ``loss(model, batch)``, see :class:`~trainauto.forecast.plan_request.PlanRequest`; so are:
        shapes: of a batch, e.g. ``{"ids": ("batch", "tokens", torch.int64)}``.
        card: its name, e.g. ``"RTX 3060 12GB"``; ``python -m trainauto plan --list-cards`` lists them.
        vram: or its memory, e.g. ``"16GiB"``.
        code: ``optimizer``, ``bounds`` and ``target_vram_usage`` of code.

    Raises:
        InputError: no card is called so, ``vram`` is no size, or options or code cannot be used.
        ValueError: neither a card nor a size was given, or both were.
        TraceError: the model cannot be followed.
    """
    from trainauto.core.process import set_environment

    preset = _chosen_card(card, vram)
    set_environment()
    if isinstance(subject, LoadedOptions):
        if loss is not None or shapes is not None or code:
            raise TypeError("an option file says itself what is trained: plan(options, card=...)")
        return _plan_options(subject, preset)
    from trainauto.forecast.code_plans import plan_code
    from trainauto.forecast.plan_request import PlanRequest

    if isinstance(subject, PlanRequest):
        return plan_code(subject, [preset], closely=True).cards[0]
    if loss is None or shapes is None:
        raise TypeError("code is planned by plan(model, loss, shapes, card=...)")
    code["bounds"] = code.get("bounds") or {}
    return plan_code(PlanRequest(subject, loss, shapes, **code), [preset], closely=True).cards[0]


def _chosen_card(card: str | None, vram: str | None) -> "CardPreset":
    from trainauto.core.process import parse_size_bytes
    from trainauto.options.cards import card_by_words, card_of_memory

    if card is not None and vram is None:
        return card_by_words(card)
    if vram is None or card is not None:
        raise ValueError('name a card ("RTX 3060 12GB"), or its memory (vram="16GiB")')
    try:
        return card_of_memory(parse_size_bytes(vram))
    except ValueError as error:
        raise InputError(str(error)) from None


def _plan_options(options: "LoadedOptions[FileOptions]", card: "CardPreset") -> "CardPlan":
    from trainauto.core.worker_process import start_tracing

    with start_tracing(like_cuda=True) as child:
        from trainauto.forecast import option_plans

        return option_plans.plan_for_cards(options, [card], child=child, closely=True).cards[0]
