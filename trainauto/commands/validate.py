"""``validate``: build a run and train one step of it, and leave nothing behind."""

import argparse

from trainauto.commands.common_arguments import Commands, prepare_environment, takes_options


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "validate",
        help="check an option file by one real step that saves nothing",
        description=(
            "Check an option file: options, every file that it names, one real step on its data and one validation "
            "image. Nothing is saved. The exit code is 2 if the input cannot be used, 1 if the step failed."
        ),
    )
    takes_options(parser)
    parser.add_argument("--steps", type=int, default=1, metavar="N", help="steps to train (1)")
    parser.add_argument("--decode", action="store_true", help="decode every image and refuse damaged ones")
    parser.set_defaults(execute=_run)


def _run(parsed: argparse.Namespace) -> int:
    from trainauto.commands.whole_options import load_whole
    from trainauto.core.errors import InputError, Problem
    from trainauto.forecast.task import task_of
    from trainauto.options.load import load_options, super_resolution_only

    if parsed.steps < 1:
        raise InputError(Problem(f"--steps {parsed.steps} trains nothing", advice="Steps count from 1."))
    loaded = load_whole(parsed.opt, parsed.force_yml, data=True, weights=True)
    if parsed.decode:
        images = super_resolution_only(loaded, "--decode", "Leave it out: texts are read and tokenized as a whole.")
        sets = ("train", *images.options.datasets.validation_sets)
        every = [f"datasets:{name}:decode_all=true" for name in sets]
        loaded = load_options(parsed.opt, [*parsed.force_yml, *every])
    prepare_environment(loaded.options)
    return task_of(loaded).validate(loaded, parsed.steps)
