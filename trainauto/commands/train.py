"""``train``: train the network of an option file."""

import argparse

from trainauto.commands.common_arguments import Commands, prepare_environment, takes_options
from trainauto.core.errors import InputError, Problem


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser("train", help="train a network", description="Train the network of an option file.")
    takes_options(parser)
    parser.add_argument("--auto_resume", action="store_true", help="resume the latest run of this name, if one exists")
    parser.add_argument(
        "--accept_samples",
        action="store_true",
        help="with --auto_resume: accept training files that differ from those that the run began with, and begin an "
        "epoch with them",
    )
    parser.add_argument(
        "--launcher",
        choices=["none", "pytorch"],
        default="none",
        help="pytorch: this process is one of several ranks of torchrun --nproc-per-node N -m trainauto train ...",
    )
    # Older versions of torchrun's predecessor passed it; the environment says the same.
    parser.add_argument("--local_rank", "--local-rank", help=argparse.SUPPRESS)
    parser.set_defaults(execute=_run)


def _run(parsed: argparse.Namespace) -> int:
    if parsed.accept_samples and not parsed.auto_resume:
        raise InputError(Problem("--accept_samples is for a run that resumes", advice="Add --auto_resume."))
    from trainauto.commands.whole_options import load_whole
    from trainauto.forecast.task import task_of

    loaded = load_whole(parsed.opt, parsed.force_yml, data=True, weights=not parsed.auto_resume)
    prepare_environment(loaded.options)
    return task_of(loaded).train(loaded, parsed)
