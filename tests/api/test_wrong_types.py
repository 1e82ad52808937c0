"""Python's functions given values of wrong types: one line that names the argument, never another exception."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import lmtool

Function = Callable[..., Any]
WRONG: list[Any] = [
    None, 5, 2.5, math.nan, True, "", b"x", object(), [None], ["a", None], [[]], {"a": 1}, {1}, range(2), len,
    Path("nowhere"), iter("ab"),
]  # fmt: skip
SMALL = {"kind": "ngram", "order": 2}
# Valid arguments of each function, some of which are given a wrong value at a time: those that end early.
FUNCTIONS: dict[str, tuple[Mapping[str, Any], tuple[str, ...]]] = {
    "preprocess": ({"data": "toy"}, ("data", "progress", "store_dir", "threads", "options")),
    "train": (
        {"model": SMALL, "data": "CORPUS"},
        ("model", "data", "out", "seed", "overwrite", "callback", "progress", "options", "training", "experiment"),
    ),
    "evaluate": ({"run": "RUN"}, ("run", "split", "out", "text", "device", "progress", "across_sentences")),
    "rescore": ({"run": "RUN", "nbest": "n.txt", "out": "rescored"}, ("run", "nbest", "out", "weight")),
    "ensemble": ({"runs": ["RUN", "RUN"], "out": "mix"}, ("runs", "out", "weights", "method", "split", "text")),
    "compare": ({"runs": ["RUN", "RUN"]}, ("runs", "out", "split", "text", "resamples", "seed")),
    "pairs": ({"run": "RUN", "text": "p.jsonl"}, ("run", "text", "out", "criterion", "items")),
    "tree": ({"tree": "huffman", "data": "CORPUS"}, ("tree", "data", "out", "words", "levels", "to")),
    "sweep": ({"over": {"seed": [1]}, "verb": "preprocess", "out": "sweep"}, ("over", "out", "verb")),
    "score_texts": ({"run": "RUN", "texts": ["the cat"]}, ("run", "texts", "run_out", "across_sentences", "device")),
    "surprisal": ({"run": "RUN", "text": ["the cat"]}, ("run", "text", "out", "spillover", "item_column", "unit")),
    "export": ({"run": "RUN", "to": "x.arpa"}, ("run", "to", "what")),
    "convert": ({"arpa": "a.arpa", "data": "CORPUS", "out": "converted"}, ("arpa", "data", "out", "runs", "overwrite")),
    "distill": ({"run": "RUN", "ngrams_from": "RUN", "out": "small"}, ("run", "ngrams_from", "out", "tokens")),
    "report_page": ({"paths": ["RUN"], "out": "page"}, ("paths", "out", "map", "words")),
    "predict": ({"text": "the", "run": "RUN"}, ("run", "top", "oov", "out", "progress")),
    "generate": ({"text": "the", "run": "RUN"}, ("run", "count", "top_k", "seed", "out")),
    "neighbors": ({"words": ["the"], "run": "RUN"}, ("run", "words", "top", "by", "of")),
    "check": ({"text": "n.txt"}, ("text", "column", "out")),
    "unlikely": ({"run": "RUN", "text": "n.txt"}, ("run", "text", "words", "top", "out")),
    "verify": ({"paths": ["RUN"]}, ("paths", "out")),
    "score": ({"run": "RUN", "text": "n.txt", "to": "s.tsv"}, ("run", "text", "to", "out", "buckets")),
    "load": ({"path": "RUN"}, ("path", "device", "options")),
    "Corpus.open": ({"path": "store"}, ("path",)),
    "Corpus.from_texts": ({"train": ["a b"] * 3}, ("train", "valid", "name", "sentences", "unit", "size", "store_dir")),
    "model.score": ({"sentences": ["the cat"]}, ("sentences", "across_sentences")),
    "model.token_score": ({"sentences": ["the cat"]}, ("sentences", "surprisal", "bits")),
    "model.compare_pair": ({"good": "the cat", "bad": "cat the"}, ("good", "bad")),
    "model.perplexity": ({"text": ["the cat"]}, ("text", "across_sentences")),
    "model.split_of": ({"sentences": ["the cat"]}, ("sentences",)),
    "model.predict": ({"text": "the", "top": 2}, ("text", "top", "sentence_start", "oov")),
    "model.generate": (
        {"text": "the", "count": 1},
        ("text", "count", "length", "temperature", "top_k", "top_p", "seed"),
    ),
    "model.ids": ({"text": "the"}, ("text", "oov")),
    "model.begin": ({}, ("sentence_start",)),
    "model.advance": ({"words": "the"}, ("words",)),
    "model.neighbors": ({"word": "the"}, ("word", "top", "by", "of")),
}
CASES = [(name, key) for name, (_, keys) in FUNCTIONS.items() for key in keys]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A corpus, a run and a network's model, in the working folder of all tests here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("wrong"))
        corpus = lmtool.preprocess("toy")
        run = lmtool.train(SMALL, corpus, out="run")
        lmtool.export(run, "a.arpa")
        Path("n.txt").write_text("0 ||| the cat ||| 1 ||| -1\n")
        Path("p.jsonl").write_text('{"sentence_good": "the cat", "sentence_bad": "cat the"}\n')
        yield {"CORPUS": corpus, "RUN": run}


def function(name: str, made: dict[str, Any]) -> Function:
    model = made["RUN"].model
    if name == "score_texts":
        return lambda **given: list(lmtool.score_texts(**given))
    if name == "model.advance":
        return lambda words: model.advance(model.begin(), words)
    if name == "model.compare_pair":
        return model.compare
    if name.startswith("Corpus"):
        return getattr(lmtool.Corpus, name.partition(".")[2])
    return getattr(model if name.startswith("model.") else lmtool, name.removeprefix("model."))


def filled(value: Any, made: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [filled(item, made) for item in value]
    return made.get(value, value) if isinstance(value, str) else value


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "key"), CASES)
def test_a_wrong_type_is_one_line(name: str, key: str, made: dict[str, Any]) -> None:
    call, given = function(name, made), {k: filled(v, made) for k, v in FUNCTIONS[name][0].items()}
    refused = 0
    for wrong in WRONG:
        try:
            call(**given | {key: wrong})
        except lmtool.UserError as error:
            refused += 1
            assert "\n" not in str(error) and "hydra.run.dir" not in str(error)
    assert refused > len(WRONG) // 3


SAID: dict[str, tuple[Callable[[lmtool.TextModel, Any], Any], str]] = {
    "values of a sweep": (lambda m, run: lmtool.sweep({"model.order": 3}), r"over\['model.order'\]: name its values"),  # type: ignore[dict-item]
    "a key of a sweep": (lambda m, run: lmtool.sweep({3: [2]}), "^over=3: must be the values of each key, e.g."),  # type: ignore[dict-item]
    "no sentence": (lambda m, run: lmtool.evaluate(run, text=["a", None]), "None is not a sentence: give a string or"),  # type: ignore[list-item]
    "a number as text": (lambda m, run: lmtool.evaluate(run, text=5), "text=5: must be a sentence or a list of"),  # type: ignore[arg-type]
    "perplexity of a number": (lambda m, run: m.perplexity(5), "text=5: must be a sentence or a list of sentences"),  # type: ignore[arg-type]
    "a number as folder": (lambda m, run: lmtool.train(SMALL, "toy", out=5), "^out=5: must be a path$"),  # type: ignore[call-overload]
    "folder of an evaluation": (lambda m, run: lmtool.evaluate(run, out=["x"]), r"^out=\['x'\]: must be a path$"),  # type: ignore[arg-type]
    "half a word": (lambda m, run: m.predict("the", top=2.5), "^top=2.5: must be a whole number, 1 or more$"),  # type: ignore[arg-type]
    "text as number": (lambda m, run: m.generate(count="3"), "^count='3': must be a whole number, 1 or more$"),  # type: ignore[arg-type]
    "no number": (lambda m, run: m.predict("the", top=None), "^top=null: must be 1 or more$"),  # type: ignore[arg-type]
    "no folder": (lambda m, run: lmtool.load("nope"), "^no run folder nope: check the path$"),
    "no path": (lambda m, run: lmtool.load(None), "^path=None: must be a path$"),  # type: ignore[arg-type]
    "a device": (lambda m, run: lmtool.load(run.folder, 5), "^device=5: must be auto, cpu, cuda, cuda:NUMBER or mps$"),  # type: ignore[arg-type]
    "options": (lambda m, run: lmtool.load(run.folder, options=5), "^options=5: must be a path$"),  # type: ignore[arg-type]
    "a word": (lambda m, run: m.advance(m.begin(), 5), r"advance: words=\[5\]: must be strings"),  # type: ignore[call-overload]
    "a flag": (lambda m, run: m.token_score("the", bits="no"), "^bits='no': must be True or False$"),  # type: ignore[arg-type]
    "overwriting": (lambda m, run: lmtool.train(SMALL, "toy", overwrite="no"), "^overwrite='no': must be True or"),  # type: ignore[call-overload]
    "a callback": (lambda m, run: lmtool.train(SMALL, "toy", callback=5), "^callback=5: must be a function$"),  # type: ignore[call-overload]
    "accuracy": (lambda m, run: lmtool.evaluate(run, text=["the"], accuracy="no"), "^accuracy='no': must be True or"),
}


@pytest.mark.parametrize("case", SAID)
def test_the_line_names_the_argument(case: str, made: dict[str, Any]) -> None:
    call, said = SAID[case]
    with pytest.raises(lmtool.UserError, match=said):
        call(made["RUN"].model, made["RUN"])


def test_states_of_wrong_types(made: dict[str, Any]) -> None:
    """As documented, a ValueError."""
    model = made["RUN"].model
    for wrong in (5, None, "the", [5], {"a": 1}):
        with pytest.raises(ValueError, match=r"States.of: must be a list of states"):
            model.advance(wrong, ["the"])
