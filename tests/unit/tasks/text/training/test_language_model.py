"""The loss of language models: the mean over learned tokens, however texts lie in rows and in pieces (B05, B07)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.language_models import GPT2, LLAMA, T5, causal_samples, language_model, pair_samples
from trainauto.core.batch import Batch
from trainauto.core.plan import Plan
from trainauto.core.workload import split
from trainauto.engine.step import optimize_parameters
from trainauto.engine.step_outcome import Stepped
from trainauto.engine.traced_training import FakeTraining, TracedModel
from trainauto.optim.precision import Precision
from trainauto.tasks.text.training.language_model import LanguageModel
from trainauto.tasks.text.training.lora import LoraSettings
from trainauto.tasks.text.training.text_dataset import TextDataset, largest_batch

LENGTHS = [5, 16, 2, 7, 11, 3, 9]


def dataset_of(kind: str) -> TextDataset:
    if kind == "pairs":
        return TextDataset("texts", pair_samples(LENGTHS, [3, 1, 4, 6, 2, 2, 8]), "encoder_decoder")
    return TextDataset("texts", causal_samples(LENGTHS), row_length=32 if kind == "packed" else None)


def loss_of(model: LanguageModel, tensors: Any) -> Tensor:
    (objective,) = model.objectives()
    return objective.loss(dict(tensors))["loss"]


def gradients(model: LanguageModel) -> dict[str, Tensor]:
    (network,) = model.networks.values()
    return {name: weight.grad.clone() for name, weight in network.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=lambda config: config["model_type"])
def test_packed_texts_do_not_see_each_other(config: dict[str, Any], attention: Any) -> None:
    """An all-ones mask would let them: logits then differ by much more."""
    dataset = dataset_of("packed")
    model = language_model(dataset, config, dtype=torch.float32, attention=attention)
    network: Any = model.networks["model"]
    whole = dataset.batch(range(len(LENGTHS)))
    lengths, layout = whole["lengths"], dataset.workload.layout
    rows = model._rows(whole, layout)
    places, total = torch.tensor(layout.lay_out(lengths)[0]), sum(LENGTHS)
    with torch.no_grad():
        packed = network(**rows, use_cache=False).logits
        leaking = network(**rows, attention_mask=torch.ones_like(places), use_cache=False).logits
        for index, start in enumerate(np.cumsum(lengths) - lengths):
            text = whole["input_ids"][start : start + lengths[index]]
            alone = network(input_ids=text[None], use_cache=False).logits[0]
            own = (places >= start) & (places < start + lengths[index])
            torch.testing.assert_close(packed[own], alone, rtol=0, atol=1e-5)
    is_text = places < total
    assert (leaking[is_text] - packed[is_text]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["padded", "packed", "pairs"])
def test_the_loss_is_the_mean_over_learned_tokens_of_each_text_alone(kind: str) -> None:
    dataset = dataset_of(kind)
    model = language_model(dataset, T5 if kind == "pairs" else GPT2)
    network: Any = model.networks["model"]
    total, learned = 0.0, 0
    for index in range(len(LENGTHS)):
        batch = dataset.batch([index])
        ids, labels = batch["input_ids"][None], batch["labels"][None]
        with torch.no_grad():
            logits = network(input_ids=ids, labels=labels, use_cache=False).logits[0]
        predicted, expected = (logits, labels[0]) if kind == "pairs" else (logits[:-1], labels[0, 1:])
        total += float(torch.nn.functional.cross_entropy(predicted, expected, reduction="sum"))
        learned += len(expected)
    whole = dataset.batch(range(len(LENGTHS)))
    assert dataset.workload.weight(whole) == learned
    assert float(loss_of(model, whole).detach()) == pytest.approx(total / learned, rel=1e-6)
    assert model.mean_loss(whole) == pytest.approx(total / learned, rel=1e-6)


@pytest.mark.parametrize("kind", ["padded", "packed", "pairs"])
@pytest.mark.parametrize("pieces", [2, 3])
def test_a_step_in_pieces_is_the_step_as_a_whole(kind: str, pieces: int) -> None:
    dataset = dataset_of(kind)
    tensors, plan = dataset.batch(range(len(LENGTHS))), Plan.of(tokens=512)
    weights = []
    for count in (1, pieces):
        model = language_model(dataset, T5 if kind == "pairs" else GPT2)
        in_pieces = plan.with_micro_batches(count)
        shape = dataset.workload.shape(tensors)
        batch = Batch(tensors, dataset.workload, ("",) * len(LENGTHS), 0, in_pieces, in_pieces, shape)
        optimize_parameters(model, batch)
        weights.append(list(model.networks["model"].parameters()))
    for whole, parts in zip(*weights, strict=True):
        torch.testing.assert_close(parts, whole, rtol=0, atol=1e-6)  # losses are summed in float32


@pytest.mark.parametrize("kind", ["padded", "packed", "pairs"])
def test_a_step_that_runs_out_of_memory_is_the_same_step(kind: str) -> None:
    dataset, plan, weights = dataset_of(kind), Plan.of(tokens=512), []
    tensors = dataset.batch(range(len(LENGTHS)))
    whole = dataset.workload.shape(tensors)
    for room in (whole.tokens, whole.tokens // 2):
        model = language_model(dataset, T5 if kind == "pairs" else GPT2)

        def refuse(_network: Any, _args: Any, rows: dict[str, Tensor], room: int = room) -> None:
            tokens = rows["input_ids"].numel() + (rows["labels"].numel() if kind == "pairs" else 0)
            if tokens > room:
                raise MemoryError("no room")

        model.networks["model"].register_forward_pre_hook(refuse, with_kwargs=True)
        outcome = optimize_parameters(
            model, Batch(tensors, dataset.workload, ("",) * len(LENGTHS), 0, plan, plan, whole)
        )
        assert isinstance(outcome, Stepped)
        weights.append((len(outcome.failures), list(model.networks["model"].parameters())))
    assert weights[0][0] == 0 < weights[1][0]
    for plain, recovered in zip(weights[0][1], weights[1][1], strict=True):
        torch.testing.assert_close(recovered, plain, rtol=0, atol=1e-6)


def test_parts_of_equal_weights_would_differ() -> None:
    """The comparison above would see a mean of means."""
    dataset = dataset_of("padded")
    model, tensors = language_model(dataset, GPT2), dataset.batch(range(len(LENGTHS)))
    means = [float(loss_of(model, part).detach()) for _, part in split(dataset.workload, tensors, len(LENGTHS), 3)]
    assert abs(sum(means) / len(means) - float(loss_of(model, tensors).detach())) > 1e-4


@pytest.mark.parametrize("kind", ["packed", "pairs"])
def test_gradient_checkpointing_changes_no_gradient(kind: str) -> None:
    dataset = dataset_of(kind)
    both = []
    for checkpoints in (False, True):
        model = language_model(dataset, T5 if kind == "pairs" else GPT2)
        if checkpoints:
            (blocks,) = model.checkpoint_gradients().values()
            assert len(blocks.modules) == (4 if kind == "pairs" else 2)  # of the encoder and of the decoder
        loss_of(model, dataset.batch(range(len(LENGTHS)))).backward()  # type: ignore[no-untyped-call]
        both.append(gradients(model))
    for name, gradient in both[0].items():
        assert torch.equal(both[1][name], gradient), name


@pytest.mark.parametrize("kind", ["padded", "packed", "pairs"])
def test_traces_without_data_equal_those_of_a_step(kind: str) -> None:
    """An encoder's mask is written out in a trace, as it is where texts are padded; here none is."""
    dataset, plan = dataset_of(kind), Plan.of(tokens=4 * dataset_of(kind).row_tokens)
    config = T5 if kind == "pairs" else LLAMA

    def batch_of(plan: Plan) -> Batch:
        return largest_batch(dataset.workload, plan)

    fake = FakeTraining(lambda _: language_model(dataset, config, dtype=torch.float32), batch_of, clips=True)
    real = TracedModel(language_model(dataset, config, dtype=torch.float32), batch_of, 1.0)
    foretold, peak = fake.trace(plan).peak_bytes, real.trace(plan).peak_bytes
    assert foretold == peak or (kind == "pairs" and peak < foretold < 1.03 * peak)


def test_lora_trains_its_matrices_alone_and_is_kept(tmp_path: Path) -> None:
    dataset = dataset_of("padded")
    settings = LoraSettings(r=2, target_modules=["c_attn"])
    model = language_model(dataset, GPT2, lora=settings)
    tensors, plan = dataset.batch(range(4)), Plan.of(tokens=512)
    before = {name: weight.clone() for name, weight in model.networks["model"].named_parameters()}
    batch = Batch(tensors, dataset.workload, ("",) * 4, 0, plan, plan, dataset.workload.shape(tensors))
    for _ in range(2):  # of the first step one of both matrices is 0
        optimize_parameters(model, batch)
    changed = {name for name, weight in model.networks["model"].named_parameters() if not weight.equal(before[name])}
    assert len(changed) == 4
    assert all("lora" in name and "c_attn" in name for name in changed)
    model.save(tmp_path)
    loaded = language_model(dataset, GPT2, lora=settings)
    loaded.load(tmp_path)
    assert loaded.mean_loss(tensors) == model.mean_loss(tensors)
    model.finished.save_pretrained(str(tmp_path / "adapter"))
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()


def test_in_bfloat16_weights_stay_as_they_are() -> None:
    dataset = dataset_of("packed")
    exact, tensors = language_model(dataset, LLAMA, dtype=torch.float32), dataset.batch(range(len(LENGTHS)))
    (network,) = exact.networks.values()
    precision = Precision(torch.device("cpu"), torch.bfloat16)
    half = LanguageModel(
        network, "causal", dataset.workload.layout, 0, lambda weights: torch.optim.SGD(weights, lr=0.1), precision
    )
    loss = loss_of(half, tensors)
    assert loss.dtype == torch.float32
    expected = float(loss_of(exact, tensors).detach())
    assert 0 < abs(float(loss.detach()) - expected) < 0.02 * expected
    assert {weight.dtype for weight in network.parameters()} == {torch.float32}


def test_what_was_saved_comes_back_and_transformers_reads_it(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    dataset = dataset_of("padded")
    model, tensors = language_model(dataset, GPT2, dtype=torch.float32), dataset.batch([3])
    with torch.no_grad():
        for weight in model.networks["model"].parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    model.save(tmp_path)
    other = language_model(dataset, GPT2, dtype=torch.float32)
    assert other.mean_loss(tensors) != model.mean_loss(tensors)
    other.load(tmp_path)
    assert other.mean_loss(tensors) == model.mean_loss(tensors)
    model.finished.save_pretrained(str(tmp_path / "finished"))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "finished", local_files_only=True).eval()
    with torch.no_grad():
        loss = theirs(input_ids=tensors["input_ids"][None], labels=tensors["labels"][None]).loss
    assert float(loss) == pytest.approx(model.mean_loss(tensors), rel=1e-6)
