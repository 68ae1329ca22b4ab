"""Fine-tuning that is stopped by a signal, or killed: it goes on exactly where it was, whoever reads its pictures."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import ACCEPTANCE
from tests.integration.commands import step_records, train, write_options
from tests.integration.finetune_runs import finetune_options, write_chats, write_model

ADAPTERS = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1, "target_modules": ["q_proj", "v_proj"]}

PLUGIN = '''\
"""Ends its process at moments that a file lists, each once: a step, a checkpoint half written, a model half written."""

import json
import os
import signal
from pathlib import Path

from trainauto.builders.finetune import FinetuneParts
from trainauto.engine import checkpoint
from trainauto.tasks.finetune.conversation_model import ConversationModel

PLAN, SIGNALS = Path("ends.json"), {"stop": signal.SIGINT}
AT = {"step": 0}


def end(*kinds):
    ends = json.loads(PLAN.read_text())
    if ends and ends[0][0] in kinds and AT["step"] >= ends[0][1]:
        PLAN.write_text(json.dumps(ends[1:]))
        os.kill(os.getpid(), SIGNALS.get(ends[0][0], signal.SIGKILL))


def before(owner, name, *kinds):
    given = getattr(owner, name)

    def replaced(*arguments, **options):
        end(*kinds)
        return given(*arguments, **options)

    setattr(owner, name, replaced)


given_step, given_model = ConversationModel.begin_step, FinetuneParts.write_model


def begin_step(self, step):
    if step is not None:
        AT["step"] = step
        end("step", "stop")
    return given_step(self, step)


def write_model(self, folder):
    given_model(self, folder)
    (folder / "tokenizer.json").unlink()
    end("model")
    return given_model(self, folder)


ConversationModel.begin_step, FinetuneParts.write_model = begin_step, write_model
before(checkpoint, "write_sums", "checkpoint")
before(checkpoint, "_write_state", "half")
'''

Ends = list[tuple[str, int]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    write_model(folder / "model")
    write_chats(folder / "chats.jsonl")
    return folder


def placed(made: Path, folder: Path, ends: Ends, **training: Any) -> Path:
    """Write an option file into a folder of its own, with the plugin that carries out ``ends``, if there are some."""
    folder.mkdir()
    (folder / "ender.py").write_text(PLUGIN)
    (folder / "ends.json").write_text(json.dumps(ends))
    plugins = ["ender"] if ends else []
    changes = {"plugins": plugins, "lora": ADAPTERS, "training": {"save_steps": 2, **training}}
    return write_options(folder / "run.yml", finetune_options(made / "model", made / "chats.jsonl", **changes))


def outcome(options: Path) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """Return what the steps were, and the weights after each epoch, byte for byte."""
    run = current(options)
    kept = ("step", "first_sample", "samples", "losses", "lr", "grad_norm", "plan")
    steps = [{key: record[key] for key in kept} for record in step_records(run)]
    files = sorted((run / "checkpoints").glob("epoch_*/adapter_model.safetensors"))
    return steps, {file.parent.name: file.read_bytes() for file in files}


def current(options: Path) -> Path:
    return (options.parent / "training_output" / "current").resolve()


@pytest.fixture(scope="module")
def straight(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a run comes to that nothing stops."""
    options = placed(made, tmp_path_factory.mktemp("straight") / "run", [])
    done = train(options)
    assert done.returncode == 0, done.stderr
    steps, weights = outcome(options)
    assert [step["step"] for step in steps] == list(range(1, 7))
    assert set(weights) == {"epoch_0", "epoch_1"}
    return steps, weights


def test_ctrl_c_finishes_the_step_and_saves(made: Path, tmp_path: Path, straight: Any) -> None:
    """D50; in the middle of an epoch: nothing is measured before it leaves, and a resume is as if it had not been."""
    options = placed(made, tmp_path / "stopped", [("stop", 5)], eval_every_epoch=True)
    stopped = train(options, "--force_yml", f"dataset:val={made / 'chats.jsonl'}", own_process=True)
    assert stopped.returncode == 128 + signal.SIGINT, stopped.stderr
    said = " ".join(stopped.stdout.split())
    assert "interrupted SIGINT received" in said
    run = current(options)
    assert (run / "checkpoints" / "step_00000005").is_dir()
    assert not (run / "checkpoints" / "epoch_1").exists()
    log = json.loads((run / "training_log.json").read_text())
    assert (log["status"], log["termination_status"]) == ("interrupted", "interrupted")
    validated = [json.loads(line)["step"] for line in (run / "validation.jsonl").read_text().splitlines()]
    assert validated == [3]
    resumed = train(options, "--auto_resume", own_process=True)
    assert resumed.returncode == 0, resumed.stderr
    assert outcome(options) == straight


@pytest.mark.parametrize("workers", [0, 2] if ACCEPTANCE else [2])
def test_killed_again_and_again_equals_uninterrupted(made: Path, tmp_path: Path, straight: Any, workers: int) -> None:
    """In a step, with a checkpoint or a model half written; processes that read pictures change nothing.

    A first checkpoint that is half written is none, so that the run begins anew.
    """
    ends: Ends = [("half", 4)]
    if ACCEPTANCE:
        ends = [("step", 1), ("half", 2), ("step", 3), ("model", 3), ("checkpoint", 4), ("half", 5), ("step", 6)]
    options = placed(made, tmp_path / "killed", ends, dataloader_num_workers=workers)
    for planned in ends:
        killed = train(options, "--auto_resume", own_process=True)
        assert killed.returncode == -signal.SIGKILL, (planned, killed.stdout, killed.stderr)
    done = train(options, "--auto_resume", own_process=True)
    assert done.returncode == 0, done.stderr
    assert ACCEPTANCE or "resumed     after step 3" in done.stdout
    assert len(list((options.parent / "training_output").glob("2*"))) == 1
    assert outcome(options) == straight
    assert not list((current(options) / "checkpoints").glob("*.tmp*"))
