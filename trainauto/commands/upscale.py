"""``upscale``: enlarge pictures with a trained network."""

import argparse
from pathlib import Path

from trainauto.commands.common_arguments import Commands, takes_network
from trainauto.core.errors import InputError

DESCRIPTION = """\
Enlarge a picture, or all pictures in a folder and its subfolders, with a
trained network. Output is PNG of 8 bits under the same names, with the colour
profiles. Existing outputs are skipped, so that the same command continues after
a stop; those of another network are refused without --overwrite.

A picture is enlarged as a whole if memory allows, otherwise in the largest
tiles that are predicted to fit. Files are written atomically."""

EPILOG = """\
what is printed:
  one line a picture: its size, the enlarged size, seconds
  with tiles: by how many pixels they overlap, which is measured once, on the
  first such picture, so that no seams are visible
  at the end: the number of pictures and megapixels (of the input); whether they
  ran whole or in how many tiles; the peak of memory, as predicted before it
  ran, as measured, and the memory available

examples:
  python -m trainauto upscale experiments/my_first photos/ large/
  python -m trainauto upscale experiments/my_first a.jpg a_x4.png --budget 1GiB
  python -m trainauto upscale --weights RealESRGAN_x4plus.pth in/ out/
  python -m trainauto upscale -opt x.yml --weights x.pth in/ out/"""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "upscale",
        help="enlarge pictures with a trained network",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    takes_network(parser)
    parser.add_argument("input", type=Path, metavar="INPUT", help="a picture, or a folder of pictures")
    parser.add_argument("output", type=Path, metavar="OUTPUT", help="a .png, or a folder")
    parser.add_argument("--budget", metavar="SIZE", help="memory limit, e.g. 1GiB; default: most of the free memory")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="auto takes CUDA if any")
    parser.add_argument("--tile", type=int, metavar="PX", help="side of tiles; by default the largest that fits")
    parser.add_argument(
        "--overlap", type=int, metavar="PX", help="context of a tile around its own pixels; default: measured"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")
    parser.add_argument("--json", action="store_true", help="print JSON, in bytes")
    parser.set_defaults(execute=_run)


def _run(parsed: argparse.Namespace) -> int:
    from trainauto.commands.common_arguments import check_network
    from trainauto.core.process import parse_size_bytes, set_environment, use_expandable_segments

    check_network(parsed)
    for name, least in (("tile", 8), ("overlap", 0)):
        size_px = getattr(parsed, name)
        if size_px is not None and size_px < least:
            raise InputError(f"--{name} {size_px}: at least {least} pixels")
    try:
        budget_bytes = parse_size_bytes(parsed.budget) if parsed.budget else None
    except ValueError as error:
        raise InputError(f"--budget {error}") from None
    use_expandable_segments()
    set_environment()

    from trainauto.commands.run_upscale import upscale

    return upscale(parsed, budget_bytes)
