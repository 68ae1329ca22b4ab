"""Pictures through the command: a real budget that is kept, seams that are not there, jobs that go on."""

import json
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from tests.acceptance import only_in_acceptance
from tests.integration.commands import Ended, command, environment
from tests.made_runs import make_run, options_of
from trainauto.core.plan import SizeRequirements
from trainauto.inference.load_network import load_network
from trainauto.tasks.sr.models.tiles import Box, TiledEnlarger

Write = Callable[..., Path]
MIB = 2**20
LINUX = platform.system() == "Linux"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose random network makes pictures of ordinary contrast."""
    made = make_run(tmp_path, options_of({"type": "compact", "num_feat": 8, "num_conv": 2}), averages=False)
    return made.path


def given(*arguments: object) -> list[str]:
    return ["upscale", *map(str, arguments), "--device", "cpu"]


def upscale(*arguments: object, cwd: Path) -> Ended:
    is_limited = any("budget" in str(argument) for argument in arguments)
    return command(*given(*arguments), cwd=cwd, own_process=is_limited)


def test_a_folder_is_enlarged_and_a_stopped_job_goes_on(tmp_path: Path, run: Path, write_images: Write) -> None:
    source = write_images("in", 2, (50, 70))
    write_images("in/below", 1, (33, 41))
    (source / "broken.png").write_bytes((source / "image_000.png").read_bytes()[:500])
    done = upscale(run, source, tmp_path / "out", "--json", cwd=tmp_path)
    assert done.returncode == 2, done.stderr  # of the one that cannot be read
    assert "broken.png" in done.stderr
    figures = json.loads(done.stdout)
    assert (figures["pictures"], figures["failed"], figures["is_whole"]) == (3, 1, True)
    written = sorted(file.relative_to(tmp_path / "out").as_posix() for file in (tmp_path / "out").rglob("*.*"))
    assert written == ["below/image_000.png", "image_000.png", "image_001.png"]
    assert cv2.imread(str(tmp_path / "out/below/image_000.png")).shape == (66, 82, 3)

    (source / "broken.png").unlink()
    (tmp_path / "out/image_001.png").unlink()
    again = upscale(run, source, tmp_path / "out", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "1 picture, 0.00 megapixels of input in " in again.stdout
    assert "\nrun whole, without tiles\npeak of memory: predicted " in again.stdout
    assert "2 there already" in again.stdout
    assert all(len(line) <= 80 for line in again.stdout.splitlines())


def test_of_several_pictures_in_a_file_the_first_is_said_to_be_taken(tmp_path: Path, run: Path) -> None:
    frames = [Image.new("RGB", (32, 24), colour) for colour in ("red", "green", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    done = upscale(run, tmp_path / "a.gif", tmp_path / "a.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "; the first of its 3 pictures" in done.stdout


def test_a_network_of_grey_pictures_says_that_colours_are_lost(tmp_path: Path, run: Path, write_images: Write) -> None:
    network = {"type": "compact", "num_feat": 4, "num_conv": 1, "num_in_ch": 1, "num_out_ch": 1}
    grey, source = make_run(tmp_path / "grey", options_of(network)).path, write_images("in", 1, (20, 20))
    said = "the network takes grey pictures"
    assert said in upscale(grey, source, tmp_path / "out", cwd=tmp_path).stdout
    assert said not in upscale(run, source, tmp_path / "rgb", cwd=tmp_path).stdout
    assert said in command("test", str(grey), str(source), "--device", "cpu", cwd=tmp_path).stdout


def test_pictures_of_another_network_are_not_there_already(tmp_path: Path, write_images: Write) -> None:
    options = options_of({"type": "compact", "num_feat": 4, "num_conv": 1})
    run, source, out = (
        make_run(tmp_path, options, steps=(10, 20)).path,
        write_images("in", 2, (20, 20)),
        tmp_path / "out",
    )
    assert upscale(run, source, out, "--checkpoint", "10", cwd=tmp_path).returncode == 0
    before = (out / "image_000.png").read_bytes()
    done = upscale(run, source, out, "--checkpoint", "20", cwd=tmp_path)
    assert done.returncode == 2
    assert "image_000.png was made by another network (made: compact x2, run " in done.stderr
    assert ", step 10, averaged weights), and 1 more picture of other networks" in done.stderr
    assert (out / "image_000.png").read_bytes() == before
    assert upscale(run, source, out, "--checkpoint", "20", "--overwrite", cwd=tmp_path).returncode == 0
    assert (out / "image_000.png").read_bytes() != before
    cv2.imwrite(str(out / "image_001.png"), np.zeros((40, 40, 3), np.uint8))
    done = upscale(run, source, out, "--checkpoint", "20", cwd=tmp_path)
    assert "2 there already (1 of them do not say which network made them)" in " ".join(done.stdout.split())


def test_an_experiment_whose_newest_run_was_stopped(
    tmp_path: Path, write_images: Write, caplog: pytest.LogCaptureFixture
) -> None:
    options, source = options_of({"type": "compact", "num_feat": 4, "num_conv": 1}), write_images("in", 1, (20, 20))
    runs = [make_run(tmp_path, options, steps=(step,)) for step in (30, 10)]
    for made, status in zip(runs, ("completed", "stopped"), strict=True):
        made.log_object.write_text(json.dumps({"status": status}))
    done = upscale("experiments/made", source, tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"run {runs[1].path.name}, step 10" in done.stdout
    assert f"{runs[1].path.name} is the newest run of experiments/made and did not come to its end" in caplog.text
    assert f"its step 10 is used. experiments/made/{runs[0].path.name} did" in caplog.text
    caplog.clear()
    upscale(runs[1].path, source, tmp_path / "out", cwd=tmp_path)
    assert not caplog.records, "that run is named itself"


def test_weights_that_have_diverged_make_no_black_pictures(tmp_path: Path, run: Path, write_images: Write) -> None:
    source = write_images("in", 1, (20, 20))
    (file,) = run.rglob("net_g.safetensors")
    state = load_file(file)
    state[next(iter(state))].view(-1)[3] = float("nan")
    torch.save(state, tmp_path / "nan.pth")
    save_file(state, file)
    for named in ((run,), ("--weights", tmp_path / "nan.pth")):
        done = upscale(*named, source, tmp_path / "out", cwd=tmp_path)
        assert done.returncode == 2
        assert "cannot be used: 1 of " in done.stderr
        assert "is NaN in 1 of " in done.stderr
        assert not (tmp_path / "out").exists()


def test_nothing_is_read_and_overwritten(tmp_path: Path, run: Path, write_images: Write) -> None:
    source = write_images("in", 1, (20, 20))
    before = (source / "image_000.png").read_bytes()
    for target in (source, source / "image_000.png"):
        given = source if target == source else source / "image_000.png"
        done = upscale(run, given, target, "--overwrite", cwd=tmp_path)
        assert done.returncode == 2
        assert "one of the pictures to be enlarged" in done.stderr
    assert upscale(run, source, source / "out", cwd=tmp_path).returncode == 2
    assert upscale(run, source / "image_000.png", tmp_path / "out.jpg", cwd=tmp_path).returncode == 2
    assert upscale(run, tmp_path / "none", tmp_path / "out", cwd=tmp_path).returncode == 2
    assert upscale(source, tmp_path / "out", cwd=tmp_path).returncode == 2  # no network
    assert (source / "image_000.png").read_bytes() == before


def private_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)


class Watch:
    """Reads a process's private memory over and over: what it held when it had loaded all, and its highest since."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.peak_bytes = 0
        self._process = process
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while self._process.poll() is None:
            try:
                self.peak_bytes = max(self.peak_bytes, private_bytes(self._process.pid))
            except OSError:
                return
            time.sleep(0.002)

    def join(self) -> int:
        self._thread.join()
        return self.peak_bytes


def enlarged_under(budget: str, run: Path, source: Path, target: Path) -> tuple[dict[str, int], int]:
    """Return the command's figures, and the highest private memory of its process."""
    with subprocess.Popen(
        [sys.executable, "-m", "trainauto", *given(run, source, target, "--budget", budget, "--json")],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        watch = Watch(process)
        stdout, stderr = process.communicate(timeout=300)
        assert process.returncode == 0, stderr
        return json.loads(stdout), watch.join()


@pytest.mark.skipif(not LINUX, reason="the CPU budget is enforced on Linux only")
@pytest.mark.parametrize(
    ("size", "budget_mib"),
    [
        pytest.param((1100, 1400), 16, id="1.5 megapixels", marks=only_in_acceptance),
        pytest.param((3000, 4000), 128, id="12 megapixels", marks=only_in_acceptance),
    ],
)
def test_large_photographs_stay_within_the_budget_without_seams(
    tmp_path: Path, run: Path, photograph: np.ndarray, size: tuple[int, int], budget_mib: int
) -> None:
    pads = [(0, side - present) for side, present in zip(size, photograph.shape, strict=False)]
    pixels = np.pad(photograph, (*pads, (0, 0)), mode="symmetric")
    source, target = tmp_path / "photograph.jpg", tmp_path / "large.png"
    cv2.imwrite(str(source), pixels[:, :, ::-1])
    small = tmp_path / "small.png"
    cv2.imwrite(str(small), pixels[:16, :16, ::-1])

    budget_bytes = budget_mib * MIB
    _, idle_bytes = enlarged_under(f"{budget_mib}MiB", run, small, tmp_path / "small_out.png")
    figures, peak_bytes = enlarged_under(f"{budget_mib}MiB", run, source, target)
    # Beyond what the process holds with all libraries loaded: input, tiles, and an output larger than the budget.
    assert 3 * 4 * size[0] * size[1] > budget_bytes
    assert peak_bytes - idle_bytes < budget_bytes
    assert budget_bytes / 2 < figures["measured_bytes"] <= budget_bytes
    assert figures["predicted_bytes"] == pytest.approx(figures["measured_bytes"], rel=0.15)
    assert figures["tiles"] > 4

    image = torch.from_numpy(cv2.imread(str(source))[:, :, ::-1].transpose(2, 0, 1).copy())[None]
    network = load_network(run, "latest", torch.device("cpu")).network
    with torch.no_grad():
        whole = network(image.float().div_(255))
        written = torch.from_numpy(cv2.imread(str(target))[:, :, ::-1].transpose(2, 0, 1).copy())
        levels = whole[0].mul(255).round_().clamp_(0, 255).to(torch.uint8)
        assert int((written.int() - levels.int()).abs().max()) <= 1
        seams = [seam(network, image, whole, figures["tile_px"], px) for px in (figures["overlap_px"], 0)]
    assert seams[0] < 1e-3
    assert seams[1] > 1e-3  # the comparison can fail


def seam(network: torch.nn.Module, image: torch.Tensor, whole: torch.Tensor, tile_px: int, overlap_px: int) -> float:
    """Return the largest difference, of 1.0, between the picture in tiles and whole."""
    worst = torch.zeros(())
    height, width = image.shape[-2:]
    everything = Box(0, height, 0, width)

    def keep(box: Box, enlarged: torch.Tensor) -> None:
        worst.copy_(torch.maximum(worst, (box.within(everything, 2).of(whole) - enlarged).abs().max()))

    tiles = TiledEnlarger(2, tile_px - 2 * overlap_px, overlap_px, SizeRequirements())
    tiles.run(lambda part: network(part.float().div_(255)), (height, width), lambda box: box.of(image), keep)
    return float(worst)
