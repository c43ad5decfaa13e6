"""`--set` and `--set-file`, secrets, environment variables, aliases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from solarwm.config import expansion, overrides, secrets
from solarwm.config.document import Document, shown
from solarwm.errors.redaction import holds_secret


def document(values: dict[str, Any] | None = None) -> Document:
    return Document(
        "run.yaml", values if values is not None else {"a": {"b": 1, "l": [1, 2]}, "n": None}
    )


def after(*sets: str, files: tuple[str, ...] = ()) -> Document:
    made = document()
    overrides.apply(made, sets, files)
    return made


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("a.b=3", ("a", "b"), 3),
        ("a.b=true", ("a", "b"), True),
        ("a.b=null", ("a", "b"), None),
        ("a.b=1e-4", ("a", "b"), 1e-4),
        ("a.b=[1, 2]", ("a", "b"), [1, 2]),
        ("a.b={c: 1}", ("a", "b"), {"c": 1}),
        ("a..b=3", ("a", "b"), 3),
        ("a.b=off", ("a", "b"), "off"),
        ("a.b=x=y", ("a", "b"), "x=y"),
        ("a.b=/with space/x", ("a", "b"), "/with space/x"),
        ("a.b=/run #3/x", ("a", "b"), "/run #3/x"),
        ("a.b= /x ", ("a", "b"), " /x "),
        ("a.b=two\nlines", ("a", "b"), "two\nlines"),
        ("a.b='/x'  # said", ("a", "b"), "/x"),
        ("n.new.deep=1", ("n", "new", "deep"), 1),
        ("fresh.key=1", ("fresh", "key"), 1),
        ("a.b='007'", ("a", "b"), "007"),
    ],
)
def test_values_are_typed_and_written_where_the_key_says(
    text: str, path: tuple[str, ...], value: object
) -> None:
    made = after(text)
    assert made.faults == []
    found: Any = made.values
    for part in path:
        found = found[part]
    assert found == value
    assert type(found) is type(value)


def test_later_overrides_win_and_say_so() -> None:
    made = after("a.b=1", "a={b: 2}", "a.b=3")
    assert made.values["a"] == {"b": 3}
    assert made.place(("a", "b")) == "--set #3"
    assert made.place(("a",)) == "--set #2"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("nothing", "config.set"),
        ("=1", "config.set"),
        ("...=1", "config.set"),
        ("a.b=", "config.set"),
        ("a.b=${HOME}", "config.set"),
        ("a.b.c=1", "config.set"),
        (".=1", "config.set"),
        ("a.b=010", "config.value"),
        ("a.b=1:30", "config.value"),
        ("a.b=1_000", "config.value"),
        ("a.b={c: 010}", "config.value"),
        ("a.l.0=1", "config.set"),
        ("a.b=[1", "config.syntax"),
        ("a.b={x: 1, x: 2}", "config.duplicate-key"),
        ("a.b=2020-01-01", "config.type"),
        ("a.b=.inf", "config.value"),
    ],
)
def test_malformed_overrides_name_their_ordinal_and_change_nothing(text: str, code: str) -> None:
    made = after("n=1", text)
    (fault,) = made.faults
    assert fault.code == code
    assert fault.where == "--set #2"
    assert made.values["a"] == {"b": 1, "l": [1, 2]}


def test_what_was_typed_is_never_repeated() -> None:
    made = after("hf_SECRET", "a.b=[SECRET", "a.b='SECRET", "a.b={SECRET: 1, SECRET: 2")
    assert len(made.faults) == 4
    assert not any("SECRET" in f"{f} {f.why} {f.fixes}" for f in made.faults)


def test_a_file_gives_its_text_without_the_last_newline(tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes("a: b # 1e-4, 雨\nsecond\n".encode())
    made = after(files=(f"a.b={path}",))
    assert made.values["a"]["b"] == "a: b # 1e-4, 雨\nsecond"
    assert made.place(("a", "b")) == "--set-file #1"


def test_files_that_cannot_be_read_are_faults(tmp_path: Path) -> None:
    (tmp_path / "bin").write_bytes(b"\xff\x00")
    (tmp_path / "big").write_bytes(b"x" * 70_000)
    made = after(files=tuple(f"a.b={tmp_path / name}" for name in ("bin", "big", "none", ".")))
    assert [fault.where for fault in made.faults] == [f"--set-file #{n}" for n in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    "key",
    [
        "token",
        "hf_token",
        "HF-TOKEN",
        "wandbApiKey",
        "aws_secret_access_key",
        "authorization",
        "password",
        "db_password",
        "Secret",
        "private_key",
        "bearer",
        "connection_string",
        "access_token",
        "client_secret",
    ],
)
def test_names_of_secrets_are_known_in_every_form(key: str) -> None:
    assert secrets.names_secret(key)


@pytest.mark.parametrize(
    "key",
    [
        "tokenizer",
        "tokens_per_latent",
        "camera_array_key",
        "token_file",
        "password_file",
        "sp_token_splits",
        "plan_key",
        "author",
        "sample_key",
        "expected_target",
        "key",
        "authored",
        "secretary",
    ],
)
def test_ordinary_names_are_no_secrets(key: str) -> None:
    assert not secrets.names_secret(key)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("https://user:pw@host/x", True),
        ("https://ghp_0123456789@github.com/x", True),
        ("s3://b/k?X-Amz-Signature=abc", True),
        ("https://h/x?a=1&token=t", True),
        ("gs://bucket/key", False),
        ("ssh://git@host/x", False),
        ("https://host/a@b:c", False),
        ("user:pw@host", False),
        ("https://h/x?page=2", False),
        ("ghp_" + "a1B2" * 9, True),
        ("run of hf_" + "AbCd" * 8, True),
        ("AKIA" + "ABCD1234" * 2, True),
        ("sk-" + "abcd-1234" * 3, True),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeK", True),
        ("-----BEGIN RSA PRIVATE KEY-----", True),
        ("/data/x?api_key=abc", True),
        ("h/x?sig=abc", True),
        ("api_key=abc", True),
        ("/a/x=1/y", False),
        ("/data/key=1/token=2", False),
        ("hf_cache/models", False),
        ("ghp_1234567890ab", True),
        ("hf_abcDEF123456", True),
        ("sk-proj-abcdefghijklmnop", True),
        ("aws_secret_access_key=abc", True),
        ("Authorization: Bearer abcdef0123456789", True),
        ("sk-short", False),
        ("/runs/sk-learn-baseline-with-long-name-2024", False),
        ("hf_datasets", False),
        ("/data/task-20240101-abcdefghijk", False),
        ("/data/ghp_notes/AKIA", False),
    ],
)
def test_credentials_in_urls_are_seen(text: str, holds: bool) -> None:
    assert holds_secret(text) is holds


@pytest.mark.parametrize("word", ["a", "a_", "sk-", "-eyJ", "a:", "a://", "hf_", "bearer ", "?a"])
def test_long_texts_are_searched_without_a_hang(word: str) -> None:
    assert not holds_secret(word * (500_000 // len(word)))


def test_secrets_are_found_at_any_depth_and_taken_out() -> None:
    made = document(
        {"m": [{"x": {"api_key": "SECRET"}}, "https://u:SECRET@h"], "token": "", "secret": None}
    )
    secrets.remove(made)
    assert [fault.context["path"] for fault in made.faults] == ["m[0].x.api_key", "m[1]"]
    assert "SECRET" not in repr(made.values)
    assert not any("SECRET" in f"{fault} {fault.why} {fault.fixes}" for fault in made.faults)


def test_environment_variables_are_put_into_texts_only() -> None:
    made = document({"a": "x-${ONE}-${TWO}", "l": ["${ONE}"], "k${ONE}": 1, "n": "$ONE {ONE}"})
    expansion.expand(made, {"ONE": "1", "TWO": "b"})
    assert made.faults == []
    assert made.values == {"a": "x-1-b", "l": ["1"], "k${ONE}": 1, "n": "$ONE {ONE}"}


def test_unset_and_secret_variables_are_faults() -> None:
    made = document({"a": "${NOPE}", "b": "${HF_TOKEN}"})
    expansion.expand(made, {"HF_TOKEN": "SECRET"})
    assert [fault.code for fault in made.faults] == ["config.env-unset", "config.secret"]
    assert "SECRET" not in repr(made.values)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (None, "null"),
        (1.5, "1.5"),
        ("abc", '"abc"'),
        ("hf_AbCdEf0123456789AbCd", "a text"),
        ("https://u:p@h", "a text"),
        ("x" * 60, "a text"),
        ({"a": 1}, "a mapping"),
        ([1, 2], "a list of 2"),
    ],
)
def test_values_are_shown_only_when_they_can_be_no_secret(value: object, text: str) -> None:
    assert shown(value) == text
