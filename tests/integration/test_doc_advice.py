"""What pages advise: figures of the sources as the sources have them, and defaults of ours as the code has them."""

import inspect
import re

import pytest

import trainauto
from tests.documents import read
from trainauto.multitask import HeterogeneousTrainingConfig

CHOOSING, MEMORY = "docs/choosing.md", "docs/out_of_memory.md"


def row(page: str, *beginning: str) -> str:
    """Return the one row of a table of a page that begins so."""
    (found,) = (line for line in read(page).splitlines() if line.startswith(tuple(f"| {word}" for word in beginning)))
    return found


@pytest.mark.parametrize(
    ("page", "beginning", "figures", "points_at"),
    [
        (MEMORY, "several tasks", ["0.20", "8 in place of 16", "gradient checkpointing"], "margin: 0.2"),  # A68
        (CHOOSING, "one task of several", ["`grad_norm_alpha: 1.5`"], "multitask.md#if-a-training"),  # A69
        (MEMORY, "text inference", ["0.01 is careful", "0.10 bold"], "loader.map"),  # B41
        (CHOOSING, "no adjustments", ["`adjustment_frequency` (100)", "`enabled`", "current"], "the log names"),  # C40
        (MEMORY, "image crops", ["0.75 to 0.80", "`safety_margin` 0.10", "`max_lq_size`"], "`doctor`"),  # C41
        (CHOOSING, "adjustments too often", ["200 to 500", "wider margin", "other processes"], "`doctor`"),  # C42
        (CHOOSING, "the loss is NaN", ["a tenth of the rate", "0.2 of the run"], "last lines"),  # D44
        (CHOOSING, "the loss does not fall", ["2 to 3 times the rate", "other than `none`"], "test RUN"),  # D45
        (
            MEMORY,
            "fine-tuning",
            ["batch of 1", "steps: 4`", "`max_pixels`", "`load_in_4bit: true`"],
            "--recipes",
        ),  # D46
        (CHOOSING, "double the batch", ["until memory runs out"], "`plan`"),  # D47
        (CHOOSING, "fewer pixels", ["fewer pixels"], "`max_pixels`"),  # D47
        (CHOOSING, "fewer layers", ["adapters"], "target_modules"),  # D47
    ],
)
def test_advice_has_the_figures_of_its_source_and_says_where_to_look(
    page: str, beginning: str, figures: list[str], points_at: str
) -> None:
    """A68, A69, B41, C40 to C42, D44 to D47: what the source advises, then what the tool itself shows."""
    *_, theirs, ours, _ = row(page, beginning).split("|")
    assert [figure for figure in figures if figure not in theirs] == []
    assert points_at in ours


def test_the_order_and_the_warm_up_are_those_of_the_source() -> None:
    """D15, D43."""
    page = " ".join(read(CHOOSING).split())
    assert "learning rate, batch size, warmup, type of schedule, weight decay" in page
    shares = re.findall(r"([\d.]+) to ([\d.]+) (?:for|of)", page.partition("The guide's shares: ")[2])[:3]
    assert [tuple(map(float, share)) for share in shares] == [(0.05, 0.1), (0.1, 0.15), (0.15, 0.2)]


def test_defaults_that_pages_name_are_those_of_the_code() -> None:
    """A69, B41, B42, C40: a page that says what a default is says what it is."""
    loader = inspect.signature(trainauto.build_dynamic_batch_dataloader).parameters
    texts = " ".join(read(CHOOSING).split()).partition("**Text inference**")[2]
    assert "Early batches hold few texts and are slow, later ones more and faster" in texts
    (default,) = re.findall(r"bold, ([\d.]+) the default", texts)
    assert float(default) == loader["threshold"].default
    config = HeterogeneousTrainingConfig()
    assert (config.use_grad_norm_balancing, config.grad_norm_alpha) == (True, 1.5)
    controller = inspect.signature(trainauto.DynamicBatchSizeOptimizer).parameters
    (frequency,) = re.findall(r"`adjustment_frequency` \((\d+)\)", row(CHOOSING, "no adjustments"))
    assert int(frequency) == controller["adjustment_frequency"].default
