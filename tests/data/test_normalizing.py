"""CCNet's normalization of text; expected values are those of its `text_normalizer.normalize`."""

from __future__ import annotations

import numpy as np
import pytest

from lmtool.config.data import Normalize, Unit
from lmtool.data.text_form import TextForm, normalize_texts
from lmtool.data.text_rules import UNCHANGED, TextRules, ccnet
from lmtool.data.text_size import text_size
from lmtool.data.tokenizer import CharTokenizer, TextBlock, WordTokenizer
from lmtool.data.vocabulary import Vocabulary


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("  L'\u00c9T\u00c9 2023\u00a0\n", "l'ete 0000"),
        ("\u0130stanbul", "istanbul"),  # its lower case has a separate dot, an accent
        ("\u00abA\u00bb \u2014 b\u2013c\u2026", '"a"  -  b-c...'),
        ("\uff11\u0663\u00b2\u00bd", "00\u00b2\u00bd"),  # decimal digits alone
        ("a\tb\x85c\nd\u200be", "abcd\u200be"),
        ("\uff08x\uff09\uff1b\u3010y\u3011\u3002", "(x);[y]."),
        ("\ud55c", "\u1112\u1161\u11ab"),  # a syllable of Hangul stays decomposed
        ("\u2018q\u2019", "\u2018q'"),
        (" \n", ""),
    ],
)
def test_ccnet(text: str, wanted: str) -> None:
    assert ccnet(text) == ccnet(wanted) == wanted


def test_lines_and_lower_case() -> None:
    assert TextRules(normalize=Normalize.ccnet)("\u00c9 1 \n\nX\r\n") == "e 0\n\nx\n"
    assert TextRules(lowercase=True)("\u00c9 1 \n") == "\u00e9 1 \n"
    assert UNCHANGED("\u00c9 1 \n") == "\u00c9 1 \n"


def test_each_text_becomes_one_line() -> None:
    texts = TextBlock("\u00c9\nB \n\nX\n\ud800\n".encode(errors="surrogatepass"), np.array([6, 9, 13]))
    block = normalize_texts(texts, Normalize.ccnet)
    assert block.content.decode() == "eb\nx\n\ufffd\ufffd\ufffd\n" and block.ends.tolist() == [3, 5, 15]


@pytest.mark.parametrize("chars", [False, True])
def test_tokenizers_with_and_without_a_vocabulary(chars: bool) -> None:
    text = "\u00c9 1\n\x01\n\u201cX\u201d\r\n".encode()
    wanted = ["e", " ", "0", "</s>", '"', "x", '"', "</s>"] if chars else ["e", "0", "</s>", '"x"', "</s>"]
    rules = {"sentences": True, "rules": TextRules(normalize=Normalize.ccnet)}
    tokenizer = (CharTokenizer if chars else WordTokenizer)(**rules)
    ids, types = tokenizer(text, "t"), tokenizer.types()
    assert [types[k] for k in ids] == wanted and tokenizer.empty_lines == 1
    assert text_size(ids, types, chars=chars) == (8, 5), 'those of `e 0` and `"x"`, each with a line end'
    words = (*dict.fromkeys([*wanted, "<unk>"]), "<s>")
    vocabulary = Vocabulary(words, np.zeros(len(words), dtype=np.int64), words.index("</s>"), words.index("<unk>"))
    form = TextForm(vocabulary, Unit.char if chars else Unit.word, rules["rules"])
    assert [words[k] for k in form.tokenizer(vocabulary)(text, "t")] == wanted
    assert form.split("\u00c9 1") == wanted[: wanted.index("</s>")]
