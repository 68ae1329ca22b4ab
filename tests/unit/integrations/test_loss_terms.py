"""What a loss of one's own returns: what is minimised, what is reported, what is said."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from trainauto import AdaptiveLoop, ModelObjective
from trainauto.core.errors import InputError
from trainauto.core.record_json import step_from_dict, step_to_dict
from trainauto.forecast.traced_code import total_loss
from trainauto.integrations.loss_terms import ReturnedLoss, words_of_repeated

SAMPLES = 8
OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 1.00 GiB."


def dataset() -> TensorDataset:
    made = torch.Generator().manual_seed(0)
    return TensorDataset(
        torch.randn(SAMPLES, 4, generator=made).double(), torch.randint(0, 3, (SAMPLES,), generator=made)
    )


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 3).double()


def weights(net: nn.Module) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in net.parameters()])


def terms(model: Any, batch: Any) -> dict[str, Any]:
    logits = model(batch[0])
    cross, size = functional.cross_entropy(logits, batch[1]), logits.square().mean()
    accuracy = (logits.argmax(1) == batch[1]).double().mean()
    return {"loss": cross + 0.1 * size, "ce": cross, "l2": size, "accuracy": accuracy, "none": float("nan")}


@pytest.mark.parametrize("most", [SAMPLES, 3])
def test_a_total_alone_is_minimised_and_its_parts_are_reported(most: int, caplog: pytest.LogCaptureFixture) -> None:
    """In one piece and in several: a report that is no number stops nothing."""

    def loss(model: Any, batch: Any) -> dict[str, Any]:
        if len(batch[0]) > most:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        return terms(model, batch)

    net, by_hand = network(), network()
    loop = AdaptiveLoop(
        net, ModelObjective("fit", torch.optim.SGD(net.parameters(), 1.0), loss), dataset(), batch_size=SAMPLES
    )
    sgd = torch.optim.SGD(by_hand.parameters(), 1.0)
    for batch in loop.batches(2):
        expected = terms(by_hand, loop.contents(batch))
        sgd.zero_grad()
        expected["loss"].backward()
        sgd.step()
        step = loop.step(batch)
        assert step.losses == pytest.approx(
            {name: float(torch.as_tensor(value).detach()) for name, value in expected.items()}, nan_ok=True
        )
    torch.testing.assert_close(weights(net), weights(by_hand), rtol=1e-9, atol=1e-9)
    assert caplog.text.count("'loss' alone is minimised, and 'ce', 'l2' are only reported") == 1


def test_the_loss_of_a_step_leaves_out_what_is_reported_only() -> None:
    net, records = network(), []
    loop = AdaptiveLoop(
        net, ModelObjective("fit", torch.optim.SGD(net.parameters(), 1.0), terms), dataset(), batch_size=SAMPLES
    )
    loop._reports.step = lambda record, *_: records.append(record)  # type: ignore[method-assign]
    for batch in loop.batches(1):
        step = loop.step(batch)
    assert records[0].told == ("ce", "l2", "accuracy", "none")
    assert records[0].loss == step.losses["loss"]
    assert step_from_dict(step_to_dict(records[0])).loss == records[0].loss


def test_terms_of_several_objectives_are_told_apart() -> None:
    nets = nn.ModuleDict({"one": network(), "two": network()})
    objectives = [
        ModelObjective(
            name,
            torch.optim.SGD(nets[name].parameters(), 1.0),
            lambda model, batch, name=name: terms(model[name], batch),
        )
        for name in nets
    ]
    loop = AdaptiveLoop(nets, objectives, dataset(), batch_size=SAMPLES)
    step = loop.step(next(loop.batches()))
    assert {"one.loss", "one.ce", "two.loss", "two.l2"} < step.losses.keys()
    alone = network()
    terms(alone, dataset().tensors)["loss"].backward()
    change = torch.cat([weight.grad.flatten() for weight in alone.parameters() if weight.grad is not None])
    torch.testing.assert_close(weights(nets["two"]), weights(network()) - change, rtol=1e-9, atol=1e-9)


def test_without_a_total_the_sum_is_minimised() -> None:
    one, two = (torch.ones((), requires_grad=True) * value for value in (2, 3))
    returned = ReturnedLoss.of({"ce": one, "l2": two, "accuracy": 0.5}, "fit", "loss")
    assert {name: term.requires_grad for name, term in returned.terms.items()} == {
        "ce": True,
        "l2": True,
        "accuracy": False,
    }
    assert not returned.words("fit")
    assert ReturnedLoss.of(one.reshape(1, 1), "fit", "loss").terms["loss"].shape == ()


def test_a_total_by_another_name_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    def loss(net: nn.Module, batch: Any) -> dict[str, Tensor]:
        parts = {"a": net(batch[0]).square().mean(), "b": net(batch[0]).abs().mean()}
        return {"total": parts["a"] + 0.1 * parts["b"], **parts}

    net = network()
    loop = AdaptiveLoop(
        net, ModelObjective("fit", torch.optim.SGD(net.parameters(), 0.1), loss), dataset(), batch_size=4
    )
    with loop:
        for batch in loop.batches(epochs=1):
            loop.step(batch)
    assert caplog.text.count("returns 'total', which is computed from 'a', 'b'") == 1
    once = net(dataset().tensors[0]).square().mean()
    assert not words_of_repeated({"a": once, "b": net(dataset().tensors[0]).abs().mean()}, "fit")
    assert "'b', which is computed from 'a'" in words_of_repeated({"a": once, "b": 0.5 * once}, "fit")


def test_outputs_of_models_are_losses() -> None:
    one = torch.ones((), requires_grad=True) * 2
    returned = ReturnedLoss.of({"loss": one, "logits": torch.ones(8, 3), "past": None}, "fit", "loss")
    assert returned.terms == {"loss": one}
    assert returned.words("fit") == "of what the loss of 'fit' returns, 'logits' is no single number and left out"
    assert total_loss({"loss": one, "ce": one, "logits": torch.ones(8, 3)}) == 2
    assert total_loss({"ce": one, "l2": one}) == 4


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (0.5, "one number as a tensor, or named ones, not float"),
        ({}, "not an empty mapping"),
        ({"loss": None, "logits": torch.ones(2, 3)}, r"not NoneType called 'loss', a tensor of shape \(2, 3\) called"),
        ({"loss": torch.ones(2)}, r"not a tensor of shape \(2,\)"),
        ({"loss": torch.ones(()), "ce": torch.ones((), requires_grad=True)}, "'loss' is minimised and has no gradient"),
    ],
)
def test_what_is_no_loss_is_refused(result: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ReturnedLoss.of(result, "fit", "loss")
