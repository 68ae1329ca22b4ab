"""The code of the five source documents: Python, option files, JSON and commands, as they stand there.

The documents lie beside the repository; without them these tests are skipped. Each block of Python has an outcome in
:data:`OUTCOMES`: it runs under the documents' own module names, after what its document leaves open (a model, a
dataset), or it is no program, and says why. Each block of YAML loads, and each command has its counterpart here in
:data:`COMMANDS`. What has no language is a tree of folders or lines of a log.
"""

import inspect
import os
import re
from pathlib import Path

import pytest

import trainauto
from tests.documents import BLOCK, ROOT, Block, read
from tests.integration.doc_commands import fault_of
from tests.integration.ready_processes import begin
from tests.unit.reporting.builders import a_progress, a_step, a_summary
from trainauto.options.finetune_options import FinetuneTraining
from trainauto.options.load import load_options
from trainauto.reporting.summary_json import SummaryJson

DOCUMENTS = ROOT.parent / "shared" / "seeds"

BRAINVLM, DYNABATCH, TRAINNER, FINE_TUNING, PEAKS = (f"{number:03d}" for number in range(5))

ALIASES = {
    "training_example": "trainauto.multitask",
    "memory_utils": "trainauto.multitask",
    "dynamic_batching": "trainauto.multitask",
    "memory_safety": "trainauto.multitask",
    "dynamic_trainer": "trainauto.multitask",
    "dynamic_monitoring": "trainauto.multitask",
    "dynabatch": "trainauto",
}
"""The documents' modules, and where their names are here."""

INSIDE = "lines from inside the source's automation: here the meter and the controller do this, for every loop"
OUTCOMES: dict[str, dict[int, str]] = {
    BRAINVLM: {},
    DYNABATCH: {1: "a signature: compared with ours"},
    TRAINNER: {},
    FINE_TUNING: {},
    PEAKS: {0: INSIDE, 1: INSIDE, 2: INSIDE, 3: INSIDE, 4: INSIDE, 6: INSIDE},
}
"""By document, the blocks that are no programs, and why; all others run."""

PREFACES = {
    BRAINVLM: """
from trainauto.multitask import EffectiveBatchSizeNormalizer
from trainauto.huggingface import MemoryAwareTrainingArguments
from trainauto.tasks.multitask.digits import DigitTasks
from trainauto.tasks.multitask.digits_model import DigitsModel
from torch.utils.data import DataLoader
train_dataset, eval_dataset = DigitTasks(96), DigitTasks(24, part="test")
model = DigitsModel(256, hidden_size=16, layers=2, heads=2)
def tokenizer(texts):
    return {"input_ids": [[ord(letter) for letter in text[:48]] for text in texts]}
class Subjects:
    samples = [{"subject_id": 1}, {"subject_id": [1, 2]}]
""",
    DYNABATCH: """
from tests.tokenizers import fast_tokenizer
your_texts = ["the quick brown fox " * (1 + number % 5) for number in range(200)]
your_tokenizer = fast_tokenizer()
class model:
    seen = 0
    @classmethod
    def generate(cls, input_ids, attention_mask):
        cls.seen += len(input_ids)
""",
    TRAINNER: """
from types import SimpleNamespace
from trainauto import DynamicBatchSizeOptimizer
from trainauto.core.records import PeakReading
vram_optimizer = DynamicBatchSizeOptimizer(adjustment_frequency=2, max_batch_size=64, policy="step")
vram_optimizer.set_current_parameters(batch_size=8, lq_size=64)
training_automations = SimpleNamespace(automations={"DynamicBatchSizeOptimizer": vram_optimizer})
class dataloader:
    asked = []
    update_batch_size = asked.append
    update_lq_size = asked.append
""",
    PEAKS: """
import logging
from trainauto import DynamicBatchSizeOptimizer
logger = logging.getLogger()
automation = DynamicBatchSizeOptimizer()
automation.set_current_parameters(batch_size=8, lq_size=64)
class dynamic_dataloader:
    update_batch_size = update_lq_size = print
dynamic_dataset = None
""",
}
"""What the documents leave to their readers: models, data, loops."""

BEFORE = {
    (BRAINVLM, 2): """
# samples as the first block has them: none is of T2, of which the settings speak all the same
all_tasks, some = train_dataset, {"T1": 0.5, "T3": 0.5}
train_dataset, eval_dataset = DigitTasks(96, shares=some), DigitTasks(24, part="test", shares=some)
config.task_distribution = {"T1": 0.4, "T2": 0.3, "T3": 0.3}
config.initial_task_loss_weights = {"T1": 1.0, "T2": 1.0, "T3": 1.0}
""",
    (BRAINVLM, 5): "train_dataset = all_tasks",
    (BRAINVLM, 4): "actual_memory_mb = 900.0",
    (BRAINVLM, 6): "predicted_memory_gb = batch_memory",
    (BRAINVLM, 7): """
class Tokenised(DigitTasks):
    def __getitem__(self, idx):
        sample = super().__getitem__(idx)
        text = sample.pop("text")
        return {**sample, "input_ids": [ord(letter) for letter in text[:48]]}
train_dataset, eval_dataset = Tokenised(96), Tokenised(24, part="test")
normalizer = EffectiveBatchSizeNormalizer(8, 16)
training_args = MemoryAwareTrainingArguments(
    "trainer", per_device_train_batch_size=8, max_steps=2, use_cpu=True, report_to=[], disable_tqdm=True
)
""",
    (BRAINVLM, 15): """
train_dataloader, task_type = dataloader, "T1"
sure, priced = predictor.predict_sample_memory("T1"), predictor.as_cost()
def get_gpu_memory():  # 1.3 times what the batch in the loop was predicted to take
    tokens, images = (max(told[name] for told in batch.metadata) for name in ("num_tokens", "num_images"))
    return 1.3 * float(priced.cost(len(batch.metadata), tokens, len(batch.metadata) * images)) / 2**20
""",
}
"""What a block needs before it runs."""

AFTER = {
    (BRAINVLM, 0): """
Subjects.get_sample_metadata = get_sample_metadata
assert [Subjects().get_sample_metadata(place) for place in (0, 1)] == [
    {"task_type": "T1", "num_images": 1}, {"task_type": "T3", "num_images": 2}
]
""",
    (BRAINVLM, 2): """
from pathlib import Path
assert result.metrics["eval_loss"] > 0
metrics = Path("dynamic_training_outputs/training_metrics")
for name in ("batch_metrics.json", "epoch_metrics.json", "training_report.json", "task_comparison.png"):
    assert (metrics / name).is_file(), name
assert list(metrics.glob("training_curves*.png"))
""",
    (BRAINVLM, 4): "assert memory_gb > 0 < batch_memory and accuracy['T1'] >= 0",
    (BRAINVLM, 5): """
batches = [dict(batch) for batch in dataloader]
assert sum(len(batch["task_ids"]) for batch in batches) == len(train_dataset)
assert max(len(batch["task_ids"]) for batch in batches) <= 16
""",
    (BRAINVLM, 6): "assert safe_size >= 1",
    (BRAINVLM, 7): """
assert result.global_step == 2 and trainer.task_losses.keys() == {'T1', 'T2', 'T3'}
assert predictor.follows_model and guardian.predictor is predictor
assert all(error < 1 for error in predictor.get_calibration_accuracy().values())
assert Path("trainer/training_metrics/training_report.json").is_file()
""",
    (BRAINVLM, 8): "assert epoch_metrics.total_samples == 160 and report['summary']",
    (BRAINVLM, 13): "config.check()",
    (BRAINVLM, 14): "assert estimates['estimated_batches'] > 0",
    (BRAINVLM, 15): """
learned = predictor.state_dict()["factors"]["1"]["records"]
assert len(learned) == len(train_dataloader)
assert all(round(factor, 3) == 0.262 for _, factor, _ in learned), learned  # log(1.3): each peak is that of its batch
assert sure < predictor.predict_sample_memory("T1") < 1.4 * sure
""",
    (BRAINVLM, 16): """
from trainauto.core.errors import InputError
try:  # of all snippets together: two passes of 8 are no step of 32, and both were written
    config.check()
    assert False, "it was taken"
except InputError as error:
    assert "gradient_accumulation_steps=2 contradicts target_batch_size=32" in str(error), error
config.gradient_accumulation_steps = 4
""",
    (BRAINVLM, 17): "config.check()",
    (DYNABATCH, 0): "assert model.seen == len(your_texts)",
    (TRAINNER, 0): """
assert dataloader.asked == []  # the first period is not over
low = PeakReading(allocated=2**27, reserved=2**27, limit=2**30)
changes = []
for _ in range(12):
    vram_optimizer.observe(low)
    changes.append(vram_optimizer.update_vram_monitoring())
grown = [change for change in changes if change != (None, None)]
assert grown and all((change[0] or 0) >= 0 for change in grown), changes
""",
    (TRAINNER, 1): "assert vram_stats['adjustments'] == len(grown)",
    (PEAKS, 5): "assert automation.get_vram_stats()['adjustments'] == 0",
}
"""What a block has come to."""


COMMANDS = {
    "cd project/tests": "cd is not needed",
    "python -m pytest test_dynamic_batching.py -v": "python -m pytest tests/unit/tasks/multitask -v",
    "python -m pytest test_dynamic_batching.py::TestMemoryPredictor -v": (
        "python -m pytest tests/unit/tasks/multitask/prediction/test_memory_predictor.py -v"
    ),
    "python -m pytest test_dynamic_batching.py --cov=utils --cov-report=html": (
        "python -m pytest tests/unit/tasks/multitask --cov=trainauto --cov-report=html --cov-fail-under=0"
    ),
    "pip install -r requirements.txt": "pip install .",
    "python train_classifier/generate_training_data.py": "python scripts/generate_training_data.py",
    "python train_classifier/train_classifier.py": "python scripts/train_classifier.py",
    "python test_enhanced_vram_management.py": "python -m pytest tests/unit/automations tests/unit/control",
    "cat training_output/current/config.json": "the same",
    "cat training_output/current/training_log.json": "the same",
    "cat training_output/current/training.log": "the same",
    "open training_output/current/dashboard.html": "the same",
    "uv run python -m openadapt_ml.scripts.train --config configs/qwen3vl_capture_batched.yaml --capture "
    "/path/to/capture": "trainauto train -opt options/finetune/fast_dev.yml",
    "cat training_output/current/config.json | jq .": "the same",
    "tail -f training_output/current/training.log": "the same",
    "uv run python -m openadapt_ml.cloud.local serve --open": "trainauto report training_output --serve --open",
}
"""Every command of the documents, and what to type here."""


def blocks(document: str, language: str = "python") -> list[str]:
    """Return the blocks of a document in a language."""
    (file,) = DOCUMENTS.glob(f"{document}_*")
    found = BLOCK.finditer(file.read_text(encoding="utf-8"))
    return [
        re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        for match in found
        if match["language"] == language
    ]


def program(document: str) -> str:
    """Return the blocks of a document as one program, with what they need before and what they come to."""
    aliases = "".join(f"sys.modules[{name!r}] = importlib.import_module({home!r})\n" for name, home in ALIASES.items())
    parts = ["import importlib, sys", aliases, PREFACES[document]]
    for number, block in enumerate(blocks(document)):
        if number not in OUTCOMES[document]:
            parts += [BEFORE.get((document, number), ""), block, AFTER.get((document, number), "")]
            parts.append(f"print('block {number} ran')")
    return "\n".join(parts)


needs_documents = pytest.mark.skipif(not DOCUMENTS.is_dir(), reason="the source documents are not beside this checkout")


@needs_documents
@pytest.mark.parametrize("document", PREFACES)
def test_every_block_runs_or_has_a_named_outcome(document: str, tmp_path: Path) -> None:
    (tmp_path / "document.py").write_text(program(document), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    process = begin(["document.py"], cwd=tmp_path, env=environment, is_merged=False)
    said, errors = process.communicate(240)
    assert process.returncode == 0, (said, errors)
    expected = [number for number in range(len(blocks(document))) if number not in OUTCOMES[document]]
    assert [int(number) for number in re.findall(r"^block (\d+) ran$", said, re.MULTILINE)] == expected


@needs_documents
def test_the_table_names_blocks_that_there_are() -> None:
    for document, outcomes in OUTCOMES.items():
        count = len(blocks(document))
        assert all(number < count for number in outcomes)
        assert count == 0 or document in PREFACES


def whole(fragment: str) -> str:
    """Return an option file: a fragment of a document as it stands, within what it leaves open."""
    if "training_automations:" in fragment:
        file = (ROOT / "options/train/quickstart.yml").read_text(encoding="utf-8")
        return file.partition("training_automations:")[0] + fragment
    rest = {"model": "{ name: Qwen/Qwen3-VL-2B-Instruct }", "dataset": "{ path: chats.jsonl }", "training": "{}"}
    return fragment + "".join(f"{key}: {value}\n" for key, value in rest.items() if f"{key}:" not in fragment)


@needs_documents
@pytest.mark.parametrize(("document", "count"), [(TRAINNER, 4), (FINE_TUNING, 11), (PEAKS, 1)])
def test_every_option_file_loads(document: str, count: int, tmp_path: Path) -> None:
    fragments = blocks(document, "yaml")
    assert len(fragments) == count
    for number, fragment in enumerate(fragments):
        file = tmp_path / f"file_{number}.yml"
        file.write_text(whole(fragment), encoding="utf-8")
        load_options(file)


@needs_documents
def test_json_of_the_documents_has_the_keys_of_ours(tmp_path: Path) -> None:
    entry, config = (set(re.findall(r'^  "(\w+)":', text, re.MULTILINE)) for text in blocks(FINE_TUNING, "json"))
    log = SummaryJson(tmp_path / "training_log.json", print_freq=1)
    log.start(a_summary())
    log.step(a_step(1), (), a_progress(1))
    assert set(log._losses[0]) == entry
    assert config <= FinetuneTraining.model_fields.keys()  # these stand at the top of config.json
    assert len(config) == 5


@needs_documents
def test_every_command_has_a_counterpart() -> None:
    shown = [
        command
        for document in (BRAINVLM, DYNABATCH, TRAINNER, FINE_TUNING, PEAKS)
        for text in blocks(document, "bash")
        for command in Block("", 0, 0, "bash", text, "").commands
    ]
    assert set(shown) == set(COMMANDS)
    for command, ours in COMMANDS.items():
        if ours != "the same" and not command.startswith("cd "):
            assert fault_of(ours) is None, ours
            paths = [word for word in ours.split() if word.startswith("tests/")]
            assert all((ROOT / path).exists() for path in paths)
            assert " ".join(ours.split()[:3]) in read("docs/sources.md"), ours


@needs_documents
def test_every_block_says_a_language_that_is_looked_at() -> None:
    for document in (BRAINVLM, DYNABATCH, TRAINNER, FINE_TUNING, PEAKS):
        (file,) = DOCUMENTS.glob(f"{document}_*")
        text = file.read_text(encoding="utf-8")
        languages = [match["language"] for match in BLOCK.finditer(text)]
        assert set(languages) <= {"", "python", "yaml", "json", "bash"}
        assert 2 * len(languages) == len(re.findall(r"^ *```", text, re.MULTILINE))


@needs_documents
def test_the_signature_of_the_loader_holds_here() -> None:
    """Parameters and defaults as written there; ours may have more."""
    signature = blocks(DYNABATCH)[1]
    written = dict(re.findall(r"^ +(\w+): [^=\n]+?(?: = ([^,\n]+))?,$", signature, re.MULTILINE))
    ours = inspect.signature(trainauto.build_dynamic_batch_dataloader).parameters
    assert len(written) >= 10
    for name, default in written.items():
        assert name in ours
        if default:
            assert repr(ours[name].default) == default, name
