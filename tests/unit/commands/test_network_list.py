"""What is said of networks: sizes, scales, crops, where weights are; in groups, within 80 columns."""

import importlib.util
import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from torch import nn

from tests.acceptance import ACCEPTANCE, only_in_acceptance
from trainauto.archs import ARCHS, is_discriminator
from trainauto.cli import main
from trainauto.commands.network_facts import PUBLISHED, facts_of, found_out
from trainauto.commands.network_list import crops_in_words, networks_table, scales_in_words
from trainauto.core.errors import InputError
from trainauto.options.foreign_files import Project
from trainauto.tasks.sr.archs.foreign_networks import MISSING, NAMES, OF_VIDEO, missing_networks

BUILT_IN = [name for name in ARCHS if ARCHS.get(name).__module__.startswith("trainauto.")]  # other tests have plugins
ENLARGING = [name for name in BUILT_IN if not is_discriminator(ARCHS.get(name))]
OWN = [name for name in BUILT_IN if not hasattr(ARCHS.get(name), "library_network")]


class PluginNetwork(nn.Module):
    """A network of a plugin."""

    def __init__(self, width: int = 3, scale: int = 2) -> None:
        super().__init__()
        if scale > 3:
            raise ValueError("no")
        self.conv = nn.Conv2d(width, 3 * scale**2, 1)


def needs_something(width: int, scale: int = 4) -> nn.Module:
    """Build a network that has no defaults."""
    return nn.Conv2d(width, scale, 1)


@pytest.fixture
def _plugins() -> Iterator[None]:
    ARCHS.register("listed_net", "Listed")(PluginNetwork)
    ARCHS.register("needs_something")(needs_something)
    yield
    for name in ("listed_net", "listed", "needs_something"):
        for names in (ARCHS._entries, ARCHS._shown):
            names.pop(name, None)
        ARCHS._aliases.discard(name)


def rows(table: str) -> dict[str, str]:
    found = (re.fullmatch(r"  (\w+) +(?:[\d.]+(?: [MK])?)?(?:  .*)?", line) for line in table.splitlines())
    return {match[1]: match[0] for match in found if match and match[1] != "network"}


def test_each_network_has_a_row_in_80_columns() -> None:
    table = networks_table(80)
    assert max(map(len, table.splitlines())) <= 80
    assert set(BUILT_IN) <= set(rows(table)) <= set(ARCHS)
    own, library = table.index("trainauto's own networks:"), table.index("networks taken from spandrel")
    assert own < table.index("  rrdbnet ") < library < table.index("  omnisr ") < table.index("discriminators")


def test_a_row_says_size_scales_crops_and_further_names() -> None:
    found = rows(networks_table(80))
    assert found["rrdbnet"].split() == ["rrdbnet", "16.70", "M", "1-4,", "8", "any;", "also", "esrgan"]
    assert found["swinir_light"].split() == [
        "swinir_light",
        "930",
        "K",
        "any",
        "multiples",
        "of",
        "8;",
        "also",
        "swinir_s",
    ]
    assert found["omnisr"].split() == ["omnisr", "805", "K", "any", "multiples", "of", "8", "from", "16"]
    assert found["unetdiscriminatorsn"].split() == ["unetdiscriminatorsn", "4.38", "M"]
    assert "published: xinntao/Real-ESRGAN (docs/model_zoo.md)" in networks_table(80)


def test_words() -> None:
    assert [scales_in_words(scales) for scales in ((), (1,), (1, 2, 3, 4, 8), (2, 4), (2, 3))] == [
        "any",
        "1",
        "1-4, 8",
        "2, 4",
        "2-3",
    ]
    assert [crops_in_words(facts_of(name)) for name in ("compact", "swinir", "dctlsa")] == [
        "any",
        "multiples of 8",
        "from 16",
    ]


@pytest.mark.parametrize("name", OWN if ACCEPTANCE else ["compact", "superultracompact", "span"])
def test_what_is_kept_of_our_networks_is_true(name: str) -> None:
    assert facts_of(name) == found_out(name)
    assert facts_of(name).parameters


@only_in_acceptance
@pytest.mark.skipif(importlib.util.find_spec("spandrel") is None, reason="spandrel is not installed")
@pytest.mark.parametrize("name", [name for name in ENLARGING if name not in OWN])
def test_what_is_kept_of_spandrels_networks_is_true(name: str) -> None:
    assert facts_of(name) == found_out(name)
    assert facts_of(name).parameters


@pytest.mark.skipif(importlib.util.find_spec("spandrel") is None, reason="spandrel is not installed")
def test_scales_are_those_that_a_network_does_with_its_own_defaults() -> None:
    assert found_out("fdat_tiny").scales == facts_of("fdat_tiny").scales == (1, 2, 3, 4)
    assert facts_of("swin2sr_l").scales == (4,)


def test_every_built_in_network_is_kept_and_no_other_title_has_weights() -> None:
    assert all(facts_of(name).parameters for name in BUILT_IN)
    assert {facts_of(name).title for name in ENLARGING} == set(PUBLISHED) | {"ECBSR", "SPANPlus"}


def test_aliases_and_sizes_of_an_architecture() -> None:
    assert facts_of("SRVGGNetCompact") == facts_of("compact")
    assert {name for name in OWN if facts_of(name).is_preset} == {
        "superultracompact",
        "ultracompact",
        "swinir_light",
        "swinir_l",
        "esrgan_lite",
        "span_s",
        "spanplus_s",
        "spanplus_st",
        "spanplus_sts",
        "man_light",
        "metaflexnet",
        "man_tiny",
        "artcnn_r8f64",
        "eimn_a",
        "dis_fast",
        "sebica_mini",
        "dwt_s",
        "elan_light",
        "esc_fp",
        "esc_large",
        "esc_light",
        "escrealm_xl",
        "gaterv3_s",
        "lkfmixer_l",
        "lkfmixer_t",
        "lmlt_large",
        "lmlt_tiny",
        "rtmosr_l",
        "rtmosr_ul",
    }
    assert ARCHS.aliases("rrdbnet") == ["esrgan"]


@pytest.mark.usefixtures("_plugins")
def test_networks_of_plugins_are_built_to_be_known(capsys: pytest.CaptureFixture[str]) -> None:
    facts = facts_of("listed_net")
    assert (facts.title, facts.parameters, facts.scales, facts.default_scale) == ("PluginNetwork", 48, (1, 2, 3), 2)
    assert facts_of("needs_something").parameters is None
    assert main(["list", "archs"]) == 0
    out = capsys.readouterr().out
    plugins = out[out.index("networks of plugins:") :]
    row = "PluginNetwork: A network of a plugin.\n  listed_net               48  1-3      any; also Listed\n"
    assert row in plugins
    assert "needs_something: Build a network that has no defaults.\n  needs_something" in plugins


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "archs", "--json"]) == 0
    (entry,) = [entry for entry in json.loads(capsys.readouterr().out) if entry["name"] == "rrdbnet"]
    assert entry == {
        **asdict(facts_of("rrdbnet")),
        "scales": [1, 2, 3, 4, 8],
        "discriminator": False,
        "aliases": ["esrgan"],
    }


def test_networks_of_other_projects_that_are_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "archs", "--missing"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "\ndocres_base             nafnet64                           traiNNer-redux\n" in out
    assert "\nhma                     hat_s                              neosr\n" in out
    assert "\nStyleGAN2Generator      nothing alike                      BasicSR\n" in out
    assert main(["list", "archs", "--missing", "--json"]) == 0
    listed = {entry.pop("name"): entry for entry in json.loads(capsys.readouterr().out)}
    assert listed["HiFaceGAN"] == {"projects": ["BasicSR"], "nearest": "rrdbnet", "video": False}
    assert listed["edvr"] == {"video": True}
    assert main(["list", "losses", "--missing"]) == 2
    assert "list archs --missing" in capsys.readouterr().err


def test_the_table_of_missing_networks_has_those_of_all_templates_and_none_that_is_here() -> None:
    """A network that is added leaves the table of trainauto/tasks/sr/archs/foreign_networks.py."""
    found = missing_networks()
    assert set(MISSING) == set(NAMES) == set(Project)
    assert {here for names in NAMES.values() for here in names.values()} <= set(BUILT_IN)
    assert [name for name in found if name in ARCHS] == []
    assert {near for _, near in found.values() if near} <= set(BUILT_IN)
    files = json.loads((Path(__file__).parents[3] / "docs" / "benchmarks" / "conversion.json").read_text())["files"]
    theirs = {
        NAMES[Project(one["project"])].get(one["network"].lower(), one["network"]) for one in files if one["network"]
    }
    assert {name for name in theirs if name not in ARCHS and name.lower() not in OF_VIDEO} <= found.keys()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("catanet", "The nearest one here is 'atd_light'."),
        ("hma_medium", "The nearest one here is 'hat_s'."),
        ("StyleGAN2Generator", "none here is alike"),
        ("EDVR", "a network of video"),
        ("edvr_l", "a network of video"),
        ("unet", "neosr calls a network so that is 'unetdiscriminatorsn' here."),
        ("realplksr_s", "'realplksr_tiny' here"),
        ("spam", "Did you mean 'span'?"),
    ],
)
def test_a_network_of_another_project_is_refused_with_the_nearest_one_here(name: str, advice: str) -> None:
    with pytest.raises(InputError, match=f"there is no network named '{name}'") as refused:
        ARCHS.get(name)
    assert advice in refused.value.problems[0].advice


def test_one_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "archs", "omnisr"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "805 K weights at scale 4; scales: any; crops: multiples of 8 from 16" in lines
    assert "published: Francis0625/Omni-SR, openmodeldb.info" in lines
    assert main(["list", "archs", "esrgan"]) == 0
    assert "\nalso called: esrgan\n" in capsys.readouterr().out
    assert main(["list", "archs", "unetdiscriminatorsn"]) == 0
    assert "\n4.38 M weights\n" in capsys.readouterr().out
    assert main(["list", "archs", "rrdbnet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["facts"]["parameters"] == 16697987
