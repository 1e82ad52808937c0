"""The corpus that one function returns, each other takes; and warnings that are shown once."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import lmtool
from lmtool.commands import settings_for, settings_of
from lmtool.config.options import yaml_files
from lmtool.config.settings import build_settings, settings_as_json
from tests.conftest import composed_line

NEEDED = {"hub": ["data.path=a/b"], "text": ["data.train=[a.txt,b.txt]"]}
DOWNLOAD = {"url": "https://example.org/mine.txt", "checksum": "md5:00000000000000000000000000000000"}


@pytest.mark.parametrize("name", sorted(yaml_files("data")))
def test_the_settings_of_every_data_set_are_those_of_its_corpus(name: str) -> None:
    """What a store keeps of its data set becomes the same data set again."""

    data = build_settings(
        composed_line("preprocess", f"data={name}", *NEEDED.get(name, [])), settings_of("preprocess")
    ).data
    assert settings_for("preprocess", data=settings_as_json(data)).data == data


def test_a_corpus_with_downloads_in_every_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.txt").write_text("the cat sat on the mat\na dog ran\n" * 20)
    monkeypatch.setenv("LMTOOL_DATA", str(tmp_path))
    Path("conf/data").mkdir(parents=True)
    Path("conf/data/mine.yaml").write_text(
        f"defaults: [text, _self_]\nname: mine\ntrain: mine.txt\nvalid: mine.txt\ndownloads: {{train: {DOWNLOAD}}}\n"
    )
    corpus = lmtool.preprocess("mine", options="conf")
    assert str(corpus.provenance["settings"]["downloads"]).count("https://example.org") == 1
    run = lmtool.train({"kind": "ngram", "order": 2}, corpus, out="run")
    assert lmtool.evaluate(run).tokens == 20 * (7 + 4)
    network = {"kind": "hsoftmax", "hidden_dim": 4, "embedding_dim": 4, "context_size": 2}
    budget = {"epochs": 1, "batch_size": 8}
    first = lmtool.train(network, corpus, tree="huffman", training=budget, out="net")
    again = lmtool.train(network, corpus, tree="huffman", training=budget, out="net", resume=True)
    assert again.folder == first.folder
    assert "10 words, 10 leaves" in str(lmtool.tree("huffman", corpus))
    assert lmtool.preprocess(corpus).fingerprint == corpus.fingerprint
    lmtool.export(run, "a.arpa")
    assert lmtool.convert("a.arpa", corpus, out="converted").path == Path("converted")
    table = lmtool.sweep({"model.order": [1, 2]}, model="ngram", data=corpus, out="sweep")
    assert len(table.table) == 2
    assert [path.name for path in Path("stores").glob("mine-*.h5")] == [corpus.path.name]


@pytest.mark.parametrize("name", ["names", "ptb", "hw3", "hw3_1000"])
def test_the_corpora_of_the_course(name: str, real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMTOOL_DATA", str(real_data.resolve()))
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fifth of hw3_1000 is out of vocabulary
        corpus = lmtool.preprocess(name)
        assert f"{len(corpus.vocabulary) - 1:,} words" in str(lmtool.tree("huffman", corpus))
        run = lmtool.train({"kind": "ngram", "order": 2}, corpus)
        assert lmtool.evaluate(run, "valid").tokens == corpus.tokens("valid")


def test_a_warning_is_of_the_line_that_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python shows it once for that line of a program."""
    monkeypatch.chdir(tmp_path)
    corpus = lmtool.Corpus.from_texts(train=["a b c"] * 9, valid=["a b"])
    lmtool.train({"kind": "ngram", "order": 2}, corpus, out="one")
    Path("x.txt").write_text("x y z v w\n")
    names, line = (
        {"lmtool": lmtool, "Path": Path},
        compile("lmtool.evaluate('one', text=Path('x.txt'))", "line", "exec"),
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            exec(line, names)
    (warning,) = caught
    assert warning.filename == "line"
    assert str(warning.message).startswith(
        "a high share is out of vocabulary and <unk> for the model (83.3 % of x.txt)"
    )
