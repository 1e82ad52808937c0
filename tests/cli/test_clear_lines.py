"""Mistakes in calls from Python get one clear line, and scores of other programs say what is known of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lmtool as lm
from lmtool.errors import UserError
from lmtool.trees import huffman_tree, read_tree, write_tree
from tests.commands.test_surprisal import ARPA

ONE = "word\tlog10p\na\t-1\n</s>\t-0.5\nb\t-2\n</s>\t-0.1\n"
TWO = "word\tlog10p\na\t-1.2\n</s>\t-0.4\nb\t-1\n</s>\t-0.1\n"


@pytest.fixture
def scores(lmtool: Callable[..., str]) -> Callable[..., str]:
    for name, text in {"one.tsv": ONE, "two.tsv": TWO, "de.arpa": ARPA}.items():
        Path(name).write_text(text)
    return lmtool


NO_NAME = "must be text without line breaks, control characters or unpaired surrogates"
CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "a text for compare": (
        lambda: lm.compare(["one.tsv", "two.tsv"], text=["a b"]),
        "text=['a b']: must be the path of a file; evaluate and surprisal take sentences",
    ),
    "a text for ensemble": (lambda: lm.ensemble(["one.tsv", "two.tsv"], text=["a"]), "text=['a']: must be the path of"),
    "pairs": (lambda: lm.pairs("de.arpa", [("a", None)]), "text=[('a', None)]: must be the path of a file"),  # type: ignore[arg-type]
    "True": (lambda: lm.load("de.arpa").predict("a", top=True), "top=True: must be a whole number, 1 or more"),
    "a flag": (lambda: lm.load("de.arpa").generate(count=True), "count=True: must be a whole number, 1 or more"),
    "train": (
        lambda: lm.preprocess("text", train="x"),
        "no key 'train'; did you mean data.train?",
    ),
    "train for train": (
        lambda: lm.train("ngram", train="x"),
        "no key 'train'; did you mean data.train?",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_clear_line(name: str, scores: Callable[..., str]) -> None:
    run, said = CALLS[name]
    with pytest.raises(UserError) as caught:
        run()
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "a\nb", "\u202eb", "a\x85"])
def test_paths_that_no_system_has(name: str, scores: Callable[..., str]) -> None:
    tree = huffman_tree([1, 1])
    for key, run in {
        "nbest": lambda: lm.rescore("de.arpa", name, out="o"),
        "out": lambda: lm.compare(["one.tsv", "two.tsv"], out=name),
        "runs": lambda: lm.compare([name, "two.tsv"]),
        "store_dir": lambda: lm.preprocess("toy", store_dir=name),
        "to": lambda: lm.surprisal("de.arpa", ["a"], to=name),
        "data.train": lambda: lm.train("ngram", {"kind": "text", "train": name}),
        "text": lambda: lm.evaluate("de.arpa", text=Path(name)),
        "path": lambda: lm.load(name),
    }.items():
        with pytest.raises(UserError) as caught:
            run()
        assert str(caught.value) == f"{key}={name!r}: {NO_NAME}"
    for use in (lambda: read_tree(name, ["a", "b"]), lambda: write_tree(name, tree, ["a", "b"])):
        with pytest.raises(UserError, match=NO_NAME):
            use()
    with pytest.raises(UserError, match=f"^store_dir=.*{NO_NAME}"):
        lm.Corpus.from_texts(["a"], store_dir=name)


def test_scores_of_other_programs_are_of_no_split_and_of_an_unknown_vocabulary(scores: Callable[..., str]) -> None:
    said = scores("compare", "runs=[one.tsv,two.tsv]", "hydra.run.dir=compared")
    assert said.startswith("the text of one.tsv: 4 tokens in 2 sentences;") and "valid" not in said
    assert json.loads(Path("compared/result.json").read_text())["split"] == "the text of one.tsv"
    said = scores("ensemble", "runs=[one.tsv,two.tsv]", "hydra.run.dir=mixed")
    assert "valid" not in said and "out of vocabulary       unknown" in said
    found = json.loads(Path("mixed/result.json").read_text())
    assert found["oov"] is None and found["perplexity_without_oov"] is None and found["tokens"] == 4
    assert found["fit"]["split"] == found["split"] == "the text of one.tsv"
    said = scores("eval", "run=mixed", code=2)
    assert said.endswith("its scores.h5 has scores without a model, which lmtool compare and lmtool ensemble can use\n")
    Path("t.txt").write_text("a\nb zzz\n")  # of a model of lmtool the name and the vocabulary are known
    scores("eval", "arpa=de.arpa", "text=t.txt", "hydra.run.dir=ours")
    words = ["a", "</s>", "b", "<unk>", "</s>"]
    Path("theirs.tsv").write_text("word\tlog10p\n" + "".join(f"{word}\t-1\n" for word in words))
    assert scores("compare", "runs=[ours,theirs.tsv]").startswith("t.txt: 5 tokens in 2 sentences;")
    assert "out of vocabulary             1" in scores("ensemble", "runs=[ours,theirs.tsv]")
