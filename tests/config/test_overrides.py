"""Quoting is undone by reading."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmtool.config.overrides import key_of, quoted, value_of
from lmtool.errors import UserError


@pytest.mark.parametrize(
    "text",
    ["runs/a", "it's", 'a "b"', "back\\slash", "end\\", "a\\'b", "${x}", "\\${x}", "a, b]", "ünï", "x=y", " a ", ""],
)
def test_quoted_and_read_again(text: str) -> None:
    assert value_of(f"resume={quoted(text)}") == text


@given(st.text(alphabet="ab\\'\"${}=, []:", max_size=12))
def test_any_text_is_read_again(text: str) -> None:
    assert value_of(f"resume={quoted(text)}") == text


def test_keys() -> None:
    assert [key_of(word) for word in ("a.b=c=d", "+a=1", "++a=1", "~a", "a=null")] == ["a.b", "a", "a", "a", "a"]
    assert value_of("resume=null") == "" and value_of("resume=a/b") == "a/b"
    assert [value_of(f"resume={text}") for text in ("12", "a,b", "[a,b]", "")] == ["12", "a,b", "[a,b]", ""]


def test_what_cannot_be_read_is_one_line() -> None:
    with pytest.raises(UserError, match=r"cannot read 'resume=a\[': write key=value"):
        value_of("resume=a[")
