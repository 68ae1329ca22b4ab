"""``doctor``: look at the machine, and say what is fine, what may hurt and what is broken."""

import argparse

from trainauto.commands.common_arguments import Commands, takes_options


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "doctor",
        help="check this machine: what works, what may cause trouble, what is broken",
        description=(
            "Check this machine, and with -opt also what a run would need. Nothing is changed, except that a "
            "cache_dir of the file may be filled. The exit code is 1 if something is broken."
        ),
    )
    takes_options(parser, required=False)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(execute=_run)


def _run(parsed: argparse.Namespace) -> int:
    from trainauto.commands.run_doctor import doctor

    return doctor(parsed.opt, parsed.force_yml, as_json=parsed.json)
