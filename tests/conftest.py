"""What several tests need: real images on disk, made from photographs that ship with scikit-image."""

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
import skimage

PHOTOGRAPHS = Path(skimage.__file__).parent / "data"

LONGEST = (
    "test_simulated_card.py",
    "test_doc_commands.py",
    "test_tasks_by_command.py",
    "test_plan_finetuning.py",
    "test_kill.py",
    "test_ranks.py",
    "test_own_loop.py",
    "test_elastic.py",
    "test_first_plan.py",
    "test_memory.py",
    "test_stopped_validation.py",
)
"""Files whose tests take longest. They begin first: begun last, one process would work on them alone."""


gc.disable()  # what is collected stays: looking for garbage among it took a quarter of the time


def pytest_collection_finish() -> None:
    """Look for garbage from here on."""
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest tests first; all others keep their order."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


class Frozen:
    """How many modules there were when the garbage collector was last told to leave alone what there is."""

    modules = 0
    tests = 0


@pytest.fixture(autouse=True)
def no_fake_ranks_left() -> Iterator[None]:
    """End the process group that stands for other ranks in traces: processes that trace have no other use for one."""
    yield
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_initialized() and distributed.get_backend() == "fake":
        distributed.destroy_process_group()


@pytest.fixture(autouse=True)
def _nothing_imported_is_garbage(request: pytest.FixtureRequest) -> None:
    # As commands do: torch with its compiler and all collected tests are a million objects, and every recovery from a
    # lack of memory would walk through them. What a quick test leaves is little: of these, every twentieth tidies up.
    Frozen.tests += 1
    is_quick = request.node.path.is_relative_to(request.config.rootpath / "tests" / "unit")
    if is_quick and Frozen.modules == len(sys.modules) and Frozen.tests % 20:
        return
    gc.collect()
    gc.freeze()
    Frozen.modules = len(sys.modules)


@pytest.fixture(autouse=True)
def _few_threads() -> None:
    # Results on CPU are repeatable, and allocations the same, for a fixed number of threads. Tests run in two
    # processes on two cores: a second thread in each spins while it waits for a core, and small tensors took three
    # times the CPU time.
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What one test's runs learn is nothing to another's, nor to the person's own.
    monkeypatch.setenv("TRAINAUTO_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def photograph() -> np.ndarray:
    """A real photograph, (H, W, 3) RGB."""
    return cv2.cvtColor(cv2.imread(str(PHOTOGRAPHS / "coffee.png")), cv2.COLOR_BGR2RGB)


@pytest.fixture
def write_images(tmp_path: Path, photograph: np.ndarray) -> Callable[..., Path]:
    """Write ``count`` different cuts of a photograph into a folder below ``tmp_path``; return the folder."""

    def write(
        folder: str, count: int, size_px: tuple[int, int] = (64, 80), suffix: str = ".png", shrink: int = 1
    ) -> Path:
        target = tmp_path / folder
        target.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            top, left = 7 * number % 200, 13 * number % 300
            cut = photograph[top : top + size_px[0] * shrink, left : left + size_px[1] * shrink]
            if shrink > 1:
                cut = cv2.resize(cut, size_px[::-1], interpolation=cv2.INTER_AREA)
            assert cv2.imwrite(str(target / f"image_{number:03d}{suffix}"), cv2.cvtColor(cut, cv2.COLOR_RGB2BGR))
        return target

    return write


@pytest.fixture
def children_covered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have coverage.py measure child processes too; for tests whose children run lines that no other test runs.

    Its tracer makes a child half as slow again, and most children run what tests run in their own process.
    """
    if request.config.pluginmanager.hasplugin("tests.line_probes"):
        monkeypatch.setenv("COVERAGE_PROCESS_START", str(request.config.rootpath / "pyproject.toml"))
