"""What is answered at once does not load what takes seconds."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("program", "heavy"),
    [
        ("import trainauto.reporting.default_sinks", {"torch", "tensorboard"}),
        ("from trainauto.cli import main; assert main(['list', 'cards']) == 0", {"torch"}),
        ("import trainauto.data.packing", {"torch", "transformers"}),
        (
            "import trainauto, trainauto.commands.dry_run, trainauto.forecast.option_plans\n"
            "trainauto.build_dynamic_batch_dataloader, trainauto.train",
            {"transformers", "tokenizers", "peft"},
        ),
        ("import trainauto.huggingface", {"torch", "transformers", "accelerate"}),
        ("import trainauto.multitask", {"torch", "transformers", "accelerate", "matplotlib"}),
    ],
    ids=["sinks of a run", "list of cards", "packing", "texts", "Trainer", "several tasks"],
)
def test_not_loaded(program: str, heavy: set[str]) -> None:
    code = f"{program}\nimport sys; print(sorted({heavy} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "[]\n")


@pytest.mark.parametrize("lacking", ["transformers", "accelerate"])
def test_without_what_it_needs_the_trainer_names_the_extra(lacking: str) -> None:
    code = (
        "import importlib.util as util; found = util.find_spec\n"
        f"util.find_spec = lambda name, *more: None if name == '{lacking}' else found(name, *more)\n"
        "from trainauto.huggingface import MemoryAwareTrainer"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"MemoryAwareTrainer needs {lacking}: pip install 'trainauto[huggingface]'" in done.stderr
