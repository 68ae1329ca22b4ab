"""Every command of README and pages: its arguments are understood, its files and options exist, and most are run."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.acceptance import only_in_acceptance
from tests.documents import ROOT, block, blocks, inline_code, pages
from tests.integration import ready_processes
from tests.integration.commands import command, merged, write_options
from tests.integration.doc_commands import (
    NAMES,
    NOTATION,
    PROGRAM,
    arguments_of,
    fault_of,
    fault_of_part,
    words_of,
)

HERE = Path(__file__).parent
PART = re.compile(rf"^(?:{'|'.join([*sorted(NAMES), 'train.py', 'test.py'])}) ")


def shown(page: str) -> list[str]:
    """Whole commands of a page: those of its blocks, and those between backticks, some of them in usage's notation."""
    whole = [one for each in blocks("bash") if each.page == page for one in each.commands]
    inline = [code for code in inline_code(page) if PROGRAM.match(code) and len(code.split()) > 2]
    plain = [re.sub(r"[\[\]]", "", code) if "trainauto[" not in code else code for code in inline]
    return [*whole, *(" ".join(NOTATION.get(word, word) for word in code.split()) for code in plain)]


@pytest.mark.parametrize("page", pages())
def test_commands_of_a_page_are_understood(page: str) -> None:
    faults = {one: fault for one in shown(page) if (fault := fault_of(one))}
    parts = [code for code in inline_code(page) if PART.match(code) and not PROGRAM.match(code)]
    faults |= {one: fault for one in parts if (fault := fault_of_part(one))}
    assert faults == {}


def test_commands_of_every_kind_are_shown() -> None:
    first = {arguments[0] for page in pages() for one in shown(page) if (arguments := arguments_of(one))}
    assert first >= NAMES - {"list", "schema"}
    assert len([one for page in pages() for one in shown(page)]) > 120


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ("python train.py -opt options/train/quickstart.yml --autoresume", "unrecognized arguments: --autoresume"),
        ("python train.py -opt options/train/quickstart.yml --force_yml train:total_itr=3", "total_iter"),
        (
            "torchrun --nproc-per-node 2 train.py -opt options/train/gone.yml",
            "no page says what options/train/gone.yml",
        ),
        ('python -m trainauto plan -opt FILE --card "RTX 3061"', "RTX 306"),
        ("python scripts/bench/plans.py", "no file scripts/bench/plans.py"),
        ("python scripts/bench/overhead.py --worker 3", "scripts/bench/overhead.py has no --worker"),
        ("pip install 'trainauto[huginface]'", "there is no extra huginface"),
        ("pip install --no-deps trainato", "pyproject.toml does not name trainato"),
        ("nvidia-smi -l", "nothing is known of nvidia-smi"),
    ],
)
def test_what_is_wrong_is_found(wrong: str, fault: str) -> None:
    assert fault in str(fault_of(wrong))


def test_wrong_parts_are_found() -> None:
    assert fault_of_part("report RUN --htm") == "report has no --htm"
    assert fault_of_part("test.py RUN -opt FILE") is None


ELSEWHERE = (
    (r"--serve", "test_dashboard.py::test_a_run_is_served_while_it_trains", "ends with Ctrl-C"),
    (r"^torchrun --nnodes|^export ", "test_two_nodes.py::test_a_lost_machine_leaves_no_gap", "two machines"),
    (r"^torchrun --nproc", "test_ranks.py::test_several_ranks_train_as_one_does", "ranks"),
    (r"tensorboard\.main", "test_first_use_tensorboard.py::test_each_run_is_shown_once", "a server"),
    (r"simulated_card\.py run", "test_simulated_card.py::test_the_quick_start_fills_the_card", "a CUDA build of torch"),
    (r"demo\.py", "scripts/test_demo.py::test_the_demo", "a minute"),
    (r"quickstart\.py", "scripts/test_quickstart.py::test_a_run_ends_with_its_place", "minutes"),
    (r"build_docs\.py", "scripts/test_build_docs.py::site", "another process"),
    (r"sentences\.py", "../unit/scripts/test_sentences.py::test_the_command_of_the_page", "the repository"),
    (r"scripts/test\.py", "scripts/test_all_checks.py::test_", "this suite"),
    (r"^pip install", "scripts/test_environment.py::test_", "a network, and an environment to change"),
    (r"experiments/loop|my-model/memory", "test_tutorials.py::test_python_of_a_tutorial_runs", "a run of its page"),
    (
        r"-opt words\.yml --card|validate -opt digits\.yml|experiments/(words|digits)( |$)",
        "test_tasks_by_command.py::test_every_command",
        "a run of minutes",
    ),
    (r"own_task|experiments/digit_classes", "test_tasks_by_command.py::test_every_command", "half a minute"),
    (r"^python examples/", "test_examples.py::test_an_example_trains_each_sample_once_an_epoch", "a budget"),
    (r"STOP_TRAINING", "test_watching.py::test_a_stop_file_ends_a_run_and_a_resume_goes_on", "a run that trains"),
    (r"^python -m trainauto plan -opt .*(captions|fast_dev)", "test_plan_finetuning.py::test_recipes_say", "a model"),
    (r"my_captions|training_output( my_|$)", "test_finetune_page.py::test_the_newcomers_path", "a model of the hub"),
    (r"tiny_(vlm|base|lora)", "test_finetune_learning.py::test_a_base_learns", "minutes"),
    (r"train -opt digits\.yml", "test_multitask_files.py::test_the_shipped_file_learns_all_tasks", "minutes"),
    (r"train -opt (mine|words)\.yml", "test_init_command.py::test_sr_trains_as_it_stands", "minutes"),
    (r"train -opt tiny_gpt\.yml", "test_doc_commands.py::test_the_language_model_of_the_page", "minutes"),
    (r"trainauto convert", "test_convert_command.py::test_a_file_is_written_into_this_folder", "a file of theirs"),
    (r"plan -opt my\.yml", "test_language_models.py::test_a_billion_parameters", "texts"),
    (r"\.onnx$", "test_export_command.py::test_onnx_in_a_process_of_its_own", "seconds"),
    (r"options/test/quickstart", "test_test_command.py::test_a_run_and_the_same_weights", "the quick start's run"),
)
"""Commands that are not run here: what they look like, the test that runs them or their like, what they would need."""

STANDING = {"NAME": "my_first", "A": "my_first", "B": "other", "mine": "other"}
"""Runs that pages name by a letter, or train elsewhere."""


def stood_for(run: re.Match[str]) -> str:
    return STANDING.get(run[0], run[0])


def elsewhere(shown: str) -> str | None:
    """Return the test that runs a command which is not run here."""
    plain = " ".join(words_of(shown))
    return next((test for pattern, test, _ in ELSEWHERE if re.search(pattern, plain)), None)


def commands_of_blocks() -> list[str]:
    return list(dict.fromkeys(one for each in blocks("bash") for one in each.commands))


@pytest.fixture
def project(tmp_path: Path, write_images: Callable[..., Path]) -> Path:
    """What the reader of the README has: images, and its option file; the network is small, and so is the run."""
    write_images("data/train_hr", 3, (300, 320))
    for folder in ("data/val_hr", "data/Set5"):
        write_images(folder, 1, (64, 72))
    write_images("photos", 3, (64, 72))
    options = merged(yaml.safe_load(block("README.md", "yaml").text), SMALL)
    write_options(tmp_path / "my_first.yml", options)
    (tmp_path / "options" / "train").mkdir(parents=True)
    shutil.copy(ROOT / "options" / "train" / "realesrgan_small.yml", tmp_path / "options" / "train")
    return tmp_path


SMALL = {
    "use_amp": False,  # without bfloat16 units a CPU emulates it, slowly
    "device": "cpu",
    "num_threads": 1,
    "datasets": {"train": {"lq_size": 16, "batch_size_per_gpu": 2, "num_worker_per_gpu": 0}},
    "network_g": {"type": "compact", "num_feat": 8, "num_conv": 1},
    "train": {"total_iter": 4, "scheduler": {"type": "multistep", "milestones": [2, 3], "gamma": 0.5}},
    "val": {"val_freq": 4},
}


def test_commands_about_a_first_run_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the pages, in one project, in this process."""
    # test_doctor_command.py has packages tried by a process that has loaded none.
    probing = "trainauto.commands.doctor_checks.probe_worker"
    monkeypatch.setattr(ready_processes, "FORKED", {*ready_processes.FORKED, probing})
    other = ("train", "-opt", "my_first.yml", "--force_yml", "name=other")  # a run to compare with
    assert command(*other, cwd=project).returncode == 0
    done: dict[tuple[str, ...], str] = {}
    for shown in commands_of_blocks():
        arguments = arguments_of(shown)
        if arguments is None or elsewhere(shown):
            continue
        words = tuple(re.sub(r"(?<=experiments/)\w+$", stood_for, word) for word in arguments)
        if words in done:
            continue
        ended = command(*words, cwd=project)
        assert ended.returncode == 0, (shown, ended.stdout, ended.stderr)
        done[words] = ended.stdout
    assert {words[0] for words in done} == NAMES - {"convert", "list", "schema"}
    assert len(done) >= 20
    made = ["plan.png", "my_first_x4_4.safetensors", "my_first.pth", "large/image_000.png"]
    assert [name for name in made if not (project / name).is_file()] == []
    compared = done["report", "experiments/my_first", "experiments/rate_2"]
    assert "train.optim_g.lr" in compared, "the comparison names what differs"


def test_every_other_command_has_a_test_that_runs_it() -> None:
    rest = [one for one in commands_of_blocks() if arguments_of(one) is None]
    assert [one for one in rest if elsewhere(one) is None] == []
    for pattern, test, needs in ELSEWHERE:
        assert any(elsewhere(one) == test for one in commands_of_blocks()), (
            f"no page shows {pattern} any more ({needs})"
        )
        file, _, name = test.partition("::")
        assert re.search(rf"^def {name}", (HERE / file).read_text(encoding="utf-8"), re.MULTILINE), test


@only_in_acceptance
@pytest.mark.timeout(1800)
def test_the_language_model_of_the_page(tmp_path: Path) -> None:
    """docs/text.md: as it stands, six minutes on two cores."""
    for shown in (one for one in commands_of_blocks() if "tiny_gpt" in one):
        ended = command(*(arguments_of(shown) or ()), cwd=tmp_path, afresh=True, timeout_s=1800)
        assert ended.returncode == 0, ended.stderr
    perplexity, unigram = map(
        float, re.findall(r"perplexity ([\d.]+), a unigram model of the training text ([\d.]+)", ended.stdout)[0]
    )
    assert perplexity < unigram / 2
