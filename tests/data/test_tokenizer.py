"""The tokenizing kernel against str.split and a dictionary; vocabulary rules; windows; streams with reset contexts."""

from __future__ import annotations

import string
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmtool.config.data import Unit, VocabularyConfig
from lmtool.data import split as module
from lmtool.data.choose_vocabulary import select
from lmtool.data.corpus import Corpus
from lmtool.data.split import Split, context_reset_mask
from lmtool.data.text_form import TextForm
from lmtool.data.text_rules import TextRules
from lmtool.data.text_size import text_size
from lmtool.data.tokenizer import OOV, RESERVED, CharTokenizer, WordTokenizer, split_words
from lmtool.data.vocabulary import Vocabulary

RULES = VocabularyConfig(None, None, 1, False, Unit.word)
SPACE = " \t\r\v\f"


def plain(text: str, *, sentences: bool, tags: bool = False) -> tuple[list[int], list[str]]:
    ids, types = [], {word: k for k, word in enumerate(RESERVED)}
    for line in text.split("\n"):
        words = line.translate(str.maketrans(SPACE, " " * len(SPACE))).split(" ")
        words = [word for word in words if word]
        if tags:
            words = [word.rpartition("/")[0] or word for word in words]
        ids += [types.setdefault(word, len(types)) for word in words]
        if words and sentences:
            ids.append(0)
    return ids, list(types)


# Code points on both sides of one byte, white space that splits and white space that does not.
LETTERS = st.text(st.sampled_from(string.ascii_letters[:4] + "/é世\u00a0\u2028" + SPACE + "\n"), max_size=200)


@given(text=LETTERS, sentences=st.booleans(), tags=st.booleans())
@settings(max_examples=300, deadline=None)
def test_kernel_equals_split(text: str, sentences: bool, tags: bool) -> None:
    tokenizer = WordTokenizer(sentences=sentences, tags=tags)
    half = text.find("\n", len(text) // 2) + 1
    found = [tokenizer(part.encode(), "") for part in (text[:half], text[half:] + "\n")]
    ids, types = plain(text + "\n", sentences=sentences, tags=tags)
    assert np.concatenate(found).tolist() == ids
    assert tokenizer.types() == types
    # With a vocabulary: every second type in another order, all others out of it.
    words = (*types[:1], *types[:2:-2], *types[1:3])
    vocabulary = Vocabulary(words, np.zeros(len(words), dtype=np.int64), 0, len(words) - 2)
    fixed = WordTokenizer(sentences=sentences, tags=tags, vocabulary=vocabulary)
    assert fixed((text + "\n").encode(), "").tolist() == [vocabulary.ids.get(types[k], OOV) for k in ids]


@given(text=LETTERS.map(lambda text: text.replace("\n", " ")))
@settings(max_examples=200, deadline=None)
def test_one_line_is_cut_as_the_kernel_cuts_it(text: str) -> None:
    tokenizer = WordTokenizer(sentences=False, tags=False)
    ids = tokenizer((text + "\n").encode(), "")
    words = [tokenizer.types()[k] for k in ids]
    assert split_words(text) == words
    vocabulary, _, _ = select(
        tokenizer.types(), np.ones(len(tokenizer.types()), int), RULES, given=None, sentences=False
    )
    assert TextForm(vocabulary).split(text) == words


def test_a_no_break_space_is_part_of_a_word() -> None:
    assert split_words("a\u00a0b\u2028c d\x1ce\tf\r") == ["a\u00a0b\u2028c", "d\x1ce", "f"]


def test_kernel_grows_past_its_first_table() -> None:
    rng = np.random.default_rng(0)
    words = [f"word{k}" for k in rng.integers(0, 150_000, 300_000)]
    tokenizer = WordTokenizer(sentences=False, tags=False)
    text = " ".join(words) + "\n"
    ids, types = plain(text, sentences=False)
    assert tokenizer(text.encode(), "").tolist() == ids
    assert tokenizer.types() == types and len(types) > 1 << 16


def test_lowercase_and_literal_unk() -> None:
    tokenizer = WordTokenizer(sentences=True, tags=False, rules=TextRules(lowercase=True))
    assert tokenizer("The <UNK> É the é\n\n".encode(), "").tolist() == [3, 1, 4, 3, 4, 0]
    assert tokenizer.types()[3:] == ["the", "é"] and tokenizer.empty_lines == 1


def test_characters() -> None:
    tokenizer = CharTokenizer(sentences=True)
    assert tokenizer(b"ab\n\nba\r\n", "").tolist() == [3, 4, 0, 4, 3, 0]
    assert tokenizer.types() == [*RESERVED, "a", "b"] and tokenizer.empty_lines == 1
    stream = CharTokenizer(sentences=False)
    assert [stream.types()[k] for k in stream("é 世\n".encode(), "")] == ["é", " ", "世", "\n"]


@pytest.mark.parametrize("kind", ["word", "char"])
def test_a_carriage_return_before_the_line_end_is_part_of_it(kind: str) -> None:
    def tokenizer() -> WordTokenizer | CharTokenizer:
        if kind == "char":
            return CharTokenizer(sentences=True)
        return WordTokenizer(sentences=True, tags=False)

    dos, unix = tokenizer(), tokenizer()
    ids = dos(b"a b\r\nb\r\n", "")
    assert ids.tolist() == unix(b"a b\nb\n", "").tolist() and dos.types() == unix.types()
    assert text_size(ids, dos.types(), chars=kind == "char") == (6, 5)
    alone = tokenizer()
    assert text_size(alone(b"a\rb\n", ""), alone.types(), chars=kind == "char") == (4, 3)


TYPES = [*RESERVED, "a", "b", "c", "d"]
COUNTS = np.array([10, 2, 0, 1, 5, 3, 3])


@pytest.mark.parametrize(
    ("changes", "given_list", "words", "counts", "unknown"),
    [
        # </s> 10; <unk> 2 stood in the text; ties c, d in the order they were seen.
        ({}, None, ["</s>", "b", "c", "d", "<unk>", "a", "<s>"], [10, 5, 3, 3, 2, 1, 0], []),
        ({"min_count": 3}, None, ["</s>", "b", "c", "d", "<unk>", "<s>"], [10, 5, 3, 3, 3, 0], ["a"]),
        ({"size": 2}, None, ["</s>", "<unk>", "b", "c", "<s>"], [10, 6, 5, 3, 0], ["a", "d"]),
        ({}, ["x", "c", "<s>", "a"], ["<unk>", "</s>", "c", "a", "x", "<s>"], [10, 10, 3, 1, 0, 0], ["b", "d"]),
    ],
)
def test_selection(changes, given_list, words, counts, unknown) -> None:
    rules = VocabularyConfig(
        **({"file": None, "size": None, "min_count": 1, "lowercase": False, "unit": Unit.word} | changes)
    )
    vocabulary, remap, oov = select(TYPES, COUNTS, rules, word_list=given_list, sentences=True)
    assert list(vocabulary.words) == words and vocabulary.counts.tolist() == counts
    assert [TYPES[k] for k in np.flatnonzero(oov)] == unknown
    for k, word in enumerate(TYPES):
        assert vocabulary.words[remap[k]] == (word if word in words else "<unk>")
    assert vocabulary.words[vocabulary.bos] == "<s>" and vocabulary.words[vocabulary.unk] == "<unk>"


def test_without_sentences_there_is_no_end() -> None:
    vocabulary, _, _ = select(TYPES, COUNTS, RULES, word_list=None, sentences=False)
    assert vocabulary.eos is None and "</s>" not in vocabulary.words


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 300])
def test_windows_equal_the_plain_form(size: int) -> None:
    ids = np.array([5, 6, 1, 7, 1, 8, 9, 8, 9, 1], dtype=np.uint8)
    split = Split(ids, np.array([0, 3, 5, 10]), np.array([], dtype=np.int64), 0, bos=99)
    want = []
    for first, last in ((0, 3), (3, 5), (5, 10)):
        for k in range(first, last):
            context = ([99] * size + ids[first:k].tolist())[-size:] if size else []
            want.append(context)
    np.testing.assert_array_equal(split.contexts(0, 10, size), np.array(want).reshape(10, size))
    shuffled = np.array([9, 0, 4, 4, 2])
    contexts, targets = split.windows(shuffled, size)
    np.testing.assert_array_equal(contexts, np.array(want).reshape(10, size)[shuffled])
    np.testing.assert_array_equal(targets, ids[shuffled])


def test_toy_store(toy: Corpus) -> None:
    train, test = toy.split("train"), toy.split("test")
    assert train.ids.dtype == np.uint8 and (train.tokens, len(train.offsets) - 1) == (137, 20)
    assert [toy.vocabulary.words[k] for k in train.ids[:7]] == ["the", "cat", "sat", "on", "the", "mat", "</s>"]
    assert [toy.vocabulary.words[k] for k in test.ids[test.oov_positions]] == ["<unk>"]
    counts = np.bincount(train.ids, minlength=len(toy.vocabulary))
    np.testing.assert_array_equal(toy.vocabulary.counts, counts)
    assert (np.diff(counts) <= 0).all() and toy.cloze("valid") is None


EOS, BOS = 9, 10


def text() -> Split:
    # Sentences of 3 tokens: 1 2 </s>, 3 4 </s>, ...
    ids = np.array([1, 2, EOS, 3, 4, EOS, 5, 6, EOS, 7, 8, EOS], dtype=np.uint8)
    return Split(ids, np.arange(0, 13, 3), np.empty(0, np.int64), 0, BOS)


def test_the_share_is_kept_and_spread() -> None:
    starts = np.arange(0, 200_000, 7)
    for share in (0.0, 0.05, 0.5, 1.0):
        assert abs(context_reset_mask(starts, share).mean() - share) < 0.003
    chosen = np.flatnonzero(context_reset_mask(starts, 0.05))
    assert np.diff(chosen).max() < 100


def test_by_hand() -> None:
    # Fractions of 3, 6 and 9 times the golden ratio less 1: 0.854, 0.708, 0.562.
    split = text()
    contexts = split.as_stream(True, 0.6).windows(np.arange(12), 4)[0]
    assert contexts[6].tolist() == [EOS, 3, 4, EOS]
    assert contexts[9].tolist() == [BOS] * 4  # the last sentence has a reset context
    assert contexts[11].tolist() == [BOS, BOS, 7, 8]
    assert split.as_stream(True).windows(np.array([9]), 4)[0].tolist() == [[EOS, 5, 6, EOS]]
    assert split.as_stream(False, 0.6) is split
    apart = replace(split, independent_sentences=True)
    assert apart.as_stream(True, 0.6) is apart


def test_streamed_as_in_memory(toy: Corpus) -> None:
    split = toy.split("train")
    whole = split.as_stream(True, 0.3)
    assert 2 < len(whole.offsets) < len(split.offsets)
    contexts, targets = whole.windows(np.arange(split.tokens), 6)
    stored = toy.stored("train", across_sentences=True, reset_share=0.3)
    # In one block, whose first token is the text's.
    windows, places = next(iter(stored.groups(np.arange(stored.blocks), 6)))
    ours, words = windows(places, 6)
    assert split.tokens < module.BLOCK_TOKENS
    assert np.array_equal(ours, contexts)
    assert np.array_equal(words, targets)
