"""Scripts of one's own as rows of ``gradients.py``: each runs as a process, and what it prints has to be right.

A script that ends with an error of trainauto's own is refused in words; any other error is wrong.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from gradients_verdict import EQUAL, REFUSED, WRONG, Verdict
from peers_env import ROOT

TIMEOUT_S = 300
OWN_ERROR = re.compile(r"^trainauto\.[\w.]*\.(\w+Error): ", re.MULTILINE)
FLOAT32_ERROR = 1e-5


def _numbers(pattern: str, text: str) -> list[float]:
    return [float(number) for number in re.findall(pattern, text)]


def _all_small(pattern: str) -> Callable[[str], bool]:
    def holds(text: str) -> bool:
        errors = _numbers(pattern, text)
        return bool(errors) and all(error <= FLOAT32_ERROR for error in errors)

    return holds


def _steps_are_equal(text: str) -> bool:
    """Steps of 16 samples, 20 of an epoch, whether memory runs out or not."""
    steps = re.findall(r"^cap \d+ steps (\d+) samples of steps \[([\d, ]+)\]", text, re.MULTILINE)
    return len(steps) == 2 and all(count == "20" and set(sizes.split(", ")) == {"16"} for count, sizes in steps)


def _passes_are_given(text: str) -> bool:
    """Four samples a pass where four fit, with or without a budget."""
    lines = re.findall(r"^(.+) - samples of the last passes \[([\d, ]+)\]", text, re.MULTILINE)
    return len(lines) == 3 and all(set(sizes.split(", ")) == {"4"} for name, sizes in lines if "3 fit" not in name)


RULES: dict[str, tuple[Callable[[str], bool], str]] = {
    "01a_batchnorm_start.py": (lambda text: "\nok " in f"\n{text}", "begins with the batch that it is given"),
    "01b_batchnorm_remainder.py": (
        lambda text: sum(map(int, re.findall(r"samples (\d+) trained True", text))) == 9,
        "trains each of 9 samples once",
    ),
    "03a_hf_inplace.py": (
        _all_small(r"memory ran out against not: ([\d.e+-]+|nan)"),
        "the same update, memory ran out or not",
    ),
    "04_weigh_float.py": (_all_small(r"rel err ([\d.e+-]+|nan)"), "parts weigh fractions"),
    "05_hf_step_samples.py": (_steps_are_equal, "steps keep their 16 samples"),
    "06_resume_dropout.py": (lambda text: "bit for bit: True" in text, "resumes to the bit"),
    "09_step_twice.py": (lambda text: "distinct samples 64 of 64" in text, "each sample once, or refused"),
    "12_total_and_components.py": (
        lambda text: all(abs(ratio - 1) < FLOAT32_ERROR for ratio in _numbers(r"total: ([\d.e+-]+)", text) or [0.0]),
        "the update of the total",
    ),
    "13_batch_additions.py": (lambda text: text.count("-> trained") == 3, "numbers in a batch survive recovery"),
    "15_accumulation_coupled.py": (_passes_are_given, "passes of 4 where 4 fit"),
}


def script_verdicts(folder: Path, known: dict[str, Verdict], note: Callable[[Verdict], None]) -> list[Verdict]:
    """Return a verdict for each script; those that are known already do not run."""
    verdicts = []
    for name, (holds, right) in RULES.items():
        key = f"script | {name}"
        if key not in known:
            known[key] = _run(folder / name, key, holds, right)
            note(known[key])
        verdicts.append(known[key])
    return verdicts


def _children_s() -> float:
    """Return the CPU time of processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _run(script: Path, key: str, holds: Callable[[str], bool], right: str) -> Verdict:
    start = _children_s()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)])}
    try:
        done = subprocess.run(
            [sys.executable, script.name],
            cwd=script.parent,
            env={**environment, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Verdict(key, WRONG, None, f"not done after {TIMEOUT_S} s", _children_s() - start)
    seconds = _children_s() - start
    refusal = OWN_ERROR.search(done.stderr)
    if done.returncode and refusal:
        return Verdict(key, REFUSED, None, " ".join(done.stderr[refusal.start() :].split())[:300], seconds)
    last = next(iter(reversed((done.stderr if done.returncode else done.stdout).strip().splitlines())), "")
    is_right = not done.returncode and holds(done.stdout)
    return Verdict(
        key, EQUAL if is_right else WRONG, None, right if is_right else f"not so: {right}; {last}"[:300], seconds
    )
