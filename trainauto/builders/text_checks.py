"""What is checked of option files of language models before a run of them is built."""

from typing import Any

from trainauto.builders.components import locate_errors
from trainauto.builders.file_checks import (
    FOLDER_OF_RUNS,
    OPTIMIZER,
    SCHEDULE,
    SETS,
    Check,
    Checks,
    File,
    FileChecks,
    check_roots,
    is_read,
    set_name,
)
from trainauto.options.source_locations import KeyPath
from trainauto.tasks.text.training.hub import check_there
from trainauto.tasks.text.training.text_files import TEXT_SUFFIXES


def is_there(what: str) -> Check:
    """Return the check of a folder that transformers loads; a name on the hub is let pass.

    Args:
        what: the folder holds, for messages.
    """

    def check(loaded: File, path: KeyPath, source: Any) -> None:
        if isinstance(source, str):
            with locate_errors(loaded, path):
                check_there(source, what)

    return check


def _check_texts(loaded: File, path: KeyPath, roots: Any) -> None:
    key = path[-2]
    if is_read(loaded, key):
        check_roots(loaded, path, roots, TEXT_SUFFIXES, set_name(loaded, key))


TOKENIZER: Checks = {("tokenizer", "pretrained"): is_there("tokenizer")}

TEXT_CHECKS = FileChecks(
    components={("train", "optim"): OPTIMIZER, ("train", "scheduler"): SCHEDULE},
    data={
        **FOLDER_OF_RUNS,
        ("model", "pretrained"): is_there("model"),
        **{("datasets", key, "path"): _check_texts for key in SETS},
    },
    weights=TOKENIZER,
)
