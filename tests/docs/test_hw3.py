"""The lines of docs/examples/hw3 make the pictures that its page names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run
from tests.pages import blocks, command_lines, links

PAGE = ROOT / "docs" / "examples" / "hw3" / "README.md"
QUICK = {"train": ["threads=1"], "report": ["resamples=100"]}
SMALL = ["training.steps=6", "training.batch_size=16", "training.evaluate_every=0.5"]

pytest.importorskip("matplotlib")


def test_the_lines_make_the_pictures(lmtool: Run) -> None:
    """With a few sentences and questions."""
    for name in ("train.txt", "valid.txt"):
        Path(name).write_text("the cat sat\nthe dog ran\na cat ran\nthe dog sat here\n" * 10)
    Path("questions.txt").write_text("Q cat dog\nC the _1_\n" * 2)
    Path("answers.csv").write_text("ID,Class1,Class2\n1,1,0\n2,0,1\n")
    small = "data=text data.name=small data.train=train.txt data.valid=valid.txt data.cloze_valid=questions.txt"
    data = [*small.split(), "data.cloze_valid_answers=answers.csv"]
    (text,) = [block.text for block in blocks(PAGE, "bash")]
    for words in command_lines(text):
        words = [",".join(word.split(",")[:3]) for word in words]  # fewer jobs
        words = [each for word in words for each in (data if word == "data=hw3" else [word])]
        lmtool(*words, *QUICK[words[0]], *(SMALL if "model=nplm" in words else []))
    pictures = json.loads(Path("page/result.json").read_text())["pictures"]
    named = set(re.findall(r"`([\w-]+\.png)`", PAGE.read_text(encoding="utf-8")))
    assert len(named) == 6 and named <= set(pictures)
    cloze = {name for name in pictures if "cloze" in name}
    assert cloze == {name.replace(".png", "-cloze-perplexity.png") for name in named}
    assert {name for name in pictures if "train" in name} == {"sweep-alpha-order-train-perplexity.png"}
    lmtool("report", "plots", "metric=cloze_perplexity", "out=cloze", "map=none", "resamples=100")
    drawn = {name for name in json.loads(Path("cloze/result.json").read_text())["pictures"] if "sweep" in name}
    assert drawn == {name for name in cloze if "sweep" in name}


def test_the_links_lead_somewhere() -> None:
    assert all((PAGE.parent / address.partition("#")[0]).exists() for address in links(PAGE))
