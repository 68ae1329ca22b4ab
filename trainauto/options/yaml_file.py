"""Reading option files into plain Python values that remember where they stood.

Stricter than YAML: keys are text and unique, only the tags of plain values are known, and aliases cannot grow a small
file into a large one.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.error import Mark, MarkedYAMLError

from trainauto.core.errors import InputError, Place, Problem
from trainauto.options.file_text import read_text
from trainauto.options.scalars import PREFIX, RESOLVERS, ScalarError, scalar
from trainauto.options.source_locations import KeyPath, Places, Source, printable
from trainauto.options.yaml_errors import glued, glued_problem, syntax_problem

LARGEST_DEPTH = 50
LARGEST_ALIASED_COUNT = 10_000

# Everything YAML does not allow in a stream, and U+FFFE/U+FFFF, half characters included.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class YamlTree:
    """The values of a file and where they stand.

    Attributes:
        value: dicts, lists and scalars.
        places: place of every key and value.
    """

    value: Any
    places: Places


def read_yaml(path: Path, problems: list[Problem] | None = None) -> YamlTree:
    """Read the YAML file at ``path``; ``problems`` as in :func:`parse_into`.

    Raises:
        InputError: it cannot be read, or is not the YAML described in this module.
    """
    return parse_yaml(read_text(path), printable(str(path)), problems)


def parse_yaml(text: str, file: str, problems: list[Problem] | None = None) -> YamlTree:
    """Parse the text of a file.

    Args:
        text: the YAML document.
        file: how to call it in messages.
        problems: as in :func:`parse_into`.

    Raises:
        InputError: it is not the YAML described in this module.
    """
    source = Source(file, text)
    places = Places(source.place(len(text) - len(text.lstrip())))
    return YamlTree(parse_into(places, (), source, problems=problems), places)


def parse_into(
    places: Places,
    path: KeyPath,
    source: Source,
    *,
    key: Place | None = None,
    problems: list[Problem] | None = None,
) -> Any:
    """Parse ``source`` as the value at ``path``, recording its places in ``places``.

    Args:
        places: where to record.
        path: path of the value; nothing may be known of it yet.
        source: text of the value.
        key: place of the key of ``path``; without one, the value's own.
        problems: gets what is wrong with single keys and values, such as one that is there twice. The rest is then
            read. Without it, that is an error.

    Raises:
        InputError: the text is not the YAML described in this module.
    """
    forbidden = _FORBIDDEN.search(source.text)
    if forbidden:
        raise InputError(
            Problem(
                f"the character U+{ord(forbidden[0]):04X} is not allowed in YAML",
                source.place(forbidden.start()),
                "Remove it; it does not show in most editors.",
            )
        )
    node = _composed(source)
    builder = _Builder(source, places)
    value = None if node is None else builder.value(node, path, key)
    if node is None:
        places.put(path, key or source.place(0), source.place(0))
    found = sorted(builder.problems, key=_position)
    if problems is not None:
        problems += found
    elif found:
        raise InputError(found)
    return value


def _position(problem: Problem) -> tuple[int, int]:
    return (problem.place.line, problem.place.column) if problem.place else (0, 0)


class _AliasNode(yaml.Node):
    """An alias where it is used; PyYAML itself keeps only the place of the anchor."""

    id = "alias"

    def __init__(self, target: yaml.Node, start: Mark) -> None:
        super().__init__("", target, start, start)
        self.target = target


class _Loader(yaml.SafeLoader):
    """Composes nodes with the scalars of YAML 1.2, limited depth, and marks of aliases."""

    yaml_implicit_resolvers = RESOLVERS
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        start: Any = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # the stubs leave it bare
        if self.check_event(yaml.AliasEvent):
            target = super().compose_node(parent, index)
            return _AliasNode(target, start) if target else None
        self.depth += 1
        if self.depth > LARGEST_DEPTH:
            raise ComposerError(None, None, "nested too deeply", start)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _composed(source: Source) -> yaml.Node | None:
    loader = _Loader(source.yaml)
    try:
        return loader.get_single_node()
    except MarkedYAMLError as error:
        raise InputError(syntax_problem(error, source)) from None
    except (ValueError, OverflowError):
        # PyYAML converts some digits without looking: "\UFFFFFFFF" and %YAML directives with endless versions.
        problem = Problem("this number names no character", source.place(loader.index), "Correct the escape.")
        raise InputError(problem) from None
    finally:
        loader.dispose()


class _Builder:
    """Turns nodes into values, collecting problems on the way."""

    def __init__(self, source: Source, places: Places) -> None:
        self.problems: dict[Problem, None] = {}
        self._source = source
        self._places = places
        self._open: set[int] = set()
        # Without aliases there is at most one key and one value a character.
        self._left = 2 * len(source.text) + LARGEST_ALIASED_COUNT
        self._last_alias: Place | None = None

    def value(self, node: yaml.Node, path: KeyPath, key: Place | None = None) -> Any:
        """Return the value of ``node`` and record the places of everything in it.

        Raises:
            InputError: aliases make it endless or far larger than the text.
        """
        here = self._source.place(node.start_mark.index)
        self._places.put(path, key or here, here)
        self._count(here)
        if isinstance(node, _AliasNode):
            node, self._last_alias = node.target, here
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, here)
        if node.tag not in (PREFIX + "map", PREFIX + "seq"):
            self._add(f"the tag {node.tag.replace(PREFIX, '!!')} is not known here", here, "Remove the tag.")
        with self._inside(node, here):
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, (*path, number)) for number, item in enumerate(node.value)]
            pairs = self._pairs(node)
            return {name: self.value(item, (*path, name), place) for name, (place, item) in pairs.items()}

    def _pairs(self, node: yaml.Node) -> dict[str, tuple[Place, yaml.Node]]:
        """Return the keys of a mapping with their places and values; its own win over merged ones, which come first."""
        own: dict[str, tuple[Place, yaml.Node]] = {}
        merged: dict[str, tuple[Place, yaml.Node]] = {}
        for key, item in node.value:
            here = self._source.place(key.start_mark.index)
            self._count(here)
            target = key.target if isinstance(key, _AliasNode) else key
            if target.tag == PREFIX + "merge":
                for name, pair in self._merged(item).items():
                    merged.setdefault(name, pair)
                continue
            own_name = self._scalar(target, here) if isinstance(target, yaml.ScalarNode) else None
            if isinstance(own_name, str) and _is_plain(target) and _is_absent(item) and (parts := glued(own_name)):
                # In {type:x}, all is one key without a value.
                own_name = parts[0]
                self.problems[glued_problem(*parts, here)] = None
                item = _plain_node(parts[1], item)
            if not isinstance(own_name, str):
                self._add("a key must be text", here, "Put the key in quotes.")
            elif own_name in own:
                lines = f"on lines {own[own_name][0].line} and {here.line}"
                self._add(f"the key '{_cut(own_name)}' is given twice, {lines}", here, "Remove one of the two.")
            else:
                own[own_name] = (here, item)
        return {**merged, **own}

    def _merged(self, node: yaml.Node) -> dict[str, tuple[Place, yaml.Node]]:
        """Return the pairs that the value of a merge key ``<<`` brings; of several mappings the first wins."""
        here = self._source.place(node.start_mark.index)
        target = node.target if isinstance(node, _AliasNode) else node
        pairs: dict[str, tuple[Place, yaml.Node]] = {}
        if isinstance(target, yaml.ScalarNode):
            self._add("<< merges a section or a list of sections", here, "Give it an alias such as *NAME.")
            return pairs
        with self._inside(target, here):
            if isinstance(target, yaml.MappingNode):
                return self._pairs(target)
            for item in target.value:
                for name, pair in self._merged(item).items():
                    pairs.setdefault(name, pair)
        return pairs

    def _scalar(self, node: yaml.ScalarNode, here: Place) -> Any:
        try:
            return scalar(node.tag, node.value)
        except ScalarError as error:
            self._add(f"'{_cut(node.value)}' {error}", here, error.advice)

    @contextmanager
    def _inside(self, node: yaml.Node, here: Place) -> Iterator[None]:
        """Hold ``node`` open while its content is built."""
        if id(node) in self._open:
            raise InputError(Problem("this alias contains itself", here, "Write the values out."))
        if len(self._open) >= LARGEST_DEPTH:
            raise InputError(Problem("this is nested too deeply", here, "Option files need less than ten levels."))
        self._open.add(id(node))
        yield
        self._open.discard(id(node))

    def _count(self, here: Place) -> None:
        self._left -= 1
        if self._left < 0:
            message = "aliases multiply this file beyond reason"
            raise InputError(Problem(message, self._last_alias or here, "Write the values out."))

    def _add(self, message: str, place: Place, advice: str) -> None:
        # A section that is merged in several places would report its problems each time.
        self.problems[Problem(message, place, advice)] = None


def _is_plain(node: Any) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None


def _is_absent(node: yaml.Node) -> bool:
    return _is_plain(node) and not node.value


def _plain_node(text: str, where: yaml.Node) -> yaml.ScalarNode:
    """Return the node of an unquoted text in the place of another node."""
    tag = next((tag for tag, pattern in RESOLVERS[None] if pattern.match(text)), f"{PREFIX}str")
    return yaml.ScalarNode(tag, text, where.start_mark, where.end_mark)


def _cut(text: str) -> str:
    return printable(text if len(text) <= 40 else text[:37] + "...")
