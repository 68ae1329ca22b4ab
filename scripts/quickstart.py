"""From nothing to a finished training run: makes the environment, trains, says where the results are.

A run as long as its option file says is judged: exit code 1 where the network is not clearly better than bicubic.

python scripts/quickstart.py                                            4 to 14 minutes on two CPU cores
python scripts/quickstart.py --auto_resume                              go on where it was stopped
python scripts/quickstart.py --force_yml train:total_iter=50            every other argument is train.py's
python scripts/quickstart.py --here                                     use this Python's own packages (and its CUDA)
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from environment import ROOT, Environment, prepare_or_exit
from processes import exit_on_sigterm, run_in_foreground, shell_command, short_path

OPTION_FILE = Path("options/train/quickstart.yml")
JUDGED_METRIC, LEAST_GAIN_DB = "psnr_y", 1.0  # a run of the option file's own length gains more on every machine


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, judge and tell; returns the exit code of train.py, or 1 if the network is no better than bicubic."""
    here, rest = split_arguments(arguments)
    exit_on_sigterm()
    environment = prepare_or_exit(here=here)
    start = time.time()
    command = [str(environment.python), "train.py", "-opt", str(OPTION_FILE), *rest]
    print("quickstart:", shell_command(command), flush=True)
    code = run_in_foreground(command, cwd=ROOT, env=environment.variables)
    run = latest_run(experiment_folder(rest))
    run = run if run and was_touched(run, start) else None
    passed, verdict = True, ""
    if code == 0 and run and has_own_length(rest):
        passed, verdict = judgement(last_validation(run))
    print(closing_words(code, run, environment, verdict, resume_command(arguments)), flush=True)
    return code if passed else 1


def split_arguments(arguments: Sequence[str] | None) -> tuple[bool, list[str]]:
    """Take out what is ours; everything else is train.py's, in its order."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--here", action="store_true", help="use the running Python's environment, replace nothing in it"
    )
    known, rest = parser.parse_known_args(arguments)
    return known.here, rest


def experiment_folder(rest: Sequence[str], root: Path = ROOT) -> Path:
    """Folder of the experiment: names from the option file unless train.py was told others."""
    text = (root / OPTION_FILE).read_text(encoding="utf-8") if (root / OPTION_FILE).exists() else ""
    written = re.search(r"^name:\s*[\"']?([^\"'#\n]*[^\"'#\s])", text, re.MULTILINE)
    name = override(rest, "name") or (written[1] if written else OPTION_FILE.stem)
    return root / (override(rest, "path:experiments_root") or "experiments") / name


def override(rest: Sequence[str], key: str) -> str | None:
    """Last value given for a key as ``--force_yml key=value``."""
    values = [argument.split("=", 1)[1] for argument in rest if argument.startswith(key + "=")]
    return values[-1] if values else None


def latest_run(experiment: Path) -> Path | None:
    """Follow `current`: a link, or a small text file with the directory's name where links need privileges."""
    pointer = experiment / "current"
    name = pointer.read_text(encoding="utf-8").strip() if pointer.is_file() else "current"
    run = (experiment / name).resolve()
    return run if run.is_dir() else None


def was_touched(run: Path, since: float) -> bool:
    """Whether a run directory was written to after a time; an older one is not this call's run."""
    slack_s = 2.0  # coarse clocks of some file systems
    return max(entry.lstat().st_mtime for entry in (run, *run.iterdir())) >= since - slack_s


def has_own_length(rest: Sequence[str]) -> bool:
    """Whether train.py was told nothing that changes the run of the option file."""
    return set(rest) <= {"--auto_resume"}


def last_validation(run: Path) -> dict[str, Any] | None:
    """Last record of a run's validations; `None` if it stopped before its first."""
    try:
        record = json.loads((run / "validation.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    except (OSError, ValueError, LookupError):
        return None
    return record if isinstance(record, dict) else None


def judgement(record: Mapping[str, Any] | None) -> tuple[bool, str]:
    """Whether the network is as much better than bicubic as it must be after the full run, and that in words."""
    try:
        mean = gain_db(record or {})
        gains = {score["name"]: gain_db(score) for score in (record or {})["scores"]}
    except (LookupError, TypeError, ValueError):
        return False, f"quickstart: FAILED: the run left no {JUDGED_METRIC} of its last validation to judge it by"
    # Asked this way round, NaN fails as well.
    faults = [f"{name} {gain:+.2f} dB" for name, gain in gains.items() if not gain >= 0]
    if not mean >= LEAST_GAIN_DB:
        faults.insert(0, f"mean {mean:+.2f} dB")
    if faults or not gains:
        wanted = f"at least {LEAST_GAIN_DB:+.1f} dB in the mean and no photograph below"
        return (
            False,
            f"quickstart: FAILED: PSNR-Y over bicubic must be {wanted}: {', '.join(faults) or 'no photographs'}",
        )
    return True, f"quickstart: passed: PSNR-Y is {mean:+.2f} dB over bicubic in the mean, and no photograph is below it"


def gain_db(scored: Mapping[str, Any]) -> float:
    """PSNR-Y over that of bicubic, in dB; NaN and the infinities are text in a record."""
    return float(scored["metrics"][JUDGED_METRIC]) - float(scored["bicubic"][JUDGED_METRIC])


def resume_command(arguments: Sequence[str] | None) -> str:
    """Return the call of this script that resumes a run that was stopped."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    python = "py" if sys.platform == "win32" else "python3"
    resume = [] if "--auto_resume" in given else ["--auto_resume"]
    return shell_command([python, str(Path("scripts") / Path(__file__).name), *resume, *given])


def closing_words(
    code: int,
    run: Path | None,
    environment: Environment,
    verdict: str = "",
    resume: str = "the same with --auto_resume",
) -> str:
    """Compose the last lines: how it went, where the run is, the command that shows its curves."""
    if run is None:
        return f"quickstart: no run was made (exit code {code}); the reason stands above"
    curves = [short_path(environment.python), "-m", "tensorboard.main", "--logdir", short_path(run.parents[1])]
    lines = photograph_table(last_validation(run))
    if verdict:
        lines.append(verdict)
    if code:
        lines.append(f"quickstart: train.py ended with exit code {code}")
        if code > 128:
            lines.append(f"To resume:      {resume}")
    lines.append(f"The run is in   {short_path(run)}")
    lines.append(f"Its page:       {short_path(run / 'dashboard.html')} (open it in a browser)")
    lines.append(f"Its curves:     {shell_command(curves)}")
    return "\n".join(lines)


def photograph_table(last: Mapping[str, Any] | None) -> list[str]:
    """Last validation, photograph by photograph: what the network does, and plain bicubic enlargement beside it."""
    if last is None:
        return []
    try:
        rows = [(score["name"], score["metrics"], score["bicubic"]) for score in last["scores"]]
        rows.append(("mean", last["metrics"], last["bicubic"]))
        cells = [
            f"{name:14}" + "".join(f"{m[k]:10.4f}{b[k]:10.4f}{m[k] - b[k]:+9.4f}" for k in m) for name, m, b in rows
        ]
        title = f"{'':14}" + "".join(f"{metric:>10}{'bicubic':>10}{'gain':>9}" for metric in last["metrics"])
    except (ValueError, LookupError, TypeError):
        return []  # such as NaN, which is text in a record
    return ["", f"Photographs never trained on, after step {last['step']}:", title, *cells, ""]


if __name__ == "__main__":
    sys.exit(main())
