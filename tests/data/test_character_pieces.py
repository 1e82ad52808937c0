"""Pieces of characters with bytes for rare ones: a plain program learns and cuts the same; every text comes back."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmtool.config.data import Unit
from lmtool.data._train_subwords import LETTERS as BYTE_LETTERS
from lmtool.data._train_subwords import (
    _alphabet,
    _estimate_losses,
    _expect,
    _parts,
    _seeds,
    train_subwords,
    unigram_pieces,
)
from lmtool.data.preprocess import preprocess
from lmtool.data.subwords import Subwords
from tests.data.test_preprocess import text
from tests.data.test_subwords import BPE, COUNTS
from tests.data.test_subwords import WORDS as LATIN
from tests.languages import LANGUAGES

pytest.importorskip("tokenizers", reason="needs tokenizers (pip install lmtool[subwords])")

OTHER_SCRIPTS = [
    name for name, lines in LANGUAGES.items() if name not in ("Turkish", "Yoruba", "Emoji", "English")
    and not name.startswith("Vietnamese")
]  # fmt: skip
EMOJI = ["ყველა", *["\U0001f469\u200d\U0001f52c"] * 2, "\U0001f44d\U0001f3fd", "\u2764\ufe0f\U0001f469"]


def learned(words: list[str], unit: Unit, size: int) -> Subwords:
    """Learn pieces from words, each counted as often as it occurs in the list."""
    counted = Counter(words)
    return train_subwords(list(counted), np.array(list(counted.values())), unit, size)


class PlainPairs:
    """Byte-pair encoding over characters: 0.9995 of the text have pieces, the others are bytes; ties by the numbers of
    the pieces, the characters first, in the order of their code points."""

    def __init__(self, words: list[str], size: int) -> None:
        found = Counter("".join(f" {word}" for word in words))
        alphabet, total = {" "}, found.total()
        for character, _ in [(" ", 0), *found.most_common()]:
            if sum(found[c] for c in alphabet) < 0.9995 * total and len(alphabet) < size - 256:
                alphabet.add(character)
        self.numbers = {c: k for k, c in enumerate(sorted(alphabet))}
        texts = [list(part) for word in words for part in re.split(f"[^{re.escape(''.join(alphabet))}]", f" {word}")]
        self.merges: list[tuple[str, str]] = []
        while len(self.numbers) < size - 256:
            pairs = Counter(pair for symbols in texts for pair in itertools.pairwise(symbols))
            if not pairs:
                break
            best = min(pairs, key=lambda p: (-pairs[p], self.numbers[p[0]], self.numbers[p[1]]))
            self.merges.append(best)
            self.numbers.setdefault("".join(best), len(self.numbers))
            texts = [self.merged(symbols, best) for symbols in texts]

    @staticmethod
    def merged(symbols: list[str], pair: tuple[str, str]) -> list[str]:
        found, k = [], 0
        while k < len(symbols):
            both = tuple(symbols[k : k + 2]) == pair
            found.append("".join(symbols[k : k + 1 + both]))
            k += 1 + both
        return found

    def cut(self, word: str) -> list[str]:
        symbols = [s for c in f" {word}" for s in ([c] if c in self.numbers else [f"<0x{b:02X}>" for b in c.encode()])]
        for pair in self.merges:
            symbols = self.merged(symbols, pair)
        return [symbol.replace(" ", "▁") for symbol in symbols]


@pytest.mark.parametrize("name", [*OTHER_SCRIPTS, "Emoji in Georgian"])
def test_a_plain_program_learns_the_same_pieces(name: str) -> None:
    words = EMOJI if name == "Emoji in Georgian" else " ".join(LANGUAGES[name]).split()
    # Rare characters have no pieces: one of 3,000 occurs once.
    train = words * (1 + 3000 // len("".join(words))) + ["\u0e5b\U00016fe0"]
    for size in (256 + 20, 330):
        plain, found = PlainPairs(train, size), learned(train, Unit.bpe, size)
        assert found.names[:256:85] == ("<0x00>", "<0x55>", "<0xAA>", "<0xFF>")
        assert found.names[256:] == tuple(piece.replace(" ", "▁") for piece in plain.numbers)
        for word in [*words, "ก\u0e5bข", "x", *(word + other for word, other in itertools.pairwise(words))]:
            assert found.pieces([word]) == plain.cut(word), word


LIKE_OTHERS = ["▁x", "<unk>", "</s>", "<0xE0>", "<0xe0><0x+1", "กก▁", "\ufffd", "\\<s>"]
WORDS = [*EMOJI, "ทั้ง", "ทั้งหมด", "में", "한국어", "ሰላም", *LIKE_OTHERS]
LETTERS = "ab</s>unk0xE+<>\u00fc\u65e5\U0001f600\u00a0\u2581\u0120\\\u2028\u0e01\u0e49\u1112\ufffd\u200d\x00\x7f"


TRAIN = {"characters": WORDS + [word for word in WORDS for _ in range(9)], "bytes": np.repeat(LATIN, COUNTS).tolist()}


@pytest.mark.parametrize("kind", TRAIN)
@pytest.mark.parametrize("size", [257, 262, 300, 500])
@pytest.mark.parametrize("unit", [Unit.bpe, Unit.unigram])
def test_every_text_comes_back(unit: Unit, size: int, kind: str) -> None:
    pieces = learned(TRAIN[kind], unit, size)
    assert len(pieces.names) == len(set(pieces.names)) <= size and not {"<unk>", "<s>", "</s>"} & set(pieces.names)
    assert (pieces.names[0] == "<0x00>") == (kind == "characters") and not any(" " in name for name in pieces.names)
    assert pieces.json == learned(TRAIN[kind], unit, size).json
    drawn = random.Random(2)
    words = [*WORDS, *LATIN, *("".join(drawn.choices(LETTERS, k=drawn.randrange(1, 9))) for _ in range(300))]
    again = Subwords.parse(pieces.json, "x", unit)
    assert again.names == pieces.names
    for some in (words, words[:1], words[5:8]):
        found = pieces.pieces(some)
        assert again.text(again.numbers[piece] for piece in found) == " ".join(some)
        if kind == "characters":
            assert b"".join(again.contents[again.numbers[piece]] for piece in found).decode() == f" {' '.join(some)}"
    if kind == "bytes":
        assert pieces.additions["Ġ"] == " " and pieces.additions["a"] == "a"
        assert pieces.additions[BYTE_LETTERS[0xFC]] == "<0xFC>"  # a byte that is not a character
        return
    for number, name in enumerate(pieces.names[:256]):
        assert again.contents[number] == bytes([number])
        assert again.additions[name] == (chr(number) if number < 128 else name)


def test_which_text_is_cut_as_bytes() -> None:
    for name, lines in LANGUAGES.items():
        pieces = learned(" ".join(lines).split(), Unit.bpe, 300)
        assert (pieces.names[0] == "<0x00>") == (name in OTHER_SCRIPTS), (name, pieces.about)
    # One letter of ten; digits and marks of punctuation are no letters.
    for latin, said in (("abcdefghi", "10.0 %"), ("abcdefghij", "9.1 %")):
        about = learned(["ж", latin, "...", "123"], Unit.bpe, 300).about
        assert about.endswith(f"{said} of the letters of train are not Latin")
        assert about.startswith("bytes") == (said == "9.1 %")
    assert learned(["ж"], Unit.bpe, 256).about == "bytes: 100.0 % of the letters of train are not Latin"


def test_the_alphabet_covers_the_text_and_fits() -> None:
    # 10,000 characters: the space, ก and ข are 9,995, the share that is wanted.
    counts = Counter({" ": 2000, "ข": 2995, "ก": 5000, "ค": 3, "\u2581": 2})
    assert _alphabet(counts, 99) == [" ", "ก", "ข"] and _alphabet(counts, 2) == [" ", "ก"]
    counts["ค"] = 4
    assert _alphabet(counts, 99) == [" ", "ก", "ข", "ค"]
    assert "\u2581" not in _alphabet(Counter({" ": 1, "\u2581": 100}), 99)


def test_pieces_do_not_cross_what_becomes_bytes() -> None:
    parts, counts = _parts(["กคข", "<0xE0>ก", "ข" * 600], np.array([2, 5, 1]), [" ", "ก", "ข", *"<0xE>"])
    assert parts == [" ก", "ข", " <", "0xE0>ก", f" {'ข' * 255}", "ข" * 256, "ข" * 89]
    assert counts.tolist() == [2, 2, 5, 5, 1, 1, 1]


def test_long_words_are_learned_from_too() -> None:
    line = "天地玄黄宇宙洪荒" * 60  # 480 characters without a space
    assert "宇宙洪荒" in "".join(learned([line, "日"], Unit.bpe, 300).pieces(["宇宙洪荒"]))
    assert any(len(name) >= 8 for name in learned([line], Unit.unigram, 300).names[256:])


def cuts(word: Any) -> list[list[Any]]:
    """Return all ways to cut a word."""
    ends = itertools.chain.from_iterable(itertools.combinations(range(1, len(word)), k) for k in range(len(word)))
    return [[word[a:b] for a, b in itertools.pairwise([0, *inner, len(word)])] for inner in ends]


@pytest.mark.parametrize(
    ("words", "alphabet"),
    [
        ([" aba", " ab", " b\u0e01a"], [" ", "a", "b", "\u0e01"]),
        ([b" aba", b" ab", b" b\xc3\xbca"], [bytes([byte]) for byte in range(256)]),
    ],
    ids=["characters", "bytes"],
)
def test_the_unigram_model_is_that_of_all_cuts(words: list[Any], alphabet: list[Any]) -> None:
    counts = np.array([3.0, 2.0, 1.0])
    lattices, pieces, log_p = _seeds(words, counts, 100, alphabet)
    # No longer piece begins with a part of a character; what occurs once has none.
    assert {words[0], words[0][2:], words[0][2:3]} < set(pieces) and len(pieces) == len(alphabet) + 6
    assert not any(piece[0] & 0xC0 == 0x80 for piece in pieces if isinstance(piece, bytes) and len(piece) > 1)
    p = dict(zip(pieces, np.exp(log_p), strict=True))
    assert sum(p.values()) == pytest.approx(1)
    want = dict.fromkeys(pieces, 0.0)
    for word, count in zip(words, counts, strict=True):
        known = [cut for cut in cuts(word) if all(piece in p for piece in cut)]
        products = [math.prod(p[piece] for piece in cut) for cut in known]
        for cut, product in zip(known, products, strict=True):
            for piece in cut:
                want[piece] += count * product / sum(products)
    expected = _expect(lattices, log_p)
    np.testing.assert_allclose(expected, list(want.values()), rtol=1e-9)
    loss = _estimate_losses(lattices, log_p, expected)
    for number, piece in enumerate(pieces):
        others = [math.prod(p.get(part, 0.0) for part in cut) for cut in cuts(piece) if len(cut) > 1]
        lost = expected[number] * (log_p[number] - math.log(max(others))) if others else 0.0
        assert loss[number] == pytest.approx(lost, abs=1e-9)
    found = unigram_pieces(words, counts.astype(np.int64), len(alphabet) + 2, alphabet)
    assert len(found) == len(alphabet) + 2 and sum(math.exp(score) for _, score in found) == pytest.approx(1)
    # Two pieces take the most from the likelihood: the words that are there three times and twice.
    assert {piece for piece, _ in found if len(piece) > 1} == set(words[:2])


def test_preprocess_says_what_pieces_consist_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line, said in (("กข กข", "3 characters, and of bytes for all others: 100.0 %"), ("ab ab", "bytes: 0.0 %")):
        Path("train.txt").write_text(f"{line}\n")
        Path("valid.txt").write_text(f"{line}\n")
        store = preprocess(text(vocabulary=BPE), "stores", progress=False)
        assert f"the pieces consist of {said} of the letters of train are not Latin" in store.provenance["notes"]
