"""Sizes in messages: none rounds to nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lmtool.system.terminal import size_text
from tests.conftest import ROOT

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
