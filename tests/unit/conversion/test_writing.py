"""What is written is YAML that reads back as the same values, with comments where something changed."""

from typing import Any

import pytest

from tests.foreign_files import FILES, converted
from trainauto.conversion.convert import convert
from trainauto.conversion.report import report_lines
from trainauto.conversion.writing import flow_text, text_of
from trainauto.options.foreign_files import Project
from trainauto.options.yaml_file import parse_yaml

VALUES: list[Any] = [
    None,
    True,
    0,
    -3,
    1e-07,
    0.5,
    1.0,
    float("inf"),
    "text",
    "two words",
    "",
    " padded ",
    "1e5",
    "0x1F",
    "012",
    "052_name",
    "null",
    "True",
    "yes",
    "on",
    "~",
    "a: b",
    "a #b",
    "{}",
    "{}x4",
    "- x",
    "C:\\data\\hr\\",
    "it's",
    'a "quote"',
    "it's \\ both",
    "zwölf ä",
    "new\nline",
    "nearest+conv",
    "!tag",
    "&a",
    "*a",
    [1, [2, "x"]],
    {"a": {"b: c": 1}, "yes": []},
    [],
    {},
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_read_back_as_they_were(value: Any) -> None:
    assert parse_yaml(f"key: {flow_text(value)}\n", "x").value == {"key": value}


def test_large_whole_numbers_lose_their_point() -> None:
    assert flow_text([5e5, 1000.0, 2.0, 1234.5]) == "[500000, 1000, 2.0, 1234.5]"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_whole_file_reads_back_as_its_values(file: Any) -> None:
    conversion = converted(file)
    text = text_of(conversion, file.name)
    assert text.startswith(f"# converted from {file.name} of {conversion.project} by trainauto convert\n")
    assert parse_yaml(text, "x").value == conversion.tree
    assert max(map(len, text.splitlines())) <= 120
    assert max(map(len, report_lines(conversion))) <= 80


def test_comments_say_where_values_come_from_and_why() -> None:
    (file,) = [file for file in FILES if file.stem == "neosr_otf_gan"]
    text = text_of(converted(file), file.name)
    for line in (
        "model_type: SRGANModel  # model_type: otf there; neosr trains against network_d",
        "manual_seed: 0  # neosr draws one at random",
        "# from degradations",
        "    lq_size: 32  # patch_size there",
        "  type: swinir_light  # type: swinir_small there",
        "  losses:  # from train.ldl_opt, train.gan_opt and train.pixel_opt",
        "  total_iter: 800  # logger.total_iter there",
    ):
        assert line in text.splitlines(), line


def test_a_block_has_a_comment_only_where_all_of_it_moved() -> None:
    theirs: dict[str, Any] = {
        "name": "x",
        "scale": 2,
        "gt_size": 64,
        "datasets": {"train": {"type": "otf", "dataroot_gt": "a"}},
        "network_g": {"type": "compact"},
        "train": {"optim_g": {"type": "adam", "lr": 1}, "pixel_opt": {"type": "L1Loss"}},
        "logger": {"total_iter": 5},
    }
    for project in (Project.NEOSR, Project.BASICSR):
        lines = text_of(convert(theirs, project), "x").splitlines()
        assert "train:" in lines
        assert "  train:" in lines
        assert "  losses:  # from train.pixel_opt" in lines


def test_blocks_stand_in_the_usual_order() -> None:
    for file in FILES:
        blocks = [line.split(":")[0] for line in text_of(converted(file), "x").splitlines() if line[:1].isalpha()]
        order = ["name", "model_type", "scale", "datasets", "network_g", "network_d", "path", "train", "val", "logger"]
        assert [key for key in blocks if key in order] == [key for key in order if key in blocks]


def test_the_report_counts_groups_and_names() -> None:
    theirs: dict[str, Any] = {
        "name": "x",
        "scale": 4,
        "num_gpu": 1,
        "network_g": {"type": "EDVR"},
        "train": {"total_iters": 5, "pixel_opt": {"type": "L1Loss", "loss_weight": 1.0}, "warmup_iter": -1},
    }
    text = "\n".join(report_lines(convert(theirs, Project.BASICSR)))
    for part in (
        "carried: 2 keys, as they are",
        "train.pixel_opt: type, loss_weight -> train.losses[0]",
        "need not be written:\n  train.warmup_iter\n    -1 is none, which is the default here",
        "train.ema_decay: 0\n    BasicSR keeps no average by default",
        "left out:\n  num_gpu\n    device says where to train; nearest: torchrun",
        "unknown:\n  train.total_iters\n    unknown here and in BasicSR's templates; nearest: 'total_iter'",
        "network_g.type: EDVR\n    there are no video networks here; nearest: networks of single images",
    ):
        assert part in text, part
