"""What ``python -m trainauto replay`` does: it repeats a logged run, step by step, into a run directory of its own."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainauto.core.decisions import Decision, MissingSteps, PlanChange, Rollback
from trainauto.core.errors import InputError, Problem
from trainauto.core.files import read_text
from trainauto.core.json_text import from_json
from trainauto.core.plan import Plan
from trainauto.core.records import StepRecord
from trainauto.core.run_events import RunSummary
from trainauto.core.sharding import SINGLE_PROCESS, SampleSharding
from trainauto.core.words import counted
from trainauto.forecast.task import task_of
from trainauto.options.load import LoadedOptions, load_options
from trainauto.options.run_options import FileOptions
from trainauto.options.tracker_options import TRACKERS
from trainauto.reporting.formatting import missing_text
from trainauto.storage.run_directory import SCHEDULE_STEP, RunDirectory
from trainauto.storage.run_log import logged_decisions, logged_steps, whole_files
from trainauto.storage.run_options import options_of

# Nothing here may import torch at the top: the command sets the environment first.
if TYPE_CHECKING:
    from trainauto.data.dynamic_dataset import DynamicDataset
    from trainauto.data.sampler import LoggedBatch

SUFFIX = "_replay"


@dataclass(frozen=True)
class Part:
    """Steps of a run under the same options; each resume under changed ones begins another.

    Attributes:
        given: the options as given.
        options_file: the option file of then.
        origin: where it comes from, as in origin.json.
        last_step: the step it ends with.
    """

    given: Path
    options_file: Path
    origin: Mapping[str, Any]
    last_step: int

    @classmethod
    def ending_with(cls, step: int, directory: RunDirectory) -> "Part":
        """Return the part of a run that ends with a step."""
        given, options_file, origin = (
            directory.kept_at(file, step) for file in (directory.given, directory.options_file, directory.origin)
        )
        try:
            origin_facts = from_json(read_text(origin))
            return cls(given, options_file, {"folder": origin_facts["folder"], **origin_facts}, step)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(Problem(f"{origin} cannot be read: {error!r}", advice="Each run writes it.")) from None

    def load(self, overrides: Sequence[str]) -> LoadedOptions[FileOptions]:
        """Return the options as they are to be here: no automations, and a budget or trackers only if asked for.

        Raises:
            InputError: they cannot be used, or would give other samples.
        """
        then = load_options(self.given, folder=self.folder)
        alone = [f"{key}=null" for key in ("memory:budget", "memory:cpu_budget", *(f"logger:{t}" for t in TRACKERS))]
        here = [*alone, *task_of(then).replayed_as(then.options, SUFFIX), *overrides]
        loaded = load_options(self.given, [*here, "training_automations={}"], self.folder)
        _refuse_other_samples(then, loaded)
        return replace(loaded, path=self.options_file)

    @property
    def folder(self) -> Path:
        """Where its plugins lie."""
        folder = Path(self.origin["folder"])
        return folder if folder.is_dir() else Path.cwd()


@dataclass(frozen=True)
class LoggedRun:
    """A run to be repeated: its folder, and what it consists of, in order."""

    directory: RunDirectory
    parts: tuple[Part, ...]


def logged_run(path: Path, until: int | None = None) -> LoggedRun:
    """Return the run in ``path``, up to a step.

    Raises:
        InputError: there is no run, or it cannot be replayed.
    """
    directory = RunDirectory.find(path)
    with whole_files(directory):
        return _logged_run(directory, until)


def _logged_run(directory: RunDirectory, until: int | None) -> LoggedRun:
    if not directory.given.is_file():
        message = f"{directory.path} has no {directory.given.name}"
        raise InputError(Problem(message, advice="It was written by a version whose runs cannot be replayed."))
    loaded = options_of(directory)
    task_of(loaded).sample_options(loaded)
    if until is not None and until < 1:
        raise InputError(Problem(f"--until {until} is no step", advice="Steps count from 1."))
    steps = [step.step for step in _until(logged_steps(directory), until)]
    last = max(steps, default=0)
    if not last:
        raise InputError(Problem(f"{directory.path} has no steps", advice="Nothing can be repeated."))
    _refuse_other_sets(directory, last)
    _refuse_gaps(directory, steps)
    ends = (_UNTIL.fullmatch(file.name) for file in directory.path.iterdir())
    ends_before = sorted(int(match[1]) for match in ends if match and 0 < int(match[1]) < last)
    return LoggedRun(directory, tuple(Part.ending_with(end, directory) for end in [*ends_before, last]))


def _refuse_other_sets(directory: RunDirectory, last: int) -> None:
    """Refuse steps that were trained with other samples than the first ones.

    Raises:
        InputError: says which steps can be repeated.
    """
    ends = [end for end in directory.earlier_versions(directory.samples) if 0 < end < last]
    if ends:
        message = f"from step {ends[0] + 1} on the run was trained with other samples, which were accepted at a resume"
        raise InputError(Problem(message, advice=f"--until {ends[0]} repeats the steps before."))


def _refuse_gaps(directory: RunDirectory, steps: Sequence[int]) -> None:
    """Refuse steps behind some that the log lacks.

    Raises:
        InputError: says which are missing, and which can be repeated.
    """
    gap = next(((before + 1, step - 1) for before, step in pairwise([0, *steps]) if step > before + 1), None)
    if gap is None:
        return
    noted = (made for _, made in logged_decisions(directory) if isinstance(made, MissingSteps))
    why = next((f": {made.reason}" for made in noted if made.first == gap[0]), "")
    advice = f"--until {gap[0] - 1} repeats the steps before." if gap[0] > 1 else "Nothing can be repeated."
    raise InputError(Problem(f"{missing_text(*gap)} missing in {directory.records}{why}", advice=advice))


_UNTIL = re.compile(r"given_until_step_(\d+)\.yml")


def replay(logged: LoggedRun, loaded: Sequence[LoadedOptions[FileOptions]]) -> int:
    """Repeat a run; return the exit code.

    Args:
        logged: the run.
        loaded: the options of each of its parts.

    Raises:
        InputError: the samples are not those of the run.
        ReplayError: a step fits in no way here.
    """
    from trainauto.build import build_run
    from trainauto.data.sampler import planned_batches_of
    from trainauto.engine.loop import train
    from trainauto.engine.replay_script import LoggedScript

    last_step = logged.parts[-1].last_step
    batches = _batches(logged.directory, last_step)
    on_ranks = _ranks_of(logged.directory, last_step)
    try:
        planned_batches_of(batches)
    except ValueError as error:
        raise InputError(
            Problem(f"{logged.directory.records} is not whole: {error}", advice="Replay a run whose log is intact.")
        ) from None
    decisions: dict[int, list[Decision]] = {}
    rollbacks: list[Rollback] = []
    for step, decision in logged_decisions(logged.directory):
        if isinstance(decision, Rollback):
            rollbacks.append(decision)
        if isinstance(decision, PlanChange):
            decision = replace(decision, plan=of_all_ranks(decision.plan, on_ranks.get(step, SINGLE_PROCESS)))
        decisions.setdefault(step, []).append(decision)
    code = 0
    for number, (part, options) in enumerate(zip(logged.parts, loaded, strict=True)):
        check, repeated = partial(_check_samples, part.origin), (logged.directory, part.last_step)
        with build_run(options, auto_resume=number > 0, check_samples=check, repeated=repeated) as run:
            done = run.progress.steps
            for made in rollbacks if not number else ():  # checkpoints of the first part hold them
                run.loader.reorder_from(made.position, made.order)
            run.loader.replay(batches, done)
            # Without automations nobody knows the batch they were to keep.
            run.batch_scaling = replace(run.batch_scaling, configured_samples=part.origin["configured_samples"])
            run.schedule = replace(run.schedule, step=part.origin.get(SCHEDULE_STEP, run.schedule.step))
            run.journal.take()  # what a resume has decided stands in the log
            run.controls.stop_reason = ""
            run.summary = ending_with(run.summary, last_step, batches[-1].first_sample + batches[-1].samples)
            run.script = LoggedScript(
                _from(logged.directory, done),
                decisions,
                part.last_step,
                is_exact=run.model.device.type == "cpu" and not on_ranks,
                ranks=on_ranks,
            )
            train(run)
            code = run.exit_code
        if code:
            break
    return code


def _from(directory: RunDirectory, steps: int) -> Iterator[Any]:
    return islice(_steps(directory), steps, None)


def _steps(directory: RunDirectory) -> Iterator[StepRecord]:
    """Yield the steps as one rank can repeat them."""
    return (on_one_rank(step) for step in logged_steps(directory))


def _ranks_of(directory: RunDirectory, last: int) -> dict[int, SampleSharding]:
    """Return how samples of each step were divided among ranks, where there were several."""
    steps = _until(logged_steps(directory), last)
    return {step.step: step.ranks.sharding for step in steps if step.ranks is not None}


def of_all_ranks(plan: Plan, sharding: SampleSharding) -> Plan:
    """Return the plan by which one rank trains what several train together, in forward passes as large as theirs."""
    if sharding.world_size == 1:
        return plan
    whole = plan.with_batch_size(sharding.total(plan.batch_size))
    return whole.with_micro_batches(plan.micro_batches * sharding.world_size)


def on_one_rank(step: StepRecord) -> StepRecord:
    """Return a step as one rank repeats it: the samples of all, added up in another order.

    Raises:
        InputError: its batches followed the memory of each rank, which older logs do not hold.
    """
    if step.ranks is None:
        return step
    sharding = step.ranks.sharding
    # A draw that its plan does not count is logged with its samples.
    if not step.draw_samples and step.ranks.planned_samples != sharding.total(step.plan.batch_size):
        message = f"step {step.step} was trained on {step.ranks.count} ranks whose batches followed their memory"
        advice = "Its log, of an earlier version, does not say how: it cannot be replayed."
        raise InputError(Problem(message, advice=advice))
    pieces = {
        name: replace(split, micro_batches=split.micro_batches * sharding.world_size)
        for name, split in step.pieces.items()
    }
    plan, drawn = of_all_ranks(step.plan, sharding), of_all_ranks(step.drawn, sharding)
    return replace(step, plan=plan, drawn=drawn, pieces=pieces, ranks=None)


def _until(steps: Iterator[StepRecord], last: int | None) -> Iterator[StepRecord]:
    """Yield steps up to one; what stands behind it is not even read, whatever state it is in."""
    return steps if last is None else islice(steps, last)


def ending_with(summary: RunSummary, last_step: int, samples: int) -> RunSummary:
    """Return the summary of a run that ends early, so that what is left is counted to that end."""
    return replace(summary, total=min(summary.total, last_step if summary.unit == "steps" else samples))


def _batches(directory: RunDirectory, last: int) -> "list[LoggedBatch]":
    from trainauto.data.sampler import LoggedBatch

    plans: dict[Plan, Plan] = {}  # a long run has many steps and few plans
    batches = []
    for step in _until(logged_steps(directory), last):
        batch, sharding = LoggedBatch.of(on_one_rank(step)), step.ranks.sharding if step.ranks else SINGLE_PROCESS
        drawn, plan = (plans.setdefault(one, one) for one in (batch.drawn, batch.plan))
        batches.append(batch._replace(drawn=drawn, plan=plan, sharding=sharding))
    return batches


def _refuse_other_samples(then: LoadedOptions[FileOptions], now: LoadedOptions[FileOptions]) -> None:
    before, after = (task_of(loaded).sample_options(loaded) for loaded in (then, now))
    changed = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    if changed:
        problems = [f"{name} was {before.get(name)} and would be {after.get(name)}" for name in changed]
        advice = "A replay draws the samples of the log: take these options out of --force_yml."
        raise InputError([Problem(f"other samples: {problem}", advice=advice) for problem in problems])


def _check_samples(origin: Mapping[str, Any], dataset: "DynamicDataset") -> None:
    """Refuse a dataset whose samples are not those of the run.

    Raises:
        InputError: another number, or other names.
    """
    from trainauto.storage.run_metadata import names_sha256

    if len(dataset) != origin["samples"]:
        samples = counted(len(dataset), "sample")
        message = f"dataset '{dataset.name}' has {samples}, the run was trained on {origin['samples']}"
    elif names_sha256(dataset) != origin["names_sha256"]:
        message = f"dataset '{dataset.name}' holds samples of other names than those the run was trained on"
    elif dataset.checksums() and dataset.identity() != origin.get("identity", dataset.identity()):
        message = f"dataset '{dataset.name}' holds other samples than those the run was trained on"
    else:
        return
    advice = "Name the same samples: --force_yml changes the option that says where they lie."
    raise InputError(Problem(message, advice=advice))
