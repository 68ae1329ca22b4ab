"""What a fine-tuning needs and has: packages, the model's folder, its data. Nothing is loaded or downloaded."""

import json
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from trainauto.core.words import path_words
from trainauto.options.finetune_options import FinetuneOptions
from trainauto.reporting.finding import BROKEN, LOOK, OK, Finding

PACKAGES = ("transformers", "peft")
CONFIGURATION = "config.json"
PARTS = {
    "weights": ("*.safetensors", "*.bin"),
    "a processor of pictures": ("preprocessor_config.json", "processor_config.json"),
    "a tokenizer": ("tokenizer.json", "tokenizer_config.json"),
}
"""What a model's folder has, by the files that say so."""

TRIAL = "To try it: validate -opt FILE"

IsThere = Callable[[str], bool]


def finetuning_findings(options: FinetuneOptions) -> Iterator[Finding]:
    """Yield what is found of the needs of an option file."""
    yield packages_finding(options, lambda package: find_spec(package) is not None)
    yield model_finding(options.model.name)
    yield data_finding(options)
    yield Finding(
        "run", OK, "its options may stand together; plan -opt FILE says what fits, from a configuration alone", TRIAL
    )


def packages_finding(options: FinetuneOptions, is_there: IsThere) -> Finding:
    """Judge the packages that a file asks for beside those that are always installed."""
    needed = dict.fromkeys(PACKAGES, "finetune")
    if options.model.load_in_4bit:
        needed["bitsandbytes"] = "quantization"
    lacking = [package for package in needed if not is_there(package)]
    if not lacking:
        return Finding("fine-tuning", OK, f"{', '.join(needed)} are installed")
    extras = ",".join(dict.fromkeys(needed[package] for package in lacking))
    otherwise = ", or write load_in_4bit: false" if lacking == ["bitsandbytes"] else ""
    fact = f"{' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not installed"
    return Finding("fine-tuning", BROKEN, fact, f"pip install 'trainauto[{extras}]'{otherwise}.")


def model_finding(name: str) -> Finding:
    """Judge the folder of a model; a name on the hub is not asked for."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        looks_like_path = name.startswith((".", "/", "~")) or name.count("/") > 1
        if looks_like_path:
            return Finding("model", BROKEN, f"there is no folder {name}", "Name the folder of a saved model.")
        fact = f"there is no folder {name}: a run asks the hub for it, and downloads it where it is not in its cache"
        return Finding("model", LOOK, fact, "The hub is not asked here.")
    try:
        config = json.loads((folder / CONFIGURATION).read_text(encoding="utf-8"))
        family = config["model_type"]
    except (OSError, ValueError, KeyError, TypeError):
        fact = f"{name} has no {CONFIGURATION} that names a model_type"
        return Finding("model", BROKEN, fact, "Name a folder that save_pretrained has written.")
    lacking = [part for part, files in PARTS.items() if not any(any(folder.glob(file)) for file in files)]
    if lacking:
        fact = f"{name} holds a {family}, without {', '.join(lacking)}"
        return Finding("model", LOOK, fact, "plan -opt FILE needs the configuration alone; a run needs all of it.")
    return Finding("model", OK, f"{name} holds a {family}, with weights, processor and tokenizer")


def data_finding(options: FinetuneOptions) -> Finding:
    """Say whether the files of conversations are there; they are not read."""
    chosen = options.dataset
    paths = [path for some in (chosen.path, chosen.val or []) for path in ([some] if isinstance(some, str) else some)]
    missing = [path for path in paths if not Path(path).expanduser().exists()]
    if missing:
        return Finding(
            "conversations",
            BROKEN,
            f"there is no {', no '.join(map(path_words, missing))}",
            "Correct dataset: path and val.",
        )
    return Finding("conversations", OK, f"{', '.join(paths)}: there, and not read here")
