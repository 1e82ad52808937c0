"""docs/examples/morin_bengio prints the tables of a notebook: its codes, parameters, examples and losses."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT, Run

EXAMPLE = ROOT / "docs" / "examples" / "morin_bengio"
TEXT = (EXAMPLE / "sentences.txt").read_text()
WORDS = sorted({*TEXT.split()})
LINE = ["train", "+experiment=morin_bengio2005_toy", "data=text", f"data.train={EXAMPLE}/sentences.txt"]
LINE += [f"data.valid={EXAMPLE}/sentences.txt", "training.epochs=1"]
CLOSED = ["data.sentence_end=false", "data.vocabulary.closed=true"]


def codes(words: list[str]) -> dict[str, str]:
    """Return the codes of the notebook's recursion: the left half is the smaller one."""
    if len(words) == 1:
        return {words[0]: ""}
    middle = len(words) // 2
    halves = codes(words[:middle]), codes(words[middle:])
    return {word: f"{bit}{code}" for bit, half in enumerate(halves) for word, code in half.items()}


def test_the_tables() -> None:
    line = [sys.executable, "-W", "ignore", str(EXAMPLE / "tables.py")]
    said = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    tables = said.split("\n\n")
    assert [tuple(row.split()) for row in tables[0].splitlines()[1:]] == sorted(codes(WORDS).items())
    page = (EXAMPLE / "README.md").read_text()
    assert dict(re.findall(r"\b(\w+) +([01]+)\b", page.split("```")[5])) == codes(WORDS)
    sizes = [int(row.rsplit(maxsplit=1)[1].replace(",", "")) for row in tables[1].splitlines()[1:]]
    assert sizes == [42 * 10, 30 * 16, 16 * 16, 16, 16, 41 * 17, 1885]
    losses = [float(row.split()[1]) for row in tables[2].splitlines()[1:]]
    assert len(losses) == 25 and losses[0] > 4 and losses[-1] < 0.2
    *_, about = re.findall(r"^the: code (\d+), p = ([\d.]+)$", tables[3], re.M)
    assert about[0] == codes(WORDS)["the"] and float(about[1]) > 0.9


def test_its_words_and_windows(lmtool: Run) -> None:
    sentences = [line.split() for line in TEXT.splitlines()]
    assert len(WORDS) == 42 and sum(len(words) + 1 for words in sentences) == 102
    said = lmtool(*LINE, *CLOSED, "out=net")
    assert "full windows: 22 of the 82 tokens of train are examples" in said and "; 1,885 in all" in said
    assert "; 1,895 in all" in lmtool(*LINE, *CLOSED, "model.zero_padding=false", "out=padded")
    assert len(re.findall('"loss"', Path("net", "metrics.jsonl").read_text())) == 22 // 4  # the last two are left out


def test_a_file_of_exactly_its_words(lmtool: Run) -> None:
    Path("codes.txt").write_text("".join(f"{word}\t{code}\n" for word, code in codes(WORDS).items()))
    lmtool(*LINE, *CLOSED, "tree=file", "tree.path=codes.txt", "out=file")
    lmtool(*LINE, *CLOSED, "tree.split=floor", "out=net")
    assert Path("file/tree.safetensors").read_bytes() == Path("net/tree.safetensors").read_bytes()
    said = lmtool(*LINE, "tree=file", "tree.path=codes.txt", "out=open", code=2)
    assert "codes.txt: the tree misses 2 of the 44 words, such as '</s>', '<unk>': give each one a code" in said
