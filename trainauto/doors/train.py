"""``train``: train the network of an option file."""

import argparse

from trainauto.doors.arguments import Commands, prepare_environment, takes_options


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser("train", help="train a network", description="Train the network of an option file.")
    takes_options(parser)
    parser.add_argument(
        "--auto_resume", action="store_true", help="go on with the latest run of this name, if there is one"
    )
    parser.add_argument(
        "--launcher",
        choices=["none", "pytorch"],
        default="none",
        help="pytorch: one of several ranks, started by torchrun --nproc-per-node N train.py ...",
    )
    # Older versions of torchrun's predecessor passed it; the environment says the same.
    parser.add_argument("--local_rank", "--local-rank", help=argparse.SUPPRESS)
    parser.set_defaults(door=_run)


def _run(parsed: argparse.Namespace) -> int:
    from trainauto.options.load import load_options

    loaded = load_options(parsed.opt, parsed.force_yml)
    prepare_environment(loaded.options)

    from trainauto.build import build_run
    from trainauto.engine.loop import train
    from trainauto.engine.ranks import any_of, joined, was_restarted

    with joined(parsed.launcher) as ranks:
        # Machines count restarts each for itself: one that has come anew, or has only waited for another, says 0.
        restarted = any_of(ranks, parsed.launcher != "none" and was_restarted())
        auto_resume = any_of(ranks, parsed.auto_resume)
        with build_run(loaded, auto_resume=auto_resume, restarted=restarted, ranks=ranks) as run:
            train(run)
            return run.exit_code
