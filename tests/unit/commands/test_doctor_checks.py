"""Judgements of given facts: machines that are not this one."""

from pathlib import Path
from typing import Any

import pytest

from trainauto.commands.doctor_checks import gpus, machine, software, training
from trainauto.commands.run_doctor import lines_of
from trainauto.core.cgroup import MemoryLimit
from trainauto.reporting.finding import BROKEN, LOOK, OK, UNKNOWN, Finding, guarded

MIB, GIB = 2**20, 2**30


def test_a_check_that_fails_is_unknown_and_says_why() -> None:
    (finding,) = guarded("x", lambda: Finding("x", OK, str(1 // 0)))
    assert (finding.state, finding.fact) == (UNKNOWN, "ZeroDivisionError: integer division or modulo by zero")


@pytest.mark.parametrize(("version", "state"), [("3.11.0", OK), ("3.9.18", BROKEN), ("3.14.0", OK)])
def test_python(version: str, state: str) -> None:
    assert software.python_finding(version, ">=3.11").state == state


def test_versions_are_compared_by_number() -> None:
    assert software.is_older("2.9.1+cu128", "2.11")
    assert not software.is_older("2.11", "2.11.0")
    assert not software.is_older("10.0", "9.5")
    asked = software.parsed(["torch>=2.11", "coverage[toml]>=7.10 ; python_version > '3'", "types-PyYAML"])
    assert asked == {"torch": "2.11", "coverage": "7.10", "types-pyyaml": ""}
    assert software.requirements()[1]["torch"]


@pytest.mark.parametrize(
    ("version", "error", "state", "words"),
    [
        ("2.1.0", "", OK, "2.1.0, at least 1.26"),
        ("1.20", "", BROKEN, "at least 1.26"),
        (None, "ModuleNotFoundError", BROKEN, "not installed"),
        ("2.1", "ImportError: libGL", BROKEN, "libGL"),
    ],
)
def test_packages(version: str | None, error: str, state: str, words: str) -> None:
    finding = software.package_finding("numpy", "1.26", version, error)
    assert finding.state == state
    assert words in finding.fact
    assert (state == OK) == (not finding.advice)
    assert software.installed_version("no-such-package") is None


NVML = {"driver": "570.86", "cuda": 12080, "cards": ["H200"]}


@pytest.mark.parametrize(
    ("nvml", "torch_cuda", "devices", "state", "words"),
    [
        ({"missing": "NVML Shared Library Not Found"}, None, 0, OK, "train on the CPU"),
        ({"missing": "Not Found"}, "12.8", 1, LOOK, "torch finds a device"),
        ({"error": "it died"}, None, 0, UNKNOWN, "it died"),
        (NVML, "12.8", 1, OK, "CUDA up to 12.8"),
        (NVML, "12.6", 1, OK, "torch has 12.6"),
        (NVML, "12.9", 1, LOOK, "minor version"),
        (NVML, "13.0", 0, BROKEN, "built with CUDA 13.0"),
        (NVML, "12.8", 0, BROKEN, "finds none"),
        (NVML, None, 0, OK, "570.86"),
    ],
)
def test_driver(nvml: dict[str, Any], torch_cuda: str | None, devices: int, state: str, words: str) -> None:
    finding = gpus.driver_finding(nvml, torch_cuda, devices)
    assert finding.state == state
    assert words in finding.fact


def test_torch_without_cuda_beside_a_card() -> None:
    facts = {"version": "2.13.0+cpu", "cuda": None, "hip": None, "threads": 2}
    assert software.torch_finding(facts, has_nvidia_card=True).state == LOOK
    assert software.torch_finding(facts, has_nvidia_card=False).state == OK
    assert software.torch_finding({"error": "it died"}, has_nvidia_card=False).state == UNKNOWN


CARD = {
    "device": "cuda:0",
    "name": "H200",
    "total_bytes": 100 * GIB,
    "used_bytes": 40 * GIB,
    "capability": [9, 0],
    "bf16": True,
    "ecc": True,
    "mig": False,
}


def test_who_else_is_on_a_card() -> None:
    ours, theirs, hidden = (
        {"pid": 7, "name": "python", "bytes": GIB},
        {"pid": 8, "name": "blender", "bytes": 30 * GIB},
        {"pid": 9, "name": None, "bytes": None},
    )
    what, memory = gpus.card_findings({**CARD, "processes": [ours, theirs, hidden]}, [7])
    assert what.fact == "H200, 100.00 GiB, capability 9.0 (bf16), ECC on, MIG off"
    assert memory.state == LOOK
    assert "60.00 GiB of 100.00 GiB free" in memory.fact
    assert "pid 8 (blender): 30.00 GiB, pid 9 (of another container or user): bytes unknown" in memory.fact
    assert "pid 7" not in memory.fact
    alone = {**CARD, "used_bytes": GIB, "processes": [ours]}
    assert gpus.card_findings(alone, [7])[1].state == OK
    # In containers NVML may show nobody, while somebody holds a good part.
    assert gpus.card_findings({**CARD, "processes": []}, [7])[1].state == LOOK
    assert "does not report" in gpus.card_findings({**CARD, "processes": None}, [7])[1].fact


@pytest.mark.parametrize(
    ("settings", "expandable", "state"),
    [
        ({}, None, OK),
        ({}, True, OK),
        ({}, False, LOOK),
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, False, LOOK),
        ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:128"}, False, LOOK),
        ({"PYTORCH_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128"}, True, LOOK),
        ({"PYTORCH_ALLOC_CONF": "roundup_power2_divisions:[256:1,512:2,>:4]"}, None, LOOK),
        ({"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, True, OK),
        ({"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}, False, LOOK),
        ({"PYTORCH_ALLOC_CONF": "a:1", "PYTORCH_CUDA_ALLOC_CONF": "b:2"}, True, LOOK),
    ],
)
def test_allocator(settings: dict[str, str], expandable: bool | None, state: str) -> None:
    finding = gpus.allocator_finding(settings, expandable)
    assert finding.state == state
    assert all(name in finding.fact for name in settings)


def test_traces() -> None:
    tried = {"differ": [], "steps": 7, "version": "2.13.0+cpu"}
    assert software.traces_finding(tried).state == OK
    newer = software.traces_finding({**tried, "version": "2.99.0"})
    assert (newer.state, "2.99.0" in newer.fact, "7 small steps" in newer.fact) == (LOOK, True, True)
    differs = software.traces_finding({**tried, "differ": ["gather", "a bias"]})
    assert (differs.state, "2 of 7 small steps: gather, a bias" in differs.fact) == (LOOK, True)
    died = software.traces_finding({"error": "the process that tried it was ended by SIGABRT"})
    assert (died.state, "SIGABRT" in died.fact) == (UNKNOWN, True)


def test_memory_is_what_the_group_leaves() -> None:
    text = "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\nHugePages_Total:       0\n"
    assert machine.machine_memory(text) == (16 * GIB, 8 * GIB)
    assert machine.memory_finding(16 * GIB, 8 * GIB, None).state == OK
    finding = machine.memory_finding(16 * GIB, 8 * GIB, MemoryLimit(2 * GIB, GIB, Path("x")))
    assert finding.state == LOOK
    assert "may use 2.00 GiB, 1.00 GiB left" in finding.fact


def test_shared_memory() -> None:
    batch = 8 * 3 * (64 * 64 + 256 * 256)
    assert machine.batches_under_way(0, 8) == 0
    assert machine.batches_under_way(3, 8) == 7  # three workers hold two each; one is being trained
    tiny = machine.shared_memory_finding(4 * MIB, 64 * MIB, 9, batch)
    assert (tiny.state, "bus error" in tiny.fact) == (BROKEN, True)
    assert machine.shared_memory_finding(64 * MIB, 64 * MIB, 9, batch).state == OK
    assert machine.shared_memory_finding(64 * MIB, 64 * MIB, 9, batch, 8 * batch).state == LOOK
    assert machine.shared_memory_finding(0, 0, 0, batch).state == OK
    facts = [machine.shared_memory_finding(64 * MIB, 64 * MIB, count, MIB).fact for count in (1, 2)]
    assert [fact.partition("; ")[2] for fact in facts] == ["1 batch under way: 1.0 MiB", "2 batches under way: 2.0 MiB"]
    assert machine.shared_memory_alone(64 * MIB, 64 * MIB).state == LOOK
    assert machine.shared_memory_alone(GIB, GIB).state == OK


def test_limits_and_cores() -> None:
    free = {"-v": None, "-d": None, "-n": 4096}
    assert machine.limits_finding(free).state == OK
    assert machine.limits_finding({**free, "-v": 8 * GIB}).state == LOOK
    few = machine.limits_finding({**free, "-n": 520}, batches=9)
    assert (few.state, few.advice) == (LOOK, "ulimit -n 1060")
    assert "ulimit -n" in machine.limits_finding({"-v": GIB, "-d": None, "-n": 100}).advice
    assert machine.cores_finding(8, 8, None, 4, 4, on_cpu=True).state == OK
    assert machine.cores_finding(8, 8, 2.0, 4, 4, on_cpu=False).state == LOOK
    assert machine.cores_finding(8, 2, None, 4, 0, on_cpu=True).state == LOOK
    assert machine.cores_finding(8, 2, None, 4, 1, on_cpu=False).state == OK


def test_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    below = machine.disk_finding("disk", tmp_path / "file" / "below")
    assert (below.state, "is a file" in below.fact) == (BROKEN, True)
    assert machine.disk_finding("disk", tmp_path / "not" / "yet", 2**60, "all of it").state == LOOK
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

    def read_only(*_arguments: object) -> None:
        raise OSError(30, "Read-only file system")  # permissions do not tell, and root may write anywhere

    monkeypatch.setattr("os.mkdir", read_only)
    assert "Read-only" in machine.disk_finding("disk", tmp_path).fact


def test_budgets_names_and_groups() -> None:
    assert training.budget_finding({"is_set": True, "refused": True, "error": ""}).state == OK
    assert training.budget_finding({"is_set": True, "refused": False, "error": ""}).state == LOOK
    assert training.budget_finding({"is_set": False, "refused": False, "error": ""}).state == LOOK
    assert training.budget_finding({"error": "it died"}).state == UNKNOWN
    host = {"host": "box", "seconds": 0.01, "addresses": ["127.0.1.1"]}
    assert training.name_finding(host).state == OK
    assert training.name_finding({**host, "seconds": 5.0}).state == LOOK
    assert training.name_finding({"host": "box", "seconds": 5.0, "error": "unknown name"}).state == LOOK
    hung = training.name_finding({"error": "gave no answer within 10 s"})
    assert (hung.state, "torchrun" in hung.advice) == (LOOK, True)
    groups = {"available": True, "gloo": True, "nccl": False}
    assert training.groups_finding(groups, 1).state == OK
    assert training.groups_finding(groups, 2).state == LOOK
    assert training.groups_finding({**groups, "error": "no interface"}, 0).state == LOOK
    assert training.groups_finding({"available": False}, 0).state == LOOK
    assert training.groups_finding({"error": "it died"}, 0).state == UNKNOWN


def test_what_ranks_and_compilers_of_an_option_file_need() -> None:
    alone, several = training.spread_finding(1), training.spread_finding(4)
    assert (alone.state, several.state) == (LOOK, OK)
    assert "torch finds 1 card here" in alone.fact
    assert "torchrun --nproc-per-node 4" in several.advice
    assert "plan --ranks 4" in several.advice
    none = training.compiler_finding(None, has_triton=False, on_cpu=False)
    assert (none.state, "a C++ compiler (g++) and triton" in none.fact) == (BROKEN, True)
    on_card = training.compiler_finding("/usr/bin/g++", has_triton=False, on_cpu=False)
    assert (on_card.state, "needs triton" in on_card.fact) == (BROKEN, True)
    assert training.compiler_finding("/usr/bin/g++", has_triton=False, on_cpu=True).state == OK


def test_reading_claims_what_was_measured() -> None:
    reading = {"images": 20, "of": 900, "megapixels": 40.0, "decode_seconds": 2.0, "sample_seconds": 4.0}
    two = training.reading_finding(reading, 8, 2)
    assert "20 of 900 images" in two.fact
    assert "10 images/s (20 megapixels/s); made into 5 samples/s, a step's 8 in 1.6 s" in two.fact
    assert "2 workers keep up with steps of 0.8 s" in two.advice
    assert "1.6 / T workers" in two.advice
    assert "every step waits 1.6 s" in training.reading_finding(reading, 8, 0).advice
    assert "decoded" not in training.reading_finding({**reading, "decode_seconds": 0.0}, 8, 0).fact
    assert training.reading_finding({**reading, "images": 0}, 8, 0).state == UNKNOWN


def test_lines_fit_and_say_what_to_do() -> None:
    finding = Finding("opencv-python-headless", BROKEN, "a " * 60 + "\n    second line", "Do this " * 12)
    lines = lines_of(finding, 80)
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("broken  opencv-python-headless a a")
    assert any(line.strip().startswith("-> Do this") for line in lines)
