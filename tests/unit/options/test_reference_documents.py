import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest

from trainauto.options.cards import CARDS
from trainauto.options.editor_schemas import json_schema
from trainauto.options.load import LoadedOptions
from trainauto.options.lookup import fields_of, sections
from trainauto.options.reference_documents import markdown_reference
from trainauto.options.schema import Options


@dataclass
class Change:
    """A change.

    Attributes:
        step: when to change.
    """

    step: int
    lq_size: int | None = None
    batch_size: int | None = None


def span(scale: int, feature_channels: int = 48, hook: Callable[[], None] | None = None) -> None:
    """Make a fast network.

    Args:
        feature_channels: width | depth.
    """


def l1(loss_weight: float = 1.0) -> None:
    """Mean absolute difference."""


def adamw(params: object, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), weight_decay: float = 0) -> None:
    """Adam."""


def multistep(milestones: list[int], total: int, gamma: float = 0.5) -> None:
    """Fall in steps."""


def metric(image: object, reference: object, *, crop_border: int = 0, test_y_channel: bool = False) -> None:
    """Compare."""


def schedule(changes: list[Change]) -> None:
    """Change plans."""


COMPONENTS: dict[str, dict[str, Callable[..., Any]]] = {
    "network": {"span": span},
    "loss": {"L1Loss": l1},
    "optimizer": {"AdamW": adamw},
    "schedule": {"multistep": multistep},
    "metric": {"calculate_psnr": metric},
    "dataset": {"PairedImageDataset": span},
    "model": {"SRModel": span},
    "automation": {"PlanSchedule": schedule},
}
SCHEMA = json_schema(COMPONENTS)


def errors(schema: dict[str, Any], value: Any, path: str = "") -> Iterator[str]:
    """Check ``value`` by the part of JSON Schema that is used here."""
    if "$ref" in schema:
        yield from errors(SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, path)
    if "anyOf" in schema and not any(not list(errors(branch, value)) for branch in schema["anyOf"]):
        yield f"{path}: no branch"
    if "not" in schema and not list(errors(schema["not"], value)):
        yield f"{path}: not"
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": int | float, "boolean": bool}
    if "type" in schema and not isinstance(value, kinds.get(schema["type"], type(None))):
        yield f"{path}: type"
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        yield f"{path}: value"
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{path}: pattern"
    if isinstance(value, int | float) and value < schema.get("minimum", value):
        yield f"{path}: minimum"
    if isinstance(value, dict):
        yield from (f"{path}: lacks {key}" for key in schema.get("required", []) if key not in value)
        for key, item in value.items():
            patterns = [sub for pattern, sub in schema.get("patternProperties", {}).items() if re.search(pattern, key)]
            sub = schema.get("properties", {}).get(key, patterns[0] if patterns else schema.get("additionalProperties"))
            if sub is False:
                yield f"{path}: unknown {key}"
            elif isinstance(sub, dict):
                yield from errors(sub, item, f"{path}.{key}")
    if isinstance(value, list):
        for item in value:
            yield from errors(schema.get("items", {}), item, f"{path}[]")


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value.removeprefix("#/$defs/")
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_the_schema_is_json_and_whole() -> None:
    assert json.loads(json.dumps(SCHEMA, allow_nan=False)) == SCHEMA
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(references(SCHEMA)) <= set(SCHEMA["$defs"])
    assert set(SCHEMA["$defs"]) - {"network", "loss"} <= set(references(SCHEMA)), "nothing is left over"


def test_the_schema_accepts_a_valid_file(load: Callable[..., LoadedOptions]) -> None:
    assert list(errors(SCHEMA, load().tree)) == []


@pytest.mark.parametrize(
    ("path", "value", "fine"),
    [
        ("network_g", {"type": "span", "feature_channels": 64}, True),
        ("network_g", {"type": "SPAN", "scale": 2}, True),
        ("network_g", {"type": "span", "feature_chanels": 64}, False),
        ("network_g", {"type": "Span", "feature_channels": "x"}, False),
        ("network_g", {"type": "from_a_plugin", "anything": 1}, True),
        ("network_g", {"feature_channels": 64}, False),
        ("network_d", {"type": "span", "feature_channels": 64}, True),
        ("network_d", {"type": "span", "feature_chanels": 64}, False),
        ("network_d", None, True),
        ("train.optim_d", {"type": "AdamW", "lr": 1e-4}, True),
        ("train.optim_d", {"type": "AdamW", "rate": 1e-4}, False),
        ("train.losses", [{"type": "L1Loss", "loss_weight": 2}], True),
        ("train.losses", [{"type": "l1loss", "weight": 2}], False),
        ("train.optim_g", {"type": "AdamW", "params": 1}, False),
        ("train.scheduler", {"type": "multistep"}, False),
        ("train.scheduler", {"type": "multistep", "milestones": [1]}, True),
        ("val.metrics", {"psnr": {"type": "calculate_psnr", "crop": 1}}, False),
        ("datasets.val_b", {"dataroot_gt": "x", "type": "Mine"}, True),
        ("datasets.valid", {"dataroot_gt": "x"}, False),
        ("datasets.train.lq_size", 0, False),
        ("training_automations.PlanSchedule", {"changes": [{"step": 1}]}, True),
        ("training_automations.PlanSchedule", {"changes": [{"stop": 1}]}, False),
        ("training_automations.PlanSchedule", {"enabled": False}, True),
        ("training_automations.Mine", {"enabled": True, "x": 1}, True),
        ("training_automations.plan_schedule", {"changes": [{"step": 1}]}, True),
        ("training_automations.plan_schedule", {"changes": [{"stop": 1}]}, False),
        ("training_automations.PLANSCHEDULE", {"change": []}, False),
        ("train.training_automations", {"enabled": False, "PlanSchedule": {"changes": [{"step": 1}]}}, True),
        ("train.training_automations", {"PlanSchedule": {"changes": [{"stop": 1}]}}, False),
        ("model_type", "Mine", True),
        ("zzz", 1, False),
    ],
)
def test_the_schema_flags_what_is_wrong_and_nothing_else(
    load: Callable[..., LoadedOptions], path: str, value: Any, fine: bool
) -> None:
    tree = deepcopy(load().tree)
    *parents, last = path.split(".")
    holder = tree
    for parent in parents:
        holder = holder[parent]
    holder[last] = value
    assert (not list(errors(SCHEMA, tree))) == fine


def test_editors_show_descriptions_units_and_reasons() -> None:
    size = SCHEMA["$defs"]["TrainDataset"]["properties"]["lq_size"]
    assert size["description"] == (
        "[px] Crop size: side of a training crop of the low-quality image. Default: fits 12 GB for most networks at x4."
    )
    assert size["default"] == 64
    (branch, _other) = SCHEMA["$defs"]["network"]["anyOf"]
    assert branch["properties"]["feature_channels"]["description"] == "width | depth."
    assert branch["required"] == ["type"], "scale is filled in"


def test_without_components_everything_is_let_pass(load: Callable[..., LoadedOptions]) -> None:
    schema = json_schema({})
    assert schema["$defs"]["network"]["anyOf"] == [
        {
            "type": "object",
            "description": "A component from a plugin.",
            "properties": {"type": {"type": "string"}},
            "required": ["type"],
        }
    ]


def test_the_reference_names_every_key_and_component() -> None:
    text = markdown_reference(COMPONENTS)
    for _path, section in sections(Options):
        for key in fields_of(section):
            assert f"| `{key}` |" in text
    for entries in COMPONENTS.values():
        for name in entries:
            assert f"### `{name}`" in text
    lines = text.splitlines()
    assert (
        "| `lq_size` | whole number ≥ 1 ≤ 65536 | `64` | px | "
        "Crop size: side of a training crop of the low-quality image. | fits 12 GB for most networks at x4 |"
    ) in lines
    assert "| `feature_channels` | whole number | `48` | width \\| depth. |" in lines
    assert "| `betas` | list of 2: number, number | `[0.9, 0.999]` |  |" in lines
    assert "| `milestones` | list of whole number | **required** |  |" in lines
    assert "| `changes` | list of section `Change` | **required** |  |" in lines
    assert "| `step` | whole number | **required** | when to change. |" in lines
    assert '| `device` | `auto`, `cpu`, `cuda` | `"auto"` |' in text
    assert "`params`" not in text
    assert "The section may stand under `train` instead, and names may be in snake_case (`plan_schedule`)." in lines


def test_every_table_row_has_as_many_cells_as_its_heading() -> None:
    width = 0
    for line in markdown_reference(COMPONENTS).splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) - 1 if line.startswith("|") else 0
        assert not (width and cells) or cells == width
        width = cells


def test_the_reference_holds_the_presets() -> None:
    text = markdown_reference(COMPONENTS)
    section = text.split("## Presets of the controller\n")[1].split("\n## ")[0]
    cards, budgets = (
        {
            cells[0].strip(): [cell.strip() for cell in cells[1:]]
            for line in part.splitlines()
            if "px |" in line
            for cells in [line.strip("|").split("|")]
        }
        for part in section.split("| budget on a CPU |")
    )
    assert cards == {
        f"{card.memory_gib:g} GiB": [
            f"{card.target_vram_usage:.2f}",
            f"{card.safety_margin:.2f}",
            f"{card.min_batch_size}-{card.max_batch_size}",
            f"{card.min_lq_size}-{card.max_lq_size} px",
        ]
        for card in CARDS
    }
    assert budgets["64 MiB"] == ["0.60", "0.05", "1-4", "8-16 px"]
    assert len(budgets) == 6
