"""What several ranks hold beside what one does, in traces as in processes that meet over gloo."""

import json
from pathlib import Path

from tests.integration.commands import tiny_options, write_options
from tests.integration.ranks import finish, start
from trainauto.core.plan import Plan
from trainauto.forecast.traced_run import FakeRun
from trainauto.options.load import load_options

WORKER = Path(__file__).with_name("rank_memory.py")
MESSAGES = 16 * 1024  # what ranks tell each other lies in tensors of the CPU


def test_two_ranks_hold_what_their_traces_say(tmp_path: Path) -> None:
    """The buffer that sums gradients after the backward pass; DistributedDataParallel's buckets, two of them."""
    wide = 96
    network = {"type": "compact", "num_feat": wide, "num_conv": 6}
    weights = 3 * wide * 9 + wide + 6 * (wide * wide * 9 + wide) + 7 * wide + wide * 12 * 9 + 12
    weights_bytes = 4 * weights
    files = []
    for overlaps in (False, True):
        changes = {"network_g": network, "train": {"grad_clip": 1e-9}, "distributed": {"ddp_overlap": overlaps}}
        files.append(write_options(tmp_path / f"{overlaps}.yml", tiny_options(tmp_path / "none", **changes)))
    command = [str(WORKER), "seen_{rank}.json", *(file.name for file in files)]
    done = finish(start(command, 2, tmp_path))
    assert [code for code, _ in done] == [0, 0], "\n".join(text for _, text in done)
    told = json.loads((tmp_path / "seen_0.json").read_text())
    plan = Plan.from_dict(told["plan"])
    for file, real in zip(files, told["found"], strict=True):
        loaded = load_options(file)
        alone, together = FakeRun.of(loaded).trace(plan), FakeRun.of(loaded, world_size=2).trace(plan)
        assert abs(together.persistent_bytes - real["held"]) < MESSAGES
        assert abs(together.peak_bytes - real["peak"]) < MESSAGES
        assert together.held_bytes - alone.held_bytes == weights_bytes
        assert together.peak_bytes - alone.peak_bytes > 0.9 * weights_bytes
