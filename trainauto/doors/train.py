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
    parser.set_defaults(door=_run)


def _run(parsed: argparse.Namespace) -> int:
    from trainauto.options.load import load_options

    loaded = load_options(parsed.opt, parsed.force_yml)
    prepare_environment(loaded.options)

    from trainauto.build import build_run
    from trainauto.engine.loop import train

    with build_run(loaded, auto_resume=parsed.auto_resume) as run:
        train(run)
        return run.signals.exit_code
