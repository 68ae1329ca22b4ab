"""Every block of code of README and pages: Python runs, YAML is taken by what reads it, JSON is JSON, text is output.

What a block needs before it stands in a comment in front of it, ``<!-- setup``, which readers do not see.
"""

import ast
import inspect
import json
import os
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.documents import ROOT, Block, block, blocks, pages, prose
from tests.integration.commands import merged, train, write_options
from tests.integration.doc_commands import PROGRAM
from tests.integration.ready_processes import begin
from trainauto.core.errors import InputError
from trainauto.options.load import load_options

LANGUAGES = {"bash", "json", "python", "text", "yaml"}
PUBLIC = ("trainauto", "trainauto.huggingface", "trainauto.multitask")

RUN_BY = {
    "README.md:yaml:0": "integration/test_readme.py::test_own_folders_with_rrdbnet",
    "docs/finetune.md:yaml:0": "integration/test_finetune_page.py::test_the_newcomers_path",
    "docs/finetune.md:json:0": "integration/test_finetune_page.py::test_the_line_of_chats_is_read",
    "docs/huggingface.md:python:0": "integration/test_trainer_memory.py::test_the_example_of_the_page_runs",
    "docs/multitask.md:python:0": "integration/test_multitask_page.py::test_the_example_runs",
    "docs/own_loop.md:python:0": "integration/test_adaptive_loop.py::test_the_ten_lines_of_the_page_run_as_they_stand",
    "docs/own_loop.md:python:1": "integration/test_adaptive_loop.py::test_the_ten_lines_of_the_page_run_as_they_stand",
    "docs/own_controller.md:python:0": "integration/test_own_loop.py::test_the_example_of_the_page_runs_as_it_stands",
    "docs/images.md:yaml:0": "integration/test_readme.py::test_a_network_of_ones_own",
    "docs/own_network.md:python:0": "integration/test_readme.py::test_a_network_of_ones_own",
    "docs/python.md:python:0": "integration/test_python_interface.py::test_the_page_runs_as_it_stands",
    "docs/python.md:python:1": "integration/test_python_interface.py::test_the_page_runs_as_it_stands",
    "docs/text.md:yaml:1": "unit/options/test_text_files.py::test_the_page_shows_a_file_that_loads",
    "docs/texts.md:python:0": "integration/test_texts.py::test_the_page_runs_as_it_stands",
    **{
        f"docs/tutorials.md:python:{number}": "integration/test_tutorials.py::test_python_of_a_tutorial_runs"
        for number in range(13)
    },
}
"""Blocks that have a test of their own, which looks at what they give."""

NOT_RUN: dict[str, str] = {}
if find_spec("lightning") is None:
    NOT_RUN["docs/lightning.md:python:0"] = "lightning is not installed"
"""Blocks of Python that are not run, and why; their names and keywords are looked up."""

LOADED = {
    "docs/losses.md:yaml:0": "it starts from a first stage and needs VGG19; test_gan_stage.py trains with its losses",
    "docs/trackers.md:yaml:0": "the trackers are extras, and a run says that they are missing",
}
"""Fragments of option files for images that are loaded and not tried with a step, and why."""

SMALL: dict[str, Any] = {
    "use_amp": False,
    "device": "cpu",
    "num_threads": 1,
    "datasets": {"train": {"lq_size": 16, "batch_size_per_gpu": 2, "num_worker_per_gpu": 0}},
    "train": {"total_iter": 2},
    "val": {"val_freq": 2},
    "memory": {"budget": None},  # a process of its own would have to be held to it
}
"""What makes a run of a file for images take no time, beside a small network."""

NETWORK = {"type": "compact", "num_feat": 8, "num_conv": 1}


def test_every_block_says_its_language_and_no_code_is_merely_indented() -> None:
    assert {each.name: each.line for each in blocks() if each.language not in LANGUAGES} == {}
    assert len(blocks("python")) >= 14
    assert len(blocks("yaml")) >= 10
    indented = re.compile(r"(?:^|\n)(?![ ]*(?:[-*]|\d+\.) )(?![ ]{2,}\S)[^\n]*\n\n {4,}\S[^\n]*")
    assert {page: found for page in pages() if (found := indented.findall(prose(page)))} == {}


def test_output_holds_no_command() -> None:
    lines = {line: each.name for each in blocks("text") for line in each.text.splitlines()}
    assert {line: name for line, name in lines.items() if PROGRAM.match(line) or line.startswith("$ ")} == {}


def test_tables_name_blocks_that_there_are_and_tests_that_read_their_page() -> None:
    known = {each.name for each in blocks()}
    assert {*RUN_BY, *NOT_RUN, *LOADED} <= known
    for name, test in RUN_BY.items():
        file, _, function = test.partition("::")
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert f"def {function}" in text, test
        assert Path(name.partition(":")[0]).name in text, f"{file} does not read the page of {name}"


@pytest.mark.parametrize("each", blocks("json"), ids=lambda each: each.name)
def test_json_is_json(each: Block) -> None:
    assert [json.loads(line) for line in each.text.splitlines()]


PYTHON = [each for each in blocks("python") if each.name not in RUN_BY]


@pytest.mark.parametrize("each", [each for each in PYTHON if each.name not in NOT_RUN], ids=lambda each: each.name)
def test_python_runs(each: Block, tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text(f"{each.setup}\n{each.text}", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    process = begin(["page.py"], cwd=tmp_path, env=environment, is_merged=False)
    said, errors = process.communicate(120)
    assert process.returncode == 0, (each.name, each.line, said, errors)


@pytest.mark.parametrize("each", [each for each in PYTHON if each.name in NOT_RUN], ids=lambda each: each.name)
def test_python_that_is_not_run_names_what_there_is(each: Block) -> None:
    looked_up = [
        fault_of_call(call, each.text) for call in ast.walk(ast.parse(each.text)) if isinstance(call, ast.Call)
    ]
    assert [fault for fault in looked_up if fault] == []
    assert len(looked_up) > 2


def fault_of_call(call: ast.Call, text: str) -> str | None:
    """Say which keyword of a call of ours there is not."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    imported = re.search(rf"^from (trainauto[\w.]*) import .*\b{name}\b", text, re.MULTILINE)
    homes = [imported[1]] if imported else [home for home in PUBLIC if name in import_module(home).__all__]
    if not homes:
        return None
    known = parameters_of(homes[0], name)
    unknown = [word.arg for word in call.keywords if word.arg and word.arg not in known]
    return f"{name} has no {unknown[0]}" if unknown else None


def parameters_of(home: str, name: str) -> set[str]:
    """Return the parameters of a function or class; of a module whose package is missing, by its text."""
    if home == "trainauto.integrations.lightning_callback" and find_spec("lightning") is None:
        tree = ast.parse((ROOT / home.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8"))
        (made,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
        (init,) = (node for node in made.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
        return {argument.arg for argument in (*init.args.args, *init.args.kwonlyargs)}
    return set(inspect.signature(getattr(import_module(home), name)).parameters)


def test_a_keyword_that_there_is_not_is_found() -> None:
    text = "loop = trainauto.AdaptiveLoop(..., automation={})"
    (call,) = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    assert fault_of_call(call, text) == "AdaptiveLoop has no automation"


def whole_and_base(each: Block) -> tuple[dict[str, Any], str]:
    """Return the options that a block makes, alone or within the file that its page or the README begins with."""
    options = yaml.safe_load(each.text)
    first = block(each.page, "yaml")
    if "name" in options or "training" in options:
        return options, each.page
    base = first if "name" in yaml.safe_load(first.text) else block("README.md", "yaml")
    return merged(yaml.safe_load(base.text), options), base.page


@pytest.fixture
def folder(tmp_path: Path, write_images: Callable[..., Path]) -> Path:
    write_images("data/train_hr", 2, (96, 96))
    write_images("data/val_hr", 1, (64, 72))
    write_images("data/pairs/gt", 2, (96, 96))  # what `prepare` makes
    write_images("data/pairs/lq", 2, (24, 24), shrink=4)
    (tmp_path / "my_module.py").write_text(block("docs/own_network.md", "python").text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("each", blocks("yaml"), ids=lambda each: each.name)
def test_yaml_is_taken(each: Block, folder: Path) -> None:
    """As a file, or within one; those for images train two steps as well."""
    if each.name in RUN_BY:
        return
    options, base = whole_and_base(each)
    file = write_options(folder / "file.yml", options)
    load_options(file)
    if base != "README.md" or each.name in LOADED:
        return
    network = yaml.safe_load(each.text).get("network_g", NETWORK)
    ended = train(write_options(file, {**merged(options, SMALL), "network_g": network}), own_process=False)
    assert ended.returncode == 0, (ended.stdout, ended.stderr)


def keys(text: str) -> Iterator[str]:
    yield from re.findall(r"^\s*([a-z_A-Z]+):", text, re.MULTILINE)


@pytest.mark.parametrize("each", blocks("yaml"), ids=lambda each: each.name)
def test_a_key_that_there_is_not_is_refused(each: Block, folder: Path) -> None:
    """Nothing is left out of what is looked at: the first key of the block that is no word of its writer's."""
    written = next(key for key in keys(each.text) if key not in ("name", "task"))
    changed = Block(each.page, each.number, each.line, "yaml", each.text.replace(f"{written}:", f"{written}x:", 1), "")
    with pytest.raises(InputError, match=f"{written}x"):
        load_options(write_options(folder / "file.yml", whole_and_base(changed)[0]))
