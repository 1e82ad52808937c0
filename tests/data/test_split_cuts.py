"""A text that is cut into train, valid and test: every cut against a plain splitter, and what its sizes may be."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, chain
from pathlib import Path

import h5py
import numpy as np
import pytest

import lmtool as lm
from lmtool.config.data import Unit, VocabularyConfig
from lmtool.data import preprocess as recipe
from lmtool.data.corpus import Corpus
from lmtool.data.preprocess import preprocess
from lmtool.data.sources.base import SplitConfig, SplitUnit
from lmtool.data.sources.text import TextData
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.system.checksums import seal
from tests.data.test_preprocess import cut

LINES = ["a b c", "", "b", "c c a b", "a"]  # 9 words in 4 sentences


def data(cut: SplitConfig, *, sentences: bool = True, unit: Unit = Unit.word) -> TextData:
    rules = VocabularyConfig(file=None, size=None, min_count=1, lowercase=False, unit=unit)
    return TextData("text", "mine", sentences, rules, "text.txt", None, None, False, cut, {}, None, None, None)


def joined(sentences: list[list[str]]) -> list[str]:
    return list(chain.from_iterable(sentences))


def plain(lines: list[str], cut: SplitUnit, sizes: tuple[int, int], *, sentences: bool, chars: bool) -> list:
    """Return the sentences (lists of tokens) of train, valid and test, one for a stream; None for an empty split."""
    end = ["</s>"] if sentences else ["\n"] if chars else []
    items: list[list[str]] = []
    for line in lines:
        if line:
            items.append((list(line) if chars else line.split()) + end)  # a sentence each
        elif chars and not sentences:
            items[-1] += end  # a stream of letters keeps its empty lines
    first, second = sizes[0], sum(sizes)
    if cut is SplitUnit.lines:
        parts = [items[:first], items[first:second], items[second:]]
    elif sentences:  # each sentence goes where its first token is
        begins = [0, *accumulate(map(len, items))]
        parts = [[], [], []]
        for begin, sentence in zip(begins, items, strict=False):
            parts[0 if begin < first else 1 if begin < second else 2].append(sentence)
    else:
        tokens = joined(items)
        parts = [[tokens[:first]], [tokens[first:second]], [tokens[second:]]]
    return parts if sentences else [[joined(part)] if joined(part) else [] for part in parts]


@pytest.mark.parametrize("sentences", [True, False])
@pytest.mark.parametrize("unit", [Unit.word, Unit.char])
@pytest.mark.parametrize("cut", list(SplitUnit))
def test_every_cut_is_that_of_a_plain_splitter(
    cut: SplitUnit, unit: Unit, sentences: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ["a b", "", "b", "c a a"] if unit is Unit.word else ["abc", "", "b", "c"]
    Path("text.txt").write_text("\n".join(lines))
    whole = plain(lines, cut, (1 << 9, 0), sentences=sentences, chars=unit is Unit.char)[0]
    count = sum(map(len, whole)) if cut is SplitUnit.tokens else sum(map(bool, lines))
    for train in range(1, count):
        for valid in range(1, count - train + 1):
            want = plain(lines, cut, (train, valid), sentences=sentences, chars=unit is Unit.char)
            settings = data(SplitConfig(cut, train, valid, None), sentences=sentences, unit=unit)
            if not want[1]:
                with pytest.raises(UserError, match="sentences stay whole, and none is left for valid"):
                    preprocess(settings, "stores", progress=False)
                continue
            with Corpus.open(preprocess(settings, "stores", progress=False).path) as corpus:
                words = corpus.vocabulary.words
                assert corpus.splits == ["train", "valid", "test"][: 3 if want[2] else 2]
                for name, found in zip(corpus.splits, want, strict=False):
                    split = corpus.split(name)
                    assert split.offsets.tolist() == [0, *accumulate(map(len, found))]
                    known = set(joined(want[0]))
                    assert [words[k] for k in split.ids] == [w if w in known else "<unk>" for w in joined(found)]
                counts = count_ngrams(corpus.text("train"), corpus.vocabulary, 2)
                assert counts.count[1][:].sum() == corpus.tokens("train")  # each token ends one 2-gram


@pytest.mark.parametrize("offsets", [[0, 4, 6], [1, 4, 6, 11]])
def test_a_store_without_its_last_offset_is_written_again(
    offsets: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("\n".join(LINES))
    settings = data(SplitConfig(SplitUnit.tokens, 11, 2, None))
    path = preprocess(settings, "stores", progress=False).path
    damage(path, "offsets", offsets)
    with pytest.raises(UserError, match=r"is damaged \(offsets must ascend from 0 to 11, .*delete it and run lmtool"):
        Corpus.open(path)
    assert preprocess(settings, "stores", progress=False).created
    with Corpus.open(path) as corpus:
        assert corpus.split("train").offsets.tolist() == [0, 4, 6, 11]


def damage(path: Path, name: str, values: list[int]) -> None:
    """Put other values into the train split of a store, with right checksums."""
    with h5py.File(path, "r+") as file:
        group = file["splits/train"]
        kind = group[name].dtype
        del group[name]
        group[name] = np.array(values, dtype=kind)
    seal(path)


@pytest.mark.parametrize(
    ("name", "values"),
    [("ids", [0, 1, 2, 3, 0, 200, 3, 0, 1, 2, 3]), ("offsets", [0, 6, 4, 11]), ("offsets", [0, 4, 4, 11])],
)
def test_ids_and_offsets_that_compiled_loops_would_follow_out_of_their_arrays(
    name: str, values: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("\n".join(LINES))
    path = preprocess(data(SplitConfig(SplitUnit.tokens, 11, 2, None)), "stores", progress=False).path
    damage(path, name, values)
    with Corpus.open(path) as corpus:
        if values[1] != values[2]:
            with pytest.raises(UserError, match="is damaged in its train split"):
                corpus.split("train")
        with pytest.raises(UserError, match="the train split is damaged, delete its store"):
            count_ngrams(corpus.text("train"), corpus.vocabulary, 2)
        if name == "ids":
            with pytest.raises(UserError, match="the store is damaged: id 200 of 6 words"):
                corpus.stored("train").windows(np.array([5]), 2)


def test_a_cut_far_from_the_end_of_its_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lmtool.data.first_pass.PIECE", 4)
    Path("text.txt").write_text("a b c d e f g h i\nj\nk l\n")
    prepared = recipe.preprocess(data(SplitConfig(SplitUnit.tokens, 2, 10, None)), "stores", progress=False)
    assert [row["tokens"] for row in prepared.rows] == [10, 2, 3] and [r["sentences"] for r in prepared.rows] == [1] * 3


NO_SHARES = (1, 1.0, 1.5, 80, 0, 0.0, -0.5, True, "80", "0.8", float("nan"), 1 << 63)


@pytest.mark.parametrize("value", NO_SHARES)
@pytest.mark.parametrize("name", ["train", "valid"])
def test_what_is_not_a_share_is_refused(name: str, value: object) -> None:
    rule = "must be a share between 0 and 1, e.g. 0.8, or, together with data.split.unit=lines or tokens, a whole"
    with pytest.raises(UserError, match=rf"^data\.split\.{name}=\S+: {rule} number of these$"):
        SplitConfig(None, **({"train": None, "valid": None} | {name: value}), shuffle_seed=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [1.0, 1.5, 80.0, 0, True, "80", 1 << 63])
@pytest.mark.parametrize("unit", list(SplitUnit))
def test_a_number_of_units_is_a_whole_number(unit: SplitUnit, value: object) -> None:
    with pytest.raises(UserError, match=r"^data\.split\.train=\S+: must be a share between 0 and 1"):
        SplitConfig(unit, value, None, None)


def test_numbers_and_shares_of_a_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.txt").write_text("".join(f"{k} x\n" for k in range(100)))  # 3 tokens a line
    for unit, train, valid, sentences in (
        (SplitUnit.lines, 80, None, [80, 10, 10]),
        (SplitUnit.lines, 1, 1, [1, 1, 98]),
        (SplitUnit.lines, 0.5, 20, [50, 20, 30]),
        (SplitUnit.tokens, 240, 15, [80, 5, 15]),
        (SplitUnit.tokens, 0.8, None, [80, 10, 10]),
        (None, 0.8, None, [80, 10, 10]),
    ):
        prepared = preprocess(cut(unit, train, valid, None), "stores", progress=False)
        assert [row["sentences"] for row in prepared.rows] == sentences


def test_a_training_prints_the_sizes_of_all_splits(lmtool: Callable[..., str]) -> None:
    Path("own.txt").write_text("".join(f"{letter} x\n" for letter in "abcdefghij"))
    said = "the text is cut into train 8, valid 1, test 1 sentences"
    assert f"note: {said}\n" in lmtool(
        "train", "model=ngram", "data=text", "data.train=own.txt", "data.split.train=0.8"
    )
    lmtool("train", "model=ngram", "data=text", "data.train=own.txt", "data.split.train=1.0", code=2)
    assert "is cut" not in lmtool("train", "model=ngram", "data=text", "data.train=own.txt", "data.valid=own.txt")
    data = {"kind": "text", "train": "own.txt", "split": {"train": 0.8}}
    with pytest.warns(UserWarning, match="out of vocabulary"):
        assert said in lm.train(model="ngram", data=data, out="run").notes
    lines = Path("own.txt").read_text().splitlines()
    with pytest.warns(UserWarning, match="out of vocabulary"):
        assert said in lm.train(model="ngram", data=lm.Corpus.from_texts(lines, valid=0.1, test=0.1), out="texts").notes
    stream = {**data, "sentences": False, "split": {"unit": "tokens", "train": 12}}
    with pytest.warns(UserWarning, match="out of vocabulary"):
        notes = lm.train(model="ngram", data=stream, out="stream").notes
    assert "the text is cut into train 12, valid 4, test 4 tokens" in notes
    with pytest.raises(UserError, match=r"data\.split\.train=80: must be a share"):
        lm.train(model="ngram", data={**data, "split": {"train": 80}}, out="none")
