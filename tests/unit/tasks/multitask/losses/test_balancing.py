"""Weights of tasks that follow gradient norms: the rules by themselves, on norms that are made."""

import copy
import itertools
import math
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainauto.core.errors import InputError
from trainauto.tasks.multitask.losses.balancing import TaskBalancer, normalized
from trainauto.tasks.multitask.losses.gradnorm import GradNormBalancer, NormRatioBalancer

Rule = Callable[..., TaskBalancer]


def follow(
    balancer: TaskBalancer, norms: Mapping[str, float], looks: int, losses: Mapping[str, float] | None = None
) -> None:
    for _ in range(looks):
        balancer.see_losses(losses or dict.fromkeys(norms, 1.0), dict.fromkeys(norms, 4))
        balancer.update(norms)


@settings(deadline=None, max_examples=40)
@given(st.dictionaries(st.text(min_size=1), st.floats(1e-6, 1e6), min_size=1, max_size=6))
def test_weights_sum_to_their_number_above_a_floor(weights: dict[str, float]) -> None:
    result = normalized(weights, 1e-3)
    assert math.fsum(result.values()) == pytest.approx(len(weights))
    assert min(result.values()) >= 1e-3 * (1 - 1e-9)
    order = sorted(weights, key=lambda task: weights[task])
    assert all(result[low] <= result[high] * (1 + 1e-9) for low, high in itertools.pairwise(order))


@pytest.mark.parametrize("rule", [GradNormBalancer, NormRatioBalancer])
def test_norms_become_alike(rule: Rule) -> None:
    """A52: gradients of 1 and 100, losses that fall alike."""
    balancer = rule({"a": 1.0, "b": 1.0})
    follow(balancer, {"a": 1.0, "b": 100.0}, 120)
    assert balancer.weights["a"] / balancer.weights["b"] == pytest.approx(100, rel=0.2)
    assert balancer.factors == pytest.approx({"a": 1.0, "b": 1.0}, rel=0.2)
    assert sum(balancer.weights.values()) == pytest.approx(2)


def test_norms_before_their_weights_never_settle() -> None:
    """A52: the rule as the source applies it goes on to the floor, where the gradient is long too small."""
    weights, norms = {"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 3.0}
    mean = 2.0
    for _ in range(40):
        weights = normalized({task: weights[task] * (mean / norm) ** 0.5 for task, norm in norms.items()}, 1e-3)
    assert weights["b"] == pytest.approx(1e-3)
    ours = NormRatioBalancer({"a": 1.0, "b": 1.0}, 0.5)
    follow(ours, norms, 40)
    assert ours.weights["a"] / ours.weights["b"] == pytest.approx(3, rel=0.01)


def test_slower_tasks_get_larger_gradients() -> None:
    """A25, Chen et al. 2018: the target is the mean norm times the relative inverse rate to the alpha."""
    for alpha in (0.0, 1.0, 1.5):
        balancer = GradNormBalancer({"slow": 1.0, "quick": 1.0}, alpha)
        follow(balancer, {"slow": 1.0, "quick": 1.0}, 1, {"slow": 2.0, "quick": 2.0})
        follow(balancer, {"slow": 1.0, "quick": 1.0}, 150, {"slow": 2.0, "quick": 1.0})
        # rates of 1 and 1/2, over their mean 4/3 and 2/3
        assert balancer.weights["slow"] / balancer.weights["quick"] == pytest.approx(2**alpha, rel=0.25)


def test_losses_are_means_over_the_samples_since_the_last_look() -> None:
    balancer = GradNormBalancer({"a": 1.0, "b": 1.0}, 1.0, learning_rate=0.0)
    follow(balancer, {"a": 1.0, "b": 1.0}, 1)
    balancer.see_losses({"a": 1.0, "b": 1.0}, {"a": 1, "b": 1})
    balancer.see_losses({"a": 3.0}, {"a": 3})
    balancer.update({"a": 1.0, "b": 1.0})
    # means of 2.5 and 1 over first losses of 1: rates of 10/7 and 4/7
    assert balancer.factors == pytest.approx({"a": 0.7, "b": 1.75})
    assert balancer.weights == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize("rule", [GradNormBalancer, NormRatioBalancer])
def test_what_says_nothing_changes_nothing(rule: Rule) -> None:
    """Gradients of float16 that overflowed; a step without samples of a task."""
    balancer = rule({"a": 1.0, "b": 1.0, "c": 1.0})
    for norms in ({}, {"a": math.inf, "b": 1.0}, {"a": math.nan, "b": 1.0}):
        follow(balancer, norms, 1)
        assert balancer.weights == {"a": 1.0, "b": 1.0, "c": 1.0}
    follow(balancer, {"a": 1.0, "b": 4.0}, 60)
    assert balancer.weights["a"] / balancer.weights["b"] == pytest.approx(4, rel=0.25)
    assert sum(balancer.weights.values()) == pytest.approx(3)


@pytest.mark.parametrize("rule", [GradNormBalancer, NormRatioBalancer])
def test_a_state_goes_on_to_the_bit(rule: Rule) -> None:
    one, other = rule({"a": 1.0, "b": 2.0}), rule({"a": 1.0, "b": 2.0})
    norms = {"a": 1.0, "b": 10.0}
    follow(one, norms, 7)
    one.see_losses({"a": 0.5}, {"a": 3})
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for balancer in (one, other):
        follow(balancer, norms, 5, {"a": 0.7, "b": 0.2})
    assert one.weights == other.weights
    assert one.factors == other.factors
    with pytest.raises(InputError, match=r"other tasks \(b, c on one side only\)"):
        rule({"a": 1.0, "c": 1.0}).load_state_dict(one.state_dict())


def test_a_state_of_another_rule_is_refused() -> None:
    state = GradNormBalancer({"a": 1.0}).state_dict()
    with pytest.raises(InputError, match="follow GradNormBalancer, not NormRatioBalancer"):
        NormRatioBalancer({"a": 1.0}).load_state_dict(state)


def test_only_tasks_that_are_there_share_the_weights() -> None:
    balancer = GradNormBalancer({"T1": 1.0, "T2": 3.0, "T3": 1.0})
    balancer.begin(["T2", "other"])
    assert balancer.weights == pytest.approx({"T2": 1.5, "other": 0.5})


@pytest.mark.parametrize(
    "make",
    [
        lambda: GradNormBalancer({"a": 0.0}),
        lambda: GradNormBalancer({"a": math.nan}),
        lambda: GradNormBalancer(alpha=-1),
        lambda: GradNormBalancer(every=0),
        lambda: NormRatioBalancer(alpha=2.0),
    ],
)
def test_what_cannot_be_used_is_refused(make: Callable[[], TaskBalancer]) -> None:
    with pytest.raises(InputError):
        make()
