"""All problems of an option file are told at once, in its order, whatever their kind."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trainauto.cli import main
from trainauto.commands.doctor_checks.probes import option_problems
from trainauto.commands.whole_options import check_components, load_whole, load_whole_test
from trainauto.core.errors import InputError
from trainauto.data import DATASETS

IMAGES = """\
name: broken
scale: 2
devise: cpu
model_type: SRModle
network_g: {type: compact, num_feats: 8, num_conv: many}
network_d: {type: unetdiscriminatorsm}
path: {pretrain_network_g: g.pth, pretrain_network_d: d.pth}
datasets:
  train: {type: GTImageDataset, dataroot_gt: [gtt, photos], lq_size: big, filename_tmpl: a}
  val: {type: PairedImageDatasett, dataroot_gt: gt, dataroot_lq: lqq, meta_info: names.txt}
train:
  losses:
    - {type: l2los}
    - {type: l1loss, loss_weight: heavy, target: ground}
    - {type: charbonnierloss, eps: 1.0e-3, epss: 1}
    - {type: perceptualloss, weights: vgg.pth}
    - {type: lpipsloss, loss_weight: 0, weights: none.pth}
  optim_g: {type: Adam, lr: 1.0e-3, betta: 0.9}
  optim_d: {lr: 1.0e-3}
  scheduler: {type: multistep}
  total_iter: 2
val:
  val_freq: often
  metrics:
    psnr: {type: calculate_psnr, crop: 2}
    ssim: {type: calculate_sim}
    dists: {type: calculate_dists, weights: vgg16.pth}
training_automations:
  PlanScheduel: {changes: []}
  PlanSchedule: {change: []}
"""
OF_IMAGES = [
    "3:1: unknown key 'devise'",
    "4:13: there is no model named 'SRModle'",
    "5:28: network 'compact' has no argument 'num_feats'",
    "5:52: network_g.num_conv takes a whole number, but 'many' is text",
    "6:19: there is no network named 'unetdiscriminatorsm'",
    "7:28: there is no weights file g.pth",
    "7:55: there is no weights file d.pth",
    "9:46: dataset 'train': there is no gtt",
    "9:46: dataset 'train': there is no photos",
    "9:70: datasets.train.lq_size takes a whole number, but 'big' is text",
    "9:75: dataset 'GTImageDataset' has no argument 'filename_tmpl'",
    "10:15: there is no dataset named 'PairedImageDatasett'",
    "10:66: dataset 'val': there is no lqq",
    "10:82: cannot read names.txt: [Errno 2] No such file or directory: 'names.txt'",
    "13:14: there is no loss named 'l2los'",
    "14:35: train.losses[1].loss_weight takes a number, but 'heavy' is text",
    "14:50: train.losses[1].target takes one of 'gt' or 'gt_usm', but 'ground' is given",
    "15:44: loss 'charbonnierloss' has no argument 'epss'",
    "16:7: the weights of vgg19 are not here: vgg.pth",
    "18:37: optimizer 'Adam' has no argument 'betta'",
    "19:3: 'type' is missing in train.optim_d",
    "20:3: schedule 'multistep' needs 'milestones'",
    "23:13: val.val_freq takes a whole number, but 'often' is text",
    "25:34: metric 'calculate_psnr' has no argument 'crop'",
    "26:18: there is no metric named 'calculate_sim'",
    "27:12: the weights of vgg16 are not here: vgg16.pth",
    "29:17: there is no automation named 'PlanScheduel'",
    "30:3: automation 'PlanSchedule' needs 'changes'",
    "30:18: automation 'PlanSchedule' has no argument 'change'",
]

TEXTS = """\
name: broken
task: text
model: {kind: causal, pretrained: ./model}
tokenizer: {pretrained: ./tokens}
datasets:
  train: {path: textts, max_lenght: 32}
  val: {path: [gt, others]}
train:
  total_iter: 2
  optim: {type: AdamW, lrr: 1.0e-3}
  scheduler: {type: cosine, cycle: 2}
training_automations:
  StopFiel: {}
"""
OF_TEXTS = [
    "3:35: there is no model ./model",
    "4:25: there is no tokenizer ./tokens",
    "6:17: dataset 'train': there is no textts",
    "6:25: unknown key 'max_lenght' in datasets.train",
    "7:15: dataset 'val': there is no others",
    "10:24: optimizer 'AdamW' has no argument 'lrr'",
    "11:29: schedule 'cosine' has no argument 'cycle'",
    "13:13: there is no automation named 'StopFiel'",
]

SEVERAL_TASKS = """\
name: broken
task: multitask
model: {type: DigitsModel, hidden: 8}
tokenizer: {pretrained: ./tokens}
datasets:
  train: {type: DigitTasks, samples: many}
  val: {type: DigitTaskz}
train:
  total_epochs: 1
  learning_rates: 1.0e-3
  scheduler: {type: cosin}
training_automations:
  StopFiel: {}
"""
OF_SEVERAL_TASKS = [
    "3:28: multitask-model 'DigitsModel' has no argument 'hidden'",
    "4:25: there is no tokenizer ./tokens",
    "6:38: datasets.train.samples takes a whole number, but 'many' is text",
    "7:15: there is no sample-set named 'DigitTaskz'",
    "10:3: unknown key 'learning_rates' in train",
    "11:21: there is no schedule named 'cosin'",
    "13:13: there is no automation named 'StopFiel'",
]

FINETUNING = """\
name: broken
model: {name: ./model, chat_template: chat.jinja}
dataset: {path: chats.jsonl, val: [gt, others]}
training: {num_train_epoch: 1}
lora: {r: many}
training_automations:
  StopFiel: {}
  StopAtLowLoss: {loss: low}
"""
OF_FINETUNING = [
    "2:15: there is no model ./model",
    "2:39: the chat template chat.jinja cannot be read: [Errno 2] No such file or directory: 'chat.jinja'",
    "3:17: dataset 'train': there is no chats.jsonl",
    "3:35: dataset 'val': there is no others",
    "4:12: unknown key 'num_train_epoch' in training",
    "5:11: lora.r takes a whole number, but 'many' is text",
    "7:13: there is no automation named 'StopFiel'",
    "8:25: training_automations.StopAtLowLoss.loss takes a number, but 'low' is text",
]

Told = Callable[..., list[str]]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Return the problems of an option file, each with line and column."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gt").mkdir()

    def problems(text: str, *, data: bool = True, weights: bool = True) -> list[str]:
        Path("x.yml").write_text(text)
        with pytest.raises(InputError) as caught:
            check_components(load_whole(Path("x.yml"), (), data=data, weights=weights))
        assert caught.value.is_of_every_rank
        return [str(problem).splitlines()[0].removeprefix("x.yml:") for problem in caught.value.problems]

    return problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [(IMAGES, OF_IMAGES), (TEXTS, OF_TEXTS), (SEVERAL_TASKS, OF_SEVERAL_TASKS), (FINETUNING, OF_FINETUNING)],
    ids=["images", "texts", "several tasks", "fine-tuning"],
)
def test_faults_of_all_kinds_are_told_at_once(text: str, expected: list[str], told: Told) -> None:
    assert told(text) == expected


def test_files_are_told_to_commands_that_read_them(told: Told) -> None:
    assert told(TEXTS, data=False, weights=False) == [OF_TEXTS[3], *OF_TEXTS[5:]]
    assert told(TEXTS, weights=False) == [OF_TEXTS[0], *OF_TEXTS[2:]]


def test_one_fault_is_one_problem(told: Told) -> None:
    """What a wrong value, an unknown key or a missing plugin leaves open is not guessed."""
    images = IMAGES.replace("lq_size: big, filename_tmpl: a", "dataroot_lq: [], use_hflip: 1")
    images = images.replace("PairedImageDatasett, dataroot_gt: gt", "PairedImageDataset, dataroot_gt: 3")
    problems = told(images.replace("  val: {", "  validation: {"))
    assert [problem for problem in problems if problem.startswith(("9:", "10:"))] == [
        "9:46: dataset 'train': there is no gtt",
        "9:46: dataset 'train': there is no photos",
        "9:61: dataset 'GTImageDataset' has no argument 'dataroot_lq'",
        "9:89: datasets.train.use_hflip takes true or false, but 1 is a number",
        "10:3: 'validation' is no data set",
    ]
    of_plugins = [problem for problem in told(f"{TEXTS}plugins: [nowhere]\n") if "nowhere" in problem]
    assert len(of_plugins) == 1
    of_known_names = [OF_TEXTS[3], *OF_TEXTS[5:7]]
    assert told(f"{TEXTS}plugins: [nowhere]\n") == [*of_known_names, *of_plugins]
    assert told(f"{TEXTS}plugins: nowhere\n")[:-1] == of_known_names


def test_a_task_whose_name_is_near_is_judged_as_that_one(told: Told) -> None:
    of_task = "2:7: there is no task 'texts'"
    assert told(TEXTS.replace("task: text", "task: texts")) == [of_task, *OF_TEXTS]
    assert told(TEXTS.replace("task: text", "task: speech").replace("name: broken", "name: a\nname: b")) == [
        "2:1: the key 'name' is given twice, on lines 1 and 2",
        "3:7: there is no task 'speech'",
    ]


GAN = """\
name: broken
scale: 2
network_g: {type: compact}
path: {experiments_root: x.yml/runs}
datasets:
  train: {type: GTImageDataset, dataroot_gt: gt, lq_size: 16}
train: {losses: [{type: ganloss}], optim_g: {type: Adam}, optim_d: {type: Adam, lrr: 1}, total_iter: 2}
"""


def test_parts_that_do_not_fit_and_folders_that_are_files_are_told_with_the_rest(told: Told) -> None:
    without = "7:25: ganloss needs a discriminator, and model_type SRModel has none"
    expected = [
        "4:26: the run directory cannot be made: x.yml is a file",
        without,
        "7:59: train.optim_d is about a discriminator, and model_type SRModel has none",
        "7:81: optimizer 'Adam' has no argument 'lrr'",
    ]
    assert told(GAN) == expected[1:]  # valid options: what is there is looked at where the run is built
    assert told(GAN.replace("scale: 2", "scale: two")) == [
        "2:8: scale takes a whole number, but 'two' is text",
        *expected,
    ]
    assert without not in told(GAN.replace("total_iter: 2", "total_iter: two"))  # the section cannot be judged
    finetuning = FINETUNING.replace("num_train_epoch: 1", "output_dir: x.yml")
    assert "4:24: the run directory cannot be made: x.yml is a file" in told(finetuning)


TEST = """\
name: broken
scale: two
network_g: {type: compactt}
datasets:
  test: {type: GTImageDataset, dataroot_gt: nowhere}
  test_2: {type: PairedImageDataset, dataroot_gt: gt, dataroot_lq: gt, lq_sise: 3}
val:
  metrics:
    psnr: {type: calculate_psnr, crop: 2}
    ssim: {type: calculate_sim}
"""


def test_a_test_file_is_told_at_once(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    told(TEXTS)  # it makes the folder
    Path("test.yml").write_text(TEST)
    expected = [
        "2:8: scale takes a whole number, but 'two' is text",
        "3:19: there is no network named 'compactt'",
        "5:45: dataset 'test': there is no nowhere",
        "6:72: unknown key 'lq_sise' in datasets.test_2",
        "9:34: metric 'calculate_psnr' has no argument 'crop'",
        "10:18: there is no metric named 'calculate_sim'",
    ]
    for words, of_network in (
        ([], ["1:1: 'pretrain_network_g' is missing"]),
        (["--force_yml", "network_g=null"], ["'network_g' is missing", "'pretrain_network_g' is missing"]),
    ):
        assert main(["test", "-opt", "test.yml", *words]) == 2
        said = capsys.readouterr().err
        for problem in (*of_network, *(one for one in expected if not words or "compactt" not in one)):
            assert problem in said
    with pytest.raises(InputError) as caught:
        load_whole_test(Path("test.yml"), (), of_run=True)
    assert "network_g is given, and the RUN brings its own" in str(caught.value)
    assert len(caught.value.problems) == len(expected)


def test_sets_that_are_not_read_are_not_checked(told: Told) -> None:
    problems = told(IMAGES.replace("val_freq: often", "val_enabled: false"))
    assert [problem for problem in OF_IMAGES if problem not in problems] == [
        problem for problem in OF_IMAGES if problem.startswith(("10:", "23:", "27:"))
    ]


def test_roots_of_a_plugin_may_be_anything(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def from_elsewhere(dataroot_gt: str, scale: int) -> None: ...

    monkeypatch.setitem(DATASETS._entries, "fromelsewhere", from_elsewhere)
    problems = told(IMAGES.replace("GTImageDataset, dataroot_gt: [gtt, photos]", "FromElsewhere, dataroot_gt: db://x"))
    assert not [problem for problem in problems if "db://x" in problem]


def test_a_file_without_faults_passes(tmp_path: Path) -> None:
    file = tmp_path / "x.yml"
    file.write_text((Path(__file__).parents[2] / "assets" / "valid_options.yml").read_text())
    check_components(load_whole(file, ()))


def test_one_rank_prints_what_every_rank_finds(
    told: Told, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told(TEXTS)
    monkeypatch.setattr("trainauto.cli.OTHER_RANKS_WAIT_S", 0.0)
    for rank in ("0", "1"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        assert main(["train", "-opt", "x.yml", "--auto_resume"]) == 2
        problems = len(OF_TEXTS) - 1 if rank == "0" else 0  # a resumed run has a tokenizer
        assert capsys.readouterr().err.count("x.yml:") == problems


def test_doctor_tells_all_problems(told: Told) -> None:
    told(TEXTS)
    assert option_problems("x.yml")["problems"].count("x.yml:") == len(OF_TEXTS)


def test_commands_that_take_a_network_of_a_file_tell_all_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.pth").write_bytes(b"")
    Path("run.yml").write_text(IMAGES)
    for words in (["list", "losses", "-opt", "run.yml"], ["export", "--weights", "w.pth", "-opt", "run.yml", "x.pth"]):
        assert main(words) == 2
        told = capsys.readouterr().err
        assert "unknown key 'devise'" in told
        assert "there is no loss named 'l2los'" in told
