"""Which task an option file is of: who builds its parts. What a task alone needs is loaded with it."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec

from trainauto.builders.kept_sets import KeptSets
from trainauto.builders.super_resolution import SuperResolutionParts
from trainauto.builders.task_parts import TaskParts
from trainauto.core.errors import InputError, Problem
from trainauto.data import DynamicDataset
from trainauto.optim.precision import Precision
from trainauto.options.finetune_options import FinetuneOptions
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions, RunOptions
from trainauto.options.schema import Options
from trainauto.options.tasks import KEY
from trainauto.options.text_options import TextOptions
from trainauto.storage.run_directory import RunDirectory


def build_task(
    loaded: LoadedOptions[RunOptions],
    precision: Precision,
    world_size: int,
    *,
    pretrained: bool,
    check_samples: Callable[[DynamicDataset], None],
    earlier: RunDirectory | None = None,
    sets: KeptSets | None = None,
) -> TaskParts:
    """Build what a run has of its task.

    Args:
        loaded: the option file.
        precision: number format, and the device.
        world_size: how many train it together.
        pretrained: load the weights it starts from.
        check_samples: raises where the training set is not what it is to be.
        earlier: the run that is resumed, where there is one.
        sets: which files it has.

    Raises:
        InputError: options or data cannot be used, or a package that the task needs is not installed.
    """
    if (texts := texts_of(loaded)) is not None:
        from trainauto.builders.language_model import LanguageModelParts

        return LanguageModelParts(
            texts, precision, world_size, pretrained=pretrained, check_samples=check_samples, earlier=earlier
        )
    return SuperResolutionParts(
        images_of(loaded), world_size, pretrained=pretrained, check_samples=check_samples, sets=sets
    )


def images_of(loaded: LoadedOptions[FileOptions]) -> LoadedOptions:
    """Return options of super-resolution.

    Raises:
        TypeError: they are of another task: whoever calls has asked before.
    """
    if not isinstance(loaded.options, Options):
        raise TypeError(f"{loaded.path} is not of super-resolution")
    return loaded.with_options(loaded.options)


def texts_of(loaded: LoadedOptions[FileOptions]) -> LoadedOptions[TextOptions] | None:
    """Return options of a language model; ``None`` where they are of another task.

    Raises:
        InputError: a package that language models need is not installed.
    """
    if not isinstance(loaded.options, TextOptions):
        return None
    needed = ["transformers", *(["peft"] if loaded.options.model.lora is not None else [])]
    _require(loaded, needed, "task: text", "huggingface")
    return loaded.with_options(loaded.options)


def finetuning_of(loaded: LoadedOptions[FileOptions]) -> LoadedOptions[FinetuneOptions] | None:
    """Return options of fine-tuning; ``None`` where they are of another task.

    Raises:
        InputError: a package that it needs is not installed.
    """
    if not isinstance(loaded.options, FinetuneOptions):
        return None
    _require(loaded, ("transformers", "accelerate", "peft"), "fine-tuning", "finetune")
    return loaded.with_options(loaded.options)


def _require(loaded: LoadedOptions[FileOptions], needed: Sequence[str], who: str, extra: str) -> None:
    lacking = [package for package in needed if find_spec(package) is None]
    if lacking:
        message = f"{who} needs {' and '.join(lacking)}, which {'is' if len(lacking) == 1 else 'are'} not installed"
        raise InputError(Problem(message, loaded.places.of_value((KEY,)), f"pip install 'trainauto[{extra}]'"))
