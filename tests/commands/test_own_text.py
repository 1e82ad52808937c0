"""Custom text, as people give it on the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from lmtool.commands.preprocess import Settings as PreprocessSettings
from lmtool.config.options import conf_dir
from lmtool.config.settings import build_settings, data_settings
from lmtool.data.corpus import Corpus
from lmtool.data.oov import oov_warning, report_splits
from lmtool.data.sources.base import SplitConfig, SplitUnit
from lmtool.data.sources.text import TextData
from tests.conftest import Run

TEXT = ["data=text", "data.train=own.txt"]
NGRAM = ["train", "model=ngram", "model.order=2"]


@pytest.fixture(autouse=True)
def own_text(tmp_path: Path) -> None:
    """own.txt with ten lines, each of a letter and x."""
    (tmp_path / "own.txt").write_text("".join(f"{letter} x\n" for letter in "abcdefghij"))


def composed(*words: str) -> TextData:
    """Return the settings of data=text that a command line makes."""
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        data = build_settings(compose("preprocess", [*TEXT, *words]), PreprocessSettings).data
    assert isinstance(data, TextData)
    return data


CUT = "data.split={unit: lines, train: 0.8, valid: 0.1}"


@pytest.mark.parametrize(
    "word", [CUT, f"+{CUT}", f"++{CUT}", "data.split.train=0.8", "data.split.valid=0.1", "data.split.unit=lines"]
)
def test_a_cut_of_one_file(word: str) -> None:
    assert composed(word).split == SplitConfig(SplitUnit.lines, 0.8, 0.1, None)


def test_no_cut() -> None:
    assert composed().split is None
    assert composed("data.valid=own.txt", "data.split.train=0.8", "data.split=null").split is None


def test_valid_is_needed_only_by_what_reads_it(lmtool: Run) -> None:
    lmtool("preprocess", *TEXT)
    assert "tree=huffman: " in lmtool("tree", *TEXT, "hydra.run.dir=tree")
    said = lmtool(*NGRAM, *TEXT, "smoother=witten_bell", "hydra.run.dir=run")
    assert "perplexity" not in said and " n-grams, " in said
    assert "valid_perplexity" not in json.loads(Path("run/result.json").read_text())
    assert "tokens (own.txt)" in lmtool("eval", "run=run", "text=own.txt")
    assert "split=valid: " in lmtool("eval", "run=run", code=2)
    lmtool("export", "run=run", "to=counts.tsv.gz")
    lmtool(*NGRAM, "counts=table", "counts.paths=[counts.tsv.gz]", "data=text", "hydra.run.dir=counted")
    assert "data.valid has no file" in lmtool(*NGRAM, *TEXT, "smoother=jelinek_mercer", code=2)  # which is tuned


def test_what_the_message_recommends_works_when_it_is_typed(lmtool: Run) -> None:
    said = lmtool("train", "model=nplm", *TEXT, code=2)
    assert said.startswith("lmtool: data.valid has no file, and this training reads it: ") and said.count("\n") == 1
    recommended = said.split()[-1]
    assert recommended == "data.split.train=0.8"
    lmtool("preprocess", *TEXT, recommended, "hydra.run.dir=out")
    rows = json.loads(Path("out/result.json").read_text())["splits"]
    assert {row["split"]: row["tokens"] for row in rows} == {"train": 24, "valid": 3, "test": 3}


def test_files_without_the_option_that_reads_them(lmtool: Run) -> None:
    said = lmtool("preprocess", "data.train=own.txt", code=2)
    assert "data.train" in said and "data=text" in said and said.count("\n") == 1


def test_text_is_looked_for_below_lmtool_data(
    lmtool: Run, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corpora").mkdir()
    Path("corpora/more.txt").write_text("the cat\na")
    monkeypatch.setenv("LMTOOL_DATA", str(tmp_path / "corpora"))
    lmtool("eval", f"run={runs}/kn3", "text=more.txt", "hydra.run.dir=scored")
    assert json.loads(Path("scored/result.json").read_text())["tokens"] == 5
    monkeypatch.setenv("LMTOOL_DATA", "/nowhere")
    for words in (("eval", f"run={runs}/kn3", "text=more.txt"), ("preprocess", "data=ptb")):
        said = lmtool(*words, code=2)
        assert "LMTOOL_DATA=/nowhere is not a folder" in said and said.count("\n") == 1


def test_training_tells_the_share_of_oovs_and_warns(lmtool: Run) -> None:
    Path("words.txt").write_text("A\nX\n")  # in the wrong case
    words = [*TEXT, "data.split.train=0.8", "data.vocabulary.file=words.txt"]
    printed = lmtool(*NGRAM, *words, "hydra.run.dir=listed")
    assert "out of vocabulary: 66.67 % of train, 66.67 % of valid\n" in printed  # two of each three, not </s>
    assert "warning: " in printed and "data.vocabulary.file=words.txt" in printed
    network = ["model=nplm", "model.hidden_dim=4", "model.embedding_dim=4", "training.epochs=1"]
    printed = lmtool("train", *network, *TEXT, "data.split.train=0.8", "hydra.run.dir=nplm")
    assert "out of vocabulary: 0.00 % of train, 33.33 % of valid\n" in printed
    assert "warning: " in printed and "(33.3 % of valid): train lacks its words" in printed
    assert "raise data.vocabulary.size=2" in lmtool("preprocess", *words[:-1], "data.vocabulary.size=2")


def test_the_remedy_names_the_setting(tmp_path: Path) -> None:
    def warning(**rules: object) -> str | None:
        train = ["a a a a b b b c c", "a"]  # 12 tokens
        with Corpus.from_texts(train, ["a a"], store_dir=tmp_path, **rules) as corpus:  # type: ignore[arg-type]
            said: list[str] = []
            warned: list[str] = []
            report_splits(corpus, said.append, said.append, warned.append)
            assert len(said) == 1 and warned == oov_warning(corpus)
            return next(iter(warned), None)

    assert warning() is None
    high = "a high share is out of vocabulary and <unk> for the model (16.7 % of train): "
    assert warning(min_count=3) == f"{high}lower data.vocabulary.min_count=3"
    assert warning(size=2) == f"{high}raise data.vocabulary.size=2"
    assert warning(size=2, min_count=3) == f"{high}raise data.vocabulary.size=2 or lower data.vocabulary.min_count=3"
    assert warning(words=["a", "b"]) == f"{high}check that the given words fit the text"


def test_text_from_python_on_the_command_line(lmtool: Run) -> None:
    said = lmtool("preprocess", "data=texts", code=2)
    assert "make its store by lmtool.Corpus.from_texts(train=[...], valid=[...])" in said and said.count("\n") == 1
    with Corpus.from_texts([f"{letter} x" for letter in "abcd"], 0.25) as corpus:
        digest = data_settings(corpus.provenance).digest
    lmtool(*NGRAM, "data=texts", f"data.digest={digest}", "hydra.run.dir=run")
    assert "tokens (valid)" in lmtool("eval", "run=run")
    shutil.rmtree("stores")
    said = lmtool("eval", "run=run", code=2)
    assert "was given from Python and its store is gone" in said and "text=FILE" in said and said.count("\n") == 1
    assert "tokens (own.txt)" in lmtool("eval", "run=run", "text=own.txt")
