"""What ``test RUN`` does with a fine-tuned model: its loss, how many answers are exact, and some of them."""

import math
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from trainauto.builders.finetune import four_bits_of, weights_dtype
from trainauto.builders.finetune_data import conversation_sets, encoded_with_pictures
from trainauto.builders.finetuned import FinetunedModel, Loaded, load_finetuned
from trainauto.core.errors import InputError, Problem
from trainauto.core.files import write_text_atomically
from trainauto.core.json_text import to_json
from trainauto.core.words import counted
from trainauto.optim.precision import Precision
from trainauto.reporting.formatting import WIDTH
from trainauto.storage.run_directory import RunDirectory
from trainauto.tasks.finetune.answers import Answer, answer_all, mean_loss
from trainauto.tasks.finetune.conversation_files import read_conversations
from trainauto.tasks.finetune.conversation_samples import ConversationSamples
from trainauto.tasks.finetune.conversations import Conversation
from trainauto.tasks.finetune.datasets import ConversationCollator, ConversationDataset
from trainauto.tasks.finetune.models import most_positions
from trainauto.tasks.finetune.preflight import look_through

RESULTS = Path("results")


def test_finetuned(
    directory: RunDirectory, loaded: Loaded, which: str, data: str | None, device: str | None, shown: int
) -> int:
    """Measure a fine-tuned model; return the exit code.

    Args:
        directory: the run.
        loaded: its options.
        which: ``latest``, or the number of an epoch.
        data: conversations in place of those that the run set aside.
        device: in place of the option file's.
        shown: answers to print.

    Raises:
        InputError: something cannot be used.
    """
    chosen = _device(device or loaded.options.device)
    precision = Precision(chosen, torch.float32)
    dtype, four_bits = weights_dtype(loaded.options, precision), four_bits_of(loaded.options, precision)
    trained = load_finetuned(directory, loaded, which, chosen, dtype, four_bits)
    name, conversations = _conversations(loaded, data)
    kept = look_through(
        conversations, trained.encoder, loaded.options.dataset.max_length or most_positions(trained.model), "drop"
    )
    print(f"{loaded.options.name}, {trained.folder.name} (step {trained.step}): {loaded.options.model.name}")
    loss, tokens = _loss(trained, kept.conversations)
    answers = list(_answers(trained, kept.conversations))
    exact = sum(answer.is_exact for answer in answers)
    said = counted(len(kept.conversations), "conversation")
    left_out = f" ({len(kept.dropped)} too long, left out)" if kept.dropped else ""
    print(f"{name}: {said}{left_out}, {counted(tokens, 'token')} to say")
    print(f"loss {loss:.4g}, perplexity {math.exp(min(loss, 50)):.4g}; ", end="")
    print(f"{exact} of {counted(len(answers), 'answer')} exact ({exact / len(answers):.1%})")
    for answer in _some(answers, shown):
        print("", *_lines_of(answer), sep="\n")
    folder = RESULTS / loaded.options.name
    figures = {"dataset": name, "loss": loss, "exact": exact / len(answers), "answers": len(answers)}
    _write(folder, figures | {"step": trained.step, "weights": str(trained.folder)}, answers)
    print(f"\nfigures and all answers: {folder}")
    return 0


def _device(asked: str) -> torch.device:
    has_cuda = torch.cuda.is_available()
    if asked == "cuda" and not has_cuda:
        raise InputError(Problem("torch finds no CUDA device", advice="Leave --device out, or write cpu."))
    return torch.device("cuda" if has_cuda and asked != "cpu" else "cpu")


def _conversations(loaded: Loaded, data: str | None) -> tuple[str, Sequence[Conversation]]:
    if data is not None:
        prompt = loaded.options.dataset.prompt
        return Path(data).name, read_conversations(data, set_name="test", prompt=prompt, argument="FOLDER")
    sets = conversation_sets(loaded)
    if "val" not in sets:
        message = "the run has set no conversations aside"
        advice = "Name some: test RUN chats.jsonl, or a folder of pictures with captions."
        raise InputError(Problem(message, advice=advice))
    return "val", sets["val"]


def _loss(trained: FinetunedModel, conversations: Sequence[Conversation]) -> tuple[float, int]:
    dataset = ConversationDataset(conversations, trained.encoder)
    samples = ConversationSamples(trained.padding_id, trained.processor.tokenizer.padding_side)
    collate = ConversationCollator(samples, encoded_with_pictures(conversations, trained.encoder))
    return mean_loss(trained.model, dataset, collate, _batch_size(trained))


def _answers(trained: FinetunedModel, conversations: Sequence[Conversation]) -> Sequence[Answer]:
    return list(
        answer_all(
            trained.model,
            trained.encoder,
            conversations,
            padding_id=trained.padding_id,
            batch_size=_batch_size(trained),
            example=encoded_with_pictures(conversations, trained.encoder),
        )
    )


def _batch_size(trained: FinetunedModel) -> int:
    training = trained.loaded.options.training
    return training.per_device_train_batch_size


def _some(answers: Sequence[Answer], shown: int) -> Sequence[Answer]:
    """Return some answers, those that are wrong first."""
    return sorted(answers, key=lambda answer: answer.is_exact)[:shown]


def _lines_of(answer: Answer) -> list[str]:
    width = min(shutil.get_terminal_size((WIDTH, 24)).columns, 120)
    verdict = "exact" if answer.is_exact else "differs"
    pairs = [("asked", answer.question), ("answer", answer.given)]
    pairs += [] if answer.is_exact else [("expected", answer.expected)]
    lines = [f"{answer.place}: {verdict}"]
    for label, words in pairs:
        text = " ".join(words.split()) or "(nothing)"
        lines += textwrap.wrap(text, width, initial_indent=f"  {label:<10}", subsequent_indent=" " * 12)
    return lines


def _write(folder: Path, figures: dict[str, object], answers: Sequence[Answer]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_text_atomically(folder / "metrics.jsonl", to_json(figures) + "\n")
    lines = (to_json({**asdict(answer), "exact": answer.is_exact}) for answer in answers)
    write_text_atomically(folder / "answers.jsonl", "".join(f"{line}\n" for line in lines))
