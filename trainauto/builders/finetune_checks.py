"""What is checked of option files of fine-tuning before a run of them is built."""

from typing import Any

from trainauto.builders.components import locate_errors
from trainauto.builders.file_checks import (
    OPTIMIZER_BESIDE_RATE,
    File,
    FileChecks,
    check_folder_of_runs,
    check_roots,
)
from trainauto.builders.finetune_data import template_file
from trainauto.builders.text_checks import is_there
from trainauto.options.source_locations import KeyPath
from trainauto.tasks.finetune.captions import PICTURE_SUFFIXES
from trainauto.tasks.finetune.conversation_files import LINE_SUFFIXES
from trainauto.tasks.finetune.processors import read_template


def _check_conversations(loaded: File, path: KeyPath, roots: Any) -> None:
    name = "train" if path[-1] == "path" else "val"
    check_roots(loaded, path, roots, (*LINE_SUFFIXES, *PICTURE_SUFFIXES), name)


def _check_template(loaded: File, path: KeyPath, file: Any) -> None:
    if isinstance(file, str):
        with locate_errors(loaded, path[:-1]):
            read_template(template_file(loaded, file))


FINETUNE_CHECKS = FileChecks(
    components={("training", "optim"): OPTIMIZER_BESIDE_RATE},
    data={
        ("training", "output_dir"): check_folder_of_runs,
        ("model", "name"): is_there("model"),
        ("model", "chat_template"): _check_template,
        ("dataset", "path"): _check_conversations,
        ("dataset", "val"): _check_conversations,
    },
)
