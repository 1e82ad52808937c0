"""Readers, downloads, the synthetic source's entropy, and the real corpora where they can be had."""

from __future__ import annotations

import bz2
import codecs
import gzip
import hashlib
import lzma
import math
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from lmtool.data import readers
from lmtool.data.corpus import Corpus
from lmtool.data.preprocess import preprocess
from lmtool.data.readers import read_blocks, read_text
from lmtool.data.sources.base import cut_points
from lmtool.data.sources.builtin import SyntheticData, sentences
from lmtool.data.sources.synthetic import draw, entropy, successors, zipf
from lmtool.data.text_files import DownloadConfig, fetch
from lmtool.errors import UserError
from lmtool.runs.run import Run
from tests.conftest import RULES
from tests.data.servers import Failing, serving

TEXT = "one two\nthree é\n\nlast without newline".encode()


@pytest.mark.parametrize(
    ("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
@pytest.mark.parametrize("block", [1, 5, 4 << 20])
def test_packed_files(suffix: str, pack: Callable[[bytes], bytes], block: int, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(readers, "BLOCK", block)
    path = tmp_path / f"text.txt{suffix}"
    path.write_bytes(pack(TEXT))
    blocks = list(read_blocks(str(path)))
    assert b"".join(blocks) == TEXT + b"\n" and all(part.endswith(b"\n") for part in blocks)


def test_zip_members(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("x/b2", "x/b1", "readme"):
            archive.writestr(name, f"{name}\n")
    assert b"".join(read_blocks(f"{path}::x/b*")) == b"x/b1\nx/b2\n"
    assert b"".join(read_blocks(f"{path}::readme")) == b"readme\n"
    with pytest.raises(UserError, match=r"no member 'none': it has readme, x/b1, x/b2"):
        list(read_blocks(f"{path}::none"))


def test_several_files_are_read_one_after_the_other(tmp_path: Path) -> None:
    for name, content in (("a", b"a"), ("b", b""), ("c", b"\r\n"), ("d", codecs.BOM_UTF8 + b"d\r\ne")):
        (tmp_path / name).write_bytes(content)
    paths = [f"{tmp_path}/{name}" for name in "abcd"]
    assert b"".join(read_blocks(*paths)) == b"a\n\r\nd\r\ne\n"  # no line end at its end: none is glued to the next
    with pytest.raises(UserError, match=r"each of the 2 files from .*/b on is empty"):
        list(read_blocks(*paths[1:3]))
    (tmp_path / "d").write_bytes(b"d\n\xff")
    with pytest.raises(UserError, match=r"/d, line 2: byte 0xff is not UTF-8"):
        list(read_blocks(*paths))


def test_read_text_has_line_ends_of_one_form(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a\r\nb\rc\r")
    assert read_text(f"{tmp_path}/a") == "a\nb\rc\n"


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zip"])
@pytest.mark.parametrize("content", [b"neither \xff text\n", b"nor\0this\n"])
def test_files_that_are_not_archives(suffix: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.\w+"):
        list(read_blocks(str(path)))
    path.write_bytes(gzip.compress(TEXT * 50)[:-20])
    if suffix == ".gz":
        with pytest.raises(UserError, match="cannot be unpacked"):
            list(read_blocks(str(path)))


def test_a_line_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BLOCK", 1 << 10)
    monkeypatch.setattr(readers, "LONGEST_LINE", 1 << 12)
    path = tmp_path / "text"
    path.write_bytes(b"x" * (1 << 13))
    with pytest.raises(UserError, match="a line of over"):
        list(read_blocks(str(path)))


BODY = b"some text\n" * 1000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "text.txt").write_bytes(BODY)
    with serving(tmp_path) as address:
        Failing.fails = False
        yield address


GOOD = f"sha256:{hashlib.sha256(BODY).hexdigest()}"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("pooch")
    monkeypatch.setenv("LMTOOL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_download_once(server: str, cache: Path) -> None:
    path = fetch(DownloadConfig(f"{server}/text.txt", GOOD), progress=False)
    assert path.read_bytes() == BODY and path.parent == cache
    stamp = path.stat().st_mtime_ns
    assert fetch(DownloadConfig(f"{server}/text.txt", GOOD), progress=False).stat().st_mtime_ns == stamp


@pytest.mark.parametrize(
    ("path", "checksum", "reason"),
    [
        ("/text.txt", "sha256:" + "0" * 64, "its checksum differs"),
        ("/text.txt", GOOD, "the connection failed"),
        ("/missing", GOOD, "the server answered 404"),
    ],
)
def test_downloads_that_fail(path: str, checksum: str, reason: str, server: str, cache: Path) -> None:
    Failing.cut = reason == "the connection failed"
    with pytest.raises(UserError, match=f"cannot download .*{reason}.*LMTOOL_DATA"):
        fetch(DownloadConfig(server + path, checksum), progress=False)
    assert not cache.exists() or list(cache.iterdir()) == []


def test_no_server(cache: Path) -> None:
    with pytest.raises(UserError, match="the connection failed"):
        fetch(DownloadConfig("http://127.0.0.1:9/text.txt", GOOD), progress=False)


def test_cut_points() -> None:
    assert cut_points(32_033, 0.8, 0.1) == (25_626, 28_829)  # int(0.8 n), int(0.9 n)
    assert cut_points(30, 0.7, 0.2) == (21, 27)  # 0.7 + 0.2 is a little below 0.9
    assert cut_points(100, 0.29, None) == (29, 64)  # 0.29 * 100 is a little below 29
    assert cut_points(100, 0.57, 0.28) == (57, 85) and cut_points(101, 0.58, 0.29) == (58, 87)
    assert cut_points(10, 5, 3) == (5, 8)
    assert cut_points(10, 5, 0.3) == (5, 8) and cut_points(10, 0.5, 3) == (5, 8)
    # With one size alone, test is as large as valid.
    assert cut_points(11, 5, None) == (5, 8) and cut_points(10, None, 3) == (4, 7)
    for sizes in ((5, 3), (7, None), (None, 4), (0.1, 0.1)):
        with pytest.raises(UserError, match="do not fit 7 items"):
            cut_points(7, *sizes)


def synthetic(**changes: object) -> SyntheticData:
    values: dict[str, object] = dict(tokens=3000, valid_tokens=500, test_tokens=500, types=50, zipf_exponent=1.0)
    values |= dict(repeat=0.5, successors=3, sentence_length=8.0, seed=4)
    return SyntheticData("synthetic", "synthetic", True, RULES, **(values | changes))  # type: ignore[arg-type]


def test_entropy_by_hand() -> None:
    # Two types alike, no repeats, L = 2: a sentence has 1 bit for its first word, then after each of its 2 words
    # (on average) 1 bit for continuing and half a bit for the word: 4 bits, 3 tokens.
    data = synthetic(types=2, zipf_exponent=0.0, repeat=0.0, successors=1, sentence_length=2.0)
    assert entropy(data) == pytest.approx(4 / 3 * math.log(2), rel=1e-12)


@pytest.mark.parametrize("changes", [{}, {"repeat": 0.9, "successors": 1}, {"zipf_exponent": 1.3, "types": 400}])
def test_entropy_is_the_mean_surprise_of_what_is_drawn(changes: dict[str, object]) -> None:
    data = synthetic(tokens=400_000, **changes)
    ids = np.concatenate(list(draw(data, "train"))).astype(np.int64)
    assert 400_000 <= len(ids) < 400_500 and ids[-1] == 0
    assert (np.concatenate(list(draw(data, "train"))) == ids).all()
    z, after, stop = zipf(data), successors(data), 1 / data.sentence_length
    before = np.concatenate([[0], ids[:-1]])
    word, last = np.maximum(ids - 3, 0), np.maximum(before - 3, 0)
    follows = (after[last] == word[:, None]).sum(axis=1) * data.repeat / data.successors
    later = np.where(ids == 0, stop, (1 - stop) * ((1 - data.repeat) * z[word] + follows))
    p = np.where(before == 0, z[word], later)
    surprise = -np.log(p)
    assert surprise.mean() == pytest.approx(entropy(data), abs=5 * surprise.std() / math.sqrt(len(ids)) + 1e-3)


def test_synthetic_store_says_its_entropy(tmp_path: Path) -> None:
    prepared = preprocess(synthetic(), tmp_path, progress=False)
    assert any(f"{entropy(synthetic()):.6f} nats" in note for note in prepared.notes)
    with Corpus.open(prepared.path) as corpus:
        assert len(corpus.vocabulary) == 50 + 3  # all types, </s>, <unk>, <s>
        assert not len(corpus.split("test").oov_positions)


def test_pydoc_sentences() -> None:
    docstring = "Return the 3 first. They're new, see `f`!\n\n>>> f(x)\n\n-----"
    assert sentences(docstring, 2) == ["return the N first .", "they're new , see ` f ` !", ">>> f ( x )"]
    assert sentences("One\n\nTwo words", 2) == ["two words"]


def test_hw3_cloze(real_data: Path, tmp_path: Path, lmtool: Callable[..., str]) -> None:
    if not (real_data / "hw3" / "valid_blanks.txt").is_file():
        pytest.skip("needs LMTOOL_DATA with hw3/")
    lmtool("train", "data=hw3", "model=ngram", "model.order=3", "hydra.run.dir=kn3")
    printed = lmtool("eval", "run=kn3")
    said = lmtool("train", "data=hw3", "data.sentence_end=false", "model=ngram", "model.order=6", "out=stream")
    assert "windows of 6 tokens in train: 887,521, distinct 772,669" in said
    # 3,370 questions, perplexity 3.213 for a correct interpolated modified Kneser-Ney of order 3.
    assert "3,370" in printed and "3.2128" in printed
    with Corpus.open(Run.open(Path("kn3")).store) as corpus:
        cloze = corpus.cloze("valid")
        assert cloze is not None and cloze.candidates.shape == (3370, 50)
        last = [corpus.vocabulary.words[k] for k in cloze.contexts_matrix(3, corpus.vocabulary.bos)[0]]
        assert last == ["closer", "to", "the"]
        assert corpus.vocabulary.words[cloze.candidates[0, cloze.answers[0]]] == "tv"
