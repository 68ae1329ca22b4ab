"""A set that is called as its folder is has a name that a folder of results can have."""

from pathlib import Path

import pytest

from trainauto.inference.evaluate import with_images
from trainauto.options.load import load_options

SHIPPED = Path(__file__).parents[3] / "options" / "train" / "quickstart.yml"


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("data/Set5", "Set5"),
        ("data/.hidden", "hidden"),
        ("my photos (2)", "my_photos__2_"),
        ("\N{ROCKET}\x1b[31m", "___31m"),
        ("x" * 255, "x" * 50),
        ("...", "images"),
    ],
)
def test_it_is_called_as_its_folder_is(folder: str, name: str) -> None:
    (chosen,) = with_images(load_options(SHIPPED), folder, None).options.datasets.validation_sets.values()
    assert chosen.name == name
