"""The page of networks is made of its figures, and has all networks."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "scripts" / "bench"))

import networks  # noqa: E402

from trainauto.archs import ARCHS, is_discriminator  # noqa: E402
from trainauto.commands.network_facts import facts_of  # noqa: E402


def test_the_page_is_that_of_its_figures_and_no_network_is_missing() -> None:
    built_in = [
        name for name in ARCHS if ARCHS.get(name).__module__.startswith("trainauto.")
    ]  # other tests have plugins
    names = [name for name in built_in if not is_discriminator(ARCHS.get(name))]
    figures = {entry["name"]: entry for entry in json.loads(networks.FIGURES.read_text(encoding="utf-8"))}
    assert set(figures) == set(names), "python scripts/bench/networks.py --only NAME"
    page = "\n".join(networks.page({name: facts_of(name) for name in names}, figures)) + "\n"
    assert page == networks.PAGE.read_text(encoding="utf-8")


def test_what_does_not_fit_is_said() -> None:
    figures = {
        "scale": 4,
        "crop": 64,
        "expected_bytes": 2**30,
        "largest_batch": dict(zip(networks.CARDS, (0, 7), strict=True)),
    }
    line = networks.row(facts_of("omnisr"), figures)
    assert line == "| `omnisr` | spandrel | 0.81 M | 4 | 64 | 1.00 GiB | no | no, 7 |"
    figures["largest_batch"] = dict(zip(networks.CARDS, (8, 256), strict=True))
    assert networks.row(facts_of("compact"), figures).endswith("| fits, 8 | fits, 256+ |")


def test_crops_are_what_windows_divide() -> None:
    assert [networks.crop_of(facts_of(name)) for name in ("compact", "srformer", "nafnet32")] == [64, 72, 256]
