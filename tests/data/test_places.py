"""Which file of a name is read: that of the working folder first, an explicit path alone, and what is printed of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lmtool.cli.command_line import main
from lmtool.data.text_files import find_files

HERE, BELOW = "here too\n", "below it\n"
NGRAM = ("train", "model=ngram", "model.order=2", "data=text", "data.valid=null", "smoother=witten_bell")


@pytest.fixture
def corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An LMTOOL_DATA with names.txt, which the working folder has, too, and other.txt, which it has not."""
    folder = tmp_path / "corpora"
    for path, text in (("work/names.txt", HERE), ("corpora/names.txt", BELOW), ("corpora/other.txt", BELOW)):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("LMTOOL_DATA", str(folder))
    return folder


def words(run: str) -> set[str]:
    """Return the words that a run was trained on."""
    lines = Path(run, "vocabulary.txt").read_text().splitlines()
    return {line.partition("\t")[0] for line in lines} - {"<s>", "</s>", "<unk>"}


@pytest.mark.parametrize("name", ["names.txt", "./names.txt", "{home}/names.txt", "~/names.txt", "../work/names.txt"])
def test_the_file_of_the_working_folder_is_read(
    name: str, corpora: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(Path.cwd()))
    assert main([*NGRAM, f"data.train={name.format(home=Path.cwd())}", "hydra.run.dir=run"]) == 0
    assert words("run") == {"here", "too"} and "read from" not in "".join(capfd.readouterr())


def test_a_dot_is_the_working_folder_alone(corpora: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*NGRAM, "data.train=.", "hydra.run.dir=out/run"]) == 0
    assert words("out/run") == {"here", "too"}
    Path("names.txt").rename(".names")
    for name in ("./other.txt", "../work/other.txt", "./", "./*.md"):
        assert find_files(name) == []
        capfd.readouterr()
        assert main([*NGRAM, f"data.train={name}", "hydra.run.dir=none"]) == 2
        said = capfd.readouterr().err.splitlines()[-1]
        assert said.startswith("lmtool: no file") and said.endswith(f"{name} for data.train: check the path")


def test_the_file_that_is_read_is_printed_if_it_is_not_here(
    corpora: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = f"note: read from {corpora}: other.txt\n"
    assert main([*NGRAM, "data.train=names.txt", "hydra.run.dir=run"]) == 0
    assert "note: read from" not in "".join(capfd.readouterr())
    assert main(["eval", "run=run", "text=other.txt", "hydra.run.dir=scored"]) == 0
    assert said in "".join(capfd.readouterr())
    assert json.loads(Path("scored/result.json").read_text())["oov"] == 2
    (corpora / "words").write_text("below\n")
    settings = ("data.train=[names.txt,other.txt]", "data.valid=other.txt", "data.vocabulary.file=words")
    assert main([*NGRAM[:-2], "smoother=witten_bell", *settings, "hydra.run.dir=both"]) == 0
    assert f"note: read from {corpora}: other.txt, other.txt, words\n" in "".join(capfd.readouterr())


def test_a_file_of_data_is_not_replaced_by_the_download_of_its_data_set(
    corpora: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """data=names can be downloaded, and ./nmaes.txt, a typo, cannot."""
    pytest.importorskip("pooch")
    from lmtool.data.sources import text

    monkeypatch.setattr(text, "fetch", lambda *_, **__: corpora / "names.txt")
    monkeypatch.delenv("LMTOOL_DATA")
    assert main(["preprocess", "data=names", "data.train=./nmaes.txt"]) == 2
    assert "no file ./nmaes.txt for data.train: check the path" in capfd.readouterr().err
    assert main(["preprocess", "data=names", "data.train=nmaes.txt", "data.split=null"]) == 0
    said = f"note: data.train=nmaes.txt is not here: read from {corpora}/names.txt, downloaded from https://raw."
    assert said in capfd.readouterr().err


def test_counts_and_pairs_are_printed_likewise(corpora: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (corpora / "google" / "1gms").mkdir(parents=True)
    (corpora / "google" / "2gms").mkdir()
    (corpora / "google" / "1gms" / "vocab").write_text("<S>\t1\n</S>\t1\na\t1\n")
    (corpora / "google" / "2gms" / "2gm-0000").write_text("<S> a\t1\na </S>\t1\n")
    counted = ("counts=table", "counts.paths=[google]", "data.train=null", "hydra.run.dir=counted")
    assert main([*NGRAM, *counted]) == 0
    assert f"note: read from {corpora}: google/1gms\n" in capfd.readouterr().err
    (corpora / "p.jsonl").write_text('{"sentence_good": "a", "sentence_bad": "a a"}\n')
    assert main(["pairs", "run=counted", "text=p.jsonl"]) == 0
    assert f"note: read from {corpora}: p.jsonl\n" in capfd.readouterr().err


def test_a_run_finds_its_files_below_the_folder_that_it_was_started_in(
    corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lmtool: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path / "work")
    lmtool(*NGRAM[:-2], "data.valid=./names.txt", "data.train=./names.txt", "hydra.run.dir=run")
    for store in Path("stores").glob("*.h5"):
        store.unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert "valid" in lmtool("eval", "run=../work/run", "split=valid")
