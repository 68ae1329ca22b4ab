"""What is learned, beside the training templates of TRL, which mark it (issue 20, part 3; D03).

They are read from the installed package, which is in no extra: datasets, which it brings, would be loaded by every
process that loads a Trainer.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.unit.tasks.finetune.test_encoding import CONVERSATIONS
from tests.vision_models import processor_of
from trainauto.tasks.finetune.supervision import Supervision

SPEC = find_spec("trl")
pytestmark = pytest.mark.skipif(SPEC is None, reason="trl is not installed")

FAMILIES = {
    "qwen3_vl": "qwen3_vl",
    "qwen2_5_vl": "qwen2_5_vl",
    "llava_next": "llava",
    "gemma3": "qwen3_vl",
    "smolvlm": "qwen3_vl",
    "idefics3": "qwen3_vl",
}
"""Templates of vision-language models, and the family whose tokenizer cuts what they write."""


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("conversation", CONVERSATIONS.values(), ids=CONVERSATIONS.keys())
def test_rendering_turn_by_turn_learns_what_marked_templates_do(name: str, conversation: object) -> None:
    assert SPEC is not None
    assert SPEC.origin is not None
    folder = Path(SPEC.origin).parent / "chat_templates"
    learned = []
    for template in (f"{name}.jinja", f"{name}_training.jinja"):
        processor = processor_of(FAMILIES[name])
        processor.chat_template = (folder / template).read_text(encoding="utf-8")
        _, tokens, mask = Supervision(processor).of(conversation)  # type: ignore[arg-type]
        learned.append([(token, bool(mark)) for token, mark in zip(tokens, mask, strict=True)])
    assert learned[0] == learned[1]
