"""What became of a file, for people at a terminal of 80 columns."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from trainauto.conversion.answers import ITS_NAME, ITS_PLACE, Answer, Kind
from trainauto.conversion.convert import Conversion
from trainauto.conversion.draft import leaves, value_in
from trainauto.conversion.writing import scalar_text
from trainauto.core.words import counted, visible
from trainauto.options.source_locations import dotted

WIDTH = 80
_LONGEST = 40
"""Characters of a value."""


def report_lines(conversion: Conversion) -> Iterator[str]:
    """Yield what became of the keys of a file, kind by kind."""
    carried = sum(keys_of(conversion, answer) for answer in conversion.of(Kind.CARRIED))
    yield f"carried: {counted(carried, 'key')}, as they are"
    mapped = conversion.of(Kind.MAPPED)
    written = [answer for answer in mapped if answer.new is not None]
    yield from _block("written otherwise:", [*_elsewhere(written), *map(_change, _changed(written))])
    yield from _block("need not be written:", _grouped([answer for answer in mapped if answer.new is None]))
    yield from _block("written out, since defaults differ:", _additions(conversion.of(Kind.ADDED)))
    yield from _block("left out:", _grouped(conversion.of(Kind.LEFT_OUT)))
    yield from _block("unknown:", _grouped(conversion.of(Kind.UNKNOWN)))
    yield from _block("differs:", [("", answer.why) for answer in conversion.of(Kind.DIFFERS)])
    yield from _block("not here yet; change it in the file before it can be used:", _missing(conversion))


def keys_of(conversion: Conversion, answer: Answer) -> int:
    """Return how many keys of their file an answer is about."""
    return sum(max(1, sum(1 for _ in leaves(value_in(conversion.theirs, path)))) for path in answer.source)


def _block(heading: str, items: Iterable[tuple[str, str]]) -> Iterator[str]:
    found = list(items)
    if not found:
        return
    yield ""
    yield heading
    for line, why in found:
        if line:
            yield from _wrapped(line, "  ")
        if why:
            yield from _wrapped(why, "    " if line else "  ")


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        visible(text), WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False
    )


def _is_elsewhere(answer: Answer) -> bool:
    """Return whether a key has only another place: its name and value are the same."""
    target, source = answer.target or ((),), answer.source[0]
    return len(answer.source) == 1 and answer.old == answer.new and source[-1] == target[-1] and not _why(answer)


def _changed(answers: Sequence[Answer]) -> list[Answer]:
    return [answer for answer in answers if not _is_elsewhere(answer)]


def _elsewhere(answers: Sequence[Answer]) -> Iterator[tuple[str, str]]:
    """Yield keys that only moved, those of a section together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for answer in filter(_is_elsewhere, answers):
        target = answer.target or ()
        places = dotted(answer.source[0][:-1]), dotted(target[:-1]) or "the top level"
        groups.setdefault(places, []).append(str(target[-1]))
    for (source, target_place), keys in groups.items():
        yield f"{source}: {', '.join(keys)} -> {target_place}", ""


def _why(answer: Answer) -> str:
    return "" if answer.why in (ITS_NAME, ITS_PLACE) else answer.why


def _change(answer: Answer) -> tuple[str, str]:
    old = f"{' + '.join(dotted(path) for path in answer.source)}: {_short(answer.old)}"
    target = answer.target or ()
    if answer.source == (target,):
        return f"{old} -> {_short(answer.new)}", _why(answer)
    return f"{old} -> {dotted(target)}: {_short(answer.new)}", _why(answer)


def _additions(answers: Sequence[Answer]) -> Iterator[tuple[str, str]]:
    groups: dict[str, list[str]] = {}
    for answer in answers:
        groups.setdefault(answer.why, []).append(f"{dotted(answer.target or ())}: {_short(answer.new)}")
    for why, lines in groups.items():
        yield ", ".join(lines), why


def _missing(conversion: Conversion) -> Iterator[tuple[str, str]]:
    for answer in conversion.of(Kind.MISSING):
        near = f"; nearest: {answer.near}" if answer.near else ""
        yield f"{dotted(answer.source[0])}: {_short(answer.old)}", f"{answer.why}{near}"


def _grouped(answers: Sequence[Answer]) -> Iterator[tuple[str, str]]:
    """Yield keys that are left out for the same reason together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for answer in answers:
        groups.setdefault((answer.why, answer.near), []).extend(dotted(path) for path in answer.source)
    for (why, near), keys in groups.items():
        yield ", ".join(keys), f"{why}; nearest: {near}" if near else why


def _short(value: object) -> str:
    text = scalar_text(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
