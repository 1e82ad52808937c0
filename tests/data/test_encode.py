"""Texts as ids: by hand, and against the tokenizers that number types in order of first occurrence."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from lmtool.config.data import Unit
from lmtool.data import tokenizer
from lmtool.data.text_form import EncodedTexts, TextEncoder, TextForm, split_of_text
from lmtool.data.text_records import block_of
from lmtool.data.text_rules import TextRules
from lmtool.data.tokenizer import TextBlock, line_ends
from lmtool.data.vocabulary import BOS, EOS, UNK, Vocabulary

WORDS = ("a", "b", "ä", "c/d")


def form(words: tuple[str, ...] = WORDS, *, sentences: bool = True, **rules: Any) -> TextForm:
    listed = (*((EOS,) if sentences else ()), *words, UNK, BOS)
    vocabulary = Vocabulary(listed, np.array([1] * (len(listed) - 1) + [0]), 0 if sentences else None, len(listed) - 2)
    return TextForm(vocabulary, **rules)


def oov_of(texts: EncodedTexts) -> list[int]:
    """Return the number of OOVs of each text."""
    places = texts.split.oov_positions.tolist()
    limits = itertools.pairwise(texts.documents.tolist())
    return [sum(first <= place < last for place in places) for first, last in limits]


def test_texts_by_hand() -> None:
    """ids: </s> 0, a 1, b 2, ä 3, c/d 4, <unk> 5. The texts: two lines, none, only an empty line, one line."""
    texts = TextEncoder(form())(block_of(["a zz\nä\tb\n", "", "\n", "<unk> </s> <s> c/d"]))
    assert texts.split.ids.tolist() == [1, 5, 0, 3, 2, 0, 5, 5, 5, 4, 0]
    assert texts.split.offsets.tolist() == [0, 3, 6, 11]
    assert texts.documents.tolist() == [0, 6, 6, 6, 11]
    assert oov_of(texts) == [1, 0, 0, 2], "<unk> in the text is a word; marks of sentences are none"
    assert texts.split.oov_positions.tolist() == [1, 7, 8]
    assert texts.split.documents is not None and texts.split.documents.tolist() == [0, 6, 11]


def test_characters_by_hand() -> None:
    """ids: </s> 0, a 1, b 2, <unk> 3; without sentences a 0, newline 1, <unk> 2."""
    texts = TextEncoder(form(("a", "b"), unit=Unit.char))(block_of(["a?\r\n\nb", "", "b"]))
    assert texts.split.ids.tolist() == [1, 3, 0, 2, 0, 2, 0] and texts.documents.tolist() == [0, 5, 5, 7]
    texts = TextEncoder(form(("a", "\n"), unit=Unit.char, sentences=False))(block_of(["a\na", ""]))
    assert texts.split.ids.tolist() == [0, 1, 0, 1, 1] and texts.documents.tolist() == [0, 4, 5]
    assert texts.split.offsets.tolist() == [0, 4, 5], "contexts do not cross texts"


PIECES = ["a", "b", "A", "ä", "Ä", "İ", "Σ", "c/d/x", "/x", "zz", "\xa0", " ", " ", "\t", "\n", "\r\n", "\f", "a b\n"]


@pytest.mark.parametrize("sentences", [True, False])
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("given", [{}, {"tags": True}, {"unit": Unit.char}])
def test_the_same_as_the_plain_tokenizer(
    given: dict[str, Any], lowercase: bool, sentences: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By three threads, against one for each text."""
    monkeypatch.setattr(tokenizer, "MIN_BYTES_PER_THREAD", 64)
    draw = random.Random(1)
    texts = ["".join(draw.choices(PIECES, k=draw.randrange(9))) for _ in range(150)]
    words = (*WORDS, "c", " ", "\n") if "unit" in given else WORDS
    by = form(words, sentences=sentences, rules=TextRules(lowercase=lowercase), **given)
    monkeypatch.setattr(tokenizer, "threads", lambda: 3)
    found = TextEncoder(by)(block_of(texts))
    monkeypatch.setattr(tokenizer, "threads", lambda: 1)
    for number, text in enumerate(texts):
        plain = split_of_text([block_of([text]).content], "text", by)[0]
        first, last = found.documents[number], found.documents[number + 1]
        assert found.split.ids[first:last].tolist() == plain.ids.tolist(), repr(text)
        assert oov_of(found)[number] == len(plain.oov_positions)
        inside = found.split.offsets[(found.split.offsets >= first) & (found.split.offsets <= last)] - first
        assert inside.tolist() == np.unique(plain.offsets).tolist()


def test_letters_that_are_no_utf8_are_out_of_the_vocabulary() -> None:
    """Encode a lone surrogate, which JSON may contain, and a NUL byte."""
    for rules in ({}, {"unit": Unit.char}):
        texts = TextEncoder(form(**rules))(block_of(["\ud800", "\0"]))
        assert oov_of(texts) == [1, 1] and texts.split.tokens == 4


def test_no_texts() -> None:
    for rules in ({}, {"unit": Unit.char}):
        texts = TextEncoder(form(**rules))(block_of([]))
        assert texts.split.tokens == 0 and oov_of(texts) == []


def test_a_block_of_lines() -> None:
    content = b"a\n\nb b\n"
    texts = TextEncoder(form())(TextBlock(content, line_ends(content)))
    assert texts.documents.tolist() == [0, 2, 2, 5]


def test_pieces_of_words() -> None:
    """Encode each text as if it were alone; `<s>` and `</s>` cannot be written in pieces."""
    pytest.importorskip("tokenizers", reason="needs tokenizers (pip install lmtool[subwords])")
    from lmtool.config.data import Unit
    from lmtool.data._train_subwords import train_subwords

    subwords = train_subwords(["ab", "abc", "cab"], np.array([5, 2, 3]), Unit.bpe, 260)
    listed = (EOS, *subwords.names, UNK, BOS)
    vocabulary = Vocabulary(listed, np.ones(len(listed), dtype=np.int64), 0, len(listed) - 2)
    rules = TextForm(vocabulary, subwords=subwords)
    texts = ["ab cab\nabc", "", "\u00fcab <unk>", "abc\n\nab"]
    encoded = TextEncoder(rules)(block_of(texts))
    for text, first, last in zip(texts, encoded.documents[:-1], encoded.documents[1:], strict=True):
        alone = split_of_text([f"{text}\n".encode()], "text", rules)[0].ids if text else np.empty(0)
        np.testing.assert_array_equal(encoded.split.ids[first:last], alone)
    assert oov_of(encoded) == [0, 0, 0, 0] and encoded.documents[0] < encoded.documents[1]
    marked, ab = TextEncoder(rules)(block_of(["ab <s> ab </s>"])), subwords.pieces(["ab"])
    ids = [*vocabulary.encode(ab), vocabulary.unk] * 2
    assert marked.split.ids.tolist() == [*ids, 0] and oov_of(marked) == [2]
    alone = split_of_text([b"ab <s> ab </s>\n"], "text", rules)[0]
    whole = rules.as_split([rules.words("ab <s> ab </s>")], one_text=False)[0]
    for split in (alone, whole):
        assert split.ids.tolist() == [*ids, 0]
        assert split.oov_positions.tolist() == marked.split.oov_positions.tolist()


def test_half_a_surrogate_pair_in_pieces() -> None:
    """Write a lone surrogate as three U+FFFD, one per byte, since the tokenizer of words requires UTF-8."""
    pytest.importorskip("tokenizers", reason="needs tokenizers (pip install lmtool[subwords])")
    from lmtool.config.data import Unit
    from lmtool.data._train_subwords import train_subwords

    subwords = train_subwords(["ab"], np.array([5]), Unit.bpe, 258)
    vocabulary = Vocabulary((EOS, *subwords.names, UNK, BOS), np.ones(len(subwords.names) + 3, dtype=np.int64), 0, 259)
    encoder = TextEncoder(TextForm(vocabulary, subwords=subwords))
    halves, replaced = encoder(block_of(["\ud800 ab"])), encoder(block_of(["\ufffd\ufffd\ufffd ab"]))
    assert halves.split.ids.tolist() == replaced.split.ids.tolist() and oov_of(halves) == [0]
