"""Texts of models whose tokens may be parts of characters: generated ones are whole, and tables show them as text."""

from __future__ import annotations

import csv
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import lmtool as package
from lmtool.data.subwords import LETTERS, Subwords
from lmtool.data.text_form import TextForm
from lmtool.data.vocabulary import Vocabulary
from lmtool.evaluation.surprisal import _masks
from lmtool.language_model import LanguageModel
from lmtool.sampling import WholeCharacters
from lmtool.system.arrays import FloatArray, IntArray
from lmtool.text_model import TextModel
from tests.conftest import Run, answer
from tests.languages import LANGUAGES

tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers (pip install lmtool[subwords])")

DATA = ["data=text", "data.name=own", "data.train=train.txt", "data.valid=train.txt"]


def byte_level(*merges: bytes) -> Subwords:
    """Return a tokenizer of all bytes and a few longer pieces, each given as the two pieces it joins, `a|b`."""
    names = [LETTERS[byte] for byte in range(256)]
    pairs = []
    for merge in merges:
        pair = ["".join(LETTERS[byte] for byte in part) for part in merge.split(b"|")]
        pairs.append(tuple(pair))
        names.append("".join(pair))
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({name: k for k, name in enumerate(names)}, pairs))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return Subwords(tokenizer, "bytes")


class Fixed(LanguageModel):
    """Always the same distribution, whatever was before."""

    context_size, vocabulary_size = 1, 0

    def __init__(self, p: dict[str, float], vocabulary: Vocabulary) -> None:
        self.vocabulary_size, self.p = len(vocabulary), np.zeros(len(vocabulary))
        self.p[[vocabulary.ids[word] for word in p]] = list(p.values())

    def log_dist(self, contexts: IntArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.repeat(np.log(self.p)[None], len(contexts), axis=0)


def fixed(p: dict[bytes | str, float], *merges: bytes) -> TextModel:
    """Return a model of fixed probabilities of pieces, given as their bytes, and of `</s>` and `<unk>`."""
    subwords = byte_level(*merges)
    words = (*subwords.names, "<unk>", "</s>", "<s>")
    vocabulary = Vocabulary(words, np.ones(len(words), dtype=np.int64), len(words) - 2, len(words) - 3)
    named = {w if isinstance(w, str) else "".join(LETTERS[byte] for byte in w): value for w, value in p.items()}
    return TextModel(Fixed(named, vocabulary), TextForm(vocabulary, subwords=subwords))


E9, E8 = "\u00e9", "\u00e8"  # C3 A9 and C3 A8
HALVES = {b"a": 0.2, b"\xc3": 0.3, b"\xa9": 0.15, b"\xa8": 0.05, "<unk>": 0.1, "</s>": 0.2}


def test_a_character_that_is_begun_is_completed() -> None:
    count, model = 20_000, fixed(HALVES)
    found = Counter(model.generate(count=count, length=3, seed=5))
    # Between characters a, C3 and </s> remain of 0.7; after C3 only A9 and A8, of 0.2.
    a, lead, end, nine, eight = 2 / 7, 3 / 7, 2 / 7, 3 / 4, 1 / 4
    wanted = {
        "": end, "a": a * end, "aa": a * a * (end + lead),  # the third piece may be half a character: it is left out
        E9: lead * nine * (end + lead), E8: lead * eight * (end + lead), f"{E9}a": lead * nine * a,
        f"{E8}a": lead * eight * a, "aaa": a**3, f"a{E9}": a * lead * nine, f"a{E8}": a * lead * eight,
    }  # fmt: skip
    assert sum(wanted.values()) == pytest.approx(1) and set(found) == set(wanted)
    for text, p in wanted.items():
        assert abs(found[text] - count * p) < 4 * math.sqrt(count * p * (1 - p)), text
    # The choice of the most likely comes after the exclusion: A9 follows C3, though C3 is more likely.
    for how in ({"temperature": 0}, {"top_k": 1}, {"top_p": 0.01}):
        assert model.generate(count=1, length=5, seed=1, **how) == [E9 * 2]
        assert model.generate("a", count=1, length=4, seed=1, **how) == [f"a{E9 * 2}"]
    texts = model.generate(count=50, length=9, seed=3)
    shorter = model.generate(count=50, length=4, seed=3)
    assert all(text.startswith(start) for text, start in zip(texts, shorter, strict=True))


def test_a_piece_may_end_a_character_and_begin_another() -> None:
    both = b"\xa9\xc3"  # two halves, as in byte-level pieces of Thai
    model = fixed({both: 0.7, b"\xc3": 0.2, b"\xa9": 0.1}, b"\xa9|\xc3")
    assert {len(text) for text in model.generate(count=99, length=6, seed=2)} == {3, 4, 5}
    assert set("".join(model.generate(count=99, length=6, seed=2))) == {E9}
    model = fixed({b"\xf0": 0.4, b"\x9f": 0.35, b"\x98": 0.25})  # characters of four pieces
    assert model.generate(count=1, length=8, temperature=0) == ["\U0001f7df" * 2]


def test_where_nothing_completes_a_character_it_is_left_out() -> None:
    model = fixed({b"a": 0.5, b"\xe0": 0.5})  # nothing can follow E0
    for texts in (model.generate(count=99, length=6, seed=2), model.generate(count=1, length=6, top_k=1)):
        assert set("".join(texts)) <= {"a"}


def test_which_tokens_may_follow() -> None:
    contents = [b"a", b"\xe0", b"\x80", b"\xb8", b"\xa0\x80b", b"\n", b"\xed", b"\xf0\x90", b"\xa9\xc3", b"\xff"]
    vocabulary = Vocabulary((*"0123456789",), np.ones(10, dtype=np.int64), None, 9)
    p = {str(k): (k + 1) / 45 for k in range(9)}
    model = WholeCharacters(Fixed(p, vocabulary), contents)
    for text, wanted in {
        (9, 9, 9): [0, 1, 5, 6, 7],
        (1, 3, 2): [0, 1, 5, 6, 7],
        (9, 9, 1): [3, 4],  # E0 80 would be a longer form of another character
        (9, 0, 6): [2],  # ED B8 would be a surrogate
        (9, 1, 3): [2, 3, 8],
        (9, 0, 7): [2, 3, 4],
        (0, 7, 8): [2, 3, 8],  # F0 90 A9 and C3, which cannot be
        (7, 2, 8): [2, 3, 8],
    }.items():
        found = np.exp(model.log_dist(np.array([text, (9, 9, 1), text]))[2])
        total = sum(p[str(k)] for k in wanted)
        assert found.tolist() == pytest.approx([p[str(k)] / total if k in wanted else 0 for k in range(10)]), text


@pytest.fixture
def thai(lmtool: Run) -> Run:
    Path("train.txt").write_text("\n".join(LANGUAGES["Thai"]) + "\n")
    lines = [line.encode() for line in LANGUAGES["Thai"]]
    pairs = Counter(line[k : k + 1] + b"|" + line[k + 1 : k + 2] for line in lines for k in range(len(line) - 1))
    merges = [pair for pair, _ in pairs.most_common(9) if b" " not in pair]
    Path("bytes.json").write_text(byte_level(*merges).json)  # with parts of characters, such as E0 B8
    return lmtool


@pytest.mark.parametrize("unit", ["bytes", "bpe", "unigram", "char"])
def test_thai_is_text_wherever_it_is_printed(unit: str, thai: Run) -> None:
    vocabulary = {
        "bytes": ["data.vocabulary.unit=bpe", "data.vocabulary.file=bytes.json"],
        "char": ["data.vocabulary.unit=char"],
    }.get(unit, [f"data.vocabulary.unit={unit}", "data.vocabulary.size=280"])  # 24 characters, others are bytes
    thai("train", "model=ngram", "model.order=2", "smoother=witten_bell", *DATA, *vocabulary, "hydra.run.dir=run")
    model, letters = package.load("run"), set("".join(LANGUAGES["Thai"]))
    texts = [
        text for length in (1, 2, 3, 4, 40) for text in model.generate(count=60, length=length, seed=length)
    ]  # fmt: skip
    texts += model.generate("\u0e19\u0e49\u0e33", count=9, length=20, temperature=0) + model.generate(
        top_k=3, top_p=0.9
    )
    joined = "".join(texts)
    assert len(joined) > 900 and "\ufffd" not in joined
    assert not any(c < " " or c == "\x7f" for c in joined), "smoothing gives bytes of control characters some p"
    thai("generate", "run=run", "count=50", "length=7", "seed=1")
    printed = answer()["texts"]
    assert "\ufffd" not in "".join(printed) and len(printed) == 50
    said = thai("predict", "\u0e19\u0e49\u0e33", "run=run", "top=300")
    words = [row["word"] for row in answer()["contexts"][0]["words"]]
    if unit in ("bpe", "unigram"):
        assert "\u0e41" in words
    if unit != "char":
        assert "<0xE0>" in words and "<0xE0>" in said
    assert not any("\u00a1" <= letter < "\u0e00" or letter == "\ufffd" for word in words for letter in word)
    thai("surprisal", "run=run", "text=train.txt", "to=table.csv")
    with Path("table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        tokens = row["tokens"] if unit == "char" else row["tokens"].replace(" ", "").removeprefix("\u2581")
        parts = tokens.replace("<0x", "\0").encode().split(b"\0")
        whole = parts[0] + b"".join(bytes([int(part[:2], 16)]) + part[3:] for part in parts[1:])
        assert whole.decode().replace(" ", "") == row["word"], row["tokens"]
    tokens = [token for token, _ in model.token_score("\u0e19\u0e49\u0e33")[0]]
    assert tokens[-1] == "</s>" and all(
        set(token) <= letters | set("\u2581<x>0123456789ABCDEF") for token in tokens[:-1]
    ), tokens


def test_a_word_may_begin_with_a_part_of_a_character() -> None:
    model = fixed({b" \xe0": 1.0}, b" |\xe0")
    assert model.form.labels(model.form.split("\u0e01")) == ["\u2581<0xE0>", "<0xB8>", "<0x81>"]
    assert model.predict("", 1) == [(" <0xE0>", 1.0)]
    begins, _ = _masks(model.form)
    found = {model.vocabulary.words[k] for k in np.flatnonzero(begins)}
    assert found == {"\u0120\u00e0", "\u0120", "</s>"}


def test_trees_and_neighbors_of_pieces(thai: Run) -> None:
    small = ["model.embedding_dim=4", "model.hidden_dim=4", "training.epochs=1", "training.minutes=null"]
    line = ["train", "model=nplm", "output=hierarchical", "tree=huffman", *DATA, *small, "data.vocabulary.unit=bpe"]
    thai(*line, "data.vocabulary.file=bytes.json", "hydra.run.dir=net")
    said = thai("tree", "run=net", "levels=8")
    assert "<0xE0>" in said and "\u00e0" not in said and "\u00b8" not in said
    shown = thai("tree", "run=net", "words=[\u2581]")
    assert "\u2581" in shown
    said = thai("tree", *DATA, "tree=huffman", "data.vocabulary.unit=bpe", "data.vocabulary.file=bytes.json")
    assert "<0xE0>" in said and "\u00e0" not in said
    model = package.load("net")
    assert not any("\u00e0" in word for word, _ in model.predict("", top=100))
