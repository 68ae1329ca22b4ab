"""An epoch of fine-tuning by other people's Trainers, in a process of its own, under a budget that the system enforces.

    python scripts/bench/finetune_methods.py METHOD BATCH STEP MADE SAVED BUDGET_MIB RESULT.json
    python scripts/bench/finetune_methods.py losses MADE FOLDER ... RESULT.json

METHOD is ``plain`` or ``whole`` (transformers' Trainer), ``trl`` (TRL's SFTTrainer, its head's buffer no larger than
this model needs) or ``trl_default`` (with the buffer and the gradient checkpointing that it has as it comes). A step of
STEP conversations runs in passes of BATCH. MADE is the folder that finetune_data.py fills, SAVED gets the model.
Conversations come in the order in which our run of the same seed draws them, so that each step learns what ours learns.

``losses`` measures the models of folders on the conversations that nobody trained on.
"""

import json
import sys
from pathlib import Path
from typing import Any

from trainauto.core.process import set_environment

set_environment()

import finetune_clock  # noqa: E402, F401
import torch  # noqa: E402
from epoch_account import EpochAccount  # noqa: E402
from finetune_data import RATE, SEED, TEXT_SIZES, lines_of, write_options  # noqa: E402
from held_trainer import held  # noqa: E402
from torch.utils.data import DataLoader, Subset  # noqa: E402
from transformers import TrainingArguments  # noqa: E402

from trainauto.builders.finetune_data import build_finetune_data, processor_of  # noqa: E402
from trainauto.core.shuffling import shuffled_order  # noqa: E402
from trainauto.core.units import MIB  # noqa: E402
from trainauto.options.load import load_options  # noqa: E402
from trainauto.tasks.finetune.conversation_samples import for_model  # noqa: E402
from trainauto.tasks.finetune.models import ModelSettings, load_model  # noqa: E402


class Bench(EpochAccount):
    """Model, conversations and processor of a folder, and the account of what happened."""

    def __init__(self, made: Path, budget_mib: int) -> None:
        torch.set_num_threads(1)
        self.made = made
        self.loaded = load_options(write_options(Path.cwd(), made, 1, budget_mib))
        self.processor: Any = processor_of(self.loaded)
        self.data = build_finetune_data(self.loaded, self.processor, None)
        self.order = shuffled_order(len(self.data.train), SEED, 0).tolist()
        super().__init__(len(self.order), budget_mib * MIB, of_largest=False)
        self.model: Any = load_model(ModelSettings(made / "model"))
        self.cells = self.tokens = 0

    def collate(self, rows: Any) -> dict[str, torch.Tensor]:
        """Return encoded conversations as a batch of the model."""
        return for_model(self.data.collate(rows))

    def numbers_of(self, inputs: Any) -> list[int]:
        """Return which samples a batch has, which come in order; its tokens are counted, with padding and without."""
        self.cells += inputs["attention_mask"].numel()
        self.tokens += int(inputs["attention_mask"].sum())
        first = self.trained.total()
        return list(range(first, first + len(inputs["input_ids"])))

    def enforce(self, optimizer: torch.optim.Optimizer) -> None:
        """Put the budget in force."""
        one = self.collate([self.data.train[0]])
        self.enforce_budget(optimizer, lambda: self.model(**one).loss.backward())


def arguments(kind: type, batch: int, step: int, saved: str, **given: Any) -> Any:
    """Return what all Trainers are told, with what a method adds."""
    return kind(
        saved,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=step // batch,
        num_train_epochs=1,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        train_sampling_strategy="sequential",
        seed=SEED,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="epoch",
        **given,
    )


def plain(bench: Bench, batch: int, step: int, saved: str) -> None:
    """The Trainer of transformers, with our collator: it has none for conversations with pictures."""
    given = arguments(TrainingArguments, batch, step, saved, remove_unused_columns=False)
    rows = Subset(bench.data.train, bench.order)
    held(bench)(
        model=bench.model,
        args=given,
        train_dataset=rows,
        data_collator=bench.collate,
        processing_class=bench.processor,
    ).train()


def trl(bench: Bench, batch: int, step: int, saved: str, *, as_it_comes: bool = False) -> None:
    """TRL's SFTTrainer, with its own collator; float32 and no limit of tokens, as in all others."""
    from trl import SFTConfig, SFTTrainer
    from trl.trainer import utils

    if not as_it_comes:
        utils._CHUNKED_LOGPROB_CHUNK_SIZE = TEXT_SIZES["vocab_size"]
    own = {"bf16": False, "max_length": None, "assistant_only_loss": True, "gradient_checkpointing": as_it_comes}
    given = arguments(SFTConfig, batch, step, saved, **own)
    held(bench, SFTTrainer)(
        model=bench.model, args=given, train_dataset=rows_of(bench), processing_class=bench.processor
    ).train()


def rows_of(bench: Bench) -> Any:
    """Return the conversations as TRL takes them: pictures in a column of their own, opened when they are drawn."""
    from datasets import Dataset, Image, List

    rows = []
    lines = lines_of(bench.made, "train")
    for number in bench.order:
        messages, pictures = [], []
        for message in lines[number]["messages"]:
            content = []
            for part in message["content"]:
                if part["type"] == "image":
                    pictures.append(str(bench.made / part["image"]))
                content.append({"type": part["type"], "text": part.get("text")})
            messages.append({"role": message["role"], "content": content})
        rows.append({"messages": messages, "images": pictures})
    return Dataset.from_list(rows).cast_column("images", List(Image()))


METHODS = {
    "plain": plain,
    "trl": trl,
    "trl_default": lambda *words: trl(*words, as_it_comes=True),
    "whole": plain,
}


def train(method: str, batch: str, step: str, made: str, saved: str, budget_mib: str, result: str) -> None:
    """Train an epoch, and write the account."""
    bench = Bench(Path(made), int(budget_mib))
    failure = None
    bench.begin()
    try:
        METHODS[method](bench, int(batch), int(step), saved)
    except Exception as error:  # the method died of it: that is a result
        failure = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    record = bench.record(failure)
    most = max(bench.peaks, default=0) / bench.budget_bytes
    padded = bench.cells / max(1, bench.tokens)
    record |= {"most_use": most, "padded": padded, "torchvision": "torchvision" in sys.modules}
    Path(result).write_text(json.dumps(record))


def losses(made: str, *words: str) -> None:
    """Measure models on the conversations set aside: the mean over all learned tokens."""
    *folders, result = words
    bench = Bench(Path(made), 0)
    file = Path.cwd() / "val.yml"
    file.write_text((Path.cwd() / "bench.yml").read_text().replace("train.jsonl", "val.jsonl"))
    data = build_finetune_data(load_options(file), bench.processor, None)
    found = {}
    for folder in folders:
        model: Any = load_model(ModelSettings(folder)).eval()
        total, tokens = 0.0, 0
        for batch in DataLoader(data.train, batch_size=8, collate_fn=bench.collate):
            learned = int((batch["labels"][:, 1:] != -100).sum())
            with torch.no_grad():
                total += learned * float(model(**batch).loss)
            tokens += learned
        found[folder] = total / tokens
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1] == "losses":
        losses(*sys.argv[2:])
    else:
        train(*sys.argv[1:])
