import logging
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from trainauto.core.errors import InputError
from trainauto.tasks.sr.archs import ARCHS
from trainauto.tasks.sr.spandrel_archs import library
from trainauto.tasks.sr.spandrel_archs.network import any_size_class

PACKAGES = ("spandrel", "spandrel_extra_arches", "torchvision")


@pytest.fixture
def fresh() -> Iterator[None]:
    """Nothing of the library is imported; afterwards everything is as it was."""
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in PACKAGES}
    for name in before:
        del sys.modules[name]
    any_size_class.cache_clear()
    yield
    any_size_class.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        del sys.modules[name]
    sys.modules.update(before)


def left_of_torchvision() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] == "torchvision"]


@pytest.mark.usefixtures("fresh")
def test_torchvision_is_neither_needed_nor_left_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    monkeypatch.setitem(sys.modules, "torchvision", None)  # as if it were not installed
    module = library.library_module("spandrel.architectures.RCAN.__arch.rcan_arch")
    library.library_module("spandrel_extra_arches.architectures.SRFormer.__arch.SRFormer")
    assert module.RCAN.__module__ == "spandrel.architectures.RCAN.__arch.rcan_arch"
    assert left_of_torchvision() == ["torchvision"]
    assert sys.modules["torchvision"] is None
    said = [record.message for record in caplog.records if "torchvision" in record.message]
    assert said == [
        "torchvision is not installed; spandrel is imported without: the networks offered here do not need it"
    ]


@pytest.mark.usefixtures("fresh")
def test_a_network_that_calls_torchvision_says_what_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    lama = library.library_module("spandrel.architectures.LaMa.__arch.LaMa")
    with pytest.raises(ImportError, match="calls torchvision's rotate: install torchvision"):
        lama.rotate(1)
    with pytest.raises(ImportError, match="calls torchvision's InterpolationMode"):
        _ = lama.InterpolationMode.BILINEAR


@pytest.mark.usefixtures("fresh")
def test_a_torchvision_that_works_is_used(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    working = {name: ModuleType(name) for name in ("torchvision", "torchvision.transforms")}
    functional = ModuleType("torchvision.transforms.functional")
    functional.InterpolationMode, functional.rotate, functional.normalize = object(), object(), object()
    sys.modules.update({**working, "torchvision.transforms.functional": functional})
    assert library.library_module("spandrel.architectures.LaMa.__arch.LaMa").rotate is functional.rotate
    assert "torchvision.transforms.functional" in left_of_torchvision()
    assert caplog.records == []


@pytest.mark.usefixtures("fresh")
def test_without_the_library_the_network_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "spandrel", None)
    with pytest.raises(InputError) as caught:
        ARCHS.get("omnisr")(scale=2)
    (problem,) = caught.value.problems
    assert problem.message == "the network is taken from spandrel, which is not installed"
    assert problem.advice == "Install it: pip install --no-deps spandrel spandrel_extra_arches einops"


@pytest.mark.usefixtures("fresh")
def test_what_the_library_needs_and_lacks_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "einops", None)
    with pytest.raises(InputError, match="spandrel, which the network is taken from, needs einops"):
        library.library_module("spandrel.architectures.OmniSR.__arch.OmniSR")


def test_another_release_without_a_network_is_told_from_none():
    with pytest.raises(InputError, match=r"whose release here has no spandrel\.architectures\.Unheard"):
        library.library_module("spandrel.architectures.Unheard")


def test_both_packages_are_recognised_with():
    known = library.all_architectures()
    assert {"OmniSR", "SRFormer"} <= {support.architecture.id for support in known}
    assert "SRFormer" not in library.library_module("spandrel").MAIN_REGISTRY
