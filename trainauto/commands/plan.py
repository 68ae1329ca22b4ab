"""``plan``: say which crops and batches fit on which card."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from trainauto.commands.common_arguments import Commands, takes_options
from trainauto.core.errors import InputError, Problem

if TYPE_CHECKING:
    from trainauto.forecast.card_answer import CardPlans

DESCRIPTION = """\
Predict before a run which crop sizes (for texts: lengths) and batch sizes fit
on which card. This needs no card and writes nothing: one step is traced on
tensors without data, in 10 to 20 seconds for most networks.

--measure also trains a few steps on noise on this device, under up to four
plans that should fit it or the file's budget. That takes under a minute for
small networks, some minutes for large ones; plans whose step would take more
than 30 s are left out.

--recipes compares settings, whatever the file says of them: for fine-tuning
number formats, gradient checkpointing and 4 bits; for images and texts no, some
or all blocks recomputed in the backward pass.

--python plans code instead of an option file: a function without arguments that
returns trainauto.PlanRequest(model, loss, shapes, bounds=...), in a module of
this folder or an installed one."""

EPILOG = """\
what is printed:
  for each card, the crop and the batch that a run would use, with its expected
  peak of memory. The crop is lq_size in pixels of the network's input; for
  texts, the length of the longest sample in tokens; for code, the size that it
  names
  the "99 % bound", below which the peak stays with a probability of 99 %, and
  the target (target_vram_usage of the card's memory), which it must not exceed
  the largest batch for some crops or lengths; for conversations, how many fit
  beyond what a step of the file holds
  with --measure: predicted against measured peak of memory, by how much the
  prediction was off, and how long a step took

examples:
  python -m trainauto plan -opt x.yml --card "RTX 3060 12GB"
  python -m trainauto plan -opt x.yml --vram 16GiB --png plan.png
  python -m trainauto plan -opt x.yml --measure
  python -m trainauto plan -opt x.yml --ranks 8 --card H100
  python -m trainauto plan -opt x.yml --recipes --card T4
  python -m trainauto plan --python my_training:plan_request --card T4"""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "plan",
        help="predict which crops (or lengths of texts) and batches fit on which card",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    takes_options(parser, required=False)
    parser.add_argument(
        "--python", metavar="MODULE:FACTORY", help="plan code: a function that returns a trainauto.PlanRequest"
    )
    parser.add_argument(
        "--card", action="append", default=[], metavar="NAME", help='e.g. "RTX 3060 12GB"; may be repeated'
    )
    parser.add_argument(
        "--vram", action="append", default=[], metavar="SIZE", help="a card with this memory, e.g. 16GiB"
    )
    parser.add_argument("--list-cards", action="store_true", help="list the known cards")
    parser.add_argument(
        "--measure",
        action="store_true",
        help="also train a few steps here: predicted against measured",
    )
    parser.add_argument(
        "--recipes",
        action="store_true",
        help="what fits by which settings, and what they cost",
    )
    parser.add_argument(
        "--by-module",
        action="store_true",
        help="also break down the first plan: reserved memory by kind of segments, and holders by module",
    )
    parser.add_argument(
        "--ranks",
        type=int,
        default=1,
        metavar="N",
        help="plan for N processes that train together, each on its own card",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, in bytes")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw expected peaks and the limit of each card")
    parser.set_defaults(execute=_run)


def _run(parsed: argparse.Namespace) -> int:
    from trainauto.commands.tables import cards_table
    from trainauto.core.process import parse_size_bytes, set_environment

    if parsed.list_cards:
        print(cards_table())
        return 0
    _check(parsed)
    try:
        sizes = [parse_size_bytes(text) for text in parsed.vram]
    except ValueError as error:
        raise InputError(str(error)) from None
    set_environment()
    if parsed.recipes:
        print(_recipes(parsed, sizes))
        return 0
    answer = _answer_for_code(parsed, sizes) if parsed.python else _answer_for_options(parsed, sizes)

    from trainauto.commands import plan_table, run_plan

    print(run_plan.as_json(answer) if parsed.json else plan_table.table(answer))
    if parsed.png:
        run_plan.draw(answer, parsed.png)
        if not parsed.json:
            print(f"\npicture: {parsed.png}")
    return 0


def _check(parsed: argparse.Namespace) -> None:
    if parsed.opt is None and parsed.python is None:
        advice = "plan -opt x.yml, or plan --python module:factory"
        raise InputError(Problem("which run? Nothing was given with -opt", advice=advice))
    if parsed.ranks < 1:
        raise InputError(
            Problem(f"--ranks {parsed.ranks}: at least 1", advice="Say how many processes train together.")
        )
    if parsed.ranks > 1 and (parsed.python or parsed.measure or parsed.recipes):
        other = "--python" if parsed.python else "--measure" if parsed.measure else "--recipes"
        message = f"{other} is of one process, and --ranks {parsed.ranks} of several"
        raise InputError(Problem(message, advice=f"Leave out --ranks or {other}."))
    others = ("python", "measure", "by_module", "png")
    given = [f"--{name.replace('_', '-')}" for name in others if getattr(parsed, name)]
    if parsed.recipes and given:
        other = given[0]
        advice = f"Leave out {other}; --json prints what recipes take in bytes."
        raise InputError(Problem("--recipes is of an option file, and a table", advice=advice))
    if parsed.python is None:
        return
    if parsed.opt is not None or parsed.force_yml:
        raise InputError(Problem("-opt and --python are two runs", advice="Ask for one at a time."))
    if parsed.measure:
        raise InputError(Problem("--measure trains an option file's run, not code", advice="Leave it out."))


def _answer_for_options(parsed: argparse.Namespace, sizes: list[int]) -> "CardPlans":
    from trainauto.commands.whole_options import check_components, load_whole
    from trainauto.core.worker_process import start_tracing

    loaded = load_whole(parsed.opt, parsed.force_yml)
    with start_tracing(like_cuda=True) as child:
        import torch

        from trainauto.forecast import card_plan, option_plans

        torch.set_num_threads(1)  # the other core is for the traces
        check_components(loaded)
        cards = card_plan.chosen_cards(parsed.card, sizes)
        how = {"measure": parsed.measure, "closely": parsed.by_module, "ranks": parsed.ranks}
        return option_plans.plan_for_cards(loaded, cards, child=child, **how)


def _recipes(parsed: argparse.Namespace, sizes: list[int]) -> str:
    from trainauto.commands.whole_options import check_components, load_whole
    from trainauto.core.worker_process import start_tracing

    loaded = load_whole(parsed.opt, parsed.force_yml)
    with start_tracing(like_cuda=True) as child:
        from trainauto.forecast import card_plan
        from trainauto.forecast.task import ready_task

        cards = card_plan.chosen_cards(parsed.card, sizes)
        task = ready_task(loaded)
        check_components(loaded)
        return task.recipes(loaded, cards, child, as_json=parsed.json)


def _answer_for_code(parsed: argparse.Namespace, sizes: list[int]) -> "CardPlans":
    from trainauto.core.worker_process import start_tracing_code

    with start_tracing_code() as child:
        from trainauto.forecast import card_plan, code_process

        cards = card_plan.chosen_cards(parsed.card, sizes)
        return code_process.plan_named_code(parsed.python, Path.cwd(), cards, child, closely=parsed.by_module)
