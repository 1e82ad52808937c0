"""Tables in a terminal are aligned by the columns of letters in any script; sizes in messages."""

from __future__ import annotations

import re
from pathlib import Path
from unicodedata import category

import pytest

from lmtool.system.terminal import columns, html_table, letters_of, size_text, text_table
from tests.conftest import ROOT
from tests.languages import TEXTS

WIDTHS = {
    "abc": 3,
    "中文": 4,
    "한국": 4,
    "\u1112\u1161\u11ab": 2,  # the jamo of 한
    "ﾊﾟﾝ": 3,  # half-width
    "\uff08\uff11\uff09": 6,  # full-width
    "e\u0323\u0302": 1,
    "\u05e9\u05c1\u05b8": 1,  # Hebrew with points
    "\u0e17\u0e35\u0e48": 1,  # Thai, a vowel and a tone above
    "\u0e01\u0e33": 2,  # Thai SARA AM, a letter
    "\u092e\u0947\u0902": 1,  # Hindi
    "\u0915\u093e": 2,  # a spacing mark
    "\u0645\u06cc\u200c\u062e\u0648": 4,  # ZWNJ in Persian
    "\U0001f469\u200d\U0001f469\u200d\U0001f467": 2,  # a family
    "\U0001f44d\U0001f3fd": 2,  # a color of skin
    "\u2764\ufe0f": 2,  # a heart as emoji
    "\u2764": 1,
    "\u00ad": 1,  # terminals show soft hyphens
    "": 0,
}


def test_columns_of_letters() -> None:
    assert {text: columns(text) for text in WIDTHS} == WIDTHS


def test_columns_are_those_of_wcwidth() -> None:
    wcwidth = pytest.importorskip("wcwidth")
    for word in "\n".join(TEXTS.values()).split():
        if "Mc" not in map(category, word):  # terminals differ in spacing marks
            assert columns(word) == wcwidth.wcswidth(word), word


def test_a_table_is_aligned() -> None:
    rows = [["中文", 1.5], ["\u092e\u0947\u0902", 10.25], ["\U0001f469\u200d\U0001f467", 2.0], ["abcdef", None]]
    assert text_table(["word", "bits"], rows).splitlines() == [
        "word       bits",
        "------  -------",
        "中文     1.5000",
        "\u092e\u0947\u0902       10.2500",
        "\U0001f469\u200d\U0001f467       2.0000",
        "abcdef        -",
    ]


def test_letters_have_their_marks() -> None:
    assert letters_of("\u101e\u1031\u102ca\u0301\r\n\u1103\u1161") == [
        "\u101e\u1031\u102c",
        "a\u0301",
        "\r\n",
        "\u1103\u1161",
    ]
    for text in TEXTS.values():
        assert "".join(letters_of(text)) == text


def test_words_in_html_have_their_direction() -> None:
    assert '<td dir="auto" style="text-align:left">\u05e9</td>' in html_table(["word"], [["\u05e9"]])


SIZES = {
    0: "0 bytes", 1: "1 bytes", 1023: "1,023 bytes", 1024: "1.0 KiB", 50_920: "49.7 KiB", 1_048_576: "1.0 MiB",
    1_500_000: "1.4 MiB", 21_474_836_480: "20.0 GiB", 5 << 40: "5,120.0 GiB",
}  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
def test_a_size_in_words(size: int) -> None:
    assert size_text(size) == SIZES[size]


def test_no_other_place_writes_a_size_that_may_round_to_nothing() -> None:
    """Find numbers in text that are divided into units directly, e.g. {size / 2**30:.1f} GiB."""
    divided = re.compile(r"(2 ?\*\* ?[123]0|1e[69]|1024|>> ?[123]0)[^}]*\} ?[KMG]i?B")
    found = [path for path in Path(ROOT, "lmtool").rglob("*.py") if divided.search(path.read_text(encoding="utf-8"))]
    assert [path.name for path in found] == ["readers.py", "storage.py"]  # a limit of the code, and a setting to type
