"""Where the text of data.train, data.valid, data.test and text= is looked for, and what is printed of it."""

from __future__ import annotations

import gzip
import hashlib
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lmtool.cli.command_line import main
from lmtool.config.settings import data_settings
from lmtool.data import text_files as text_files_module
from lmtool.data.corpus import Corpus
from lmtool.data.preprocess import preprocess
from lmtool.data.sources.base import NoSource
from lmtool.data.sources.text import TextData
from lmtool.data.text_files import DownloadConfig, file_stamps, find_files, text_files
from lmtool.errors import UserError
from tests.conftest import RULES, result
from tests.data.test_preprocess import cut, text


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder `here` with parts, beside the corpora of LMTOOL_DATA in `corpora`."""
    here, corpora = tmp_path / "here", tmp_path / "corpora"
    (here / "parts" / "below").mkdir(parents=True)
    (here / "empty").mkdir()
    (corpora / "de").mkdir(parents=True)
    for name in ("b.txt", "a.txt", "c.md", ".hidden", "below/z.txt"):
        (here / "parts" / name).write_text(f"{name[0]} x")
    (here / "a.txt").write_text("here")
    (here / "ünï [1], a=b.txt").write_text("u")
    (corpora / "a.txt").write_text("below")
    (corpora / "de" / "train.txt").write_text("de")
    monkeypatch.chdir(here)
    monkeypatch.setenv("LMTOOL_DATA", str(corpora))
    monkeypatch.setenv("HOME", str(here / "parts"))
    return here


def test_files_globs_and_folders(folder: Path) -> None:
    corpora = os.environ["LMTOOL_DATA"]
    assert find_files("a.txt") == ["a.txt"]  # the working folder comes first
    assert find_files("de") == [f"{corpora}/de/train.txt"]
    assert find_files("parts") == ["parts/a.txt", "parts/b.txt", "parts/c.md"]
    assert find_files("parts/*.txt") == ["parts/a.txt", "parts/b.txt"]
    assert find_files("parts/**/*.txt") == ["parts/a.txt", "parts/b.txt", "parts/below/z.txt"]
    assert find_files("p*/[ab].txt::x*") == ["parts/a.txt::x*", "parts/b.txt::x*"]
    assert find_files(f"{folder}/parts/?.md") == [f"{folder}/parts/c.md"]
    assert find_files("~/c.md") == [f"{folder}/parts/c.md"]
    assert find_files("ünï [1], a=b.txt") == ["ünï [1], a=b.txt"]  # a file of that very name is no glob
    assert find_files("nothing") == find_files("empty") == find_files("no*") == find_files("") == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "nix.txt",
            r"^no file nix\.txt for text \(here and below LMTOOL_DATA=.*corpora\): check the path and LMTOOL_DATA$",
        ),
        ("empty", r"^no file in the folder empty for text"),
        ("nix/*.txt", r"^no file matches nix/\*\.txt for text"),
    ],
)
def test_what_is_not_there_is_one_line(name: str, said: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=said):
        text_files(name, "text")
    monkeypatch.delenv("LMTOOL_DATA")
    with pytest.raises(UserError, match=r"\(here, and LMTOOL_DATA is not set\): check the path or set LMTOOL_DATA"):
        text_files(name, "text")
    monkeypatch.setenv("LMTOOL_DATA", "/nowhere")
    with pytest.raises(UserError, match=r"here, and LMTOOL_DATA=/nowhere is not a folder: set it"):
        text_files(name, "text")


def test_a_name_that_the_system_cannot_look_up(folder: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*: File name too long"):
        find_files("x" * 5000)


def test_several_files_are_one_split(folder: Path) -> None:
    (folder / "b.txt.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfp q\r\nr\r\n"))
    with zipfile.ZipFile(folder / "c.zip", "w") as archive:
        archive.writestr("s", "s t")
    data = text(train=["parts/b.txt", "b.txt.gz", "c.zip::s"], valid="parts")
    with Corpus.open(preprocess(data, folder / "stores", progress=False).path) as corpus:
        words = [corpus.vocabulary.words[k] for k in corpus.split("train").ids]
        assert words == ["b", "x", "</s>", "p", "q", "</s>", "r", "</s>", "s", "t", "</s>"]
        assert corpus.split("train").characters == 4 + 4 + 2 + 4  # each line with one line end
        assert corpus.tokens("valid") == 9 and corpus.oov_share("valid") == 2 / 9
        assert data_settings(corpus.provenance) == data
        identity, stamp = corpus.provenance["identity"], corpus.provenance["stamp"]
        assert [entry["name"] for entry in identity["train"]] == ["b.txt", "b.txt.gz", "c.zip"]
        assert [entry[0] for entry in stamp["valid"]] == [str(folder / "parts" / f) for f in ("a.txt", "b.txt", "c.md")]
    assert not preprocess(data, folder / "stores", progress=False).created
    (folder / "parts" / "d.txt").write_text("new")
    assert preprocess(data, folder / "stores", progress=False).created


def test_several_files_are_cut(folder: Path) -> None:
    data = replace(cut(None, 0.5, None, None), train="parts/*.*")
    (folder / "parts" / "d.txt").write_text("d x\n\nd y\n")
    with Corpus.open(preprocess(data, folder / "stores", progress=False).path) as corpus:
        ids = [corpus.split(name).ids for name in ("train", "valid", "test")]
        words = [[corpus.vocabulary.words[k] for k in split_ids] for split_ids in ids]
    assert words[0] == ["a", "x", "</s>", "b", "x", "</s>"] and words[1] == ["<unk>", "x", "</s>"]
    assert words[2] == ["<unk>", "x", "</s>", "<unk>", "<unk>", "</s>"]


def test_a_list_of_one_path_is_that_path() -> None:
    assert text(train=["a.txt"]) == text(train="a.txt") == text(train=Path("a.txt"))


@pytest.mark.parametrize("value", [3, 2.5, True, [], [[]], ["a", 3], "", {"a": 1}])
@pytest.mark.parametrize("key", ["train", "valid", "test"])
def test_what_is_no_path_is_refused(key: str, value: object) -> None:
    with pytest.raises(UserError, match=rf"data\.{key}(\.a)?=.*: must be a path, a glob, a folder, or a list of them"):
        text(**{key: value})


def test_what_is_not_one_regular_file(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(UserError, match=r"pipe is not a regular file"):
        text(train="pipe", valid="a.txt").source(progress=False, download=True)
    with pytest.raises(UserError, match=r"data\.cloze_valid=parts: 3 files; name one"):
        text(train="a.txt", valid="a.txt", cloze_valid="parts").source(progress=False, download=True)
    with pytest.raises(UserError, match=r"no file nix for data\.train"):
        text(train=["a.txt", "nix"], valid="a.txt").source(progress=False, download=True)
    with pytest.raises(UserError, match=r"no file nix for data\.test"):
        text(train="a.txt", valid="a.txt", test="nix").source(progress=False, download=True)


def downloadable(**changes: object) -> TextData:
    remote = DownloadConfig("http://127.0.0.1:9/x.txt", "sha256:" + "0" * 64)
    return text(downloads={"train": remote, "test": remote}, **changes)


def test_a_wrong_lmtool_data_is_named_where_a_corpus_would_be_downloaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMTOOL_CACHE", str(folder / "cache"))
    pytest.importorskip("pooch")
    data = downloadable(train="nix.txt", valid="a.txt")
    with pytest.raises(
        UserError, match=r"no file nix\.txt for data\.train \(here and below LMTOOL_DATA=.*; cannot download"
    ):
        data.source(progress=False, download=True)
    with pytest.raises(NoSource, match=r"no file nix\.txt"):
        data.source(progress=False, download=False)
    source = downloadable(train="a.txt", valid="a.txt", test="nix.txt").source(progress=False, download=True)
    assert source.notes == ["no test split: nix.txt is neither here nor below LMTOOL_DATA"]
    monkeypatch.setenv("LMTOOL_DATA", "/nowhere")
    with pytest.raises(UserError, match=r"no file nix\.txt .*LMTOOL_DATA=/nowhere is not a folder"):
        data.source(progress=False, download=True)
    monkeypatch.delenv("LMTOOL_DATA")
    with pytest.raises(UserError, match=r"^cannot download"):
        data.source(progress=False, download=True)


def rewritten(path: Path, content: bytes) -> None:
    """Write other content of the same size with the earlier time, like `cp -p` and some checkouts."""
    status = path.stat()
    assert len(content) == status.st_size
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("split", ["train", "valid", "words"])
def test_a_text_of_the_same_size_and_time_is_another_one(split: str, folder: Path) -> None:
    for name, content in (("train", "a a b\n"), ("valid", "b a\n"), ("words", "a\nb\n")):
        (folder / f"{name}.txt").write_text(content)
    data = text(train="train.txt", valid="valid.txt", vocabulary=replace(RULES, file="words.txt"))
    prepared = preprocess(data, folder / "stores", progress=False)
    before = counts_and_fingerprint(prepared.path)
    assert not preprocess(data, folder / "stores", progress=False).created
    rewritten(folder / f"{split}.txt", {"train": b"b b a\n", "valid": b"a b\n", "words": b"a\nc\n"}[split])
    assert preprocess(data, folder / "stores", progress=False).created
    after = counts_and_fingerprint(prepared.path)
    assert before[1] != after[1]  # which is what counts and runs go by
    if split == "train":
        assert (before[0]["a"], before[0]["b"], after[0]["a"], after[0]["b"]) == (2, 1, 1, 2)


def counts_and_fingerprint(store: Path) -> tuple[dict[str, int], str]:
    with Corpus.open(store) as corpus:
        return dict(zip(corpus.vocabulary.words, corpus.vocabulary.counts.tolist(), strict=True)), corpus.fingerprint


def test_of_a_large_text_samples_are_compared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files_module, "BLOCK", 4)
    monkeypatch.setattr(text_files_module, "SAMPLES", 3)
    path = folder / "large.txt"
    path.write_bytes(b"0123456789abcdefghij")
    [stamp] = file_stamps([str(path)])
    assert stamp[3] == hashlib.sha256(b"0123" + b"89ab" + b"ghij").hexdigest()
    for content, is_seen in (
        (b"X123456789abcdefghij", True),
        (b"0123456789abcdefghiX", True),
        (b"01234567X9abcdefghij", True),
        (b"0123X56789abcdefghij", False),  # what the guide says is left
    ):
        rewritten(path, content)
        assert (file_stamps([str(path)]) != [stamp]) == is_seen
    path.write_bytes(b"0123456789ab")  # three blocks: all of it
    assert file_stamps([str(path)])[0][3] == hashlib.sha256(b"0123456789ab").hexdigest()
    assert file_stamps([str(path)] * 9)[0][3] == hashlib.sha256(b"012389ab").hexdigest()  # two samples of each at least


HERE, BELOW = "here too\n", "below it\n"
NGRAM = ("train", "model=ngram", "model.order=2", "data=text", "data.valid=null", "smoother=witten_bell")


@pytest.fixture
def corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An LMTOOL_DATA with names.txt, which the working folder has, too, and other.txt, which it has not."""
    folder = tmp_path / "corpora"
    for path, content in (("work/names.txt", HERE), ("corpora/names.txt", BELOW), ("corpora/other.txt", BELOW)):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(content)
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
    assert result("scored")["oov"] == 2
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
