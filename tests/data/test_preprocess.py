"""Each data set of the group becomes a store; what sources give besides text comes into it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from lmtool.config.data import DataConfig, Unit, VocabularyConfig
from lmtool.config.options import conf_dir, kinds, yaml_files
from lmtool.config.settings import data_settings, saved_settings
from lmtool.data import preprocess as recipe
from lmtool.data import store
from lmtool.data.choose_vocabulary import listed_words, read_word_list, select
from lmtool.data.corpus import Corpus
from lmtool.data.preprocess import preprocess, settings_json, store_path
from lmtool.data.sources.base import DrawnIds, ExternalCounts, NoSource, Source, SplitConfig, SplitUnit
from lmtool.data.sources.builtin import SyntheticData, ToyData
from lmtool.data.sources.text import TextData
from lmtool.data.store import Store
from lmtool.data.text_files import DownloadConfig
from lmtool.data.tokenizer import RESERVED
from lmtool.errors import UserError
from lmtool.system.files import process_tag, remove_stale
from tests.conftest import RULES


def text(**changes: Any) -> TextData:
    values: dict[str, Any] = dict(kind="text", name="mine", sentences=True, vocabulary=RULES, train="train.txt")
    values |= dict(valid="valid.txt", test=None, tags=False, split=None, downloads={})
    values |= dict(cloze_valid=None, cloze_valid_answers=None, cloze_test=None)
    return TextData(**(values | changes))


def cut(unit: SplitUnit | None, train: float | None, valid: float | None, shuffle_seed: int | None) -> TextData:
    return text(valid=None, split=SplitConfig(unit, train, valid, shuffle_seed))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.txt").write_text("a b\n\n\nb a c\n")
    (tmp_path / "valid.txt").write_text("b\n")
    return tmp_path


def test_the_name_and_fingerprint_of_a_store_are_those_of_version_0_5(tmp_path: Path) -> None:
    data = ToyData("toy", "toy", True, RULES)
    assert settings_json(data) == (
        '{"kind": "toy", "name": "toy", "sentences": true, "vocabulary": '
        '{"file": null, "lowercase": false, "min_count": 1, "size": null, "unit": "word"}}'
    )
    assert store_path(data, tmp_path).name == "toy-51cffaa84e.h5"
    with Corpus.open(preprocess(data, tmp_path, progress=False).path) as corpus:
        assert corpus.fingerprint.startswith("9ef780d4d79f")
    drawn = SyntheticData("synthetic", "syn", True, RULES, 3000, 500, 500, 50, 1.0, 0.5, 3, 8.0, 4)
    path = preprocess(drawn, tmp_path, progress=False).path
    assert path.name == "syn-c06d6ed286.h5"
    with Corpus.open(path) as corpus:
        assert corpus.fingerprint.startswith("1e28a7e05e13")


def test_the_names_and_fingerprints_of_stores(folder: Path) -> None:
    (folder / "train.txt").write_text("a b\n\n\nb a c\nd\ne\nf\n")
    for data, name, fingerprint, tokens in (
        (text(), "mine-ef86a04de3.h5", "98baa9cdb0fc", [13, 2]),
        (text(split=SplitConfig(None, None, None, None)), "mine-ef86a04de3.h5", "98baa9cdb0fc", [13, 2]),
        (cut(SplitUnit.lines, 0.6, 0.2, 42), "mine-13c8e7f225.h5", "a78096a9f65a", [8, 2, 3]),
        (cut(None, 0.6, None, 42), "mine-13c8e7f225.h5", "a78096a9f65a", [8, 2, 3]),  # the same in other words
        (cut(SplitUnit.lines, 0.5, 0.25, None), "mine-7635f3106e.h5", "a33fb157e195", [7, 2, 4]),
        (cut(None, None, 0.25, None), "mine-7635f3106e.h5", "a33fb157e195", [7, 2, 4]),
        (cut(SplitUnit.tokens, 3, 4, None), "mine-d04ad601bc.h5", "343d2676e899", [3, 4, 6]),
        (
            cut(SplitUnit.tokens, 3, 2, None),
            "mine-767502262b.h5",
            "428a8ac9901f",
            [3, 4, 6],
        ),  # where a sentence was cut
    ):
        prepared = preprocess(data, folder / "stores", progress=False)
        assert prepared.path.name == name and [row["tokens"] for row in prepared.rows] == tokens
        with Corpus.open(prepared.path) as corpus:
            assert corpus.fingerprint.startswith(fingerprint) and data_settings(corpus.provenance) == data


def test_each_yaml_fits_its_option() -> None:
    assert kinds("data") == ["hub", "pydoc", "synthetic", "text", "texts", "toy"]
    with initialize_config_dir(str(conf_dir() / "data"), version_base=None):
        for name in yaml_files("data"):
            values = OmegaConf.to_container(compose(name, ["path=x"] if name == "hub" else []))
            settings = saved_settings(values, "data")  # type: ignore[arg-type]
            assert isinstance(settings, DataConfig) and settings.name == name and settings.kind in kinds("data")


def test_empty_lines_are_skipped_with_a_note(folder: Path) -> None:
    prepared = preprocess(text(), folder / "stores", progress=False)
    assert prepared.created and prepared.notes == ["skipped 2 empty lines"]
    assert [row["tokens"] for row in prepared.rows] == [7, 2]
    again = preprocess(text(), folder / "stores", progress=False)
    assert not again.created and again.rows == prepared.rows and again.notes == prepared.notes


def test_a_store_whose_text_changed_is_closed_before_it_is_rewritten(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, still_open = [], []
    find, write = Store.find, recipe._write
    monkeypatch.setattr(Store, "find", lambda name: found.append(find(name)) or found[-1])
    monkeypatch.setattr(
        recipe, "_write", lambda *given: still_open.append([bool(x.file) for x in found if x]) or write(*given)
    )
    preprocess(text(), folder / "stores", progress=False).close()
    (folder / "train.txt").write_text("a changed text\n")
    prepared = preprocess(text(), folder / "stores", progress=False)
    assert prepared.created and prepared.file and still_open == [[], [False, False, False]]


def test_a_word_list_and_cloze_questions_come_from_the_source(folder: Path) -> None:
    (folder / "words.txt").write_text("1 b\n2 z\u00a0z\n")
    (folder / "q.txt").write_text("Q a b\nC b b\n")
    rules = replace(RULES, file="words.txt")
    data = text(vocabulary=rules, cloze_valid="q.txt")
    assert data.source(progress=False, download=True).word_list == "words.txt"
    with Corpus.open(preprocess(data, folder / "stores", progress=False).path) as corpus:
        assert set(corpus.vocabulary.words) == {"b", "z\u00a0z", "</s>", "<unk>", "<s>"}
        cloze = corpus.cloze("valid")
        assert cloze is not None and cloze.answers.tolist() == [1] and corpus.cloze("test") is None


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ("1987 60\n1986 50\nthe 40\n", ["1987", "1986", "the"]),  # words and their counts
        ("1987 a\n", ["1987"]),
        ("1 60\n2 50\n", ["1", "2"]),  # digits and their counts
        ("1 the\ncat\n", ["1", "cat"]),
        ("1 the 60\n\n2 1987 50\n3 3 40\n", ["the", "1987", "3"]),  # ranks, as in the lists of HW3
        ("1987\n1\n", ["1987", "1"]),
    ],
)
def test_the_word_of_a_line_of_a_list_is_the_first(listed: str, words: list[str], folder: Path) -> None:
    (folder / "words.txt").write_text(listed)
    assert read_word_list("words.txt") == words


def test_what_is_not_train_is_as_ever_where_train_was_counted_elsewhere(folder: Path) -> None:
    (folder / "words.txt").write_text("a\nb\n")
    (folder / "q.txt").write_text("Q a b\nC b b\n")
    data = text(vocabulary=replace(RULES, file="words.txt"), cloze_valid="q.txt", test="none.txt")
    data.downloads = {"test": DownloadConfig("http://127.0.0.1:1/none", "0" * 64)}
    vocabulary, _, _ = select(
        list(RESERVED), np.array([3, 0, 0]), data.vocabulary, word_list=["a", "b"], sentences=True
    )
    calls = 0

    def counted() -> ExternalCounts:
        nonlocal calls
        calls += 1
        return ExternalCounts(vocabulary, np.zeros(len(vocabulary), dtype=np.int64), 3, 0, 0)

    def prepared() -> Store:
        whole = data.source(progress=False, download=True)
        elsewhere, others = data.elsewhere(), data.others(progress=False)
        assert elsewhere.train == [[f"file:{folder}/train.txt"]] and "train" not in others.stamp
        assert {key: value for key, value in whole.stamp.items() if key != "train"} == others.stamp
        assert listed_words(others, data) == ["a", "b"] and others.notes == whole.notes != []
        source = replace(others, stamp=others.stamp | {"train": 1}, counted=counted, label="counted")
        return preprocess(data, folder / "stores", progress=False, source=source)

    first = prepared()
    assert first.created and not prepared().created and calls == 1 and first.notes[0].startswith("no test split")
    with Corpus.open(first.path) as corpus:
        cloze = corpus.cloze("valid")
        assert cloze is not None and cloze.answers.tolist() == [1] and corpus.splits == ["valid"]
    (folder / "valid.txt").write_text("b a a\n")
    assert prepared().created and calls == 2


def test_one_of_several_writes_the_store_and_the_others_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, calls = recipe._write, []

    def slowly(*arguments: Any) -> None:
        calls.append(1)
        time.sleep(0.5)
        write(*arguments)

    monkeypatch.setattr(recipe, "_write", slowly)
    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda _: preprocess(text(), folder / "stores", progress=False), range(3)))
    assert len(calls) == 1 and sorted(one.created for one in made) == [False, False, True]
    assert made[0].rows == made[1].rows == made[2].rows


def test_temporary_files_of_other_machines_stay(tmp_path: Path) -> None:
    here = process_tag().partition(".")[0]
    names = [f".s.h5.{here}.99999999.tmp", f".s.h5.train.{here}.99999999.ids.tmp", ".s.h5.host.99999999.tmp"]
    names += [f".s.h5.{process_tag()}.tmp", ".counts.abc.tmp"]
    for name in names:
        (tmp_path / name).write_text("")
    remove_stale(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[2:])


def test_a_byte_order_mark_and_crlf_are_in_no_word(folder: Path) -> None:
    (folder / "train.txt").write_bytes(b"\xef\xbb\xbfa b\r\nc\r\n")
    (folder / "valid.txt").write_bytes(b"\xef\xbb\xbfa\r\n")
    (folder / "words.txt").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    (folder / "q.txt").write_bytes(b"\xef\xbb\xbfQ a b\r\nC x b\r\n")
    for unit in (Unit.word, Unit.char):
        data = text(vocabulary=replace(RULES, file="words.txt", unit=unit), cloze_valid="q.txt")
        with Corpus.open(preprocess(data, folder / "stores", progress=False).path) as corpus:
            assert set(corpus.vocabulary.words) == {"a", "b", "</s>", "<unk>", "<s>"}
            assert corpus.oov_share("valid") == 0 and corpus.split("train").characters == 6
            cloze = corpus.cloze("valid")
            assert cloze is not None and cloze.answers.tolist() == [1]


def test_only_data_that_take_a_word_list_are_given_one() -> None:
    rules = VocabularyConfig("words.txt", None, 1, False, RULES.unit)
    with pytest.raises(UserError, match=r"data\.vocabulary\.file=words\.txt: data\.kind=toy has its own words"):
        ToyData("toy", "toy", True, rules)
    assert text(vocabulary=rules).takes_word_list and not ToyData.takes_word_list


def test_text_that_is_not_here(folder: Path) -> None:
    with pytest.raises(NoSource, match=r"no file none\.txt for data\.train"):
        text(train="none.txt").source(progress=False, download=False)
    assert list(text(valid=None, test=None).source(progress=False, download=True).splits) == ["train"]


@pytest.mark.parametrize("sentences", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_offsets_and_oov_positions_of_every_piece(
    size: int, sentences: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "IDS_PER_CHUNK", size)
    (folder / "valid.txt").write_text("a x b\nb\ny a y\n")  # x and y are not in train
    data = text(sentences=sentences)
    with Corpus.open(preprocess(data, folder / "stores", progress=False).path) as corpus:
        train, valid = corpus.split("train"), corpus.split("valid")
        vocabulary = corpus.vocabulary
    words = dict(zip(vocabulary.words, vocabulary.counts.tolist(), strict=False))
    assert (words["a"], words["b"], words["c"]) == (2, 2, 1) and train.oov_positions.tolist() == []
    found = [vocabulary.words[i] for i in valid.ids]
    if sentences:
        assert found == ["a", "<unk>", "b", "</s>", "b", "</s>", "<unk>", "a", "<unk>", "</s>"]
        assert valid.offsets.tolist() == [0, 4, 6, 10] and valid.oov_positions.tolist() == [1, 6, 8]
        assert train.offsets.tolist() == [0, 3, 7]
    else:
        assert found == ["a", "<unk>", "b", "b", "<unk>", "a", "<unk>"]
        assert valid.offsets.tolist() == [0, 7] and valid.oov_positions.tolist() == [1, 4, 6]
        assert train.offsets.tolist() == [0, 5]


def test_a_cut_need_not_leave_anything_for_test(folder: Path) -> None:
    (folder / "train.txt").write_text("a\nb\nc\nd\n")
    for data in (cut(SplitUnit.lines, 3, 1, None), cut(None, 0.75, 0.25, None), cut(SplitUnit.tokens, 6, 2, None)):
        with Corpus.open(preprocess(data, folder / "stores", progress=False).path) as corpus:
            assert [(name, corpus.tokens(name)) for name in corpus.splits] == [("train", 6), ("valid", 2)]
            assert corpus.provenance["notes"] == []


def test_the_default_cut_is_8_1_1() -> None:
    for unit, seed in ((SplitUnit.lines, None), (None, 3)):
        settings = cut(unit, None, None, seed).split
        assert settings is not None and (settings.unit, settings.train, settings.valid) == (SplitUnit.lines, 0.8, 0.1)
    with pytest.raises(UserError, match=r"data\.split\.valid=0\.5: must be below 0\.5"):
        SplitConfig(None, None, 0.5, None)
    with pytest.raises(
        UserError, match=r"data\.split\.valid=0\.3: must be at most 1 together with data\.split\.train=0\.8"
    ):
        SplitConfig(None, 0.8, 0.3, None)
    with pytest.raises(UserError, match=r"data\.split\.shuffle_seed=1: must be null with data\.split\.unit=tokens"):
        SplitConfig(SplitUnit.tokens, None, None, 1)


@dataclass(slots=True)
class Coin(DataConfig):
    """A source from outside that draws ids and does not know its entropy."""

    tokens: int = 4

    def source(self, *, progress: bool, download: bool) -> Source:
        def draw(split: str) -> Iterator[np.ndarray]:
            yield np.array([3, 4, 4, 0], dtype=np.int32)

        types = ["</s>", "<unk>", "<s>", "heads", "tails"]
        return Source(splits={}, stamp={}, drawn=DrawnIds(lambda: types, {"train": self.tokens, "valid": 4}, draw))


def test_a_source_that_draws_ids(tmp_path: Path) -> None:
    prepared = preprocess(Coin("coin", "coin", True, RULES), tmp_path, progress=False)
    assert prepared.notes == []
    with Corpus.open(prepared.path) as corpus:
        assert corpus.splits == ["train", "valid"] and corpus.vocabulary.words[0] == "tails"
        assert [corpus.vocabulary.words[k] for k in corpus.split("valid").ids] == ["heads", "tails", "tails", "</s>"]
    with pytest.raises(UserError, match=r"GiB, which do not fit on the disk of .*: draw fewer tokens"):
        preprocess(Coin("coin", "many", True, RULES, tokens=1 << 60), tmp_path, progress=False)
    assert not list(tmp_path.glob(".*"))
