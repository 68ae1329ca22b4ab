"""No option is dead: runs read every key of the schema, outside the options room itself."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import trainauto.options.schema as schema
from tests.integration.doors import tiny_options, write_options
from trainauto.build import build_run
from trainauto.engine.loop import train
from trainauto.options.load import load_options

OPTIONS_ROOM = Path(schema.__file__).parent
PROPERTIES = Path(schema.__file__)  # properties of the sections read for their callers
SECTIONS = [
    section
    for section in vars(schema).values()
    if isinstance(section, type) and issubclass(section, BaseModel) and section.__module__ == schema.__name__
]

Read = set[tuple[str, str]]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """Collect (section, key) of every read that does not come from the options room or from pydantic."""
    seen: Read = set()
    plain = BaseModel.__getattribute__ if "__getattribute__" in vars(BaseModel) else object.__getattribute__

    def reading(self: BaseModel, name: str) -> Any:
        if name in type(self).model_fields:
            caller = Path(sys._getframe(1).f_code.co_filename)
            if caller == PROPERTIES or (caller.parent != OPTIONS_ROOM and "pydantic" not in caller.parts):
                seen.add((type(self).__name__, name))
        return plain(self, name)

    for section in SECTIONS:
        monkeypatch.setattr(section, "__getattribute__", reading, raising=False)
    return seen


def test_every_key_is_read_by_a_run(
    tmp_path: Path, write_images: Callable[..., Path], read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gt = write_images("gt", 3, (60, 60))
    lq = write_images("lq", 3, (30, 30), shrink=2)
    in_steps = tiny_options(
        gt, train={"total_iter": 2}, use_amp=True, training_automations={"PlanSchedule": {"changes": []}}
    )
    in_samples = tiny_options(gt, datasets={"train": {"type": "PairedImageDataset", "dataroot_lq": str(lq)}})
    in_samples["train"] = {**in_steps["train"], "total_samples": 8}
    del in_samples["train"]["total_iter"]
    in_samples["datasets"]["train"] = {
        **in_steps["datasets"]["train"],
        "type": "PairedImageDataset",
        "dataroot_lq": str(lq),
    }
    for number, options in enumerate((in_steps, in_samples)):
        if number:
            weights = next((tmp_path / "experiments").glob("tiny/current/checkpoints/*/net_g.safetensors"))
            options["path"] = {"pretrain_network_g": str(weights)}
        with build_run(load_options(write_options(tmp_path / f"{number}.yml", options))) as run:
            train(run)
    every = {(section.__name__, key) for section in SECTIONS for key in section.model_fields}
    assert every - read == set()
    assert len(every) > 50
