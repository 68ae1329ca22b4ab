import math
from pathlib import Path
from typing import Any

import pytest

from trainauto.core.errors import InputError, Problem
from trainauto.options.yaml_file import parse_yaml, read_yaml


def value_of(text: str) -> Any:
    return parse_yaml(f"it: {text}", "file.yml").value["it"]


def only_problem(text: str) -> Problem:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "file.yml")
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1e4", 1e4),
        (".5", 0.5),
        ("+1.0", 1.0),
        ("5.", 5.0),
        ("-.inf", -math.inf),
        ("!!float 1e-4", 1e-4),
        ("!!float 3", 3.0),
        ("!!int '7'", 7),
        ("!!str 5", "5"),
        ("!!bool true", True),
        ("!!null ''", None),
        ("42", 42),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("true", True),
        ("FALSE", False),
        ("on", "on"),
        ("yes", "yes"),
        ("off", "off"),
        ("n", "n"),
        ("12:30:45", "12:30:45"),
        ("2024-01-31", "2024-01-31"),
        ("1.2.3", "1.2.3"),
        ("null", None),
        ("~", None),
        ("", None),
        ("=", "="),
        ("'1'", "1"),
        ('"a\\tb"', "a\tb"),
        ("[1, [a], {b: c}]", [1, ["a"], {"b": "c"}]),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: Any) -> None:
    read = value_of(text)
    assert read == value
    assert type(read) is type(value)


def test_nan_is_a_number() -> None:
    assert math.isnan(value_of(".NaN"))


def test_anchors_aliases_and_merge_keys() -> None:
    lines = (
        *("base: &base {a: 1, b: 2}", "more: &more {b: 3, c: 4}", "one: {<<: *base, b: 5}"),
        *("both: {<<: [*more, *base]}", "two: *base"),
    )
    assert parse_yaml("\n".join(lines), "f").value == {
        "base": {"a": 1, "b": 2},
        "more": {"b": 3, "c": 4},
        "one": {"a": 1, "b": 5},
        "both": {"b": 3, "c": 4, "a": 1},
        "two": {"a": 1, "b": 2},
    }


def test_aliases_are_copies() -> None:
    tree = parse_yaml("a: &a [1]\nb: *a", "f").value
    tree["a"].append(2)
    assert tree["b"] == [1]


def test_places_of_keys_and_values() -> None:
    text = "a:\n  - b: 1\n  - {c: 2, 'd': x}\ne: &e {f: 3}\ng: {<<: *e}\nh: *e\n"
    places = parse_yaml(text, "file.yml").places
    assert str(places.of_key(("a", 0, "b"))) == "file.yml:2:5"
    assert str(places.of_value(("a", 0, "b"))) == "file.yml:2:8"
    assert str(places.of_value(("a", 1, "c"))) == "file.yml:3:9"
    assert str(places.of_key(("a", 1, "d"))) == "file.yml:3:12"
    assert str(places.of_key(("g", "f"))) == "file.yml:4:8", "a merged key stands where it is written"
    assert str(places.of_value(("h",))) == "file.yml:6:4", "an alias stands where it is used"
    assert str(places.of_value(("h", "f"))) == "file.yml:4:11"
    assert places.of_key(("e", "f")).text == "e: &e {f: 3}"


def test_what_has_no_place_is_answered_with_the_nearest_parent() -> None:
    places = parse_yaml("# comment\n\na:\n  b: 1\n", "file.yml").places
    assert str(places.of_key(("a", "missing", 3))) == "file.yml:3:1"
    assert str(places.of_value(("a", "b", "missing"))) == "file.yml:4:3"
    assert str(places.of_value(("missing",))) == "file.yml:3:1"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_lines_are_counted_as_editors_do(newline: str) -> None:
    places = parse_yaml(newline.join(["a: 1", "b: 'x\u2028y'", "c: 3"]), "f").places
    assert (places.of_key(("c",)).line, places.of_key(("c",)).text) == (3, "c: 3")


def test_all_duplicates_are_reported_with_both_lines() -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml("a: 1\nb:\n  x: 1\n  'x': 2\na: 3\n", "f")
    assert [problem.message for problem in caught.value.problems] == [
        "the key 'x' is given twice, on lines 3 and 4",
        "the key 'a' is given twice, on lines 1 and 5",
    ]


@pytest.mark.parametrize("key", ["1", "true", "~", "1.5", "[a]", "{a: b}"])
def test_keys_are_text(key: str) -> None:
    assert only_problem(f"? {key}\n: 1\n").message == "a key must be text"


@pytest.mark.parametrize("tag", ["!mine", "!!python/object:os.system", "!!binary", "!!timestamp", "!!set"])
def test_other_tags_are_refused_with_their_place(tag: str) -> None:
    problem = only_problem(f"a: 1\nb: {tag} " + ("{x}" if tag == "!!set" else "x"))
    assert (problem.place and problem.place.line, problem.place and problem.place.column) == (2, 4)
    assert tag in problem.message


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: [*a]}", "a: &a {<<: *a}", "&a a: {b: &b [*b]}"])
def test_recursive_aliases_are_refused(text: str) -> None:
    assert only_problem(text).message == "this alias contains itself"


@pytest.mark.parametrize("item", ["[{}]", "{{a: {0}, b: {0}, c: {0}, d: {0}, e: {0}, f: {0}, g: {0}, h: {0}}}", "<<"])
def test_alias_bombs_are_refused(item: str) -> None:
    lines = ["a0: &a0 {k: v, l: v, m: v, n: v, o: v}"]
    for level in range(1, 9):
        alias = f"*a{level - 1}"
        if item == "<<":
            content = "{" + ", ".join(f"k{number}: {{<<: [{', '.join([alias] * 8)}]}}" for number in range(8)) + "}"
        elif item == "[{}]":
            content = "[" + ", ".join([alias] * 8) + "]"
        else:
            content = item.format(alias)
        lines.append(f"a{level}: &a{level} {content}")
    assert only_problem("\n".join(lines)).message == "aliases multiply this file beyond reason"


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("a:\n\tb: 1\n", (2, 1), "a tab"),
        ("a: 'b\nc: d\n", (1, 4), "a quote is opened"),
        ('a: "\\q"', (1, 6), "a backslash"),
        ('a: "\\UFFFFFFFF"', (1, 7), "names no character"),
        ('a: "\\ud800"', (1, 4), "half a character"),
        ("a: b: c", (1, 5), "a ':' where"),
        ("a: - b", (1, 4), "a list item where"),
        ("a: 1\nb\nc: 2", (2, 1), "neither 'key: value' nor"),
        ("a: [1, 2\nb: 3", (1, 4), "a bracket"),
        ("a: {b: 1\n", (1, 4), "a bracket"),
        ("a: *.png", (1, 4), "cannot begin with *"),
        ("a: *b", (1, 4), "no anchor"),
        ("a: &x 1\nb: &x 2", (2, 4), "this anchor was already set on line 1"),
        ("a: @b", (1, 4), "cannot begin with @"),
        ("a: 1\n---\nb: 1", (2, 1), "a second YAML document"),
        ("a: " + "[" * 60, (1, 53), "nested too deeply"),
        ("a: \x07", (1, 4), "U+0007"),
        ("a: 1\n\ufffe: 1", (2, 1), "U+FFFE"),
        ("a: 9223372036854775808", (1, 4), "more than 64 bits"),
        ("a: " + "9" * 5000, (1, 4), "more than 64 bits"),
        ("a: !!float b", (1, 4), "is not a number"),
        ("a: !!int 1e3", (1, 4), "is not a whole number"),
        ("a: !!bool on", (1, 4), "is neither true nor false"),
        ("a: !!null x", (1, 4), "is not null"),
        ("<<: 3", (1, 5), "<< merges"),
        ("%YAML 3.0\n---\na: 1", (1, 1), "this is not YAML"),
    ],
)
def test_syntax_errors_have_a_place_and_advice(text: str, place: tuple[int, int], what: str) -> None:
    problem = only_problem(text)
    assert problem.place is not None
    assert (problem.place.line, problem.place.column) == place, str(problem)
    assert what in problem.message
    assert problem.advice


def test_a_long_chain_of_merges_is_refused_before_python_gives_up() -> None:
    lines = ["a0: &a0 {k: v}", *(f"a{n}: &a{n} {{<<: *a{n - 1}}}" for n in range(1, 2000))]
    assert only_problem("\n".join(lines)).message == "this is nested too deeply"


def test_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    file = tmp_path / "options.yml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_yaml(file).value == {"a": 1}


@pytest.mark.parametrize(
    ("data", "place", "what"),
    [
        (b"a: 1\nb: \xff", (2, 4), "0xff"),
        (b"\xef\xbb\xbfa: 1\nb: \xc3\xa4\xff", (2, 5), "0xff"),
        ("a: 1".encode("utf-16"), (0, 0), "UTF-16"),
        (b"a" * (2**20 + 1), (0, 0), "larger than 1 MiB"),
    ],
)
def test_bytes_that_are_no_option_file(tmp_path: Path, data: bytes, place: tuple[int, int], what: str) -> None:
    file = tmp_path / "options.yml"
    file.write_bytes(data)
    with pytest.raises(InputError, match=what) as caught:
        read_yaml(file)
    (problem,) = caught.value.problems
    assert problem.place is not None
    assert (problem.place.line, problem.place.column) == (place if place[0] else (0, 0))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "train_span.yml").touch()
    (tmp_path / "paired.yml").touch()
    for path, what in [
        (tmp_path, "this is a folder"),
        (tmp_path / "train_spam.yml", "Did you mean 'train_span.yml'?"),
        (tmp_path / "nofile.yml", "Check the path"),
        (tmp_path / "nowhere" / "x.yml", "cannot be read either"),
        (tmp_path / "train_span.yml" / "x.yml", "Not a directory"),
        (tmp_path / "a\0b", "cannot be read"),
    ]:
        with pytest.raises(InputError, match=what.replace("?", r"\?")):
            read_yaml(path)


def test_one_very_long_line_is_read_in_reasonable_time() -> None:
    items = ", ".join(str(number) for number in range(20_000))
    assert len(value_of(f"[{items}]")) == 20_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: 1\nscale:4\nb: 2\n", (2, 1)),
        ("a: 1\nscale:4", (2, 1)),
        ("a: 1\nscale:4 # why\n\n# more\nb:\n  c: 1\n", (2, 1)),
        ("a:\n  scale:4\n  b:\n    c: 1\n", (2, 3)),
        ("a:\n  b: 1\n  scale:4\n  d:\n    c: 1\n", (3, 3)),
        ("scale:4\na: 1\n", (1, 1)),
        ("a: {scale:4, b: 1}\n", (1, 5)),
    ],
)
def test_a_missing_space_is_shown_where_it_is_missing(text: str, place: tuple[int, int]) -> None:
    problem = only_problem(text)
    assert problem.place is not None
    assert (problem.place.line, problem.place.column) == place, str(problem)
    assert (problem.message, problem.advice) == ("no space follows the ':' of 'scale'", "Write `scale: 4`.")


def test_texts_with_colons_are_texts() -> None:
    text = "a: [http://x/y, 'c:d', e:f]\nb:\n  C:\\images:\n  'k:v':\n"
    assert parse_yaml(text, "f").value == {
        "a": ["http://x/y", "c:d", "e:f"],
        "b": {"C:\\images": None, "k:v": None},
    }
