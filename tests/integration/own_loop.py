"""A loop of one's own, as a user of both documents would write it; run in a child process under a real budget.

    python own_loop.py STEPS BUDGET POLICY RECOVERY BESIDE RESULT.json

The lines between the marks are the documents' own. RECOVERY is what the loop goes on with after running out of memory:
``halved`` (both sizes), or ``stubborn`` (the sizes that have just failed). BESIDE is ``alone``, or every how many steps
somebody else takes 12 MiB during one.
"""

import json
import sys
from pathlib import Path

from trainauto.core.process import set_environment

set_environment()  # before torch is loaded, as for every CPU budget

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from trainauto.automations import TrainingAutomations  # noqa: E402
from trainauto.memory.monitor.oom import is_out_of_memory  # noqa: E402


class OnlySetters:
    """A loader that knows nothing but ``update_batch_size`` and ``update_lq_size``."""

    def __init__(self, batch_size: int, lq_size: int) -> None:
        self._batch_size, self._lq_size = batch_size, lq_size

    def update_batch_size(self, batch_size: int) -> None:
        self._batch_size = batch_size

    def update_lq_size(self, lq_size: int) -> None:
        self._lq_size = lq_size

    def batch(self) -> tuple[Tensor, Tensor]:
        size = self._lq_size
        return torch.rand(self._batch_size, 3, size, size), torch.rand(self._batch_size, 3, 2 * size, 2 * size)


def network() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 24, 3, padding=1)]
    for _ in range(4):
        layers += [nn.PReLU(24), nn.Conv2d(24, 24, 3, padding=1)]
    return nn.Sequential(*layers, nn.Conv2d(24, 12, 3, padding=1), nn.PixelShuffle(2))


def main(steps: int, budget: str, policy: str, recovery: str, beside: str) -> dict[str, object]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    dataloader = OnlySetters(12, 96)
    options = {
        "enabled": True,
        "DynamicBatchSizeOptimizer": {
            "enabled": True,
            "target_vram_usage": 0.85,
            "safety_margin": 0.05,
            "adjustment_frequency": 25,
            "min_batch_size": 2,
            "max_batch_size": 64,
            "min_lq_size": 16,
            "max_lq_size": 96,
            "vram_history_size": 50,
            "policy": policy,
        },
    }
    training_automations = TrainingAutomations(options, memory_budget=budget)
    # --- "Integration with BaseModel"
    automation = training_automations.automations["DynamicBatchSizeOptimizer"]
    automation.set_dynamic_wrappers(None, None)
    automation.start_monitoring_period()
    # ---
    automation.set_current_parameters(12, 96)
    sizes, failures, early = [], [], []
    for step in range(1, steps + 1):
        failed = False
        is_beside = beside != "alone" and step % int(beside) == 0
        neighbour = torch.ones(12 * 2**20, dtype=torch.uint8) if is_beside else None  # noqa: F841
        try:
            lq, gt = dataloader.batch()
            sizes.append([len(lq), lq.shape[-1]])
            optimizer.zero_grad(set_to_none=True)
            nn.functional.l1_loss(model(lq), gt).backward()
            optimizer.step()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            failed = True
        lq = gt = None
        if failed:
            failures.append(step)
            optimizer.zero_grad(set_to_none=True)
            divisor = 2 if recovery == "halved" else 1
            automation.handle_oom_recovery(
                max(1, automation.current_batch_size // divisor), max(1, automation.current_lq_size // divisor)
            )
            dataloader.update_batch_size(automation.current_batch_size)
            dataloader.update_lq_size(automation.current_lq_size)
            continue
        # --- "Integration with Training Loop"
        if training_automations and "DynamicBatchSizeOptimizer" in training_automations.automations:
            vram_optimizer = training_automations.automations["DynamicBatchSizeOptimizer"]

            # Update VRAM monitoring
            batch_adjustment, lq_adjustment = vram_optimizer.update_vram_monitoring()

            if batch_adjustment is not None or lq_adjustment is not None:
                # Apply adjustments
                new_batch_size = max(
                    vram_optimizer.min_batch_size,
                    min(vram_optimizer.max_batch_size, vram_optimizer.current_batch_size + (batch_adjustment or 0)),
                )
                new_lq_size = max(
                    vram_optimizer.min_lq_size,
                    min(vram_optimizer.max_lq_size, vram_optimizer.current_lq_size + (lq_adjustment or 0)),
                )

                # Update dataloader and model parameters
                dataloader.update_batch_size(new_batch_size)
                dataloader.update_lq_size(new_lq_size)
        # ---
        if (batch_adjustment, lq_adjustment) != (None, None) and step < 25:
            early.append(step)
    # --- "Performance Monitoring"
    vram_stats = automation.get_vram_stats()
    print(f"Peak VRAM: {vram_stats['peak_usage']:.1%}")
    print(f"Adjustments: {vram_stats['adjustments']}")
    print(f"OOM Recoveries: {vram_stats['oom_recovery_count']}")
    # ---
    return {"sizes": sizes, "failures": failures, "early": early, "stats": vram_stats}


if __name__ == "__main__":
    import logging

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    result = main(int(sys.argv[1]), *sys.argv[2:6])
    Path(sys.argv[6]).write_text(json.dumps(result))
