"""The characters and words of a text, against a plain counter: for every source, unit and rule, and in Python."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmtool.config.data import BlankLines, Normalize, Unit
from lmtool.data.corpus import Corpus
from lmtool.data.preprocess import preprocess
from lmtool.data.readers import read_blocks
from lmtool.data.sources.base import SplitConfig, SplitUnit
from lmtool.data.sources.builtin import SyntheticData
from lmtool.data.text_form import TextForm, split_of_text
from lmtool.data.text_records import record_blocks
from lmtool.data.text_rules import TextRules
from lmtool.data.vocabulary import Vocabulary
from lmtool.text_model import TextModel
from tests.commands.test_ensemble import Fixed
from tests.conftest import RULES
from tests.data.test_preprocess import folder, text  # noqa: F401 - folder is a fixture

SPACE = " \t\r\v\f"


def plain(content: str, *, sentences: bool, blank: bool = False, tags: bool = False) -> tuple[int, int]:
    """Return the numbers of characters, and of words and sentence ends, counted line by line."""
    characters = words = 0
    for line in content.removesuffix("\n").split("\n"):
        found = [word for word in line.translate(str.maketrans(SPACE, " " * len(SPACE))).split(" ") if word]
        if tags:
            found = [word.rpartition("/")[0] or word for word in found]
        if found or (blank and sentences):
            characters += len(" ".join(found)) + 1
            words += len(found) + sentences
    return characters, words


def form(unit: str, *, sentences: bool, **rules: Any) -> TextForm:
    words = (*(["</s>"] if sentences else []), "<unk>", "a", " ", "<s>")
    vocabulary = Vocabulary(words, np.zeros(len(words), dtype=np.int64), 0 if sentences else None, words.index("<unk>"))
    return TextForm(vocabulary, Unit(unit), TextRules(rules.pop("lowercase", False)), **rules)


LINES = st.text(st.sampled_from("abA/é世\u00a0" + SPACE + "\n"), max_size=60)


@pytest.mark.parametrize("unit", ["word", "char"])
@given(content=LINES, sentences=st.booleans(), blank=st.booleans(), tags=st.booleans(), lowercase=st.booleans())
@settings(max_examples=300, deadline=None)
def test_files_have_the_characters_of_a_plain_counter(
    unit: str, content: str, sentences: bool, blank: bool, tags: bool, lowercase: bool
) -> None:
    rules = form(unit, sentences=sentences, lowercase=lowercase, tags=tags, blank_lines=blank and sentences)
    half = content.find("\n", len(content) // 2) + 1
    blocks = [part.encode() for part in (content[:half], content[half:] + "\n") if part]
    split, _ = split_of_text(blocks, "x", rules)
    assert (split.characters, split.words) == plain(content + "\n", sentences=sentences, blank=blank, tags=tags)


@pytest.mark.parametrize("unit", ["word", "char"])
@given(lines=st.lists(st.text(st.sampled_from("ab é\t"), max_size=9), max_size=5), sentences=st.booleans())
@settings(max_examples=200, deadline=None)
def test_sentences_in_memory_have_those_of_a_file(unit: str, lines: list[str], sentences: bool) -> None:
    rules = form(unit, sentences=sentences)
    words = [rules.words(line) for line in lines]
    split, _ = rules.as_split([each for each, line in zip(words, lines, strict=True) if line.split()], one_text=False)
    assert (split.characters, split.words) == plain("\n".join(lines), sentences=sentences)


# " the  cat sat \n\n \n\ta dog/x\r\n": "the cat sat" and "a dog/x", a line end after each
TEXT = " the  cat sat \n\n \n\ta dog/x\r\n"
CHARACTERS, WORDS = 11 + 1 + 7 + 1, 3 + 1 + 2 + 1
UNITS = [Unit.word, Unit.char, Unit.bpe]


def counted(data: Any, tmp_path: Path, split: str = "train") -> tuple[int, int | None]:
    with Corpus.open(preprocess(data, tmp_path / "stores", progress=False).path) as corpus:
        found = corpus.split(split)
        return found.characters, found.words


@pytest.mark.parametrize("unit", UNITS)
def test_every_source_counts_the_same(unit: Unit, folder: Path) -> None:  # noqa: F811
    rules = replace(RULES, unit=unit, size=260 if unit is Unit.bpe else None)
    (folder / "train.txt").write_text(TEXT)
    (folder / "train.jsonl").write_text("".join(json.dumps({"t": line}) + "\n" for line in (TEXT, "", "a\nb c")))
    (folder / "two.txt").write_text("x y")
    assert counted(text(vocabulary=rules), folder) == (CHARACTERS, WORDS)
    assert counted(text(vocabulary=rules, train=["train.txt", "two.txt"]), folder) == (CHARACTERS + 4, WORDS + 3)
    pq.write_table(pa.table({"t": [TEXT, None, "a\nb c"]}), folder / "train.parquet")
    for documents in ("train.jsonl", "train.parquet"):
        data = text(vocabulary=rules, train=documents, valid=None, column="t")
        assert counted(data, folder) == (CHARACTERS + 2 + 4, WORDS + 2 + 3)
    stream = text(vocabulary=rules, sentences=False)
    assert counted(stream, folder) == (CHARACTERS, WORDS - 2)
    blank = text(vocabulary=rules, blank_lines=BlankLines.sentence)
    assert counted(blank, folder) == (CHARACTERS + 2, WORDS + 2)
    with Corpus.from_texts(TEXT.splitlines(), unit=unit.value, size=rules.size, store_dir=folder / "stores") as corpus:
        split = corpus.split("train")
        assert (split.characters, split.words) == (CHARACTERS, WORDS)


@pytest.mark.parametrize("unit", UNITS)
def test_rules_for_words_come_before_counting(unit: Unit, folder: Path) -> None:  # noqa: F811
    rules = replace(RULES, unit=unit, size=260 if unit is Unit.bpe else None)
    (folder / "train.txt").write_text("the/at  cat/nn /x a/b/c\n")  # "the cat /x a/b"
    assert counted(text(vocabulary=rules, tags=True), folder) == (14 + 1, 4 + 1)
    with Corpus.open(preprocess(text(vocabulary=rules, tags=True), folder / "stores", progress=False).path) as corpus:
        assert ("n" in corpus.vocabulary.words) == (unit is Unit.bpe), "a letter of a tag alone; bytes are all pieces"
    (folder / "train.txt").write_text("I\u0307x \u0130\n")  # two letters each in lower case
    assert counted(text(vocabulary=replace(rules, lowercase=True)), folder) == (3 + 1 + 2 + 1, 3)
    (folder / "train.txt").write_text("Caf\u00e9 \u2014 a\u2014b 1\u2026\n")  # "cafe - a - b 0..."
    assert counted(text(vocabulary=rules, normalize=Normalize.ccnet), folder) == (17 + 1, 6 + 1)


@pytest.mark.parametrize("unit", UNITS)
def test_splits_that_are_cut(unit: Unit, folder: Path) -> None:  # noqa: F811
    rules = replace(RULES, unit=unit, size=260 if unit is Unit.bpe else None)
    (folder / "train.txt").write_text(" ab c\n\nd\n  \ne f\ng\n")
    by_lines = text(vocabulary=rules, valid=None, split=SplitConfig(SplitUnit.lines, 2, 1, None))
    for split, wanted in {"train": (5 + 2, 3 + 2), "valid": (4, 2 + 1), "test": (2, 1 + 1)}.items():
        assert counted(by_lines, folder, split) == wanted
    tokens = (6, 2) if unit is Unit.char else (4, 2)  # letters: " ab c</s>", "d</s>"
    by_tokens = text(vocabulary=rules, valid=None, split=SplitConfig(SplitUnit.tokens, *tokens, None))
    for split, wanted in {"train": (5, 3), "valid": (2, 2), "test": (4 + 2, 5)}.items():
        if unit is not Unit.char:
            wanted = {"train": (5 + 2, 5), "valid": (4, 3), "test": (2, 2)}[split]
        assert counted(by_tokens, folder, split) == wanted


def test_drawn_words_have_characters_too(tmp_path: Path) -> None:
    data = SyntheticData("synthetic", "syn", True, RULES, 3000, 500, 500, 50, 1.0, 0.5, 3, 8.0, 4)
    with Corpus.open(preprocess(data, tmp_path, progress=False).path) as corpus:
        valid = corpus.split("valid")
        words = [corpus.vocabulary.words[k] for k in valid.ids]
    wanted = len(" ".join(words).replace(" </s> ", "\n").replace(" </s>", "\n"))
    assert valid.characters == wanted and valid.words == valid.tokens


@pytest.mark.parametrize("unit", UNITS[:2])
def test_a_line_of_spaces_is_an_empty_line_in_every_unit(unit: Unit, folder: Path) -> None:  # noqa: F811
    (folder / "train.txt").write_text("a\n  \nb\n\n")
    prepared = preprocess(text(vocabulary=replace(RULES, unit=unit)), folder / "stores", progress=False)
    assert prepared.notes == ["skipped 2 empty lines"] and prepared.rows[0]["tokens"] == 4
    with Corpus.open(prepared.path) as corpus:
        rules = TextForm(corpus.vocabulary, unit)
    found = TextModel(Fixed([[0.25] * 4], 1), rules).split_of(["a", "  ", "b", ""])
    assert (found.tokens, found.words, found.characters) == (4, 4, 4)


@pytest.mark.parametrize(  # only lines are shuffled
    ("unit", "shuffle_seed"), [(SplitUnit.lines, None), (SplitUnit.lines, 7), (SplitUnit.tokens, None)]
)
def test_empty_lines_are_told_of_where_train_is_cut(unit: SplitUnit, shuffle_seed: int | None, folder: Path) -> None:  # noqa: F811
    (folder / "train.txt").write_text("\n a\n\n  \nb\nc\nd\n\n")
    sizes = (2, 1) if unit is SplitUnit.lines else (4, 2)
    prepared = preprocess(text(valid=None, split=SplitConfig(unit, *sizes, shuffle_seed)), folder / "s", progress=False)
    assert prepared.notes == ["skipped 4 empty lines"]
    assert [row["tokens"] for row in prepared.rows] == [4, 2, 2]


def test_letters_of_a_stream_keep_their_empty_lines_where_train_is_cut(folder: Path) -> None:  # noqa: F811
    (folder / "train.txt").write_text("a\n\nb\nc\n")
    rules = replace(RULES, unit=Unit.char)
    cut = text(vocabulary=rules, sentences=False, valid=None, split=SplitConfig(SplitUnit.lines, 2, 1, None))
    prepared = preprocess(cut, folder / "stores", progress=False)
    assert prepared.notes == [] and [row["tokens"] for row in prepared.rows] == [5, 2]
    with Corpus.open(prepared.path) as corpus:
        assert "".join(corpus.vocabulary.words[k] for k in corpus.split("train").ids) == "a\n\nb\n"


@pytest.mark.parametrize("block", [2, 1 << 20])
def test_carriage_returns_alone_end_lines(block: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr("lmtool.data.readers.BLOCK", block)
    (folder / "train.txt").write_bytes(b"\xef\xbb\xbfa b\rc\r\rd\r")
    (folder / "valid.txt").write_bytes(b"a\rb\nc\n")  # other lines end in \n: white space, as in KenLM
    prepared = preprocess(text(), folder / "stores", progress=False)
    assert prepared.notes == ["skipped 1 empty lines"]
    assert [(row["tokens"], row["sentences"]) for row in prepared.rows] == [(7, 3), (5, 2)]
    assert b"".join(read_blocks("train.txt")) == b"a b\nc\n\nd\n"
    assert [block.content for block in record_blocks(["train.txt"], None)] == [b"a b\nc\n\nd\n"]
