"""The Trainer of several tasks: losses by task, whatever parts a step runs in."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from tests.mixed_samples import MixedSamples, model_of
from tests.several_tasks import TASKS, Collate, Heads, SeparateHeads, samples
from tests.task_trainers import Noting, trainer
from tests.trainers import Planned, arguments, weights
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.tasks.multitask.losses.gradnorm import GradNormBalancer, NormRatioBalancer
from trainauto.tasks.multitask.losses.normalizer import EffectiveBatchSizeNormalizer
from trainauto.tasks.multitask.prediction.memory_predictor import MemoryPredictor
from trainauto.tasks.multitask.prediction.oom_guardian import OOMGuardian
from trainauto.tasks.multitask.trainer import DynamicBatchingTrainer

WEIGHTS = {"a": 0.5, "b": 3.0}


def balanced(folder: Path, model: nn.Module | None = None, *, most: int = 10**9, **options: Any) -> Any:
    """A run of steps of eight samples in two passes, balanced every other step."""
    run = trainer(
        folder,
        model or SeparateHeads(),
        samples(),
        balancer=GradNormBalancer(every=2),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        **{"num_train_epochs": 3, **options},
    )
    run.most = most
    run.train()
    return run


def without_ooms(ended: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in step.items() if name != "ooms"} for step in ended]


@pytest.mark.parametrize("forward", [8, 4, 3, 1])
def test_weighted_losses_are_the_same_in_any_parts(tmp_path: Path, forward: int) -> None:
    """A49, A51: the gradient is that of the whole step's loss, computed by hand."""
    run = trainer(
        tmp_path,
        Heads(),
        samples(),
        task_loss_weights=WEIGHTS,
        per_device_train_batch_size=8,
        max_steps=1,
    )
    run.most = forward
    expected = Heads()
    run.train()
    x = torch.cat([part for _, part in run.parts])
    rows = {float(row["x"][1]): (number % 3, row["target"]) for number, row in enumerate(samples())}
    ids = torch.tensor([rows[float(row[1])][0] for row in x])
    target = torch.stack([rows[float(row[1])][1] for row in x])
    losses = expected(x, target, ids)["sample_losses"]
    (losses * torch.tensor([0.5, 3.0, 1.0], dtype=torch.float64)[ids]).mean().backward()
    with torch.no_grad():
        norm = torch.nn.utils.clip_grad_norm_(expected.parameters(), run.args.max_grad_norm)
        for weight in expected.parameters():
            weight -= 1e-2 * weight.grad  # type: ignore[operator]
    assert len(x) == 8
    assert norm > 0
    torch.testing.assert_close(weights(run.model), weights(expected))
    assert run.task_losses == pytest.approx({t: float(losses[ids == i].detach().mean()) for i, t in enumerate(TASKS)})
    assert run.task_samples == {task: int((ids == number).sum()) for number, task in enumerate(TASKS)}


def test_a_step_that_runs_out_of_memory_counts_once(tmp_path: Path) -> None:
    """A51, A52: the same losses, gradient norms and weights of tasks as without; a count that is kept is wrong."""
    whole, tight = balanced(tmp_path), balanced(tmp_path, most=2)
    assert max(step["ooms"] for step in tight.ended) > 0
    assert all(sum(step["samples"].values()) == 8 for step in tight.ended)
    for mine, theirs in zip(without_ooms(tight.ended), without_ooms(whole.ended), strict=True):
        for name in ("losses", "weights", "factors"):
            assert mine[name] == pytest.approx(theirs[name], rel=1e-6)
    torch.testing.assert_close(weights(tight.model), weights(whole.model), rtol=1e-9, atol=1e-9)

    class Remembering(Noting):
        def forget_attempt(self) -> None:
            pass

    faulty = Remembering(
        SeparateHeads(),
        arguments(tmp_path, per_device_train_batch_size=8, max_steps=1),
        samples(),
        data_collator=Collate(),
    )
    faulty.most = 2
    faulty.train()
    assert sum(faulty.task_samples.values()) > 8


def test_a_resume_continues_to_the_bit(tmp_path: Path) -> None:
    """A52: weights of tasks, their optimizer, first losses; from between two looks at gradients, too."""
    whole = balanced(tmp_path, SeparateHeads(dropout=0.2), save_strategy="steps", save_steps=1)
    assert len(whole.ended) == 9
    for step in (3, 4):
        run = trainer(
            tmp_path / "again",
            SeparateHeads(seed=7, dropout=0.2),
            samples(),
            balancer=GradNormBalancer(every=2),
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            num_train_epochs=3,
        )
        run.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
        assert torch.equal(weights(run.model), weights(whole.model))
        assert run.ended == whole.ended[step:]


def test_a_checkpoint_of_other_weights_of_tasks_is_refused(tmp_path: Path) -> None:
    balanced(tmp_path, num_train_epochs=1, save_strategy="steps", save_steps=1)
    options = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_train_epochs": 1}
    for balancer, words in ((None, "with a balancer"), (NormRatioBalancer(), "follow GradNormBalancer")):
        other = trainer(tmp_path / "other", SeparateHeads(), samples(), balancer=balancer, **options)
        with pytest.raises(InputError, match=words):
            other.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))


def test_tasks_are_in_logs_and_evaluations(tmp_path: Path) -> None:
    """An evaluation weighs samples alike, whatever tasks weigh, and says the loss of each."""
    run = balanced(tmp_path, num_train_epochs=1)
    logged = [entry for entry in run.state.log_history if "loss" in entry]
    assert all({"loss_a", "weight_a", "loss_c", "weight_c"} <= entry.keys() for entry in logged)
    assert logged[-1]["loss_b"] == pytest.approx(run.task_losses["b"], abs=1e-5)
    metrics = run.evaluate(samples(9))
    parts = [metrics[f"eval_loss_{task}"] for task in TASKS]
    assert metrics["eval_loss"] == pytest.approx(sum(parts) / 3, rel=1e-5)
    assert run.task_losses == run.ended[-1]["losses"]


def test_gradients_are_compared_where_all_tasks_train_or_where_a_person_says(tmp_path: Path) -> None:
    """A52: by default the last layer in common; the memory of comparing is taken when steps are tried, too."""
    run = balanced(tmp_path, num_train_epochs=1)
    assert run._steps._gradients.names == ("trunk.0.weight", "trunk.0.bias")
    named = trainer(
        tmp_path, SeparateHeads(), samples(), balancer=GradNormBalancer(shared_layer="trunk.1"), max_steps=1
    )
    with pytest.raises(InputError, match=r"no weight of the layer 'trunk.1' is trained"):
        named.train()
    run.balancer.begin(TASKS)
    run.memory = None  # as before a run: steps are tried, and nothing is noted
    run.model.train()
    batch = Collate()(samples(6))
    batch.pop("metadata")
    loss = run.compute_loss(run.model, batch)
    assert len(loss._backward_hooks) == 1
    loss.backward()
    assert run._steps.end(lambda tensor: tensor, skipped=False) == ({}, {})


class Rates(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Notes the rate that each step is made with, and what is left of it."""

    trainer: Any = None

    def __init__(self) -> None:
        self.used: list[tuple[int, float]] = []
        self.left: set[float] = set()

    def on_pre_optimizer_step(self, _args: Any, _state: Any, _control: Any, **_others: Any) -> None:
        plan = self.trainer.memory.pending_plan
        self.used.append((plan.batch_size, self.trainer.optimizer.param_groups[0]["lr"]))

    def on_step_end(self, _args: Any, _state: Any, _control: Any, **_others: Any) -> None:
        self.left.add(self.trainer.optimizer.param_groups[0]["lr"])


def rates_of(folder: Path, **options: Any) -> Rates:
    rates, planned = Rates(), Planned({2: Plan.of(batch_size=8)})
    run = trainer(
        folder,
        Heads(),
        samples(48),
        callbacks=[planned],
        per_device_train_batch_size=2,
        lr_scheduler_type="constant",
        num_train_epochs=1,
        **options,
    )
    rates.trainer = planned.trainer = run
    run.add_callback(rates)
    run.train()
    return rates


def test_rates_follow_steps_that_grow(tmp_path: Path) -> None:
    """A50: by the root of the plan's samples, in steps without accumulation alone; the schedule stays as it is."""
    normalizer = EffectiveBatchSizeNormalizer(2, 8, 1e-2, reference_batch_size=2)
    rates = rates_of(tmp_path, batch_size_normalizer=normalizer, use_gradient_accumulation=False, max_batch_size=8)
    assert {size for size, _ in rates.used} == {2, 8}
    assert all(rate == pytest.approx(1e-2 * (size / 2) ** 0.5) for size, rate in rates.used)
    assert rates.left == {1e-2}


def test_rates_of_fixed_steps_stay(tmp_path: Path) -> None:
    """A50, A53: however many passes they take."""
    rates = rates_of(tmp_path, batch_size_normalizer=EffectiveBatchSizeNormalizer(2, 8, 1e-2))
    assert {rate for _, rate in rates.used} == {1e-2}
    assert len(rates.used) == 6


def test_passes_are_rounded_up_and_steps_stay_whole(tmp_path: Path) -> None:
    """A53: 8 samples in passes of 3 at most: 3, 3 and 2."""
    given = arguments(tmp_path, per_device_train_batch_size=3, num_train_epochs=1)
    run = Noting(
        Heads(),
        given,
        samples(16),
        batch_size_normalizer=EffectiveBatchSizeNormalizer(3, 8, 1e-2),
        data_collator=Collate(),
    )
    run.train()
    assert [sum(step["samples"].values()) for step in run.ended] == [8, 8]
    assert Counter(len(part) for _, part in run.parts) == {3: 4, 2: 2}
    assert (given.gradient_accumulation_steps, given.remove_unused_columns) == (1, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gradient_accumulation_steps": 3}, "contradicts steps of 8 samples in passes of 3, which are 3|contradicts"),
        ({"per_device_train_batch_size": 9}, "is more than a process's share of a step, 8 samples"),
    ],
)
def test_passes_that_contradict_the_target_are_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    """A53"""
    options = {"per_device_train_batch_size": 2, **options}
    with pytest.raises(InputError, match=words):
        trainer(tmp_path, Heads(), samples(), batch_size_normalizer=EffectiveBatchSizeNormalizer(2, 8, 1e-2), **options)


def test_what_says_no_tasks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"task_loss_weights names the task 'd'.*\n.*Known: a, b, c"):
        trainer(tmp_path, Heads(), samples(), task_loss_weights={"d": 1.0})
    with pytest.raises(InputError, match="both say what tasks weigh"):
        trainer(tmp_path, Heads(), samples(), task_loss_weights={"a": 1.0}, balancer=GradNormBalancer())
    with pytest.raises(InputError, match="samples of c, which the collator does not know"):
        trainer(tmp_path, Heads(), samples(), tasks=("a", "b"))
    texts = [{"text": "a", "task_type": "a"}, {"text": "b", "task_type": "b"}]
    for unusable in (samples(), texts):
        with pytest.raises(InputError, match="neither a data_collator nor a tokenizer"):
            Noting(Heads(), arguments(tmp_path), unusable)

    class Nameless(Collate):
        def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
            return {name: leaf for name, leaf in super().__call__(rows).items() if name != "task_ids"}

    class Deaf(Heads):
        def forward(self, x: Tensor, target: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
            return super().forward(x, target, torch.zeros(len(x), dtype=torch.int64))

    nameless = Noting(Deaf(), arguments(tmp_path, max_steps=1), samples(), data_collator=Nameless())
    with pytest.raises(InputError, match="do not say of which task each sample is"):
        nameless.train()
    single = Noting(Deaf(), arguments(tmp_path, max_steps=2), samples(8, ("a",)), data_collator=Nameless(("a",)))
    single.train()
    assert single.task_samples == {"a": 8}


def test_weights_of_tasks_that_the_set_lacks_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = trainer(tmp_path, Heads(), samples(), task_loss_weights={"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0})
    assert run.task_weights == {"a": 1.0, "b": 2.0, "c": 3.0}
    assert "task_loss_weights names d, of which there are no samples: left out" in caplog.text


def test_tokenised_samples_and_parts_that_know_no_model_are_enough(tmp_path: Path) -> None:
    """Predictor and guardian learn from the model that is trained, and files of the run are written."""
    predictor, guardian = MemoryPredictor("cpu"), OOMGuardian("cpu")
    predictor.record_actual_memory("T1", 900)  # of the published figures: no correction of this model
    run = DynamicBatchingTrainer(
        model_of(layers=1),
        arguments(tmp_path, max_steps=1, per_device_train_batch_size=4, run_directory=None),
        MixedSamples(6, longest=9, side=8),
        memory_predictor=predictor,
        oom_guardian=guardian,
    )
    assert guardian.predictor is predictor
    run.train()
    assert predictor.follows_model
    assert predictor.tasks == ["four", "one", "two"]
    assert predictor.predict_batch_memory(["four"] * 4) < 0.1  # GiB; published figures say 11
    assert all(error < 20 for error in predictor.get_calibration_accuracy().values())
    assert (tmp_path / "training_metrics" / "training_report.json").is_file()


def test_lines_tell_of_all_tasks_since_the_last_one(tmp_path: Path) -> None:
    run = trainer(tmp_path, Heads(), samples(24), per_device_train_batch_size=2, logging_steps=4, num_train_epochs=1)
    run.train()
    logged = [line for line in run.state.log_history if "loss" in line]
    assert len(logged) == 3
    for place, line in enumerate(logged):
        steps = run.ended[4 * place : 4 * place + 4]
        for task in TASKS:
            counts = [step["samples"].get(task, 0) for step in steps]
            total = sum(step["losses"].get(task, 0.0) * count for step, count in zip(steps, counts, strict=True))
            assert line[f"loss_{task}"] == pytest.approx(total / sum(counts), rel=1e-3)


def test_a_model_that_takes_anything_gets_the_batch(tmp_path: Path) -> None:
    class Anything(Heads):
        def forward(self, **inputs: Any) -> Any:
            return super().forward(inputs["x"], inputs["target"], torch.zeros(len(inputs["x"]), dtype=torch.long))

    run = trainer(tmp_path, Anything(), samples(6), per_device_train_batch_size=3, num_train_epochs=1)
    run.train()
    assert run.state.global_step == 2
