"""What ``export RUN`` does with a fine-tuned model: a folder that transformers or peft loads."""

import shutil
from pathlib import Path

import torch
from safetensors import SafetensorError

from trainauto.builders.finetuned import FinetunedModel, Loaded, load_finetuned
from trainauto.commands.trained_model import check_folder_of_export
from trainauto.core.errors import InputError, Problem
from trainauto.core.files import OTHERS_ARE_DONE_S, directory_written_atomically, remove_leftovers
from trainauto.core.units import size_text
from trainauto.storage.run_directory import RunDirectory
from trainauto.tasks.finetune.epoch_models import PROGRESS_FILE
from trainauto.tasks.finetune.models import merged
from trainauto.tasks.finetune.processors import keep_other_parts
from trainauto.tasks.text.training.hub import without_library_noise


def export_finetuned(
    directory: RunDirectory, loaded: Loaded, which: str, out: Path | None, *, merge: bool, half: bool, overwrite: bool
) -> str:
    """Write the model of a run into a folder; return what there is to say of it.

    Args:
        directory: the run.
        loaded: its options.
        which: ``latest``, or the number of an epoch.
        out: the folder; ``None`` names it by the run.
        merge: write a whole model whose weights hold what adapters add, in place of the adapters.
        half: float16 in place of what its weights were saved in.
        overwrite: replace the folder if it is there.

    Raises:
        InputError: there is no such model, it has no adapters to be merged, or the folder cannot be written.
    """
    trained = load_finetuned(directory, loaded, which, torch.device("cpu"), None)
    if merge and not trained.has_adapters:
        message = f"{trained.folder} has no adapters: the whole model was trained"
        raise InputError(Problem(message, advice="Leave --merge out."))
    out = out or Path(f"{loaded.options.name}_{trained.folder.name}{'_merged' if merge else ''}")
    check_folder_of_export(out, overwrite=overwrite)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(out.parent, older_than_s=OTHERS_ARE_DONE_S)
        with directory_written_atomically(out) as temporary, without_library_noise():
            _write(trained, temporary, merge=merge, half=half)
    except (OSError, SafetensorError) as error:
        message = f"cannot write {out}: {getattr(error, 'strerror', None) or error}"
        raise InputError(Problem(message, advice="Name another folder.")) from error
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    base = trained.base
    kind = "adapters" if trained.has_adapters and not merge else "the whole model"
    how = (
        f"PeftModel.from_pretrained(AutoModelForImageTextToText.from_pretrained('{base}'), '{out}')"
        if kind == "adapters"
        else (f"AutoModelForImageTextToText.from_pretrained('{out}')")
    )
    said = f"{out}: {kind} of step {trained.step} with its processor, {size_text(size)}\n  {how}"
    if merge and loaded.options.model.load_in_4bit:
        said += (
            f"\n  Adapters were merged into the weights of {loaded.options.model.name} as they were saved."
            "\n  They learned beside these in 4 bits: answers may differ a little from those of test.py."
        )
    return said


def _write(trained: FinetunedModel, folder: Path, *, merge: bool, half: bool) -> None:
    if not merge and not half:
        shutil.copytree(trained.folder, folder, dirs_exist_ok=True)
        (folder / PROGRESS_FILE).unlink(missing_ok=True)
        return
    model = merged(trained.model) if merge else trained.model
    if half:
        model = model.half()
    model.save_pretrained(str(folder))  # type: ignore[operator]
    trained.processor.save_pretrained(str(folder))
    keep_other_parts(trained.base, folder)
