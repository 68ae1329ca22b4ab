"""``doctor``: look at the machine, and say what is fine, what may hurt and what is broken."""

import argparse

from trainauto.commands.common_arguments import Commands, takes_options


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "doctor",
        help="look at this machine: what is fine, what may hurt, what is broken",
        description=(
            "Look at this machine, and with -opt at what a run would need of it. Nothing is changed; a cache_dir that "
            "the file names may be filled. Exit code 1 where something is broken."
        ),
    )
    takes_options(parser, required=False)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(execute=_run)


def _run(parsed: argparse.Namespace) -> int:
    from trainauto.commands.run_doctor import doctor

    return doctor(parsed.opt, parsed.force_yml, as_json=parsed.json)
