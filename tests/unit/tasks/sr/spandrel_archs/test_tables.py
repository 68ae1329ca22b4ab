import inspect

import pytest

from tests.small_library_networks import SMALL_LIBRARY
from trainauto.archs import ARCHS
from trainauto.tasks.sr.spandrel_archs import LIBRARY_NETWORKS, LibraryNetwork
from trainauto.tasks.sr.spandrel_archs.argument_notes import NOTES
from trainauto.tasks.sr.spandrel_archs.library import library_module

NAMED = pytest.mark.parametrize("network", LIBRARY_NETWORKS, ids=lambda network: next(iter(network.presets)))


@NAMED
def test_a_table_names_each_argument_of_the_library_once(network: LibraryNetwork):
    module = library_module(network.module)
    for name in network.classes:
        taken = set(inspect.signature(getattr(module, name).__init__).parameters) - {"self"}
        passed = [
            network.renamed.get(key, key)
            for key in ("scale", *network.defaults)
            if key not in network.not_passed.get(name, ())
        ]
        assert len(passed) == len(set(passed))
        assert {*passed, *network.left_out} == taken
        assert not {*passed} & {*network.left_out}


@NAMED
def test_a_table_says_nothing_of_arguments_it_does_not_have(network: LibraryNetwork):
    own = {"scale", *network.defaults}
    for said in (network.renamed, network.values, network.choices, network.types, *network.presets.values()):
        assert set(said) <= own
    assert not network.channels or network.channels in network.defaults
    assert set(network.aliases.values()) <= set(network.presets)
    for key, choices in network.choices.items():
        assert {network.defaults_of(name)[key] for name in network.presets} <= set(choices)
    assert {*network.values} <= {*network.choices}
    assert not next(iter(network.presets.values()))


def test_every_argument_is_described_and_no_other():
    assert {"scale", *(key for network in LIBRARY_NETWORKS for key in network.defaults)} == set(NOTES)


def test_each_name_is_registered_and_each_table_is_tried():
    for network in LIBRARY_NETWORKS:
        for name in network.presets:
            assert ARCHS.get(name).library_network is network
        for alias, name in network.aliases.items():
            assert ARCHS.get(alias) is ARCHS.get(name)
            assert ARCHS.shown(alias) == name
    assert [next(iter(network.presets)) for network in LIBRARY_NETWORKS] == sorted(
        SMALL_LIBRARY, key=[next(iter(network.presets)) for network in LIBRARY_NETWORKS].index
    )


@pytest.mark.parametrize(
    ("name", "given", "built"),
    [
        ("realplksr", {"upsampler": "dysample", "scale": 3}, {"dysample": True, "upscaling_factor": 3}),
        ("realplksr", {}, {"dysample": False, "layer_norm": True, "upscaling_factor": 4}),
        ("mosr_t", {"upsampler": "dysample"}, {"upsampler": "dys", "dim": 48, "n_block": 5}),
        ("omnisr", {"scale": 2}, {"up_scale": 2, "res_num": 5}),
    ],
)
def test_traiNNers_keys_become_the_librarys_and_come_back(
    name: str, given: dict[str, object], built: dict[str, object]
):
    network = ARCHS.get(name).library_network
    arguments = {"scale": 4, **network.defaults_of(name), **given}
    passed = network.to_library(arguments)
    assert {key: passed[key] for key in built} == built
    assert network.from_library(passed) == arguments


@pytest.mark.parametrize(
    ("arguments", "name", "differing"),
    [
        ({"expansion_factor": 2.0}, "dat_2", {}),
        ({"expansion_factor": 2.0, "split_size": [8, 16], "embed_dim": 90}, "dat_s", {"embed_dim": 90}),
        ({"img_range": 255.0}, "dat", {"img_range": 255.0}),
    ],
)
def test_arguments_are_told_from_the_nearest_published_ones(
    arguments: dict[str, object], name: str, differing: dict[str, object]
):
    network = ARCHS.get("dat").library_network
    assert network.nearest_preset({"scale": 2, **network.defaults, **arguments}) == (name, differing)


def test_scale_1_is_known_where_a_network_does_no_other():
    network = ARCHS.get("nafnet").library_network
    assert network.from_library({"width": 8}) == {"scale": 1, "width": 8}


@pytest.mark.parametrize(
    ("name", "given", "minimum", "multiple"),
    [
        ("dat", {}, 32, 32),
        ("dat_s", {}, 16, 16),
        ("grl_b", {}, 64, 64),
        ("grl_b", {"window_size": 8, "stripe_size": [8, None], "stripe_groups": [None, 4]}, 16, 16),
        ("drct", {"window_size": 8}, 8, 8),
        ("swin2sr_s", {}, 16, 8),
        ("ditn_real", {"patch_size": 4}, 4, 4),
        ("realcugan", {"fast": True, "scale": 2}, 40, 4),
        ("nafnet", {"enc_blk_nums": [1, 1]}, 4, 4),
        ("rcan", {"unshuffle_mod": True, "scale": 1}, 4, 4),
        ("rcan", {"unshuffle_mod": True, "scale": 4}, 1, 1),
        ("seemore", {}, 16, 1),
    ],
)
def test_crops_are_whole_windows(name: str, given: dict[str, object], minimum: int, multiple: int):
    network = ARCHS.get(name).library_network
    needs = network.size_requirements({"scale": 4, **network.defaults_of(ARCHS.shown(name)), **given})
    assert (needs.minimum, needs.multiple) == (minimum, multiple)
