"""``replay``: repeat a run, step by step."""

import argparse

from trainauto.commands.common_arguments import Commands, prepare_environment, takes_overrides, takes_run


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "replay",
        help="repeat a run step by step",
        description="Repeat a run step by step, on this or another machine, in a new run directory.",
    )
    takes_run(parser)
    parser.add_argument("--until", type=int, metavar="STEP", help="end after this step")
    takes_overrides(parser)
    parser.set_defaults(execute=_run)


def _run(parsed: argparse.Namespace) -> int:
    from trainauto.commands.run_replay import logged_run, replay

    logged = logged_run(parsed.run, parsed.until)
    loaded = [part.load(parsed.force_yml) for part in logged.parts]
    prepare_environment(loaded[0].options)
    return replay(logged, loaded)
