"""Lets memory run out at one place after another of a run with a discriminator, for real.

    python memory_runs_out.py OPTIONS [KEY=VALUE ...]

At each place another holder takes all that is left of the card, so that PyTorch's next allocation there fails; it gives
all back once one has failed. Prints as JSON what failed where and how the run ended.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trainauto

trainauto.set_environment()

import torch  # noqa: E402  its allocator is set before
from torch import Tensor, nn  # noqa: E402

SMALLEST = 512


class Holder:
    """Takes the whole card, and gives it back when an allocation of others has failed."""

    def __init__(self) -> None:
        self.place: str | None = None
        self.failed: list[str] = []
        self._taken: list[Tensor] = []
        self._taking = False
        torch._C._cuda_attach_out_of_memory_observer(self._ran_out)

    def take(self, place: str) -> None:
        """Take it all."""
        self._taking, size = True, 2**30
        while size >= SMALLEST:
            try:
                self._taken.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError:
                size //= 2
        self._taking, self.place = False, place

    def give_back(self) -> None:
        """Give back what is held, whether or not an allocation has failed."""
        self._taken.clear()
        self.place = None

    def _ran_out(self, *_: Any) -> None:
        if not self._taking and self.place is not None:
            self.failed.append(self.place)
            self.give_back()


def watch(network: nn.Module, forward: Callable[[], None], backward: Callable[[], None]) -> None:
    """Call something before a network's passes."""

    def before(module: nn.Module, *_: Any) -> None:
        if torch.is_grad_enabled():
            forward()

    def after(_module: nn.Module, _given: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(lambda _: backward())

    network.register_forward_pre_hook(before)
    network.register_forward_hook(after)


def around(save: Callable[..., Any], holder: Holder) -> Callable[..., Any]:
    """Return what saves a checkpoint while nothing is left of the card."""

    def saved(*arguments: Any, **named: Any) -> Any:
        holder.take("checkpoint")
        try:
            return save(*arguments, **named)
        finally:
            holder.give_back()

    return saved


def main(options: str, *changes: str) -> None:
    """Train."""
    holder = Holder()
    pairs = dict(change.rsplit("=", 1) for change in changes)
    values = {key: int(value) if value.isdigit() else value for key, value in pairs.items()}
    with trainauto.build_run(trainauto.load_options(Path(options), values)) as run:
        left: dict[str, int] = {}

        def from_step(number: int, place: str) -> Callable[..., None]:
            left[place] = number

            def hook(*_: Any) -> None:
                if run.progress.steps >= left.get(place, sys.maxsize):
                    del left[place]
                    holder.take(place)

            return hook

        for number, (name, network) in enumerate(run.model.networks.items()):
            watch(network, from_step(2 + 8 * number, f"{name} forward"), from_step(6 + 8 * number, f"{name} backward"))
        for name, optimizer in run.model.optimizers.items():
            optimizer.register_step_pre_hook(from_step(0, f"optimizer {name}"))
        for average in run.model.averages.values():
            average.network.register_forward_pre_hook(from_step(0, "validation"))
        run.checkpoints.save = around(run.checkpoints.save, holder)  # type: ignore[method-assign]
        end = trainauto.train(run)
    print(json.dumps({"failed": holder.failed, "status": end.status, "step": run.progress.steps}))


if __name__ == "__main__":
    main(*sys.argv[1:])
