"""Components from outside, and names that are taken."""

import sys
from pathlib import Path

import pytest

from trainauto.core.errors import InputError, Place, Problem, nearest
from trainauto.core.plugins import import_installed_plugins, import_plugin
from trainauto.core.registry import Registry
from trainauto.tasks.sr.archs import ARCHS

PACKAGE = """
from torch import nn
from trainauto.tasks.sr.archs import ARCHS
@ARCHS.register("announced_net")
class Announced(nn.Module): ...
"""


def install(site: Path, module: str, source: str) -> None:
    """Lay out a package as pip does: a module, and metadata with an entry point."""
    (site / f"{module}.py").write_text(source)
    info = site / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[trainauto.plugins]\n{module} = {module}\n")


def test_an_installed_package_announces_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "announcing_package", PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert "announcing_package" in import_installed_plugins()
        assert "announced_net" in ARCHS
    finally:
        for table in (ARCHS._entries, ARCHS._shown):
            table.pop("announced_net", None)
        sys.modules.pop("announcing_package", None)


def test_an_installed_package_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "failing_package", "import not_installed_anywhere\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=r"installed plugin 'failing_package' failed to import.*failing_package\.py:1"):
        import_installed_plugins()


def test_a_plugin_with_a_syntax_error_names_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "crooked.py").write_text("x = 1\ny = = 2\n")
    with pytest.raises(InputError, match=r"SyntaxError.*crooked\.py:2"):
        import_plugin("crooked", [tmp_path])
    (tmp_path / "needy.py").write_text("import not_installed_anywhere\n")
    with pytest.raises(InputError, match="Install what it needs"):
        import_plugin("needy", [tmp_path])


def test_a_file_beside_the_options_wins_and_hides_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_plugin.py").write_text("import colorsys\nVALUE = colorsys.ONE_THIRD\n")
    (tmp_path / "colorsys.py").write_text("raise RuntimeError('hides the standard library')\n")
    import colorsys

    assert colorsys.ONE_THIRD
    import_plugin("my_plugin", [tmp_path])
    assert sys.modules["my_plugin"].VALUE == colorsys.ONE_THIRD
    assert sys.path[-1] == str(tmp_path)  # for workers that start afresh


def test_a_name_taken_twice_names_both_places() -> None:
    registry: Registry = Registry("gadget")

    @registry.register("One", "uno")
    def first() -> None: ...

    def second() -> None: ...

    with pytest.raises(InputError) as caught:
        registry.register("UNO")(second)
    text = str(caught.value)
    assert "two gadgets are named 'UNO'" in text
    assert "first" in text
    assert "second" in text
    assert list(registry) == ["One"]
    assert registry.get("oNe") is first
    registry.register("one")(first)  # the same object again is no conflict
    with pytest.raises(InputError, match="Did you mean 'One'"):
        registry.get("onee")


def test_nearest_looks_through_case_and_underscores() -> None:
    assert nearest("LQ-Size", ["lq_size", "gt_size"]) == "Did you mean 'lq_size'?"
    assert nearest("zzz", ["b", "a"]) == "Known: a, b."
    assert nearest("zzz", []) == "Nothing is known here."


def test_a_problem_reads_as_one_block() -> None:
    problem = Problem("what", Place("x.yml", 3, 5, "key: value"), "do this")
    assert str(problem) == "x.yml:3:5: what\n    key: value\n        ^\n  do this"
    long = Problem("what", Place("x.yml", 1, 150, "a" * 149 + "b" * 60))
    assert max(len(line) for line in str(long).splitlines()) <= 104


def test_a_plugin_that_is_missing_is_not_taken_for_a_script_of_the_repository(tmp_path: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / f"{name}.py").touch()
    with pytest.raises(InputError, match=r"there is no plugin 'absent'.*\n  Save it beside the option file\."):
        import_plugin("absent", [tmp_path])
    (tmp_path / "mine.py").touch()
    with pytest.raises(InputError, match=r"Known: mine\."):
        import_plugin("absent", [tmp_path])
