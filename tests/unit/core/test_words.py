"""Text from outside, made safe to be shown."""

import pytest

from trainauto.core.words import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, ü and 漢字", "plain text, ü and 漢字"),
        ("red \x1b[31m", r"red \x1b[31m"),
        ("two\nlines\t", r"two\nlines\t"),
        ("turned \u202e round \u2066", r"turned \u202e round \u2066"),
        ("half \ud83d of a pair", r"half \ud83d of a pair"),
        ("\x00\x7f\x9b", r"\x00\x7f\x9b"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("<script>", "<script>"),  # a page escapes it, a terminal shows it
    ],
)
def test_what_would_be_acted_on_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_long_text_ends_in_an_ellipsis() -> None:
    assert visible("a" * 300, 300) == "a" * 300
    assert visible("a" * 301, 300) == "a" * 299 + "…"
    assert len(visible("\x1b" * 10_000, 300)) == 300
