"""Which crops and batches of an option file fit on which card, without one."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from trainauto.builders.automations import choose_automation, is_controller
from trainauto.builders.data import build_axes, build_train_set, first_plan
from trainauto.builders.image_model import build_network
from trainauto.builders.load_plugins import load_plugins
from trainauto.control.controller import Controller, controllers_of
from trainauto.core.decisions import RunFacts
from trainauto.core.errors import InputError
from trainauto.core.plan import Axis, Plan
from trainauto.core.units import GIB, size_text
from trainauto.core.worker_process import WorkerProcess, start_tracing
from trainauto.data.dynamic_dataset import DatasetScan
from trainauto.forecast.benchmark_plans import benchmark_plans
from trainauto.forecast.card_answer import CONTEXT_BYTES, CardPlan, CardPlans
from trainauto.forecast.card_plan import (
    CardTarget,
    by_kernels,
    newest_of,
    plan_on_card,
    what_is_unknown,
    with_memory,
    within_budget,
)
from trainauto.forecast.loss_bytes import bytes_by_loss
from trainauto.forecast.recomputation import Bounds, Recomputations, choose_parts, plan_recomputations, recomputing
from trainauto.forecast.task import CardsRequest, ready_task, task_of
from trainauto.forecast.trace_process import TraceProcess
from trainauto.memory.cost.memory_forecast import CardTracer, MemoryForecast, forecast_memory
from trainauto.memory.cuda_allocator.segments import planned_segments
from trainauto.memory.tracing.trace import TraceError
from trainauto.options.card_presets import HAS_BFLOAT16
from trainauto.options.cards import CardPreset
from trainauto.options.load import LoadedOptions
from trainauto.options.resource_options import AUTO
from trainauto.options.run_options import CONTROLLER, FileOptions

UNBOUNDED_PX = 2**15


def plan_for_cards(
    given: LoadedOptions[FileOptions],
    cards: Sequence[CardPreset],
    *,
    measure: bool = False,
    child: WorkerProcess | None = None,
    closely: bool = False,
    ranks: int = 1,
) -> CardPlans:
    """Trace the run of an option file, whatever its task, and say what fits on each card.

    Args:
        given: the option file.
        cards: the cards.
        measure: try a few plans on the device at hand, too.
        child: a process that traces as on CUDA, where one was started already.
        closely: look at the first plan more closely, see ``PlanMemory``.
        ranks: how many processes train the run together, each on such a card.

    Raises:
        InputError: the options cannot be used.
        TraceError: the model cannot be traced.
    """
    task = ready_task(given)
    request = CardsRequest(cards, measure, child, closely, ranks)
    if given.options.memory.gradient_checkpointing == AUTO:
        with nullcontext(child) if child is not None else start_tracing(like_cuda=True) as worker:
            answer = _plan_recomputing(given, request, worker)
    else:
        answer = task.plan(given, request)
    return _with_halves(_with_ranks(answer, given.options, ranks), given.options)


def _with_halves(answer: CardPlans, options: FileOptions) -> CardPlans:
    """Return an answer that names the cards which compute in bfloat16 slowly, where the file asks for that."""
    if not (options.use_amp and options.amp_bf16):
        return answer
    presets = [card.preset for card in answer.cards]
    without = [preset.name for preset in presets if preset.capability and preset.capability < HAS_BFLOAT16]
    if not without:
        return answer
    cards = " and ".join(without)
    note = f"No units for bfloat16: {cards}. Write amp_bf16: false there (float16, with loss scaling)."
    return replace(answer, notes=(note, *answer.notes))


def _with_ranks(answer: CardPlans, options: FileOptions, ranks: int) -> CardPlans:
    """Return an answer that says of how many ranks it is."""
    chosen = options.distributed
    if ranks > 1:
        spread = "weights, gradients and optimizer state are spread over them"
        shared = spread if chosen.fully_shard else "each holds all weights"
        note = f"Of {ranks} ranks, each on such a card: {shared}. Batches are those of one rank."
    elif chosen.fully_shard:
        note = "fully_shard spreads weights over ranks, and this is the plan of one: --ranks N plans for N."
    else:
        return answer
    return replace(answer, notes=(note, *answer.notes))


def _plan_recomputing(loaded: LoadedOptions[FileOptions], request: CardsRequest, worker: WorkerProcess) -> CardPlans:
    """Plan each card with the blocks that a run there would run again."""
    task = task_of(loaded)
    answers, said = [], []
    for number, card in enumerate(request.cards):
        first = not number
        of_card = replace(
            request, cards=[card], measure=request.measure and first, child=worker, closely=request.closely and first
        )
        answer = task.plan(loaded, of_card)
        (on_card,) = answer.cards
        target_bytes = on_card.available_bytes if on_card.kept else on_card.target_bytes
        bounds = Bounds("cuda", target_bytes, on_card.available_bytes)
        plan = task.first_plan(loaded)
        with _tracer(loaded, request, worker) as tracer:
            tracer.aim(newest_of([card]))
            chosen = choose_parts(tracer, plan, bounds)
        if chosen.parts:
            answer = task.plan(replace(loaded, overrides=(*loaded.overrides, recomputing(chosen.parts))), of_card)
        answers.append(answer)
        said.append(f"{card.name}, gradient checkpointing auto, for {plan}: {chosen}.")
    return replace(
        answers[0],
        cards=tuple(answer.cards[0] for answer in answers),
        notes=(*said, *answers[0].notes),
    )


def _tracer(loaded: LoadedOptions[FileOptions], request: CardsRequest, worker: WorkerProcess | None) -> TraceProcess:
    return TraceProcess(
        loaded.path, loaded.overrides, segments=planned_segments(), world_size=request.ranks, worker=worker
    )


def plan_recipes_of_blocks(
    loaded: LoadedOptions[FileOptions], cards: Sequence[CardPreset], worker: WorkerProcess
) -> Recomputations:
    """Say what the plan of an option file takes while none, some or all of its blocks run again.

    Args:
        loaded: the option file.
        cards: the cards.
        worker: a process that traces as on CUDA.

    Raises:
        InputError: the options cannot be used.
        TraceError: the model cannot be traced, or no block can run again.
    """
    bounded, _ = within_budget(cards, loaded.options)
    available_bytes = {
        card.name: min(int(bound.memory_gib * GIB), int(card.memory_gib * GIB) - CONTEXT_BYTES)
        for card, bound in zip(cards, bounded, strict=True)
    }
    nothing = (*loaded.overrides, recomputing(()))
    with TraceProcess(loaded.path, nothing, segments=planned_segments(), worker=worker) as tracer:
        tracer.aim(newest_of(cards))
        return plan_recomputations(loaded, task_of(loaded).first_plan(loaded), available_bytes, tracer)


def plan_super_resolution(loaded: LoadedOptions, request: CardsRequest) -> CardPlans:
    """Trace the run of an option file of super-resolution; errors are those of :func:`plan_for_cards`."""
    notes = []
    if "scale" not in loaded.options.model_fields_set:
        notes.append(f"No scale is written: the default, {loaded.options.scale}, is planned for.")
    with _tracer(loaded, request, request.child) as tracer:
        tracer.start()  # torch is loaded there while the network is built here
        load_plugins(loaded)
        network = build_network(loaded, pretrained=False)
        try:
            train_set, scans = build_train_set(loaded, network)
            scan = scans[train_set.name]
        except InputError as error:
            scan = DatasetScan(1, UNBOUNDED_PX, "", 0)
            why = error.problems[0].message
            notes.append(f"The training set cannot be read ({why}): crops are not bounded by its smallest image.")
        answer, hull = plan_crops(loaded, build_axes(loaded, network, scan), request.cards, tracer)
        answer = with_memory(answer, tracer) if request.closely else answer
        first = first_plan(loaded.options)
        losses = bytes_by_loss(loaded, tracer, first)
        if loaded.options.use_compile:
            notes.append(_on_compiling(tracer, first))
    trials = benchmark_plans(loaded, hull, answer.forecast) if request.measure else None
    return replace(answer, notes=(*notes, *answer.notes), trials=trials, losses=losses)


def _on_compiling(tracer: TraceProcess, plan: Plan) -> str:
    """Say what the figures are worth where the network is compiled."""
    estimate = "use_compile: peaks are estimates, those of the network as it is; two measured steps correct them."
    try:
        kept = tracer.kept(plan)
    except TraceError as error:
        return f"{estimate} What torch.compile keeps between the passes is not known: {error}."
    return (
        f"{estimate} Between the passes of {plan} the network keeps {size_text(kept.eager_bytes)}, and compiled "
        f"{size_text(kept.compiled_bytes)}, by the joint graph of both passes."
    )


def plan_crops(
    loaded: LoadedOptions, axes: tuple[Axis, ...], cards: Sequence[CardPreset], tracer: CardTracer
) -> tuple[CardPlans, tuple[Axis, ...]]:
    """Say what fits on each card, and within which bounds of all of them plans were looked at.

    Args:
        loaded: the option file.
        axes: of the run, as its images bound them.
        cards: the cards.
        tracer: of the run.

    Raises:
        InputError: the controller does not take its settings.
        TraceError: the model cannot be traced.
    """
    whole = {card.name: int(card.memory_gib * GIB) for card in cards}
    cards, bounded_by = within_budget(cards, loaded.options)
    controllers = {card.name: _controller(loaded, card, axes) for card in cards}
    bounds = {name: controller.bounded(axes) for name, controller in controllers.items()}
    hull = _hull(axes, list(bounds.values()))
    first = first_plan(loaded.options)
    kept = None if _steering(loaded) else first

    def plans(some: Sequence[CardPreset], known: MemoryForecast | None) -> tuple[MemoryForecast, Sequence[CardPlan]]:
        forecast = known or forecast_memory(tracer, hull)
        if kept is not None and not forecast.knows(kept):
            forecast = forecast.extended({kept: tracer.trace(kept)})
        answers = [
            plan_on_card(
                _target(card, whole[card.name], controllers[card.name]),
                bounds[card.name],
                controllers[card.name].effective.forward(first),
                forecast,
                kept=kept,
            )
            for card in some
        ]
        return forecast, answers

    forecast, answers = by_kernels(cards, tracer, plans)
    options = loaded.options
    notes = (*_on_objective(loaded, first), *what_is_unknown())
    return CardPlans(options.name, options.network_g.type, notes, forecast, axes, answers, bounded_by=bounded_by), hull


def _on_objective(loaded: LoadedOptions, first: Plan) -> tuple[str, ...]:
    """Say what an objective makes of the plans that memory admits."""
    name = _steering(loaded)
    active = loaded.options.training_automations.active
    objective = active[name].arguments.get("objective", "memory") if name is not None else "memory"
    if objective == "memory":
        return ()
    goal = {
        "throughput": "grows the batch while that makes it faster, with the crop that memory admits",
        "goodput": "grows the batch while that learns more a second, by speeds and gradients that only a run knows",
    }.get(objective, "goes by another measure")
    return (
        f"objective: {objective}: the tables say what memory admits, which `objective: memory` would take. The run "
        f"begins with {first}, {goal}, and never passes these plans.",
    )


def _steering(loaded: LoadedOptions) -> str | None:
    """Return the automation of an option file that steers by memory, if there is one."""
    return next((name for name in loaded.options.training_automations.active if is_controller(name)), None)


def _controller(loaded: LoadedOptions, card: CardPreset, axes: tuple[Axis, ...]) -> Controller:
    """Return the controller a run on this card would have: the option file's settings, else the card's.

    Raises:
        InputError: it does not take these settings.
    """
    active = loaded.options.training_automations.active
    name = _steering(loaded) or CONTROLLER
    arguments = active[name].arguments if name in active else {}
    facts = RunFacts(axes, first_plan(loaded.options))
    (controller,) = controllers_of([choose_automation(loaded, name, arguments, card, facts).build(loaded)])
    return controller


def _target(card: CardPreset, memory_bytes: int, controller: Controller) -> CardTarget:
    settings = controller.settings
    return CardTarget(card, memory_bytes, settings.target_vram_usage, settings.safety_margin)


def _hull(axes: tuple[Axis, ...], by_card: Sequence[tuple[Axis, ...]]) -> tuple[Axis, ...]:
    """Return axes that span the bounds of all cards."""
    hull = []
    for axis in axes:
        same = [next(other for other in card_axes if other.name == axis.name) for card_axes in by_card]
        low, high = min(other.minimum for other in same), max(other.maximum for other in same)
        hull.append(replace(axis, minimum=low, maximum=high))
    return tuple(hull)
