"""Given text is read line by line, or as one text: one setting, one default, and the same numbers at every door."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

import lmtool as package
from lmtool.errors import UserError
from lmtool.results import Evaluation
from tests.conftest import NEURAL, Run, result, run_lines

LINES = ["the cat sat", "a dog ran", "the dog sat on the mat", "the cat ran"]


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """net, whose contexts cross sentences, and own, whose contexts do not."""
    train = f"train model=nplm {' '.join(NEURAL)} model.across_sentences="
    folder = tmp_path_factory.mktemp("networks")
    return run_lines(folder, f"{train}true hydra.run.dir=net", f"{train}false hydra.run.dir=own")


@pytest.fixture
def crossing(lmtool: Run, networks: Path) -> Run:
    """The networks, and F, the lines."""
    for name in ("net", "own"):
        shutil.copytree(networks / name, name)
    Path("F").write_text("\n".join(LINES) + "\n")
    return lmtool


def at_all_doors(lmtool: Run, across: bool) -> dict[str, float]:
    """Return the log-probability of F by net, for each command and function."""
    setting = f"across_sentences={str(across).lower()}"
    lmtool("eval", "run=net", "text=F", setting, f"hydra.run.dir=eval-{across}")
    lmtool("score", "run=net", "text=F", "to=F.tsv", setting, f"hydra.run.dir=score-{across}")
    model = package.load("net")
    found = {
        "eval": result(f"eval-{across}")["log_prob"],
        "score": result(f"score-{across}")["log_prob"],
        "load().score": sum(part.sum() for part in model.score(LINES, across_sentences=across)),
        "load().perplexity": -math.log(model.perplexity(LINES, across_sentences=across)) * 19,
        "evaluate list": package.evaluate("net", text=LINES, across_sentences=across).log_probs.sum(),
        "evaluate path": package.evaluate("net", text=Path("F"), across_sentences=across).log_probs.sum(),
    }
    return {door: float(value) for door, value in found.items()}


def test_every_door_gives_the_same_number(crossing: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, joined = at_all_doors(crossing, False), at_all_doors(crossing, True)
    for found in (alone, joined):
        assert all(value == pytest.approx(found["eval"], rel=1e-12) for value in found.values()), found
    # By hand: the network's contexts, three words, padded with <s> at each line or at the text's beginning alone.
    model = package.load("net")
    bos, eos = model.vocabulary.bos, model.vocabulary.eos
    lines = [[*model.vocabulary.encode(line.split()).tolist(), eos] for line in LINES]
    for found, texts in ((alone, lines), (joined, [[word for line in lines for word in line]])):
        contexts = [([bos] * 3 + text)[k : k + 3] for text in texts for k in range(len(text))]
        want = model.log_prob(np.array(contexts), np.concatenate(texts)).sum()
        assert found["eval"] == pytest.approx(want, rel=1e-6)
    assert abs(alone["eval"] - joined["eval"]) > 1e-3
    # The default is each line alone.
    crossing("eval", "run=net", "text=F", "hydra.run.dir=default")
    assert result("default")["log_prob"] == result("eval-False")["log_prob"]
    assert sum(part.sum() for part in model.score(LINES)) == pytest.approx(alone["eval"], rel=1e-12)
    # A text in several blocks: contexts reach from one into the next.
    monkeypatch.setattr("lmtool.data.readers.BLOCK", 20)
    crossing("score", "run=net", "text=F", "to=F.tsv", "across_sentences=true", "hydra.run.dir=blocks")
    assert result("blocks")["log_prob"] == pytest.approx(joined["eval"], rel=1e-6)


def test_what_was_read_is_said(crossing: Run) -> None:
    note = "note: each line was read alone; across_sentences=true reads the lines as one text"
    said = crossing("eval", "run=net", "text=F", "hydra.run.dir=a")
    assert note in said and result("a")["across_sentences"] is False
    said = crossing("eval", "run=net", "text=F", "across_sentences=true", "hydra.run.dir=b")
    assert note not in said and "contexts             across sentences" in said and result("b")["across_sentences"]
    assert (
        "across sentences" in crossing("eval", "run=net", "hydra.run.dir=split") and result("split")["across_sentences"]
    )
    assert note in crossing("score", "run=net", "text=F", "to=F.tsv", "hydra.run.dir=c")
    assert result("c")["across_sentences"] is False
    evaluated = package.evaluate("net", text=LINES)
    assert isinstance(evaluated, Evaluation) and evaluated.across_sentences is False and note in repr(evaluated)
    own = crossing("eval", "run=own", "text=F", "hydra.run.dir=d")
    assert "across" not in own and "across_sentences" not in result("d")
    said = crossing("compare", "runs=[own,net]", "hydra.run.dir=table")
    assert "note: contexts cross sentences in net, and not in own" in said
    assert [member["across_sentences"] for member in result("table")["members"]] == [False, True]


def test_contexts_are_named_as_they_were(crossing: Run) -> None:
    firsts = [f"\tp( {line.split()[0]} | " for line in LINES]
    alone = crossing("eval", "run=net", "text=F", "detail=true").splitlines()
    found = [line for line in alone if line.startswith(tuple(firsts)) and "<s>" in line]
    assert len(found) == 4 and found[0].split("=")[1] == found[2].split("=")[1] == found[3].split("=")[1]
    joined = crossing("eval", "run=net", "text=F", "detail=true", "across_sentences=true")
    assert joined.count("| <s> )") == 1 and joined.count("p( the | </s> ...)") == 2
    assert joined.count("p( a | </s> ...)") == 1


def test_documents_are_read_apart(crossing: Run) -> None:
    texts = ["\n".join(LINES[:2]), "\n".join(LINES[2:])]
    Path("docs.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    line = ("text=docs.jsonl", "column=text", "across_sentences=true")
    crossing("eval", "run=net", *line, "hydra.run.dir=eval")
    crossing("score", "run=net", *line, "to=docs.tsv", "hydra.run.dir=score")
    model = package.load("net")
    want = sum(part.sum() for half in (LINES[:2], LINES[2:]) for part in model.score(half, across_sentences=True))
    assert result("eval")["log_prob"] == pytest.approx(want, rel=1e-6)
    assert result("score")["log_prob"] == pytest.approx(want, rel=1e-6)
    scores = package.score_texts("net", texts, across_sentences=True)
    assert sum(score.log_prob for score in scores) == pytest.approx(want, rel=1e-6)


def test_models_of_single_sentences_refuse(crossing: Run) -> None:
    for verb in (("eval",), ("score", "to=F.tsv")):
        said = crossing(*verb, "run=own", "text=F", "across_sentences=true", code=2)
        assert "across_sentences=true: own reads single sentences; leave it out" in said
    with pytest.raises(UserError, match="own reads single sentences"):
        package.load("own").score(LINES, across_sentences=True)
    assert "a split is read as the model was trained" in crossing("eval", "run=net", "across_sentences=true", code=2)


def test_text_without_sentences_goes_on_from_string_to_string(lmtool: Run) -> None:
    Path("train.txt").write_text("a b c\na b c\n" * 4)
    words = ("data=text", "data.name=mine", "data.train=train.txt", "data.valid=train.txt", "data.sentences=false")
    lmtool("train", "model=ngram", "model.order=2", "smoother=laplace", *words, "hydra.run.dir=stream")
    model = package.load("stream")
    joined, alone = model.score(["a b", "c"], across_sentences=True), model.score(["a b", "c"])
    np.testing.assert_array_equal(joined[1], model.score("a b c")[2:])
    assert joined[1] != alone[1]
    Path("F").write_text("a b\nc\n")
    lmtool("score", "run=stream", "text=F", "to=F.tsv", "across_sentences=true", "hydra.run.dir=s")
    assert result("s")["log_prob"] == pytest.approx(model.score("a b c").sum())
