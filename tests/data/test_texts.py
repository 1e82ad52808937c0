"""Corpora of text that Python code gives."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lmtool
from lmtool.config.settings import data_settings
from lmtool.data.corpus import Corpus
from lmtool.data.preprocess import preprocess
from lmtool.data.sources import texts
from lmtool.errors import UserError


def words_of(corpus: Corpus, split: str) -> list[str]:
    return [corpus.vocabulary.words[k] for k in corpus.split(split).ids]


def test_strings_and_lists_of_words(tmp_path: Path) -> None:
    train = ["\ufeffthe cat sat", ["the", "dog\u00a0x"], "a b\r\n", "", ("a",)]
    train_words = ["the", "cat", "sat", "</s>", "the", "dog\u00a0x", "</s>", "a", "b", "</s>"]
    with Corpus.from_texts(train, ["the <unk> cow"], name="mine", store_dir=tmp_path / "stores") as corpus:
        assert words_of(corpus, "train") == [*train_words, "a", "</s>"]
        assert words_of(corpus, "valid") == ["the", "<unk>", "<unk>", "</s>"] and corpus.splits == ["train", "valid"]
        assert corpus.split("valid").oov_positions.tolist() == [2]  # <unk> itself is a word
        assert corpus.oov_share("train") == 0 and corpus.oov_share("valid") == 0.25
        # "the cat sat\n", "the dog x\n", "a b\n", "a\n"
        assert corpus.split("train").characters == 12 + 10 + 4 + 2
        assert repr(corpus) == "<Corpus mine: train 12, valid 4 tokens; vocabulary 9>"
        assert corpus.path.parent == tmp_path / "stores" and corpus.path.name.startswith("mine-")


def test_any_iterable_is_read_once_and_the_same_text_has_one_store(tmp_path: Path) -> None:
    def sentences() -> Iterator[str]:
        yield from ["b a", "b c"]

    with Corpus.from_texts(sentences(), (s for s in ["a"]), store_dir=tmp_path) as first:
        made = first.path.stat().st_mtime_ns
    with Corpus.from_texts([["b", "a"], "b c"], ["a"], store_dir=tmp_path) as second:
        assert second.path == first.path and second.path.stat().st_mtime_ns == made
    for other in (
        Corpus.from_texts(["b a c"], ["a"], store_dir=tmp_path),
        Corpus.from_texts(["b a", "b c"], ["b"], store_dir=tmp_path),
        Corpus.from_texts(["b a", "b c"], ["a"], words=["a"], store_dir=tmp_path),
        Corpus.from_texts(["b a", "b c"], ["a"], lowercase=True, store_dir=tmp_path),
    ):
        with other:
            assert other.path != first.path


def test_more_text_than_memory_goes_through_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "IN_MEMORY", 10)
    monkeypatch.setattr(texts, "BLOCK", 7)
    monkeypatch.setattr(texts, "SENTENCES", 3)
    with Corpus.from_texts([f"w{k} x" for k in range(10)], 0.2, 0.1, store_dir=tmp_path) as corpus:
        assert words_of(corpus, "train")[::3] == [f"w{k}" for k in range(7)]
        assert corpus.split("test").tokens == 3 and corpus.oov_share("valid") == pytest.approx(1 / 3)


def test_valid_and_test_as_shares_of_train(tmp_path: Path) -> None:
    with Corpus.from_texts([*"abcdefg", "", "h", "i", "j"], 0.1, store_dir=tmp_path) as corpus:
        assert words_of(corpus, "train") == [w for c in "abcdefghi" for w in (c, "</s>")]
        assert corpus.splits == ["train", "valid"] and corpus.tokens("valid") == 2
    with Corpus.from_texts(["a b c d e f g", "h i j"], 0.2, 0.3, sentences=False, store_dir=tmp_path) as corpus:
        assert words_of(corpus, "train") == [*"abcde"] and not corpus.sentences
        assert [corpus.tokens(name) for name in corpus.splits] == [5, 2, 3]


def test_train_alone_is_a_corpus(tmp_path: Path) -> None:
    with Corpus.from_texts(["b a", "b c"], store_dir=tmp_path) as corpus:
        assert corpus.splits == ["train"]
        assert lmtool.train("ngram", corpus, smoother="witten_bell", out=tmp_path / "run").ngrams == [6, 5, 4, 2, 0]
        with pytest.raises(UserError, match="has no valid split"):
            lmtool.train("nplm", corpus, out=tmp_path / "net")


def test_rules_of_the_vocabulary(tmp_path: Path) -> None:
    with Corpus.from_texts(["A a B c"], ["b"], lowercase=True, words=["C", "a"], store_dir=tmp_path) as corpus:
        assert words_of(corpus, "train") == ["a", "a", "<unk>", "c", "</s>"] and len(corpus.vocabulary) == 5
    with Corpus.from_texts(["a a b b c"], ["b"], min_count=2, size=1, store_dir=tmp_path) as corpus:
        assert words_of(corpus, "train") == ["a", "a", "<unk>", "<unk>", "<unk>", "</s>"]
    with Corpus.from_texts(["ab", "b a"], ["b\r\n"], unit="char", store_dir=tmp_path) as corpus:
        assert words_of(corpus, "train") == ["a", "b", "</s>", "b", " ", "a", "</s>"]
        assert words_of(corpus, "valid") == ["b", "</s>"]


def test_the_settings_of_a_store_make_it_again_or_say_why_not(tmp_path: Path) -> None:
    with Corpus.from_texts(["a b"], ["b"], min_count=1, store_dir=tmp_path) as corpus:
        data = data_settings(corpus.provenance)
    assert (data.kind, data.name, data.vocabulary.min_count) == ("texts", "texts", 1)
    again = preprocess(data, tmp_path, progress=False)
    assert again.path == corpus.path and not again.created
    with pytest.raises(UserError, match=r"data\.name=texts was given from Python and its store is gone.*text=FILE"):
        preprocess(data, tmp_path / "elsewhere", progress=False)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"train": "the cat sat"}, r"train='the cat sat': must be a list of sentences, e.g. train=text\.splitlines\(\)"),
    ({"train": b"the cat"}, "train=b'the cat': must be a list of sentences"),
    ({"train": None}, "train=None: must be sentences"),
    ({"train": 3}, "train=3: must be sentences"),
    ({"train": Path("x.txt")}, "must be a list of sentences"),
    ({"train": ["a", 3]}, "train, sentence 2: 3 is int, not a string or a list of words"),
    ({"train": ["a", b"b"]}, "train, sentence 2: b'b' is bytes"),
    ({"valid": [["a", 3]]}, "valid, sentence 1: 3 is int, not a string"),
    ({"valid": [["a", "b c"]]}, "valid, sentence 1: 'b c' is not a word: it is empty or has white space"),
    ({"valid": [["a", ""]]}, "valid, sentence 1: '' is not a word"),
    ({"train": ["a\nb"]}, r"train, sentence 1: a line end within it.*text\.splitlines\(\)"),
    ({"train": ["a\0b"]}, "train, sentence 1: a NUL character"),
    ({"train": ["a", "\ud800"]}, r"train, sentence 2: '\\ud800' cannot be encoded in UTF-8"),
    ({"train": [["a", "</s>"]]}, "</s> is in the text"),
    ({"train": ["<s> a"]}, "<s> is in the text"),
    ({"train": []}, "the train split has no words"),
    ({"valid": ["", " "]}, "the valid split has no words"),
    ({"valid": None, "test": 0.5}, "test=0.5: valid and test must both be sentences"),
    ({"valid": 1.5}, "valid=1.5: a share of train must be between 0 and 1"),
    ({"valid": True}, "valid=1: a share of train must be between 0 and 1"),
    ({"valid": 0.5, "test": 0.5}, "valid=0.5, test=0.5: a share of train"),
    ({"valid": 0.5, "test": ["a"]}, "valid=0.5: valid and test must both be sentences, or both be shares"),
    ({"test": 0.5}, "test=0.5: valid and test must both be sentences"),
    ({"valid": 0.1, "train": ["a"]}, "valid=0.1: too few sentences in train to cut, 1"),
    ({"name": "a/b"}, r"data\.name='a/b'"),
    ({"name": 3}, "name=3: must be of type str"),
    ({"sentences": 1}, "sentences=1: must be of type bool"),
    ({"size": "10"}, "size='10': must be of type int"),
    ({"min_count": 0}, "min_count=0: must be 1 or more"),
    ({"unit": "letter"}, "unit='letter': must be one of word, char, grapheme, bpe, unigram"),
    ({"unit": "char", "train": [["a"]]}, "train, sentence 1: .* is list, not a string"),
    ({"words": "abc"}, "words='abc': must be a list of words"),
    ({"words": ["a", "b", "a"]}, "words: 'a' is listed twice"),
    ({"words": ["a b"]}, "words: 'a b' is not a word"),
    ({"words": ["a\0"]}, "words: a NUL character"),
    ({"words": ["a"], "size": 1}, "size=1: words is the whole vocabulary"),
]


@pytest.mark.parametrize(("changes", "said"), BAD, ids=[said[:40] for _, said in BAD])
def test_what_is_not_text_is_one_line(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        Corpus.from_texts(**({"train": ["a b"], "valid": ["b"], "store_dir": tmp_path} | changes))
    assert re.search(said, str(raised.value)) and "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(texts.tempfile.SpooledTemporaryFile):  # type: ignore[type-arg, name-defined]
        def write(self, text: bytes) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(texts.tempfile, "SpooledTemporaryFile", Full)
    with pytest.raises(UserError, match=r"cannot write .*: No space left on device"):
        Corpus.from_texts(["a"], ["a"], store_dir=tmp_path)


def test_a_store_that_is_gone_is_made_again_from_the_same_text(tmp_path: Path) -> None:
    with Corpus.from_texts(["a b"], ["b"], store_dir=tmp_path) as corpus:
        before = corpus.fingerprint
    shutil.rmtree(tmp_path)
    with Corpus.from_texts(["a b"], ["b"], store_dir=tmp_path) as corpus:
        assert corpus.fingerprint == before
