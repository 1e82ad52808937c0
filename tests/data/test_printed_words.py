"""Dashes cut words, hyphens do not; a closing quote is one token; marks that a vocabulary lacks name their remedy."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from lmtool.config.data import WordRule
from lmtool.data.printed_words import cut_word, known_form
from tests.commands.test_surprisal import ARPA

# By hand. The names of the characters say what is a hyphen: HYPHEN, NON-BREAKING HYPHEN, HEBREW PUNCTUATION MAQAF.
CUT = {
    "think\u2014well": "think \u2014 well",  # em dash
    "1914\u20131918": "1914 \u2013 1918",  # en dash
    "so\u2015he": "so \u2015 he",  # horizontal bar
    "so\u2e3ahe": "so \u2e3a he",  # two-em dash
    "think--well": "think -- well",
    "a---b": "a --- b",
    "a\u2014\u2014b": "a \u2014\u2014 b",
    "\u2014well": "\u2014 well",
    "well\u2014": "well \u2014",
    "\u2014": "\u2014",
    "--": "--",
    "well-known\u2014though": "well-known \u2014 though",
    "well-known": "well-known",
    "well\u2010known": "well\u2010known",  # hyphen
    "well\u2011known": "well\u2011known",  # non-breaking hyphen
    "\u05d0\u05be\u05d1": "\u05d0\u05be\u05d1",  # maqaf
    "\u056f\u058a\u056f": "\u056f\u058a\u056f",  # Armenian hyphen
}


@pytest.mark.parametrize("rule", [WordRule.punctuation, WordRule.ptb])
def test_words_are_cut_at_dashes_and_not_at_hyphens(rule: WordRule) -> None:
    assert {word: " ".join(cut_word(word, rule)) for word in CUT} == CUT
    assert [cut_word(word, WordRule.whitespace) for word in CUT] == [[word] for word in CUT]


def test_what_stands_beside_a_dash_is_cut_as_elsewhere() -> None:
    word = "\u201cYes,\u201d\u2014\u201cNo.\u201d"
    assert " ".join(cut_word(word, WordRule.punctuation)) == "\u201c Yes , \u201d \u2014 \u201c No . \u201d"
    assert " ".join(cut_word(word, WordRule.ptb)) == "`` Yes , '' \u2014 `` No . ''"
    assert " ".join(cut_word("Mr.\u2014don't", WordRule.ptb)) == "Mr. \u2014 do n't"


def test_a_dash_is_written_as_the_vocabulary_has_it() -> None:
    assert known_form(["\u2014", "\u2013", "-", "\u2010"], {"--"}) == ["--", "--", "-", "\u2010"]
    assert known_form(["\u2014"], {"--", "\u2014"}) == ["\u2014"]
    assert known_form(["\u2014\u2014"], {"\u2014"}) == ["\u2014", "\u2014"]


def test_a_quote_that_the_vocabulary_lacks_is_one_word() -> None:
    assert known_form(["``", "''", "`", "'"], {"'", "`"}) == ["``", "''", "`", "'"]
    assert known_form(["...", "''"], {"'", "."}) == [".", ".", ".", "''"]
    assert known_form(["``", "''"], {"'", '"'}) == ['"', '"']


def test_the_surprisal_of_a_closing_quote_is_that_of_one_oov(lmtool: Callable[..., str]) -> None:
    """After b, whose back-off weight is 1/2, an OOV has p = 1/20: 1/10 of <unk>; the two apostrophes are no tokens."""
    arpa = ARPA.replace("ngram 1=6", "ngram 1=7").replace("-1\t.\n", "-1\t.\n-2\t'\n")
    Path("de.arpa").write_text(arpa)
    Path("text.txt").write_text('a b"\n')
    lmtool("surprisal", "arpa=de.arpa", "text=text.txt", "words=ptb", "to=s.jsonl")
    _, row = map(json.loads, Path("s.jsonl").read_text().splitlines())
    assert row["tokens"] == "b ''" and row["oov"] == 1
    assert math.isclose(row["surprisal_bits"], 1 + math.log2(20), abs_tol=1e-4)  # p(b | a) is 1/2
