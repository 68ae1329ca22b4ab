"""What parts of a batch weigh: gradients of steps that ran out of memory against plain PyTorch."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, huber_loss

from tests.trainers import Tagger, Watched, rows, tiny_model, watched, weights, without_labels
from trainauto.core.errors import InputError
from trainauto.integrations.huggingface.loss import Weighing


@pytest.mark.parametrize("numbers", [(0,), (1, 2), (0, 1, 2)])
def test_samples_without_labels(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    """Steps in four passes give the weights of steps in one, whichever samples were looked at."""
    results = []
    for size, passes in ((8, 1), (2, 4)):
        trainer = watched(
            tmp_path,
            Tagger(),
            without_labels(*numbers),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=passes,
            num_train_epochs=1,
            optim="sgd",
            learning_rate=0.5,
        )
        trainer.train()
        assert trainer.memory.loss.weighing is Weighing.DIVISOR
        results.append(weights(trainer.model))
    torch.testing.assert_close(results[0], results[1])


def test_data_whose_labels_are_all_masked_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    masked = [{**row, "labels": torch.full_like(row["labels"], -100)} for row in rows()]
    trainer = watched(tmp_path, tiny_model(), masked, max_steps=2)
    trainer.train()
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [message.partition(" samples of train_dataset")[0] for message in said] == ["none of the first 64"]


class NoisyTagger(Tagger):
    """Its loss draws noise in evaluation as well, like that of a diffusion model."""

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        outputs = super().forward(input_ids, labels)
        return {**outputs, "loss": outputs["loss"] * (0.5 + torch.rand(()))}


def test_losses_that_draw_noise_weigh_what_they_are_divided_by(tmp_path: Path) -> None:
    for seed in range(3):
        trainer = watched(tmp_path, NoisyTagger(), rows(), max_steps=1, seed=seed)
        trainer.train()
        assert trainer.memory.loss.weighing is Weighing.DIVISOR


class UnreadableTagger(NoisyTagger):
    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        outputs = super().forward(input_ids, labels)
        return {**outputs, "loss": outputs["loss"].exp().log()}


def test_where_noise_hides_everything_samples_weigh_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = watched(tmp_path, UnreadableTagger(), rows(), max_steps=1)
    trainer.train()
    assert trainer.memory.loss.weighing is Weighing.SAMPLES
    assert "the loss draws noise" in caplog.text


@pytest.mark.parametrize("seed", range(3))
def test_losses_that_draw_noise_and_divide_by_the_labels_of_a_step_sum(tmp_path: Path, seed: int) -> None:
    def loss_of(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        logits = outputs["logits"] + torch.randn_like(outputs["logits"])
        total = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        return total / (labels.numel() if num_items_in_batch is None else num_items_in_batch)

    trainer = watched(tmp_path, tiny_model(), rows(), max_steps=1, seed=seed, more={"compute_loss_func": loss_of})
    trainer.train()
    assert trainer.memory.loss.weighing is Weighing.SUM


CLASSES = torch.tensor([1.0, 8.0, 0.25], dtype=torch.float64)
AT_ONCE = 6
"""Samples that there is room for."""


class Fresh(nn.Module):
    """Three numbers of each sample; the last layer has learned nothing."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
        nn.init.zeros_(self.net[-1].weight)

    def forward(self, x: Tensor, **_labels: Any) -> Tensor:
        return self.net(x)


def mixed(samples: int = 16) -> list[dict[str, Tensor]]:
    """Classes, numbers with a mask that hides all of some samples, and a weight for each sample."""
    generator = torch.Generator().manual_seed(4)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    return [
        {
            "x": draw(4),
            "labels": torch.tensor(number * number % 3),
            "target": draw(3) * 2,
            "mask": (torch.arange(3) < number % 4).double(),
            "weight": draw(()).exp(),
        }
        for number in range(samples)
    ]


Loss = Callable[[Tensor, dict[str, Tensor]], Tensor]


def each(logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
    return cross_entropy(logits, batch["labels"], reduction="none")


def squares(logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
    return (logits - batch["target"]) ** 2


def focal(logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
    losses, share = each(logits, batch), CLASSES[batch["labels"]]
    return ((1 - (-losses).exp()) ** 2 * losses * share).sum() / share.sum()


def by_confidence(logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
    losses = each(logits, batch)
    share = (1 - (-losses).exp()).detach()
    return (losses * share).sum() / share.sum()


MEANS: dict[str, Loss] = {
    "classes": lambda logits, batch: cross_entropy(logits, batch["labels"]),
    "weighted classes": lambda logits, batch: cross_entropy(logits, batch["labels"], CLASSES),
    "smoothed": lambda logits, batch: cross_entropy(logits, batch["labels"], CLASSES, label_smoothing=0.1),
    "some ignored": lambda logits, batch: cross_entropy(logits, batch["labels"], ignore_index=0),
    "halved, with decay": lambda logits, batch: (
        cross_entropy(logits, batch["labels"], CLASSES) / 2 + (logits * 0).sum()
    ),
    "focal": focal,
    "by confidence": by_confidence,
    "focal mean": lambda logits, batch: (each(logits, batch) * (1 - (-each(logits, batch)).exp()) ** 2).mean(),
    "squares": lambda logits, batch: squares(logits, batch).mean(),
    "masked": lambda logits, batch: (squares(logits, batch) * batch["mask"]).sum() / batch["mask"].sum(),
    "masked, with a floor": lambda logits, batch: (
        (squares(logits, batch) * batch["mask"]).sum() / batch["mask"].sum().clamp(min=1)
    ),
    "chosen": lambda logits, batch: squares(logits, batch)[batch["mask"] > 0].sum() / (batch["mask"] > 0).sum(),
    "weighted samples": lambda logits, batch: (
        (squares(logits, batch).mean(1) * batch["weight"]).sum() / batch["weight"].sum()
    ),
    "huber": lambda logits, batch: huber_loss(logits, batch["target"]),
    "means of samples": lambda logits, batch: (
        (squares(logits, batch) * batch["mask"]).sum(1) / batch["mask"].sum(1).clamp(min=1)
    ).mean(),
}


class Roomless(Watched):
    """Computes a given loss, and has room for :data:`AT_ONCE` samples."""

    of: Loss

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_options: Any) -> Any:
        if model.training and torch.is_grad_enabled():
            if len(inputs["x"]) > AT_ONCE:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")
            self.parts.append((self.state.global_step, dict(inputs)))
        logits = model(inputs["x"])
        loss = self.of(logits, inputs)
        return (loss, {"logits": logits}) if return_outputs else loss


def moved(folder: Path, of: Loss, **more: Any) -> tuple[Any, Tensor, Tensor]:
    """Return a Trainer after one step in parts, how far its weights moved, and how far they move in plain PyTorch."""
    net, plain = Fresh(), Fresh()
    options: dict[str, Any] = {"per_device_train_batch_size": 16, "max_steps": 1, "optim": "sgd", "max_grad_norm": 0}
    options |= {"learning_rate": 1.0, "remove_unused_columns": False, "lr_scheduler_type": "constant"}
    trainer = watched(folder, net, mixed(), kind=Roomless, more=more, **options)
    trainer.of = of
    trainer.train()
    assert len(trainer.parts) > 2
    samples = mixed()
    of(
        plain(torch.stack([sample["x"] for sample in samples])),
        {k: torch.stack([s[k] for s in samples]) for k in samples[0]},
    ).backward()
    expected = torch.cat([weight.grad.flatten() for weight in plain.parameters()])
    return trainer, weights(Fresh()) - weights(net), expected


@pytest.mark.parametrize("name", MEANS)
def test_a_step_in_parts_is_the_step_of_plain_pytorch(tmp_path: Path, name: str) -> None:
    trainer, change, expected = moved(tmp_path, MEANS[name])
    torch.testing.assert_close(change, expected, rtol=1e-9, atol=1e-12)
    assert trainer.memory.loss.doubt == ""


def normalised_before(logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
    return (squares(logits, batch) * (batch["mask"] / batch["mask"].sum())).sum()


def contrastive(logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
    rows = nn.functional.normalize(logits + batch["x"][:, :3], dim=1)
    return cross_entropy(rows @ rows.T / 0.1, torch.arange(len(rows)))


def changed_in_place(logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
    return (logits - batch["target"].sub_(1)).square().exp().mean().log()


def test_losses_that_change_their_batch_are_compared_on_copies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched_by = {"per_device_train_batch_size": 4, "max_steps": 1, "remove_unused_columns": False}
    trainer = watched(tmp_path, Fresh(), mixed(), kind=Roomless, **watched_by)
    trainer.of = changed_in_place
    trainer.train()
    assert "draws noise" not in caplog.text


def weighted_beside_a_mean(logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """The mean tells its samples apart, and hides that the other term, of a fresh head, does not yet."""
    return cross_entropy(logits, batch["labels"], CLASSES) + squares(logits, batch).mean()


@pytest.mark.parametrize("of", [normalised_before, contrastive, weighted_beside_a_mean])
def test_what_no_weights_explain_is_said_and_runs_in_no_parts(
    tmp_path: Path, of: Loss, caplog: pytest.LogCaptureFixture
) -> None:
    trainer, _, _ = moved(tmp_path, of)
    assert trainer.memory.loss.weighing is Weighing.COUPLED
    assert "Say how parts of a batch are weighted: loss_weighing= or splittable=" in caplog.text
    assert "a pass holds 6 samples in place of 16" in caplog.text
    assert trainer.memory.record.shape.samples == 16


def test_declared_weights_are_taken(tmp_path: Path) -> None:
    trainer, change, expected = moved(tmp_path, normalised_before, loss_weighing=lambda batch: batch["mask"].sum() / 7)
    assert trainer.memory.loss.weighing is Weighing.DECLARED
    torch.testing.assert_close(change, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["samples", "labels"])
def test_declared_names_are_taken(tmp_path: Path, name: str) -> None:
    _, change, expected = moved(tmp_path, MEANS["squares"], loss_weighing=name)
    torch.testing.assert_close(change, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("declared", "what"),
    [
        ({"loss_weighing": "sampels"}, "Did you mean 'samples'"),
        ({"loss_weighing": 3}, "loss_weighing is 3: it is one of 'samples', 'labels', 'sum', or a function of a batch"),
        ({"loss_weighing": "sum", "splittable": False}, "Leave one of them out"),
        ({"splittable": "no"}, "splittable is True, False or None, got 'no'"),
        ({"loss_weighing": lambda batch: batch["mask"]}, "one number of 0 or more, and not a tensor of shape"),
    ],
)
def test_what_cannot_be_declared_is_refused(tmp_path: Path, declared: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what):
        moved(tmp_path, MEANS["squares"], **declared)


def test_sums_are_of_losses_that_get_the_labels_of_a_step(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither this model nor compute_loss_func is given it"):
        watched(tmp_path, Tagger(), rows(), more={"loss_weighing": "sum"}, max_steps=1).train()


def test_comparing_losses_leaves_everything_as_it_was(tmp_path: Path) -> None:
    """The weights that a first step of the plain loop gives, dropout and all: neither weights nor generators moved."""
    results = []
    for declared in (None, "samples"):
        torch.manual_seed(5)
        net = Fresh()
        net.net.insert(1, nn.Dropout(0.5))
        trainer = watched(
            tmp_path,
            net,
            mixed(),
            kind=Roomless,
            more={"loss_weighing": declared},
            per_device_train_batch_size=4,
            max_steps=2,
            remove_unused_columns=False,
        )
        trainer.of = MEANS["squares"]
        trainer.train()
        results.append(weights(net))
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-12)


def test_a_declared_weight_is_that_of_evaluations_too(tmp_path: Path) -> None:
    """The loss over all samples is that of one batch of them, in whatever batches it is computed."""
    trainer = watched(
        tmp_path,
        Fresh(),
        mixed(),
        kind=Roomless,
        more={"loss_weighing": lambda batch: batch["weight"].sum(), "eval_dataset": mixed()},
        per_device_eval_batch_size=3,
        remove_unused_columns=False,
        prediction_loss_only=True,
        label_names=["labels"],
    )
    trainer.of = MEANS["weighted samples"]
    samples = mixed()
    batch = {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}
    expected = trainer.of(Fresh()(batch["x"]), batch).item()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-9)
