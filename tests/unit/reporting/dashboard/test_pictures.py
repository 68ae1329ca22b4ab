"""Pictures over time: few, small, and dropped where a run goes back."""

import base64
import io

import numpy as np
from PIL import Image

from tests.unit.reporting.builders import a_picture, a_validation
from trainauto.core.run_events import Picture
from trainauto.reporting.dashboard.page_file import page_json
from trainauto.reporting.dashboard.pictures import (
    MOST_BYTES,
    Pictures,
    address_of,
    middle_of,
    pictures_of,
    samples_block,
)


def noise(name: str, seed: int) -> Picture:
    image = np.random.default_rng(seed).integers(0, 256, (320, 340, 3), dtype=np.uint8)
    return Picture(name, image, image, image)


def test_all_pictures_of_a_long_run_take_a_megabyte() -> None:
    pictures = Pictures()
    for step in range(100, 1300, 100):
        pictures.add(a_validation(step), [noise(f"image {number}", step + number) for number in range(6)], {})
    (block,) = pictures.blocks()
    assert len(page_json(block)) <= MOST_BYTES
    assert [shown["name"] for shown in block["sets"]] == [f"val: image {number}" for number in range(4)]
    for shown in block["sets"]:
        assert (shown["steps"][0], shown["steps"][-1], len(shown["steps"])) == (100, 1200, 8)
        spans = np.diff(shown["steps"])
        assert spans.max() <= 400  # spread over the run


def test_samples_of_the_first_batch_are_found_again_in_a_page() -> None:
    sample = {"lq": np.zeros((8, 8, 3), np.uint8), "gt": np.full((32, 32, 3), 200, np.uint8)}
    block = samples_block([sample] * 9)
    assert [len(row) for row in block["rows"]] == [2] * 6
    assert [name for name, _ in block["rows"][0]] == ["lq", "gt"]
    decoded = Image.open(io.BytesIO(base64.b64decode(block["rows"][0][1][1].split(",", 1)[1])))
    assert (decoded.size, decoded.convert("RGB").getpixel((3, 3))) == ((32, 32), (200, 200, 200))
    assert pictures_of({"sections": [{"blocks": [{"type": "chart"}, block]}]}) == [block]
    assert Pictures([block]).blocks() == []


def test_a_picture_is_cut_to_its_middle() -> None:
    image = np.zeros((400, 500, 3), np.uint8)
    image[40:360, 90:410] = (200, 30, 30)
    decoded = Image.open(io.BytesIO(base64.b64decode(address_of(middle_of(image)).split(",", 1)[1])))
    assert (decoded.format, decoded.size) == ("WEBP", (320, 320))
    assert np.abs(np.asarray(decoded.convert("RGB"), int) - (200, 30, 30)).max() < 12
    grey = a_picture(channels=1).output
    assert Image.open(io.BytesIO(base64.b64decode(address_of(grey).split(",", 1)[1]))).size == (30, 20)


def test_a_run_that_goes_back_drops_later_pictures() -> None:
    pictures = Pictures()
    for step in (10, 20, 30):
        pictures.add(a_validation(step), [a_picture()], {"baby": f"validation/val/baby/{step}.png"})
    again = Pictures(pictures_of({"sections": [{"blocks": pictures.blocks()}]}), step=20)
    (shown,) = again.blocks()[0]["sets"]
    assert (shown["steps"], shown["files"]) == ([10, 20], ["validation/val/baby/10.png", "validation/val/baby/20.png"])
    again.add(a_validation(20), [a_picture()], {})
    again.add(a_validation(30), [a_picture()], {})
    (shown,) = again.blocks()[0]["sets"]
    assert shown["steps"] == [10, 20, 30]
    assert shown["scores"][-1] == "psnr 28.5000, lpips 0.2500"
    assert shown["baseline_name"] == "bicubic"
    assert len(shown["images"]) == len(shown["files"]) == 3
