"""Records in a pipe: they come out while more arrive, packed or not; a closed pipe or Ctrl-C ends the program."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pytest

from lmtool.data import standard_input as module
from lmtool.data.standard_input import standard_input
from tests.commands.test_arpa_alone import ARPA
from tests.conftest import Run

SCORE = "lmtool score arpa=de.arpa text=- to=-"
# What is run, and what comes out of each line before there is another one; the lines are `a b` and `b zzz a`.
VERBS = {
    f"{SCORE}": ["3\t0\t-2.5", "4\t1\t-8.9"],
    f"{SCORE} flush=line": ["3\t0\t-2.5", "4\t1\t-8.9"],
    "lmtool score arpa=de.arpa text=- filter=- max_perplexity=1e9 flush=line": ["a b\n", "b zzz a\n"],
    "lmtool eval arpa=de.arpa text=- detail=true": ["p( b | a ...)", "p( zzz"],
    "lmtool surprisal arpa=de.arpa text=- to=-": ["1\ta\t1\t1\ta\t0", "1\tzzz\t2\t2\tzzz\t1"],
    "lmtool predict arpa=de.arpa oov=unk top=1 flush=line": ["\na b\nrank", "\nb zzz a\nrank"],
    "lmtool.srilm ngram -lm de.arpa -ppl - -debug 1": ["a b\n1 sentences", "b zzz a\n1 sentences"],
    "lmtool.srilm ngram -lm de.arpa -rescore -": ["\n", "\n"],
}
LINES = [b"a b\n", b"b zzz a\n"]


@contextmanager
def started(line: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "de.arpa").write_text(ARPA)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-m", *line.split()], cwd=folder, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def given(process: subprocess.Popen[bytes], content: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(content)
    process.stdin.flush()


def said(process: subprocess.Popen[bytes], what: str) -> bytes:
    """Return the output up to a text, while standard input stays open."""
    assert process.stdout is not None
    found, until = b"", time.monotonic() + 20
    while what.encode() not in found and select.select([process.stdout], [], [], until - time.monotonic())[0]:
        found += os.read(process.stdout.fileno(), 1 << 16)
    assert what.encode() in found, process.stderr.read() if process.poll() is not None and process.stderr else found
    return found


@pytest.mark.parametrize("line", VERBS)
def test_records_come_out_while_more_arrive(line: str, tmp_path: Path) -> None:
    with started(line, tmp_path) as process:
        for text, want in zip(LINES, VERBS[line], strict=True):
            given(process, b"-1 -2 2 " * ("-rescore" in line) + text)
            said(process, want)
        rest, errors = process.communicate(timeout=20)
        assert process.returncode == 0, errors
        assert b"2 sentences, 5 words" in rest or "-ppl" not in line


@pytest.mark.parametrize("end", ["reader", "Ctrl-C"])
def test_a_reader_that_has_enough_and_an_interruption_end_it(end: str, tmp_path: Path) -> None:
    with started(f"{SCORE} flush=line", tmp_path) as process:
        given(process, LINES[0])
        said(process, VERBS[SCORE][0])
        assert process.stdout is not None and process.stdin is not None and process.stderr is not None
        if end == "reader":
            process.stdout.close()
            given(process, LINES[1])
        else:
            process.send_signal(signal.SIGINT)
        assert process.wait(20) == (0 if end == "reader" else 130), "although standard input is open"
        last = process.stderr.read().splitlines()[-1]
        assert last.startswith(b"note: " if end == "reader" else b"lmtool: interrupted")
    assert not list(tmp_path.glob("**/*.partial"))


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The end to write to of a pipe that is standard input."""
    reader, writer = os.pipe()
    with open(reader) as file:
        monkeypatch.setattr(sys, "stdin", file)
        yield writer


def test_a_block_has_what_arrives_in_a_second(pipe: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.3)
    handle = standard_input()
    os.write(pipe, b"a\n")
    Timer(0.05, os.write, (pipe, b"b\n")).start()
    assert handle.read(99) == b"a\nb\n", "what came within the time"
    os.write(pipe, b"c" * 200)
    assert handle.read(100) == b"c" * 200, "no more is waited for"
    os.close(pipe)
    assert handle.read(99) == handle.read(99) == b""


def test_a_terminal_and_flush_line_wait_for_nothing(pipe: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 60.0)
    began = time.monotonic()
    os.write(pipe, b"a\n")
    assert standard_input(by_line=True).read(99) == b"a\n"
    ours, theirs = os.openpty()
    with open(theirs) as file:
        monkeypatch.setattr(sys, "stdin", file)
        os.write(ours, b"a\n")
        assert standard_input().read(99) == b"a\n"
    assert time.monotonic() - began < 30
    os.close(pipe)


def test_blocks_are_small_where_their_use_is_slow(pipe: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.1)
    handle = standard_input()
    Timer(0, lambda: [os.write(pipe, b"c" * 1000) for _ in range(1000)] and os.close(pipe)).start()
    sizes = [len(handle.read(1 << 20))]
    time.sleep(0.2)
    while sizes[-1]:
        sizes.append(len(handle.read(1 << 20)))
        time.sleep(0.2 * (len(sizes) == 2))
    assert sum(sizes) == 1_000_000 and sizes[0] > sizes[1] < max(sizes[2:])


@pytest.mark.parametrize("more", [[], ["spillover=1"], ["sentences=punctuation", "words=punctuation"]])
def test_rows_of_words_are_those_of_a_file(more: list[str], pipe: int, lmtool: Run) -> None:
    Path("de.arpa").write_text(ARPA)
    Path("t.txt").write_bytes(b"\n".join(LINES))
    lmtool("surprisal", "arpa=de.arpa", "text=t.txt", "to=out.tsv", *more)
    os.write(pipe, LINES[0])
    Timer(0.1, lambda: os.write(pipe, b"\n" + LINES[1]) and os.close(pipe)).start()
    assert lmtool("surprisal", "arpa=de.arpa", "text=-", "to=-", *more, "flush=line") == Path("out.tsv").read_text()


PACKED = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress, "zst": None}


@pytest.mark.parametrize("packing", PACKED)
def test_packed_input_is_recognized(packing: str, pipe: int, lmtool: Run) -> None:
    Path("de.arpa").write_text(ARPA)
    pack: Callable[[bytes], bytes] = PACKED[packing] or pytest.importorskip("pyarrow").Codec("zstd").compress
    packed = pack(b"".join(LINES))
    packed = packed.to_pybytes() if packing == "zst" else packed + pack(LINES[0])  # type: ignore[attr-defined]
    os.write(pipe, packed[:20])
    Timer(0.1, lambda: os.write(pipe, packed[20:]) and os.close(pipe)).start()
    found = lmtool("score", "arpa=de.arpa", "text=-", "to=-").splitlines()[1:]
    assert [row.split("\t")[0] for row in found] == ["3", "4", "3"][: 2 if packing == "zst" else 3]


def test_packed_input_that_is_cut_off(pipe: int, lmtool: Run) -> None:
    Path("de.arpa").write_text(ARPA)
    os.write(pipe, gzip.compress(b"a b\n" * 9)[:-6])
    os.close(pipe)
    assert "standard input cannot be unpacked" in lmtool("eval", "arpa=de.arpa", "text=-", code=2)


def test_a_packed_pipe_gives_what_has_arrived(pipe: int) -> None:
    file = io.BytesIO()
    with gzip.open(file, "wb") as packer:
        packer.write(b"a b\n")
        packer.flush()
        os.write(pipe, file.getvalue())
        assert standard_input(by_line=True).read(99) == b"a b\n"
    os.close(pipe)


@pytest.mark.parametrize("extra", [0, 1])
def test_a_line_may_have_as_many_bytes_as_the_guide_says(
    extra: int, lmtool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmtool.data.readers.LONGEST_LINE", 1 << 20)
    monkeypatch.setattr("lmtool.data.readers.BLOCK", 1 << 16)
    Path("de.arpa").write_text(ARPA)
    Path("long.txt").write_bytes(b"a b\n" + b"a " * (1 << 19) + b"a" * extra + b"\nb\n")
    said = lmtool("score", "arpa=de.arpa", "text=long.txt", "to=out.tsv", code=2 * extra)
    assert not extra or "long.txt, line 2: a line of over 1 MiB" in said


@pytest.mark.parametrize("verb", ["score", "surprisal"])
def test_a_fault_does_not_end_a_stream(verb: str, pipe: int, lmtool: Run) -> None:
    Path("de.arpa").write_text(ARPA)
    os.write(pipe, b"a b\n\xff\n" + LINES[1])
    os.close(pipe)
    said = lmtool(verb, "arpa=de.arpa", "text=-", "to=-", "on_error=skip", "flush=line")
    assert len(said.splitlines()) == (3 if verb == "score" else 6)
