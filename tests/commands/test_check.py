"""`lmtool check` and `lmtool unlikely`: counts and ranks found by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

import lmtool as package

Run = Callable[..., str]
TEXT = "The end. It is end\n\nतुम\u00a0कैसे हो।\r\nhe said end\nhe said end\n<s> e\u0301t\u00e9 end, \n"


def test_properties_by_hand(lmtool: Run) -> None:
    Path("a.txt").write_bytes(TEXT.encode())
    said = lmtool("check", "a.txt", "out=checked")
    result = json.loads(Path("checked/result.json").read_text())
    found = {row["property"]: row["value"] for row in result["properties"]}
    assert found == {
        "files": 1,
        "records that are not text": 0,
        "bytes": len(TEXT.encode()),
        "lines": 6,
        "lines without words": 1,
        "lines ending in a carriage return": 1,
        "lines that repeat an earlier one": 1,
        "lines ending in a final mark": 1,
        "lines with several sentences": 1,
        "words in the longest line": 5,
        "number of the longest line": 1,
        "tokens (between white space)": 16,
        "types": 12,
        "types that occur once": f"{9 / 12:.1%}",
        "words with punctuation attached": 2,  # `end.` and `end,`, beside `end` three times
        "words not in NFC": 1,
        "invisible characters within words": 1,
        "letters: Latin": found["letters: Latin"],
        "letters: Devanagari": found["letters: Devanagari"],
    }
    latin, letters = 38, 38 + 5  # Devanagari: vowel signs are marks, not letters
    assert found["letters: Latin"] == f"{latin / letters:.1%}"
    assert result["command"] == (
        "lmtool train model=ngram data=text data.train=a.txt data.split.valid=0.05 data.spaces=unicode "
        "data.vocabulary.unit=bpe data.on_error=skip"
    )
    for part in ("e.g. तुम<U+00A0>कैसे", "12% of the words", "20% of the lines hold", "20% of the lines repeat"):
        assert part in said
    assert "1 words are not in" in said and "words <s> or </s>: 1" in said
    assert package.check("a.txt").rows[3] == {"property": "lines", "value": 6}


def test_records_that_are_not_text(lmtool: Run) -> None:
    """A few are left out; with many the text is in another encoding, and the rest of it is not worth training on."""
    for bad, command in ((1, "data.split.valid=0.05 data.on_error=skip"), (2, "lmtool check b.txt")):
        Path("b.txt").write_bytes("".join(f"line {k}\n" for k in range(30)).encode() + b"\xff\n" * bad)
        said = lmtool("check", "b.txt")
        assert "b.txt, line 31: byte 0xff" in said and "iconv" in said and said.strip().endswith(command)
        assert ("correct them first" in said) is (bad == 2)


def test_documents_and_text_without_spaces(lmtool: Run) -> None:
    Path("d.jsonl").write_text(json.dumps({"text": "ฉันชอบกินข้าวผัด\nแมวของฉันชอบนอนบนหลังคา"}, ensure_ascii=False) + "\n")
    said = lmtool("check", "d.jsonl", "column=text")
    assert "white space separates few words of this text" in said
    assert "data.column=text data.split.valid=0.05 data.vocabulary.unit=bpe" in said
    assert "name the column of their text by column" in lmtool("check", "d.jsonl", code=2)
    assert "no file nothing.txt for text" in lmtool("check", "nothing.txt", code=2)


def test_least_likely_words_by_hand(lmtool: Run) -> None:
    Path("t.txt").write_text("a bb a\na a\nc\n")
    lmtool(
        "train",
        "model=ngram",
        "model.order=1",
        "smoother=laplace",
        "smoother.alpha=1",
        "data=text",
        "data.train=t.txt",
        "out=kn",
    )
    Path("u.txt").write_text("a bb\nzzzz a\n")
    found = package.unlikely("kn", "u.txt", top=3).rows
    # 6 words and 3 </s>; p = (count + 1) / (9 + V): V = a, bb, c, <unk>, </s>
    p = {"a": 5 / 14, "bb": 2 / 14, "zzzz": 1 / 14}
    bits = {word: -math.log2(each) for word, each in p.items()}
    assert [(row["rank"], row["line"], row["word"], row["oov"]) for row in found] == [
        (1, 1, "a", False),
        (2, 2, "a", False),
        (3, 1, "bb", False),
    ]
    assert [row["bits"] for row in found] == pytest.approx([bits["a"], bits["a"], bits["bb"]], abs=1e-6)
    assert found[2]["bits_per_character"] == pytest.approx(bits["bb"] / 2, abs=1e-6)
    assert found[2]["context"] == "a [bb]" and found[1]["context"] == "zzzz [a]"
    everything = package.unlikely("kn", "u.txt").rows
    assert everything[3]["word"] == "zzzz" and everything[3]["oov"] is True
    assert everything[3]["bits_per_character"] == pytest.approx(bits["zzzz"] / 4, abs=1e-6)
