"""data.train as several sources, and text that is in train and valid: places in the store, notes, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmtool.config.data import Unit, VocabularyConfig
from lmtool.data import first_pass
from lmtool.data.corpus import Corpus
from lmtool.data.derived_corpus import SkipCorpus
from lmtool.data.first_pass import shared_sentences
from lmtool.data.preprocess import preprocess
from lmtool.data.sources.base import SplitConfig
from lmtool.errors import UserError
from tests.data.test_preprocess import text


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, content in (("a", "x y\n\nx\n"), ("b", "y z"), ("c", "z z z\n"), ("valid", "x\n")):
        (tmp_path / f"{name}.txt").write_text(content)
    return tmp_path


def opened(**settings: Any) -> Corpus:
    return Corpus.open(preprocess(text(**settings), Path("stores"), progress=False).path)


def test_sources_are_joined_in_the_order_of_their_names(folder: Path) -> None:
    with opened(train={"news": ["a.txt", "c.txt"], "books": "b.txt"}) as corpus:
        assert corpus.sources == {"books": (0, 3), "news": (3, 12)}
        assert corpus.provenance["notes"] == [
            "skipped 1 empty lines",
            "2 sources of train: books 3 tokens, news 9 tokens",
        ]
        words = [corpus.vocabulary.words[i] for i in corpus.split("train").ids]
        assert " ".join(words) == "y z </s> x y </s> x </s> z z z </s>"
        assert corpus.vocabulary.counts[corpus.vocabulary.ids["z"]] == 4
        assert SkipCorpus(corpus, 2).sources == corpus.sources
        with opened(train={"books": "b.txt", "news": ["a.txt", "c.txt"]}) as other:  # the same settings
            assert other.path == corpus.path
        with opened(train=["b.txt", "a.txt", "c.txt"]) as joined:
            np.testing.assert_array_equal(joined.split("train").ids, corpus.split("train").ids)
            assert joined.sources == {} and joined.path != corpus.path


def test_one_source_is_the_plain_form(folder: Path) -> None:
    with opened(train={"news": "a.txt"}) as corpus, opened(train="a.txt") as plain:
        assert corpus.path == plain.path and corpus.sources == {}


@pytest.mark.parametrize(("unit", "ends"), [(Unit.char, (4, 16)), (Unit.bpe, None)])
def test_other_units(unit: Unit, ends: tuple[int, int] | None, folder: Path) -> None:
    if unit is Unit.bpe:
        pytest.importorskip("tokenizers")
    rules = VocabularyConfig(file=None, size=None, min_count=1, lowercase=False, unit=unit)
    with opened(train={"one": "b.txt", "two": ["a.txt", "c.txt"]}, vocabulary=rules) as corpus:
        (first, middle), (again, last) = corpus.sources.values()
        assert (first, again, last) == (0, middle, corpus.tokens("train"))
        assert ends in (None, (middle, last))
        assert middle in corpus.split("train").offsets and (corpus.split("train").offsets < middle).sum() == 1


def test_a_stream(folder: Path) -> None:
    with opened(train={"one": "b.txt", "two": "c.txt"}, sentences=False) as corpus:
        assert corpus.sources == {"one": (0, 2), "two": (2, 5)}
        with pytest.raises(
            UserError, match=r"data\.sentences=false: skipped words of a stream do not belong to one source"
        ):
            _ = SkipCorpus(corpus, 2).sources


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"train": {}},
            r"data\.train=\{\}: must be \{news: a\.txt, books: \[b\.txt, c\.txt\]\}, files by names of letters",
        ),
        ({"train": {"a b": "a.txt", "c": "b.txt"}}, r"data\.train=\{'a b': .*names of letters, digits"),
        ({"train": {1: "a.txt", 2: "b.txt"}}, r"data\.train=\{1: .*names of letters, digits"),
        ({"train": {"a": "a.txt", "b": None}}, r"data\.train\.b=null: must be a path, a glob, a folder"),
        (
            {"train": {"a": "a.txt", "b": "b.txt"}, "valid": None, "split": SplitConfig(None, 0.8, None, None)},
            r"data\.split cuts one text, and data\.train has several sources: give data\.valid a file",
        ),
        ({"valid": {"a": "a.txt", "b": "b.txt"}}, r"data\.valid=\{.*: must be a path, a glob"),
        ({"train": {"a": "a.txt", "b": "nix.txt"}}, r"no file nix\.txt for data\.train"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], message: str, folder: Path) -> None:
    with pytest.raises(UserError, match=message):
        opened(**settings)


REMEDY = "its perplexity says little of new text; give data.valid other text"


def test_the_share_is_that_of_a_plain_count(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)

    def drawn(sentences: int) -> list[list[int]]:
        return [[*rng.integers(3, 5, rng.integers(0, 5)).tolist(), 0] for _ in range(sentences)]

    def ids(sentences: list[list[int]]) -> np.ndarray:
        return np.array([k for sentence in sentences for k in sentence], dtype=np.int32)

    for _ in range(20):
        train, valid = drawn(6), drawn(9)
        want = sum(sentence in train for sentence in valid) / 9
        assert shared_sentences({"train": ids(train), "valid": ids(valid)}, sentences=True) == pytest.approx(want)
    monkeypatch.setattr(first_pass, "HASHED", 12)  # pieces, one sentence of which may be cut
    train, valid = drawn(40), drawn(60)
    want = sum(sentence in train for sentence in valid) / 60
    assert abs(shared_sentences({"train": ids(train), "valid": ids(valid)}, sentences=True) - want) < 0.2
    assert shared_sentences({"train": ids(train), "valid": ids(train)}, sentences=False) == 1
    assert shared_sentences({"train": ids(train), "valid": ids(train)[:-1]}, sentences=False) == 0


def test_the_same_file_and_lines_in_both(lmtool: Callable[..., str]) -> None:
    Path("t.txt").write_text("a b\nb a\nc\na c\nb\n")
    Path("v.txt").write_text("c\na a\nb b\nc c\n")  # one of four
    Path("new.txt").write_text("a a\nb b b\n")
    words = ["preprocess", "data=text", "data.train=t.txt"]
    assert f"warning: 100.0 % of the sentences of valid are in train, too: {REMEDY}" in lmtool(
        *words, "data.valid=t.txt"
    )
    assert "warning: 25.0 % of the sentences of valid are in train, too" in lmtool(*words, "data.valid=v.txt")
    assert "in train, too" not in lmtool(*words, "data.valid=new.txt")
    # Of two streams only that they are the same text, under whatever names.
    Path("copy.txt").write_text("a b\nb a c\na c\nb\n")
    stream = [*words, "data.sentences=false"]
    assert f"warning: 100.0 % of valid is in train, too: {REMEDY}" in lmtool(*stream, "data.valid=copy.txt")
    assert "in train, too" not in lmtool(*stream, "data.valid=v.txt")
    trained = lmtool("train", "model=ngram", "model.order=2", *words[1:], "data.valid=t.txt")
    assert "warning: 100.0 % of the sentences of valid are in train, too" in trained
    lmtool(*words, "data.valid=t.txt", "data.vocabulary.unit=char")
    assert "warning: 100.0 % of the sentences" in lmtool(*words, "data.valid=t.txt", "data.vocabulary.unit=char")
