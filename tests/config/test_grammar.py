"""Quoting is undone by reading."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from lmtool.cli.values import read_text
from lmtool.config.grammar import override_key, parse_value, quote_text, to_hydra_text


def read_again(text: str) -> str:
    return str(OmegaConf.create({"value": read_text(quote_text(text))})["value"])


@pytest.mark.parametrize(
    "text",
    ["runs/a", "it's", 'a "b"', "back\\slash", "end\\", "a\\'b", "${x}", "\\${x}", "a, b]", "ünï", "x=y", " a ", ""],
)
def test_quoted_and_read_again(text: str) -> None:
    assert read_again(text) == text


@given(st.text(alphabet="ab\\'\"${}=, []:", max_size=12))
def test_any_text_is_read_again(text: str) -> None:
    assert read_again(text) == text


@pytest.mark.parametrize("value", [None, True, 3, 1e-8, "1", "it's", [1, "a,b", [None]], {"a": "x", "b c": [1]}])
def test_a_value_is_read_again(value: object) -> None:
    assert parse_value(to_hydra_text(value)).value() == value


def test_keys() -> None:
    assert [override_key(word) for word in ("a.b=c=d", "+a=1", "++a=1", "~a", "a=null")] == ["a.b", "a", "a", "a", "a"]
