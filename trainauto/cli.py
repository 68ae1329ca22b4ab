"""The doors: reading arguments, printing errors as people need them, exit codes."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainauto.core.errors import InputError, Problem, TrainautoError

if TYPE_CHECKING:
    from trainauto.options.schema import Options

# Nothing here may import torch at the top: options are checked, and the environment set, before it is loaded.


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code.

    0 is success, 1 a failed run, 2 input that cannot be used, 130 and 143 a run stopped by SIGINT and SIGTERM.
    """
    parsed = _parser().parse_args(arguments)
    try:
        code: int = parsed.door(parsed)
    except TrainautoError as error:
        print(f"\n{error}\n", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as error:
        print("\nstopped at once; the last checkpoint stands", file=sys.stderr)
        return int(getattr(error, "exit_code", 130))
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainauto", description="Training that fills the GPU by itself.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    train = commands.add_parser("train", help="train a network", description="Train the network of an option file.")
    _takes_options(train)
    train.add_argument(
        "--auto_resume", action="store_true", help="go on with the latest run of this name, if there is one"
    )
    train.set_defaults(door=_train)

    schema = commands.add_parser("schema", help="print the JSON Schema of option files")
    schema.add_argument("--markdown", action="store_true", help="print the options reference instead")
    schema.add_argument("--write", action="store_true", help="write options/schema.json and docs/options.md")
    schema.add_argument("--check", action="store_true", help="exit with 1 if these two are out of date")
    schema.set_defaults(door=_schema)

    plan = commands.add_parser(
        "plan",
        help="say which crops and batches fit on which card",
        description="Say which crops and batches fit on which card, without one: a step is traced on fake tensors.",
    )
    _takes_options(plan, required=False)
    plan.add_argument(
        "--card", action="append", default=[], metavar="NAME", help='e.g. "RTX 3060 12GB"; may be repeated'
    )
    plan.add_argument(
        "--vram", action="append", default=[], metavar="SIZE", help="a card of so much memory, e.g. 16GiB"
    )
    plan.add_argument("--list-cards", action="store_true", help="list the cards that are known")
    plan.add_argument(
        "--measure",
        action="store_true",
        help="also train a few steps under up to four plans that should fit here: predicted against measured",
    )
    plan.add_argument("--json", action="store_true", help="print JSON, in bytes")
    plan.add_argument("--png", type=Path, metavar="FILE", help="draw expected peaks and how far each card goes")
    plan.set_defaults(door=_plan)

    report = commands.add_parser(
        "report",
        help="say what was predicted of a run's memory and what was measured",
        description="Say what was predicted of a run's memory and what was measured, by phase; it may be going on.",
    )
    _takes_run(report)
    report.add_argument("--json", action="store_true", help="print JSON, in bytes")
    report.set_defaults(door=_report)

    replay = commands.add_parser(
        "replay",
        help="repeat a run, step by step",
        description="Repeat a run's plans step by step, here or on another machine, into a run directory of its own.",
    )
    _takes_run(replay)
    replay.add_argument("--until", type=int, metavar="STEP", help="end after this step")
    _takes_overrides(replay)
    replay.set_defaults(door=_replay)

    listing = commands.add_parser("list", help="list what is known: cards")
    listing.add_argument("kind", choices=["cards"], help="cards: presets of graphics cards, by memory")
    listing.add_argument("--json", action="store_true", help="print JSON instead of a table")
    listing.set_defaults(door=_list)
    return parser


def _takes_options(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument("-opt", required=required, type=Path, metavar="FILE", help="option file")
    _takes_overrides(parser)


def _takes_overrides(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--force_yml", nargs="+", default=[], metavar="A:B=V", help="set options, e.g. train:total_iter=1000"
    )


def _takes_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run, or experiments/NAME for its newest")


def _train(parsed: argparse.Namespace) -> int:
    from trainauto.options.load import load_options

    loaded = load_options(parsed.opt, parsed.force_yml)
    _set_environment(loaded.options)

    from trainauto.build import build_run
    from trainauto.engine.loop import train

    with build_run(loaded, auto_resume=parsed.auto_resume) as run:
        train(run)
        return run.signals.exit_code


def _set_environment(options: "Options") -> None:
    """Set what has to be set before torch is loaded."""
    from trainauto.core.process import set_environment, use_expandable_segments

    use_expandable_segments()
    if options.deterministic:
        # cuBLAS reads it when CUDA starts; without it torch refuses deterministic matrix products.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if options.memory.has_budget:
        set_environment()


def _replay(parsed: argparse.Namespace) -> int:
    from trainauto.replaying import logged_run, replay

    logged = logged_run(parsed.run, parsed.until)
    loaded = [part.load(parsed.force_yml) for part in logged.parts]
    _set_environment(loaded[0].options)
    return replay(logged, loaded)


def _plan(parsed: argparse.Namespace) -> int:
    from trainauto.assembly.child import start_tracing
    from trainauto.core.process import parse_size_bytes, set_environment
    from trainauto.listing import cards_table
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

        from trainauto import planning

        torch.set_num_threads(1)  # the other core is for the traces
        cards = planning.chosen_cards(parsed.card, sizes)
        found = planning.answer(loaded, cards, measure=parsed.measure, child=child)
    print(planning.as_json(found) if parsed.json else planning.table(found))
    if parsed.png:
        planning.draw(found, parsed.png)
    return 0


def _schema(parsed: argparse.Namespace) -> int:
    from trainauto.assembly.documents import option_documents
    from trainauto.core.files import write_text_atomically

    schema, reference = option_documents()
    documents = {Path("options/schema.json"): schema, Path("docs/options.md"): reference}
    if parsed.check:
        stale = [path for path, text in documents.items() if not path.is_file() or path.read_text("utf-8") != text]
        for path in stale:
            print(f"{path} is out of date: run `python -m trainauto schema --write`", file=sys.stderr)
        return 1 if stale else 0
    if parsed.write:
        for path, text in documents.items():
            write_text_atomically(path, text)
        return 0
    print(reference if parsed.markdown else schema, end="")
    return 0


def _report(parsed: argparse.Namespace) -> int:
    from trainauto.reporting.memory_report import as_json, as_text, memory_report
    from trainauto.reporting.run_directory import RunDirectory

    found = memory_report(RunDirectory.find(parsed.run))
    print(as_json(found) if parsed.json else as_text(found))
    return 0


def _list(parsed: argparse.Namespace) -> int:
    from trainauto.listing import cards_json, cards_table

    print(cards_json() if parsed.json else cards_table())
    return 0
