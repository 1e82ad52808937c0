"""Command lines of the grammar of lmtool's settings and of Hydra's overrides: valid, nearly valid and not at all."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from fuzzing import commands
from fuzzing.commands import NEURAL, count, prepare
from fuzzing.settings import FLAGS, NONSENSE, misspelt, safe, setting, verbs

__all__ = ["CASES", "check", "count", "prepare"]

TEXT = ["data=text", "data.train=train.txt", "data.valid=valid.txt"]
# Lines that are right, for each verb: what is added to them makes them wrong, or right in another way.
RIGHT = {
    "preprocess": [["data=toy"], TEXT],
    "train": [
        ["data=toy", "model=ngram", "model.order=2"],
        [*TEXT, "model=ngram"],
        ["model=nplm", *NEURAL],
        ["model=lbl", *NEURAL],
    ],
    "eval": [["run=kn"], ["run=net", "split=test"], ["arpa=kn.arpa", "text=valid.txt"], ["run=kn", "nbest=lists.txt"]],
    "score": [["run=kn", "text=valid.txt", "to=scores.tsv"], ["run=net", "text=train.txt", "to=s.jsonl"]],
    "ensemble": [
        ["runs=[kn,net]"],
        ["runs=[kn]", "cache=unigram"],
        ["runs=[kn,net]", "method=log_linear", "fit_contexts=100"],
    ],
    "compare": [["runs=[kn,net]", "resamples=100"]],
    "distil": [["run=net", "like=kn"]],
    "tree": [["data=toy", f"tree={name}"] for name in ("huffman", "brown", "union", "random", "classes")],
    "predict": [["the cat", "run=kn"], ["a", "run=net", "oov=unk"], ["run=mix"]],
    "generate": [["the", "run=kn", "count=1", "length=4"], ["run=net", "count=1", "length=2", "seed=1"]],
    "neighbors": [["the", "cat", "run=net"]],
    "report": [["kn", "map=none"]],
    "verify": [["kn"], ["net", "mix"]],
    "export": [["run=kn", "to=a.arpa"], ["run=net", "to=v.txt"], ["run=net", "to=w.safetensors"]],
    "convert": [
        ["run=kn", "to=b.arpa"],
        ["arpa=kn.arpa", "data=toy"],
        ["run=kn", "quantize=8"],
        ["runs=[kn,kn]", "weights=[0.5,0.5]"],
    ],
}


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """A line: the words of a right one, some left out, changed and added, in any order."""
    verb = draw(verbs())
    words = list(draw(st.sampled_from(RIGHT[verb])))
    if words and draw(st.integers(0, 11)) == 0:
        place = draw(st.integers(0, len(words) - 1))
        words[place] = draw(misspelt(words[place]))
    words += draw(st.lists(setting(verb), max_size=draw(st.sampled_from([1, 1, 2, 4]))))
    if draw(st.integers(0, 7)) == 0:
        words += draw(
            st.lists(st.one_of(st.sampled_from(FLAGS), NONSENSE.map(lambda text: text.lstrip("/"))), max_size=2)
        )
    if draw(st.integers(0, 9)) == 0:
        words.append("-m")
        words += draw(
            st.lists(st.sampled_from(["seed=1,2", "model.order=1,2", "split=valid,test", "threads=1,2"]), max_size=2)
        )
    if draw(st.integers(0, 9)) == 0:
        words = draw(st.permutations(words))
    first = draw(st.sampled_from([verb] * 60 + ["help", "completion", verb.upper(), verb[:-1], "", "-m", f"{verb} "]))
    line = [first, *words]
    return [
        word if word in ("~/x",) or word.startswith("run=~") else safe(word) if "hydra/" not in word else word
        for word in line
    ]


CASES = lines()


def check(case: list[str], place: Path) -> None:
    """Run a line. Raises Fault."""
    if takes_long(case):
        return
    commands.checked(case, place)


def takes_long(words: list[str]) -> bool:
    """Whether a line may read a corpus that is not small, which is no fault; or start other programs."""
    text = " ".join(words)
    small = any(word.startswith(("data=toy", "data=text", "run=", "runs=", "arpa=")) for word in words)
    verb = words[0]
    return (verb in ("preprocess", "train", "tree", "convert") and not small) or any(
        name in text for name in ("joblib", "submitit", "optuna", "spark", "pydoc", "wikitext", "hub", "synthetic")
    )
