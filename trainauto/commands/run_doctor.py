"""What ``python -m trainauto doctor`` does: it reads facts, has them judged, and prints what was found."""

import importlib.util
import json
import os
import platform
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from trainauto.commands.common_arguments import prepare_environment
from trainauto.commands.doctor_checks import gpus, machine, software, training
from trainauto.commands.doctor_checks.probe_worker import Prober
from trainauto.commands.run_validate import tidy_when_terminated
from trainauto.core.cgroup import cpu_quota, tightest_memory_limit
from trainauto.core.errors import TrainautoError
from trainauto.core.process import ALLOCATOR_SETTINGS, use_expandable_segments
from trainauto.forecast.task import task_of
from trainauto.options.load import LoadedOptions, OptionsError, load_options
from trainauto.options.run_options import FileOptions, RunPaths
from trainauto.reporting.finding import BROKEN, LOOK, OK, UNKNOWN, Finding, guarded

# Nothing here may import torch at the top: whether it can be loaded is one of the questions.

MEMORY_FACTS = Path("/proc/meminfo")
COPIES_KEPT = 3
"""Of every weight in a checkpoint: itself, and the two values that an optimizer like Adam keeps for it."""
NAME_TIMEOUT_S = 10.0

Facts = Mapping[str, Any]


def doctor(options: Path | None, overrides: Sequence[str], *, as_json: bool) -> int:
    """Look at the machine and print what was found; return 1 where something is broken.

    Args:
        options: option file of a run whose needs are looked at, too.
        overrides: items of ``--force_yml``.
        as_json: print one JSON object at the end instead of lines as they come.
    """
    findings: list[Finding] = []
    for finding in examine(options, overrides):
        findings.append(finding)
        if not as_json:
            print("\n".join(lines_of(finding, _width())), flush=True)
    counts = {state: sum(finding.state == state for finding in findings) for state in (OK, LOOK, BROKEN, UNKNOWN)}
    if as_json:
        print(json.dumps({"counts": counts, "findings": [finding.to_dict() for finding in findings]}, indent=2))
    else:
        print(f"\n{counts[OK]} ok, {counts[LOOK]} to look at, {counts[BROKEN]} broken, {counts[UNKNOWN]} unknown")
    return 1 if counts[BROKEN] else 0


def _width() -> int:
    return min(shutil.get_terminal_size((80, 24)).columns, 120)


def lines_of(finding: Finding, width: int) -> list[str]:
    """Return a finding in lines: state, name and fact; what to do below them."""
    indent = " " * 22
    lines = []
    for number, line in enumerate(finding.fact.splitlines() or [""]):
        head = f"{finding.state:<8}{finding.name:<14}" if number == 0 else indent
        if number == 0 and len(head) > len(indent):
            head = head.rstrip() + " "
        lines += _wrapped(line.rstrip(), width, head, indent)
    return [*lines, *(_wrapped(finding.advice, width, f"{indent}-> ", f"{indent}   ") if finding.advice else [])]


def _wrapped(text: str, width: int, first: str, indent: str) -> list[str]:
    lines = textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return lines or [first.rstrip()]


def examine(options: Path | None, overrides: Sequence[str]) -> Iterator[Finding]:
    """Yield what is found, as it is found."""
    settings = {name: value for name in ALLOCATOR_SETTINGS if (value := os.environ.get(name))}
    loaded, error = _loaded(options, overrides) if options is not None else (None, None)
    if loaded is not None:
        prepare_environment(loaded.options)
    else:
        use_expandable_segments()
    with ExitStack() as stack:
        stack.enter_context(tidy_when_terminated())
        prober = stack.enter_context(Prober())
        yield from guarded("Python", _python)
        yield from guarded("packages", lambda: _packages(prober))
        torch, nvml = prober.ask("torch_facts"), prober.ask("nvml_facts")
        devices = int(torch.get("devices", 0))
        yield from guarded("torch build", lambda: software.torch_finding(torch, bool(nvml.get("cards"))))
        yield from guarded("driver", lambda: gpus.driver_finding(nvml, torch.get("cuda"), devices))
        yield from guarded(
            "host name", lambda: training.name_finding(prober.ask("host_name", timeout_s=NAME_TIMEOUT_S))
        )
        yield from guarded("memory", _memory)
        if error is not None:
            yield _options_finding(prober, error, overrides)
        built: dict[str, Any] = {}
        if "error" in torch:
            yield Finding(
                "the rest", UNKNOWN, "cards, allocator, traces, budget, distributed, the run: they need torch"
            )
        else:
            yield from guarded("cards", lambda: _cards(prober, settings))
            yield from guarded("traces", lambda: software.traces_finding(prober.ask("traced_steps")))
            yield from guarded("budget", lambda: training.budget_finding(prober.ask("budget_on_cpu")))
            yield from guarded("distributed", lambda: training.groups_finding(prober.ask("process_groups"), devices))
            if loaded is not None:
                yield from _of_options(loaded.options, devices)
                yield from task_of(loaded).findings(loaded, built)
        yield from _needs(loaded, built, torch)


def _loaded(options: Path, overrides: Sequence[str]) -> tuple[LoadedOptions[FileOptions] | None, TrainautoError | None]:
    try:
        return load_options(options, overrides), None
    except TrainautoError as error:
        return None, error


def _options_finding(prober: Prober, error: TrainautoError, overrides: Sequence[str]) -> Finding:
    """Return what is wrong with an option file, with what takes torch to be found."""
    told = str(error)
    if isinstance(error, OptionsError):
        told = prober.ask("option_problems", str(error.loaded.path), *overrides).get("problems", told)
    return Finding("options", BROKEN, told, "What a run needs is not looked at.")


def _python() -> Finding:
    return software.python_finding(platform.python_version(), software.requirements()[0])


def _packages(prober: Prober) -> list[Finding]:
    findings = []
    for name, least in software.requirements()[1].items():
        version = software.installed_version(name)
        answer = prober.ask("import_package", software.MODULES.get(name, name)) if version else {}
        findings.append(software.package_finding(name, least, version, answer.get("error", "")))
    return software.packages_finding(findings)


def _cards(prober: Prober, settings: Mapping[str, str]) -> list[Finding]:
    facts = prober.ask("card_facts")
    if "error" in facts:
        return [Finding("cards", UNKNOWN, facts["error"])]
    findings = [finding for card in facts["cards"] for finding in gpus.card_findings(card, [facts["pid"]])]
    return [*findings, gpus.allocator_finding(settings, facts["expandable"], platform.system())]


def _of_options(options: FileOptions, devices: int) -> Iterator[Finding]:
    """Yield what an option file asks of several processes and of torch's compiler."""
    if options.distributed.fully_shard:
        yield training.spread_finding(devices)
    if options.compiles:
        compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
        on_cpu = options.device == "cpu" or not devices
        has_triton = importlib.util.find_spec("triton") is not None
        yield training.compiler_finding(compiler, has_triton=has_triton, on_cpu=on_cpu)


def _memory() -> Finding:
    if not MEMORY_FACTS.exists():
        return machine.not_linux("memory")
    total, free = machine.machine_memory(MEMORY_FACTS.read_text(encoding="utf-8"))
    return machine.memory_finding(total, free, tightest_memory_limit())


def _needs(loaded: LoadedOptions[FileOptions] | None, built: Facts, torch: Facts) -> Iterable[Finding]:
    """Yield what a run needs of cores, files, shared memory and disk; without an option file, what there is."""
    workers, lookahead = loaded.options.loading if loaded is not None else (0, 0)
    batches = machine.batches_under_way(workers, lookahead) if loaded is not None else 0
    threads = int(built.get("threads", torch.get("threads", 1)))
    on_cpu = built.get("device_type", "cpu" if not torch.get("devices") else "cuda") == "cpu"
    yield from guarded("cores", lambda: _cores(threads, workers, on_cpu=on_cpu))
    yield from guarded("ulimit", lambda: machine.limits_finding(machine.current_limits(), batches))
    yield from guarded(machine.SHARED_MEMORY, lambda: _shared_memory(batches, built))
    yield from guarded("disk", lambda: _disks(loaded, built))


def _cores(threads: int, workers: int, *, on_cpu: bool) -> Finding:
    quota = cpu_quota() if platform.system() == "Linux" else None
    return machine.cores_finding(os.cpu_count() or 1, machine.usable_cores(), quota, threads, workers, on_cpu=on_cpu)


def _shared_memory(batches: int, built: Facts) -> Finding:
    if not Path(machine.SHARED_MEMORY).is_dir():
        return machine.not_linux(machine.SHARED_MEMORY)
    room = shutil.disk_usage(machine.SHARED_MEMORY)
    if not built:
        return machine.shared_memory_alone(room.free, room.total)
    sizes = built["batch_bytes"], built["largest_batch_bytes"]
    return machine.shared_memory_finding(room.free, room.total, batches, *sizes)


def _disks(loaded: LoadedOptions[FileOptions] | None, built: Facts) -> list[Finding]:
    if loaded is None:
        return [machine.disk_finding("disk", Path(RunPaths().experiments_root))]
    options = loaded.options
    copies = COPIES_KEPT + 1 if built.get("averages") else COPIES_KEPT
    bytes_kept = options.kept_checkpoints * copies * int(built.get("parameter_bytes", 0))
    purpose = f"{options.kept_checkpoints} checkpoints of an optimizer like Adam take about"
    caches = [machine.disk_finding("disk: pixels", Path(cache).expanduser()) for cache in options.caches]
    return [machine.disk_finding("disk: runs", Path(options.folder_of_runs), bytes_kept, purpose), *caches]
