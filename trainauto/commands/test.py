"""``test``: measure what a run has trained."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from trainauto.commands.common_arguments import Commands, refuse_given, takes_options, task_of_run
from trainauto.core.errors import InputError, Problem

if TYPE_CHECKING:
    from trainauto.options.finetune_options import FinetuneOptions
    from trainauto.options.load import LoadedOptions
    from trainauto.storage.run_directory import RunDirectory


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "test",
        help="measure a trained model",
        description="Measure a trained model on the validation sets of its run, or those of FOLDER or a test file: "
        "image networks beside bicubic enlargement, a language model by perplexity, several tasks by the accuracy of "
        "each. A fine-tuned model answers conversations. Figures go to results/NAME.",
    )
    parser.add_argument(
        "run", nargs="?", type=Path, metavar="RUN", help="folder of a run, or experiments/NAME for its newest"
    )
    parser.add_argument(
        "folder",
        nargs="?",
        metavar="FOLDER",
        help="high-quality images (for a fine-tuned model: conversations), instead of the run's validation sets",
    )
    parser.add_argument("--lq", metavar="FOLDER", help="their low-quality partners; default: made by bicubic shrinking")
    parser.add_argument(
        "--checkpoint",
        metavar="WHICH",
        help="of RUN: best (default; latest if there is none), latest, or a step (for a fine-tuned model an epoch)",
    )
    takes_options(parser, required=False)
    parser.add_argument("--answers", type=int, metavar="N", help="for a fine-tuned model: answers to print (5)")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], help="instead of the option file's")
    parser.set_defaults(execute=_run)


def _run(parsed: argparse.Namespace) -> int:
    if parsed.run is None and parsed.opt is None:
        message = "what is to be measured? Neither RUN nor -opt is given"
        raise InputError(Problem(message, advice="test experiments/NAME, or test -opt x.yml"))
    if parsed.run is None and parsed.checkpoint is not None:
        message = "--checkpoint chooses among those of a RUN, and none is given"
        raise InputError(Problem(message, advice="path.pretrain_network_g of the test file names the weights."))
    if parsed.opt is not None and parsed.folder is not None:
        message = f"which images? The folder {parsed.folder} and a test file are given"
        raise InputError(Problem(message, advice="Leave out one, or set datasets:test:dataroot_gt with --force_yml."))
    if parsed.lq is not None and parsed.folder is None:
        raise InputError(
            Problem("--lq names partners of a FOLDER, and none is given", advice="test RUN FOLDER --lq LQ")
        )
    if parsed.opt is None and parsed.force_yml:
        message = "--force_yml sets options of a test file, and none is given"
        raise InputError(Problem(message, advice="Name one with -opt, or leave --force_yml out."))

    from trainauto.core.process import use_expandable_segments

    use_expandable_segments()
    if parsed.run is None or (found := task_of_run(parsed.run)) is None:
        return test_images(parsed)
    task, directory, loaded = found
    return task.test(directory, loaded, parsed)


def test_images(parsed: argparse.Namespace) -> int:
    """Measure a network that enlarges images, of a run or a test file; return the exit code."""
    from trainauto.commands.whole_options import load_whole_test

    if parsed.answers is not None:
        raise InputError(Problem("--answers is for fine-tuned models", advice="Leave it out."))
    is_of_run, test = parsed.run is not None, None
    if parsed.opt is not None:
        test = load_whole_test(parsed.opt, parsed.force_yml, of_run=is_of_run)

    from trainauto.commands.run_test import test_network

    images = (parsed.folder, parsed.lq) if parsed.folder is not None else None
    return test_network(parsed.run, parsed.checkpoint or "best", test, parsed.device, images)


def test_answers(
    parsed: argparse.Namespace, directory: "RunDirectory", loaded: "LoadedOptions[FinetuneOptions]"
) -> int:
    """Measure a fine-tuned model, and show some of its answers; return the exit code."""
    of_images = {"-opt": parsed.opt, "--lq": parsed.lq}
    refuse_given(
        of_images, f"is of images, and {parsed.run} is a fine-tuned model", "test RUN, or test RUN chats.jsonl."
    )
    shown = 5 if parsed.answers is None else parsed.answers
    if shown < 0:
        raise InputError(Problem(f"--answers {shown} is no number of answers", advice="Write 0 for none."))

    from trainauto.commands.run_test_finetuned import test_finetuned

    return test_finetuned(directory, loaded, parsed.checkpoint or "best", parsed.folder, parsed.device, shown)
