"""Samples in JSON lines: texts, prompts with completions, pairs, or chats."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainauto.core.errors import InputError, Place, Problem, nearest
from trainauto.core.json_text import from_json
from trainauto.tasks.text.training.text_samples import Chat, Completion, Content, PlainText, TextPair, TextSample

KEYS = ("text", "prompt", "completion", "source", "target", "messages")
KINDS = "A sample has text, or prompt and completion, or source and target, or messages."
MESSAGE = 'A message is {"role": "user" or "assistant" or "system", "content": "words"}.'


def json_samples(file: Path, text: str) -> Iterator[TextSample]:
    """Yield the samples of a file, one a line; empty lines are none. Keys that mean nothing here are left aside.

    Raises:
        InputError: a line is no sample; it names the line.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield TextSample(f"{file}:{number}", _Line(file, number, line).content())


@dataclass(frozen=True)
class _Line:
    """A line of a file, which errors point at."""

    file: Path
    number: int
    text: str

    def content(self) -> Content:
        try:
            entry = from_json(self.text)
        except ValueError as error:
            advice = 'Each line of a .jsonl file is one object; quotes within words are written \\".'
            what, column = getattr(error, "msg", str(error)), getattr(error, "colno", 1)
            raise self._error(f"this line is no JSON: {what}", advice, column) from error
        if not isinstance(entry, dict):
            raise self._error(f"this line is a {type(entry).__name__}, no JSON object", KINDS)
        if "messages" in entry:
            return Chat(self._messages(entry["messages"]))
        for first, second, kind in (("prompt", "completion", Completion), ("source", "target", TextPair)):
            if first in entry and second in entry:
                return kind(self._words(entry, first), self._words(entry, second))
        if "text" in entry:
            return PlainText(self._words(entry, "text"))
        near = (nearest(key, KEYS, "") for key in entry if key not in KEYS)
        hint = next((advice for advice in near if advice.startswith("Did you mean")), "")
        what = f"has the keys {', '.join(map(repr, entry))}" if entry else "is an empty object"
        raise self._error(f"this line {what}", f"{KINDS} {hint}".strip())

    def _words(self, entry: dict[str, Any], key: str) -> str:
        words = entry[key]
        if not isinstance(words, str):
            raise self._error(f"'{key}' is no text but {words!r:.40}")
        return words

    def _messages(self, messages: Any) -> tuple[tuple[str, str], ...]:
        if not isinstance(messages, list) or not messages:
            raise self._error("'messages' is no list of messages", MESSAGE)
        for message in messages:
            if not isinstance(message, dict) or not isinstance(message.get("content"), str) or "role" not in message:
                raise self._error(f"{message!r:.60} is no message", MESSAGE)
        if not any(message["role"] == "assistant" for message in messages):
            advice = 'Add what is to be learned: {"role": "assistant", "content": "words"}; or remove the line.'
            raise self._error(
                "no message has the role 'assistant', so that nothing of this chat would be learned", advice
            )
        return tuple((str(message["role"]), message["content"]) for message in messages)

    def _error(self, message: str, advice: str = "", column: int = 1) -> InputError:
        return InputError(Problem(message, place=Place(str(self.file), self.number, column, self.text), advice=advice))
