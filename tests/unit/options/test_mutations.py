"""Whatever is done to an option file, it loads or is refused in words; nothing else ever comes out.

Runs for TRAINAUTO_FUZZ_SECONDS (5 by default), shared by the three ways to break a file.
"""

import json
import os
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainauto.core.errors import InputError
from trainauto.options.load import load_options

SECONDS = float(os.environ.get("TRAINAUTO_FUZZ_SECONDS", "5"))
ASSETS = Path(__file__).parents[2] / "assets"
VALID = ASSETS / "valid_options.yml"
TEXTS = [VALID.read_text(), *(file.read_text() for file in sorted((ASSETS / "broken_options").glob("*.yml")))]
TREE = load_options(VALID).tree
# Whatever has a meaning in YAML, in JSON or in this schema, and some of what has none.
SNIPPETS = [
    *(
        "'",
        '"',
        "[",
        "]",
        "{",
        "}",
        ":",
        ": ",
        "- ",
        "? ",
        "#",
        " #",
        "&a ",
        "*a",
        "<<: *a",
        "!!float ",
        "!!int x",
        "!",
    ),
    *("!!binary x", "|", ">-\n", "%YAML 9.9", "---", "...", "@", "`", "\t", "  ", "\n", "\r", "\r\n", "\x00", "\x85"),
    *("\ufeff", "\u2028", "\ufffe", '"\\UFFFFFFFF"', '"\\ud800"', "[" * 60, "9" * 5000, "1e999", ".nan", "-.inf", "~"),
    *("yes", "true", "-1", "0", "2.0", "5e3", "''", "[]", "{}", "{a: 1}", "[[1], 2]", "null", "!!str", "=", "train"),
    *("&a [*a]", "{<<: 3}", "0x1f", "0o17", "lq_size: 3", "type: x", "enabled: false", "val_2: {dataroot_gt: [1]}"),
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(SNIPPETS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def refusal(file: Path, data: bytes, overrides: list[str]) -> InputError | None:
    file.write_bytes(data)
    try:
        load_options(file, overrides)
    except InputError as error:
        return error
    return None


def is_readable(error: InputError) -> None:
    assert str(error).strip()
    assert str(error).encode()
    assert error.problems
    for problem in error.problems:
        assert problem.message
        assert problem.place is not None
        assert "\n" not in problem.place.text
        assert 0 <= problem.place.column <= len(problem.place.text) + 1


@st.composite
def broken_text(draw: st.DrawFn) -> bytes:
    """Change lines and characters of a file."""
    lines = draw(st.just(TEXTS[0]) | st.sampled_from(TEXTS)).splitlines(keepends=True)
    for _ in range(draw(st.integers(1, 4))):
        where = draw(st.integers(0, len(lines) - 1)) if lines else 0
        line = lines[where] if lines else ""
        cut = draw(st.integers(0, len(line)))
        piece = draw(st.sampled_from(SNIPPETS) | st.text(max_size=5))
        lines[where : where + 1] = draw(
            st.sampled_from(
                [
                    [],
                    [line, line],
                    [line[:cut] + piece + line[cut:]],
                    [line[:cut] + line[cut + 3 :]],
                    [line.split(":")[0] + ": " + piece + "\n"],
                    [" " * (cut % 9) + line.lstrip(" ")],
                    [line[:cut], "\n", line[cut:]],
                    [line, draw(st.sampled_from(lines or [""]))],
                ]
            )
        )
    return "".join(lines).encode("utf-8", errors="surrogatepass")


@st.composite
def broken_bytes(draw: st.DrawFn) -> bytes:
    """Change bytes of a file, or make it of bytes."""
    data = bytearray(draw(st.just(TEXTS[0]) | st.sampled_from(TEXTS)).encode())
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        data[start : start + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return draw(st.sampled_from([bytes(data), bytes(data[: draw(st.integers(0, len(data)))]), draw(st.binary())]))


@st.composite
def broken_tree(draw: st.DrawFn) -> bytes:
    """Change values, types, keys and the order of nesting; JSON is YAML."""
    tree: Any = deepcopy(TREE)
    for _ in range(draw(st.integers(1, 3))):
        holder = tree
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(holder[key], dict | list) and draw(st.booleans()):
                holder = holder[key]
                continue
            action = draw(st.sampled_from(["set", "set", "delete", "rename", "copy"]))
            if action == "set":
                holder[key] = draw(VALUES)
            elif action == "delete":
                del holder[key]
            elif isinstance(holder, dict):
                old = str(key)
                new = old[1:] + old[:1] if action == "rename" else draw(st.sampled_from([*TREE, *TREE["train"], ""]))
                holder[new] = deepcopy(holder[key])
            break
    return json.dumps(tree, ensure_ascii=draw(st.booleans())).encode("utf-8", errors="surrogatepass")


OVERRIDES = st.lists(
    st.builds(
        lambda keys, equals, value: ":".join(keys) + equals + value,
        st.lists(st.sampled_from([*TREE, *TREE["train"], "0", "3", "type", "x", "", " "]), max_size=4),
        st.sampled_from(["=", "=", "", "=="]),
        st.sampled_from(SNIPPETS) | st.text(max_size=6),
    ),
    max_size=2,
)


@pytest.mark.timeout(SECONDS + 240)
@pytest.mark.parametrize("broken", [broken_text, broken_bytes, broken_tree], ids=lambda strategy: strategy.__name__)
def test_a_broken_file_is_refused_in_words(broken: Callable[[], st.SearchStrategy[bytes]], tmp_path: Path) -> None:
    @settings(max_examples=100, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(broken(), st.just([]) | OVERRIDES)
    def check(data: bytes, overrides: list[str]) -> None:
        error = refusal(tmp_path / "broken.yml", data, overrides)
        if error:
            is_readable(error)

    end = time.monotonic() + SECONDS / 3
    while time.monotonic() < end:
        check()
