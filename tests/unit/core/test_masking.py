"""No secret is left in a text that others may see, and what is none stays."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainauto.core.masking import names_a_secret, without_secret_value, without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:p@ss@host/x", "http://…@host/x"),
        ("http://u:p/w@host:5000", "http://…@host:5000"),
        ("https://token-as-user@host", "https://…@host"),
        ("u:p/w@host", "…@host"),
        ("me:p@ss@host/db", "…@host/db"),
        ("logger:uri=http://u:p@h and u:p@h", "logger:uri=http://…@h and …@h"),
        ("https://host/x?token=abc", "https://host/x?token=…"),
        ("https://h/x?a=1&X-Amz-Signature=abc&b=2#c", "https://h/x?a=1&X-Amz-Signature=…&b=2#c"),
        ("https://h/x?key=abc&sig=d", "https://h/x?key=…&sig=…"),
        ("https://h/x?password=a:b@c", "https://h/x?password=…"),
        ("Server=h;Pwd=abc;", "Server=h;Pwd=…;"),
        ("train.py --hub-token abc --lr 1", "train.py --hub-token … --lr 1"),
        ("train.py --token=abc --lr 1", "train.py --token=… --lr 1"),
        ("x --token a:b@c y", "x --token … y"),
        ("--force_yml plugin:api_key=a@b:c", "--force_yml plugin:api_key=…"),
        ('{"apiKey": "a \\" b", "n": 1}', '{"apiKey": …, "n": 1}'),
        ("client_secret: 'a b' c", "client_secret: … c"),
        ('password="never closed', "password=… closed"),
        ("Authorization: Bearer abc", "Authorization: …"),
        ("password:\n  abc", "password:\n  …"),
    ],
)
def test_secrets_are_hidden(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
    assert without_secrets(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "me@host",
        "git@github.com:me/code.git",
        "http://127.0.0.1:5000/x?page=2",
        "model@main",
        "see: me@host",
        "max_tokens=5",
        "tokenizer: x",
        "--use-token --lr 1",
        "C:\\runs\\x",
        "key=value",
        "",
        "@",
        "://@",
        "token:",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


@given(st.text(st.characters(exclude_categories=("Z", "C")), min_size=1).filter(lambda text: not set(text) & set("…")))
def test_no_password_without_white_space_is_seen(password: str) -> None:
    secret = f"<{password}>"
    for text in (f"a http://me:{secret}@host b", f"me:{secret}@host", f"x --password {secret}", f"a.secret={secret}"):
        assert secret not in without_secrets(text)


@pytest.mark.parametrize("part", ["token=", "://", "a:", "?key", "--x-", "token: ", "token='", "@", '"\\', "x"])
def test_long_texts_take_no_long_time(part: str) -> None:
    start = time.perf_counter()
    without_secrets(part * 50_000)
    assert time.perf_counter() - start < 2.0


def test_values_are_hidden_by_their_names() -> None:
    secret = ["token", "a.hub_token", "API_KEY", "x.0.apikey", "db.password", "client-secret", "headers.Authorization"]
    assert all(map(names_a_secret, [*secret, "api_keys", "AWS_SECRET_ACCESS_KEY"]))
    assert not any(map(names_a_secret, ["max_tokens", "tokenizer", "token_id", "key", "secretary", ""]))
    assert without_secret_value("token", 1234) == "…"
    assert without_secret_value("api_keys", ["a", "b"]) == "…"
    assert [without_secret_value("token", value) for value in (None, True, "")] == [None, True, ""]
    assert without_secret_value("uris", ["http://u:p@h", 3, None]) == ["http://…@h", 3, None]
