"""Files are packed as their names say when they are written, and recognized by their first bytes when they are read."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lmtool as package
from lmtool.cli.command_line import main
from lmtool.data.readers import read_blocks
from lmtool.srilm import command
from lmtool.system.files import packed_file
from tests.conftest import Run

UNPACK = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress, "": bytes}


@pytest.mark.parametrize("suffix", UNPACK)
def test_srilms_commands_pack_by_suffix(suffix: str, lmtool: Run, tmp_path: Path) -> None:
    def run(line: str) -> None:
        assert main(shlex.split(line), command) == 0

    Path("t.txt").write_text("a b\na b\na c\n")
    run(f"ngram-count -order 2 -text t.txt -wbdiscount -lm x{suffix} -write c{suffix} -write-vocab v{suffix}")
    run(f"ngram-count -order 2 -text t.txt -sort -write s{suffix}")
    run(f"ngram -order 2 -lm x{suffix} -write-lm y{suffix}")
    content = {name: UNPACK[suffix](Path(f"{name}{suffix}").read_bytes()).decode() for name in "xcvsy"}
    assert "\\2-grams:\n" in content["x"] and "\\end\\" in content["y"]
    assert "a b\t2\n" in content["c"] and set(content["v"].split()) == {"<unk>", "<s>", "</s>", "a", "b", "c"}
    assert content["s"].splitlines() == sorted(content["s"].splitlines(), key=lambda line: line.split()[:-1])
    run(f"ngram -order 2 -lm y{suffix} -ppl t.txt")


@pytest.mark.parametrize("suffix", [".zip", ".7z", ".Z"])
def test_other_ways_to_pack_are_refused(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("a b\na b\na c\n")
    for option in ("-lm", "-write", "-write-vocab"):
        assert main(shlex.split(f"ngram-count -order 2 -text t.txt -wbdiscount {option} x{suffix}"), command) == 2
        assert f"x{suffix}: lmtool writes no {suffix} file: use .gz, .xz, .bz2, .zst" in capsys.readouterr().err
        assert [path.name for path in Path().iterdir()] == ["t.txt"]


def test_zstandard(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    with packed_file(tmp_path / "x", "x.zst") as file:
        file.write(b"a b\n")
    with pa.CompressedInputStream(pa.OSFile(str(tmp_path / "x")), "zstd") as stream:
        assert stream.read() == b"a b\n"
    assert b"".join(read_blocks(str(tmp_path / "x"))) == b"a b\n"  # without its suffix


@pytest.mark.parametrize("name", ["x.lm", "x.lm.gz", "x.arpa.bz2", "x.arpa.xz", "x.lm.xz"])
def test_names_of_arpa_files(name: str, lmtool: Run, runs: Path) -> None:
    said = lmtool("convert", f"run={runs}/kn3", f"to={name}")
    assert said.startswith(f"wrote {name}: ")
    content = UNPACK[name.rpartition(".")[2] and f".{name.rpartition('.')[2]}" if name.count(".") > 1 else ""](
        Path(name).read_bytes()
    )
    assert b"\\data\\\n" in content
    said = lmtool("eval", f"run={name}", code=2)
    assert f"{name} is an ARPA file: use arpa={name}" in said
    said = lmtool("ensemble", f"runs=[{name},{runs}/kn3]", code=2)
    assert f"{name} comes without data: set text=FILE" in said
    lmtool("export", f"run={runs}/kn3", f"to=also-{name}")
    assert UNPACK.get(Path(name).suffix, bytes)(Path(f"also-{name}").read_bytes()) == content


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_counts_and_trees_are_packed(suffix: str, lmtool: Run, runs: Path) -> None:
    lmtool("export", f"run={runs}/kn3", f"to=c.tsv{suffix}")
    assert b"\t" in UNPACK[suffix](Path(f"c.tsv{suffix}").read_bytes())
    lmtool("export", f"run={runs}/kn3", f"to=x.vec{suffix}", code=2)
    tree = package.trees.huffman_tree(np.array([3, 2, 1]))
    package.trees.write_tree(f"t.txt{suffix}", tree, ["a", "b", "c"])
    assert UNPACK[suffix](Path(f"t.txt{suffix}").read_bytes()).count(b"\n") == 3
    assert (package.trees.read_tree(f"t.txt{suffix}", ["a", "b", "c"]).paths.bits == tree.paths.bits).all()


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, bytes])
@pytest.mark.parametrize("name", ["x", "x.txt", "x.gz", "x.bz2", "x.xz", "x.lm"])
def test_files_are_recognized_by_their_first_bytes(pack: Callable[[bytes], bytes], name: str, tmp_path: Path) -> None:
    for text in (b"a b\n", "caf\u00e9 \u4e2d\n".encode() * 200, b"BZh is text\n"):
        (tmp_path / name).write_bytes(pack(text))
        assert b"".join(read_blocks(str(tmp_path / name))) == text


def test_a_moses_file_is_not_srilms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("a b\na b\na c\n")
    assert main(shlex.split("ngram-count -order 2 -text t.txt -wbdiscount -lm x.lm"), command) == 0
    for line in ("0 ||| a b ||| LM0= -3.2 ||| -5", "-10 x 2 a b", "-10 -3 two a b", "-10 -3 -2 a b", "nan -3 2 a b"):
        Path("n").write_text(line + "\n")
        assert main(shlex.split("ngram -order 2 -lm x.lm -rescore n"), command) == 2
        said = capsys.readouterr()
        assert not said.out and f"n: {line!r} is not ACOUSTIC-SCORE LM-SCORE NUMBER-OF-WORDS and words" in said.err
        assert "lmtool rescore reads Moses's files" in said.err
    Path("n").write_text("-10 -inf 2 a b\n")
    assert main(shlex.split("ngram -order 2 -lm x.lm -rescore n"), command) == 0
