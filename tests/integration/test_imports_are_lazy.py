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
        ("import trainauto; trainauto.build_dynamic_batch_dataloader, trainauto.train", {"transformers", "tokenizers"}),
    ],
    ids=["sinks of a run", "list of cards", "packing", "texts"],
)
def test_not_loaded(program: str, heavy: set[str]) -> None:
    code = f"{program}\nimport sys; print(sorted({heavy} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "[]\n")
