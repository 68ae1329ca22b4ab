import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from trainauto.core.errors import InputError, Problem
from trainauto.options.load import LoadedOptions, load_options
from trainauto.options.schema import AutomationSwitch, Component

Loader = Callable[..., LoadedOptions]
Reporter = Callable[..., tuple[Problem, ...]]
MINIMAL = """
name: minimal
datasets:
  train: {type: GTImageDataset, dataroot_gt: a}
network_g: {type: span}
train: {total_samples: 100, losses: [{type: l1loss}], optim_g: {type: Adam}}
"""


def test_a_valid_file_is_typed(load: Loader) -> None:
    loaded = load()
    options = loaded.options
    assert options.datasets.train.dataroot_gt == ["data/train/gt", "data/more/gt"]
    assert [loss.type for loss in options.train.losses] == ["l1loss", "charbonnierloss", "ssimloss"]
    assert options.train.losses[1].arguments == {"loss_weight": 0.5, "eps": 1e-6}
    assert options.train.optim_g.arguments["weight_decay"] == 1e-4
    assert options.datasets.validation_sets.keys() == {"val"}
    assert options.training_automations.active == {
        "PlanSchedule": AutomationSwitch(changes=[{"step": 10, "lq_size": 64, "batch_size": 9}])
    }
    assert loaded.tree["train"]["total_iter"] == 500
    assert loaded.path.name == "options.yml"
    assert loaded.places.of_value(("scale",)).line == 4


SHIPPED = Path(__file__).parents[3] / "options" / "train"


@pytest.mark.parametrize("name", ["quickstart", "gan_small"])
def test_the_shipped_files_are_valid(name: str) -> None:
    assert load_options(SHIPPED / f"{name}.yml").options.scale == 2


def test_gan_small_goes_on_from_the_last_weights_of_the_quick_start() -> None:
    first, second = (load_options(SHIPPED / f"{name}.yml").options for name in ("quickstart", "gan_small"))
    folder = f"{first.path.experiments_root}/{first.name}/current/checkpoints/step_{first.train.total_iter:08d}"
    assert second.path.pretrain_network_g == f"{folder}/net_g_ema.safetensors"
    assert (second.network_g, second.scale) == (first.network_g, first.scale)
    assert second.datasets.val == first.datasets.val


def test_defaults_fill_the_rest(load: Loader) -> None:
    options = load(text=MINIMAL).options
    assert options.train.scheduler == Component(type="constant")
    assert (options.val.metrics, options.plugins, options.datasets.validation_sets) == ({}, [], {})


def test_defaults_are_not_shared(load: Loader) -> None:
    load(text=MINIMAL).options.plugins.append("x")
    assert load(text=MINIMAL).options.plugins == []


def test_any_number_of_validation_sets(load: Loader) -> None:
    options = load("datasets:val_b={name: b, dataroot_gt: x, dataroot_lq: y}").options
    assert list(options.datasets.validation_sets) == ["val", "val_b"]


def test_numbers_of_either_kind(load: Loader) -> None:
    options = load("train:total_iter=!!float 5e3", "train:grad_clip=1", "train:ema_decay=0").options
    assert (options.train.total_iter, type(options.train.total_iter)) == (5000, int)
    assert (options.train.grad_clip, type(options.train.grad_clip)) == (1.0, float)


@pytest.mark.parametrize(
    ("override", "what", "advice"),
    [
        ("lq_size=3", "unknown key 'lq_size'", "Write it under datasets.train."),
        ("dataroot_gt=x", "unknown key 'dataroot_gt'", "Write it under datasets.train or datasets.val."),
        ("Use_AMP=true", "unknown key 'Use_AMP'", "Did you mean 'use_amp'?"),
        ("train:optim=x", "unknown key 'optim' in train", "Did you mean 'optim_g'?"),
        ("val:zzz=x", "unknown key 'zzz' in val", "Known: metrics, save_img"),
        ("datasets:valid:x=1", "'valid' is no data set", "Did you mean 'val'?"),
        ("datasets:val_=x", "'val_' is no data set", "Did you mean 'val'?"),
        (
            "datasets:train:gt_size=128",
            "unknown key 'gt_size' in datasets.train",
            "Write lq_size: 32 (gt_size / scale).",
        ),
        ("datasets:train:gt_size=130", "unknown key 'gt_size'", "Write lq_size: gt_size / scale."),
        ("datasets:train:gt_size=x", "unknown key 'gt_size'", "Write lq_size: gt_size / scale."),
        ("datasets:train:batch_size=3", "unknown key", "Write batch_size_per_gpu."),
        ("datasets:train:io_backend:type=disk", "unknown key", "Remove it: a folder that ends in .lmdb"),
        ("datasets:train:dataroot_HR=a", "unknown key 'dataroot_HR'", "Write dataroot_gt."),
        ("datasets:train:dataroot_LR=a", "unknown key 'dataroot_LR'", "Write dataroot_lq."),
        ("datasets:train:HR_size=128", "unknown key 'HR_size'", "Write lq_size: 32 (HR_size / scale)."),
        ("datasets:train:mode=LRHROTF", "unknown key 'mode'", "Write type: GTImageDataset makes"),
        ("logger:mode=online", "unknown key 'mode'", "Write it under logger.wandb."),
        ("train:use_swa=true", "unknown key 'use_swa'", "ema_decay under train averages weights"),
        ("train:warmup_iter=100", "unknown key", "Write warmup_steps."),
        ("train:warmup_iter=-1", "unknown key", "Remove it: without warmup_steps there is no warm-up."),
        ("train:wavelet_guided=true", "unknown key 'wavelet_guided'", "losses guided by wavelets are left out"),
        ("train:perceptual_opt:type=x", "unknown key 'perceptual_opt' in train", "item of train.losses"),
        ("train:lr=1", "unknown key 'lr' in train", "Write it under train.optim_g."),
        ("train:network_d=span", "unknown key 'network_d' in train", "Write it at the top level."),
        ("optim_d=x", "unknown key 'optim_d'", "Write it under train."),
        ("train:adaptive_d=true", "unknown key 'adaptive_d'", "the discriminator steps with every batch"),
        ("train:gan_opt:type=x", "unknown key 'gan_opt' in train", "item of train.losses"),
        ("network_d=span", "network_d takes a section of keys", "Write {type: span}."),
        ("num_gpu=1", "unknown key 'num_gpu'", "device says where to train"),
        ("name=3", "name takes text, but 3 is a number", "Put it in quotes."),
        ("name=a/b", "but 'a/b' is given", "letters, digits, space"),
        ("name=", "name takes text, but nothing is given", "Name of the experiment"),
        ("scale=17", "scale takes a number of at most 16, but 17 is given", "[times]: Enlargement factor."),
        ("scale=4.5", "scale takes a whole number, but 4.5 is a number", "without a fraction"),
        ("scale=.inf", "scale takes a whole number", "without a fraction"),
        ("scale=true", "scale takes a whole number, but true is given", "Enlargement factor."),
        ("scale='4'", "scale takes a whole number, but '4' is text", "Remove the quotes."),
        ("train:grad_clip=1e-4x", "train.grad_clip takes a number, but '1e-4x' is text", "e.g. 1e-4"),
        ("train:grad_clip=.nan", "train.grad_clip takes a finite number", "Maximum gradient norm"),
        ("train:ema_decay=1", "train.ema_decay takes a number below 1", "moving average"),
        ("use_amp=off", "use_amp takes true or false, but 'off' is text", "Write false."),
        ("use_amp=1", "use_amp takes true or false, but 1 is a number", "Write true."),
        ("use_amp=maybe", "use_amp takes true or false", "Write true or false."),
        ("device=gpu", "device takes one of 'auto', 'cpu' or 'cuda', but 'gpu' is given", "Did you mean 'cuda'?"),
        ("device=CPU", "but 'CPU' is given", "Did you mean 'cpu'?"),
        ("device=[cpu]", "device takes one of 'auto', 'cpu' or 'cuda', but a list of 1 is given", "Device to train on"),
        ("datasets:train:dataroot_gt=3", "takes text or a list, but 3 is a number", "Put it in quotes."),
        ("datasets:train:dataroot_gt=[a, 3]", "datasets.train.dataroot_gt[1] takes text, but 3", "Put it in quotes."),
        ("plugins=mine", "plugins takes a list, but 'mine' is text", "Write ['mine'] for a list of one."),
        ("train:losses=[]", "train.losses takes at least 1 item(s), but a list of 0 is given", "Loss terms"),
        ("train:losses={type: x}", "train.losses takes a list, but a section of keys is given", "Loss terms"),
        ("train:losses:0={}", "'type' is missing in train.losses[0]", "Add type: Registered name"),
        ("train:losses:0:type=", "train.losses[0].type takes text, but nothing", "Registered name"),
        ("train:losses:0:type=''", "text of at least 1 character(s)", "Registered name"),
        ("network_g=span", "network_g takes a section of keys, but 'span' is text", "Write {type: span}."),
        ("logger=[a]", "logger takes a section of keys, but a list of 1 is given", "without '- ': print_freq"),
        ("logger='print_freq:1'", "but 'print_freq:1' is text", "Put a space after the ':': `print_freq: 1`."),
        ("logger=", "logger takes a section of keys, but nothing is given", "Indent its keys"),
        ("training_automations:X=false", "X takes a section of keys, but false is given", "Write X: {enabled: false}."),
        ("val:metrics:a=psnr", "val.metrics.a takes a section of keys, but 'psnr' is text", "Write {type: psnr}."),
    ],
)
def test_one_wrong_value_is_one_problem_at_its_place(problems: Reporter, override: str, what: str, advice: str) -> None:
    (problem,) = problems(override)
    assert what in problem.message
    assert advice in problem.advice
    assert problem.place is not None
    assert (problem.place.file, problem.place.text) == ("--force_yml", override)


def test_all_problems_come_at_once_in_file_order(problems: Reporter) -> None:
    text = (
        MINIMAL.replace("minimal", "3").replace("total_samples: 100", "grad_clip: x").replace("type: span", "typ: span")
    )
    found = problems(text=text.replace("GTImageDataset", "PairedImageDataset") + "zzz: 1\n")
    assert [(problem.place.line, problem.place.column) for problem in found if problem.place] == [
        *((2, 7), (4, 3), (5, 1), (6, 20), (7, 1))
    ]
    assert [problem.message.split(",")[0] for problem in found] == [
        "name takes text",
        "PairedImageDataset needs dataroot_lq",
        "'type' is missing in network_g",
        "train.grad_clip takes a number",
        "unknown key 'zzz'",
    ]


def test_what_stands_under_an_unknown_name_is_not_judged(problems: Reporter) -> None:
    text = MINIMAL.replace("  train: {", "  training: {")
    assert [problem.message for problem in problems(text=text)] == [
        "'train' is missing in datasets",
        "'training' is no data set",
    ]


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "null"])
def test_an_empty_file_holds_no_options(problems: Reporter, text: str) -> None:
    (problem,) = problems(text=text)
    assert problem.message == "this file holds no options"


@pytest.mark.parametrize(("text", "word"), [("- a: 1\n", "list"), ("just text", "one value"), ("42", "one value")])
def test_the_top_level_is_a_section(problems: Reporter, text: str, word: str) -> None:
    (problem,) = problems(text=text)
    assert problem.message.endswith(f"but this is a {word}" if word == "list" else f"but this is {word}")
    assert problem.place is not None
    assert (problem.place.line, problem.place.column) == (1, 1)


def test_the_message_is_the_block_people_see(tmp_path: Path) -> None:
    file = tmp_path / "options.yml"
    file.write_text(MINIMAL.replace("name: minimal", "name: minimal\nscale: four"))
    with pytest.raises(InputError) as caught:
        load_options(file)
    assert str(caught.value) == (
        f"{file}:3:8: scale takes a whole number, but 'four' is text\n"
        "    scale: four\n"
        "           ^\n"
        "  Write a plain number, e.g. 64."
    )
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "what", "advice"),
    [
        (
            "training_automations:\n  DynamicBatchSizeOptimizer:\n",
            "takes a section of keys, but nothing is given",
            "DynamicBatchSizeOptimizer: {} means its defaults.",
        ),
        ("memory: {cpu_budget: 24}\n", "memory.cpu_budget takes text", "with its unit, e.g. 24MiB or 24GiB."),
        ("memory: {cpu_budget: 2.5}\n", "memory.cpu_budget takes text", "with its unit, e.g. 2.5MiB or 2.5GiB."),
        ("memory: {budget: '24'}\n", "'24' is no size; its unit is missing: did you mean 24GiB, or 24MiB?", ""),
        ("memory: {budget: '6000'}\n", "'6000' is no size; its unit is missing: did you mean 6000MiB?", ""),
        ("memory: {budget: 24G}\n", "'24G' is no size; did you mean 24GiB?", ""),
        ("memory: {budget: 1.5 gigs}\n", "'1.5 gigs' is no size; did you mean 1.5GiB?", ""),
        ("memory: {budget: 600 mbytes}\n", "'600 mbytes' is no size; did you mean 600MiB?", ""),
        ("memory: {budget: 64kBit}\n", "'64kBit' is no size; did you mean 64KiB?", ""),
        ("memory: {budget: 24 apples}\n", "'24 apples' is no size; write it like 600MiB", ""),
        ("memory: {budget: 0GiB}\n", "'0GiB' is no size; write it like 600MiB", ""),
    ],
)
def test_what_was_probably_meant(problems: Reporter, text: str, what: str, advice: str) -> None:
    (problem,) = problems(text=MINIMAL + text)
    assert what in problem.message
    assert advice in problem.advice
    assert problem.place is not None
    assert problem.place.line > 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x" * 201, "a name of 201 bytes is too long for a folder: 200 at most"),
        ("\N{CJK UNIFIED IDEOGRAPH-65E5}" * 67, "a name of 201 bytes"),
        ("../up", "text that matches"),
        ("a/b", "text that matches"),
        ('"\\e[31mred"', "text that matches"),
        ('"\\u202Eabc"', "text that matches"),
        ("\N{ROCKET}", "text that matches"),
    ],
)
@pytest.mark.parametrize("of_set", [False, True])
def test_a_name_that_is_no_folders_is_refused_in_words(tmp_path: Path, name: str, words: str, of_set: bool) -> None:
    file = tmp_path / "options.yml"
    val = f"  val: {{name: {name}, type: GTImageDataset, dataroot_gt: a}}\nnetwork_g"
    file.write_text(MINIMAL.replace("network_g", val) if of_set else MINIMAL.replace("minimal", name), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_options(file)
    assert words in caught.value.problems[0].message
    assert "\x1b" not in str(caught.value)
    assert "\u202e" not in str(caught.value)


def test_what_is_wrong_with_keys_options_and_arguments_is_one_block(problems: Reporter) -> None:
    text = f"bogus: 1\nscale: 2\nscale: 3\n{MINIMAL}"
    found = [problem.message for problem in problems("nonsense", "train:totl=3", text=text)]
    assert found == [
        "unknown key 'bogus'",
        "the key 'scale' is given twice, on lines 2 and 3",
        "'nonsense' gives no value",
        "unknown key 'totl' in train",
    ]


def test_json_is_read_and_its_mistakes_are_said_as_json(tmp_path: Path) -> None:
    file = tmp_path / "options.json"
    text = json.dumps(yaml.safe_load(MINIMAL), indent="\t")
    file.write_text(text)
    assert load_options(file).options.name == "minimal"
    file.write_text(text.replace('"minimal",', '"minimal", // a name'))
    with pytest.raises(InputError) as caught:
        load_options(file)
    (problem,) = caught.value.problems
    assert problem.message.startswith("this is not JSON: ")
    assert problem.advice == "JSON has no comments: remove it."
    assert problem.place is not None
    assert problem.place.line == 2


def test_toml_is_refused_with_how_it_is_converted(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text('name = "x"\n')
    with pytest.raises(InputError, match="this is TOML") as caught:
        load_options(file)
    assert f"convert {file} --from neosr" in caught.value.problems[0].advice
