"""``plan``: say which crops and batches fit on which card."""

import argparse
from pathlib import Path

from trainauto.commands.common_arguments import Commands, takes_options
from trainauto.core.errors import InputError, Problem


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "plan",
        help="say which crops and batches fit on which card",
        description="Say which crops and batches fit on which card, without one: a step is traced on fake tensors.",
    )
    takes_options(parser, required=False)
    parser.add_argument(
        "--card", action="append", default=[], metavar="NAME", help='e.g. "RTX 3060 12GB"; may be repeated'
    )
    parser.add_argument(
        "--vram", action="append", default=[], metavar="SIZE", help="a card of so much memory, e.g. 16GiB"
    )
    parser.add_argument("--list-cards", action="store_true", help="list the cards that are known")
    parser.add_argument(
        "--measure",
        action="store_true",
        help="also train a few steps under up to four plans that should fit here: predicted against measured",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, in bytes")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw expected peaks and how far each card goes")
    parser.set_defaults(door=_run)


def _run(parsed: argparse.Namespace) -> int:
    from trainauto.commands.tables import cards_table
    from trainauto.core.process import parse_size_bytes, set_environment
    from trainauto.core.worker_process import start_tracing
    from trainauto.options.load import load_options

    if parsed.list_cards:
        print(cards_table())
        return 0
    if parsed.opt is None:
        raise InputError(Problem("which run? Nothing was given with -opt", advice="plan -opt options/train/x.yml"))
    try:
        sizes = [parse_size_bytes(text) for text in parsed.vram]
    except ValueError as error:
        raise InputError(str(error)) from None
    loaded = load_options(parsed.opt, parsed.force_yml)
    set_environment()

    with start_tracing(like_cuda=True) as child:
        import torch

        from trainauto.commands import plan_table, run_plan

        torch.set_num_threads(1)  # the other core is for the traces
        cards = run_plan.chosen_cards(parsed.card, sizes)
        found = run_plan.answer(loaded, cards, measure=parsed.measure, child=child)
    print(run_plan.as_json(found) if parsed.json else plan_table.table(found))
    if parsed.png:
        run_plan.draw(found, parsed.png)
    return 0
