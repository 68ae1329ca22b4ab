"""``module:factory``: what is imported, and what is said where that goes wrong."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainauto.core.errors import InputError
from trainauto.forecast.request_by_name import load_request

SOURCE = """
import torch
import trainauto

READY = trainauto.PlanRequest(torch.nn.Linear(3, 2), lambda m, b: m(b).mean(), ("batch", 3), "SGD")
NUMBER = 3

def ready(): return READY
def number(): return NUMBER
def takes(what): return READY
def unusable(): return trainauto.PlanRequest(torch.nn.Linear(3, 2), lambda m, b: m(b).mean(), ("batch", "side"))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "code_to_plan.py").write_text(SOURCE)
    (tmp_path / "code_that_lacks.py").write_text("import nobody_has_this\n")
    (tmp_path / "code_that_ends.py").write_text("\n1 / 0\n")
    (tmp_path / "code_unread.py").write_text("def f(:\n")
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in [name for name in sys.modules if name.startswith("code_")]:
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent == tmp_path:
            del sys.modules[name]


@pytest.mark.parametrize("name", ["code_to_plan:ready", "code_to_plan:READY"])
def test_a_factory_or_a_request_of_a_module_beside(folder: Path, name: str) -> None:
    request = load_request(name, folder)
    assert [axis.name for axis in request.axes()] == ["batch_size"]
    assert request.optimizer == "SGD"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("code_to_plan", r"'code_to_plan' names no factory\n  Write module:factory"),
        (":ready", "':ready' names no factory"),
        (
            "code_to_plam:ready",
            r"there is no module 'code_to_plam' in .*, nor .*\n  Did you mean 'code_to_plan'",
        ),
        ("code_to_plan.deeper:ready", r"there is no module 'code_to_plan.deeper'"),
        ("code_to_plan:redy", r"code_to_plan.py has no 'redy'\n  Did you mean 'ready'"),
        ("code_to_plan:number", r"code_to_plan:number returned int, not PlanRequest\n  Return trainauto.PlanRequest"),
        ("code_to_plan:NUMBER", "code_to_plan:NUMBER is a int, not a function"),
        ("code_to_plan:takes", r"code_to_plan:takes failed: TypeError: .*\n  It is called without arguments"),
        ("code_to_plan:unusable", "how far 'side' may grow is not said"),
        ("code_that_lacks:x", r"failed to import: ModuleNotFoundError: .*nobody_has_this.*\n  Install what it needs"),
        ("code_that_ends:x", r"module 'code_that_ends' failed to import: ZeroDivisionError: .*code_that_ends.py:2"),
        ("code_unread:x", r"failed to import: SyntaxError: .*code_unread.py:1"),
    ],
)
def test_what_goes_wrong_is_said_with_what_to_do(folder: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_request(name, folder)
