"""Where each key and value of an option file stands."""

import re
from bisect import bisect_right

from trainauto.core.errors import Place

KeyPath = tuple[str | int, ...]
"""Keys and list positions from the top of a file down to a value, e.g. ``("train", "losses", 0, "type")``."""

_LINE_END = re.compile(r"\r\n|\r|\n")


def dotted(path: KeyPath) -> str:
    """Return ``path`` as people write it: ``train.losses[0].type``."""
    words = ""
    for key in path:
        words += f"[{key}]" if isinstance(key, int) else f".{key}" if words else key
    return words


def printable(text: str) -> str:
    """Return ``text`` with whatever a terminal would not show in one column replaced, character by character."""
    return "".join(character if character.isprintable() else " " if character == "\t" else "?" for character in text)


class Source:
    r"""A text under the name people know it by; it turns positions in the text into places.

    Lines end as editors end them (``\n``, ``\r\n``, ``\r``); YAML's other line ends do not count.

    Args:
        file: name of the file or of the command-line argument.
        text: what it holds.
        start: where the YAML in it begins; what comes before is shown with problems but not parsed.
    """

    def __init__(self, file: str, text: str, start: int = 0) -> None:
        self.file = file
        self.text = text
        # Blanks keep the columns of the rest.
        self.yaml = " " * start + text[start:]
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(text))]
        self._lines: dict[int, str] = {}

    def place(self, index: int) -> Place:
        """Return the place of the character at ``index``."""
        index = max(0, min(index, len(self.text)))
        line = bisect_right(self._starts, index)
        start = self._starts[line - 1]
        return Place(self.file, line, index - start + 1, self._line(line))

    def _line(self, line: int) -> str:
        # Kept, since a line may hold any number of values.
        if line not in self._lines:
            end = self._starts[line] if line < len(self._starts) else len(self.text)
            self._lines[line] = printable(self.text[self._starts[line - 1] : end].rstrip("\r\n"))
        return self._lines[line]


class Places:
    """Place of every key and every value by its path; what has none is answered with the nearest known parent.

    Args:
        root: where the text as a whole begins.
    """

    def __init__(self, root: Place) -> None:
        self._keys: dict[KeyPath, Place] = {(): root}
        self._values: dict[KeyPath, Place] = {}

    def of_key(self, path: KeyPath) -> Place:
        """Return the place of the key at ``path`` (of the item, in a list), or that of its nearest known parent."""
        while path not in self._keys:
            path = path[:-1]
        return self._keys[path]

    def of_value(self, path: KeyPath) -> Place:
        """Return the place of the value at ``path``, or that of the key of its nearest known parent."""
        return self._values.get(path) or self.of_key(path)

    def put(self, path: KeyPath, key: Place, value: Place) -> None:
        """Record where the key and the value at ``path`` stand."""
        self._keys[path] = key
        self._values[path] = value

    def remove(self, path: KeyPath) -> None:
        """Drop what is known of ``path`` and of everything below it."""
        for table in (self._keys, self._values):
            for place in [place for place in table if place[: len(path)] == path]:
                del table[place]

    def move(self, path: KeyPath, to: KeyPath) -> None:
        """Answer for what is below ``to`` with the places that were known below ``path``."""
        for table in (self._keys, self._values):
            for place in [place for place in table if place[: len(path)] == path]:
                table[(*to, *place[len(path) :])] = table.pop(place)
