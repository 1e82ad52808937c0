"""Command lines of the grammar of lmtool's settings and of Hydra's overrides, right, nearly right and wrong; and lines
that read folders of damaged YAML files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzzing import commands
from fuzzing.campaign import Fault, Generator
from fuzzing.commands import NEURAL
from fuzzing.damage import damage, damages
from fuzzing.values import NONSENSE, safe, typed_setting
from lmtool.commands import verbs
from lmtool.config.options import GROUP_MODULES, yaml_files

# fmt: off
TEXT = ["data=text", "data.train=train.txt", "data.valid=valid.txt"]
# Lines that are right, for each verb: what is added to them makes them wrong, or right in another way.
RIGHT = {
    "preprocess": [["data=toy"], TEXT],
    "train": [["data=toy", "model=ngram", "model.order=2"], [*TEXT, "model=ngram"], ["model=nplm", *NEURAL],
              ["model=lbl", *NEURAL]],
    "eval": [["run=kn"], ["run=net", "split=test"], ["arpa=kn.arpa", "text=valid.txt"]],
    "rescore": [["run=kn", "nbest=lists.txt"]],
    "score": [["run=kn", "text=valid.txt", "to=scores.tsv"], ["run=net", "text=train.txt", "to=s.jsonl"]],
    "pairs": [["run=kn", "text=pairs.jsonl", "resamples=100"]],
    "surprisal": [["run=kn", "text=valid.txt", "to=s.tsv"], ["run=net", "text=train.txt", "entropy=true"]],
    "ensemble": [["runs=[kn,net]"], ["runs=[kn]", "cache=unigram"],
                 ["runs=[kn,net]", "method=log_linear", "fit_contexts=100"]],
    "compare": [["runs=[kn,net]", "resamples=100"]],
    "distill": [["run=net", "ngrams_from=kn"]],
    "tree": [["data=toy", f"tree={name}"] for name in ("huffman", "brown", "union", "random", "classes")],
    "predict": [["the cat", "run=kn"], ["a", "run=net", "oov=unk"], ["run=mix"]],
    "generate": [["the", "run=kn", "count=1", "length=4"], ["run=net", "count=1", "length=2", "seed=1"]],
    "neighbors": [["the", "cat", "run=net"]],
    "report": [["kn", "map=none"]],
    "verify": [["kn"], ["net", "mix"]],
    "check": [["train.txt"], ["text=valid.txt"]],
    "unlikely": [["run=kn", "text=valid.txt"], ["run=net", "text=valid.txt", "top=3"]],
    "export": [["run=kn", "to=a.arpa"], ["run=net", "to=v.txt"], ["run=net", "to=w.safetensors"]],
    "push": [["run=kn", "to=kn"]],
    "convert": [["run=kn", "to=b.arpa"], ["arpa=kn.arpa", "data=toy"], ["run=kn", "quantize=8"],
                ["runs=[kn,kn]", "weights=[0.5,0.5]"]],
}

HYDRA = [
    "out", "hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.job.name", "hydra.verbose", "hydra.mode",
    "hydra.output_subdir", "hydra.job.chdir", "hydra.job.env_set.X", "hydra.help.header", "hydra.sweeper.params",
    "hydra.sweeper.max_batch_size", "hydra.nope", "hydra", "hydra/launcher", "hydra/sweeper", "hydra/job_logging",
    "hydra/hydra_logging", "hydra.searchpath", "hydra.callbacks", "hydra.launcher._target_", "hydra.job.num",
]
FLAGS = [
    "-m", "--help", "-h", "--cfg=job", "-c", "job", "--cfg", "--resolve", "--config-dir",
    "--version", "--info", "-i", "--nope", "-x", "--", "-", "--config-dir=.", "--cfg=hydra",
]
OWNED = "owned"  # the file that hostile tags would make
# Files that are right, each with a line that uses it.
FILES = [
    ("model/mine.yaml", "# mine\ndefaults:\n  - nplm\n  - _self_\n\nhidden_dim: 4\n", ["train", "model=mine", *NEURAL]),
    ("model/mine.yaml", "defaults: [ngram, _self_]\norder: 2\n", ["train", "model=mine", "data=toy"]),
    ("smoother/mine.yaml", "defaults:\n  - witten_bell\n  - _self_\ninterpolate: false\n",
     ["train", "model=ngram", "smoother=mine", "data=toy"]),
    ("data/mine.yaml", "defaults:\n  - toy\n  - _self_\nname: mine\nvocabulary:\n  size: 9\n",
     ["preprocess", "data=mine"]),
    ("data/mine.yaml", "defaults: [text, _self_]\nname: own\ntrain: train.txt\nvalid: [valid.txt]\n",
     ["train", "model=ngram", "data=mine"]),
    ("tree/mine.yaml", "defaults: [random, _self_]\nseed: 3\n", ["tree", "tree=mine", "data=toy"]),
    ("optim/mine.yaml", "defaults:\n  - adam\n  - _self_\nlr: 0.01\n", ["train", "optim=mine", *NEURAL]),
    ("training/mine.yaml", "epochs: 1\nsteps: null\n", ["train", "training=mine", *NEURAL]),
    ("experiment/mine.yaml",
     "# @package _global_\ndefaults:\n  - override /data: toy\n  - override /model: ngram\nseed: 3",
     ["train", "+experiment=mine"]),
    ("experiment/mine.yaml", "# @package _global_\nsplit: test\nrun: kn\n", ["eval", "+experiment=mine"]),
    ("train.yaml", "defaults:\n  - common\n  - data: toy\n  - model: ngram\n  - _self_\nseed: 3\n",
     ["train", "data=toy", "model=ngram"]),
    ("hydra/job_logging/mine.yaml", "version: 1\n", ["eval", "run=kn", "hydra/job_logging=mine"]),
]
LAUGHS = "\n".join([  # a billion: each line repeats the previous one nine times
    "a: &a [x, x, x, x, x, x, x, x, x]",
    *(f"{key}: &{key} [{', '.join([f'*{chr(ord(key) - 1)}'] * 9)}]" for key in "bcdefghi"),
])
# What damages put into them: lines of YAML, and values.
YAML = [f"{line}\n" for line in (
    "\ta: 1", "a: *b", "a: &a [*a]", "<<: *a", "a: {<<: [1]}", "a: |", "- a", "---", "%YAML 9.9", "%TAG ! tag:x", ": a",
    "? a", "? [1, 2]\n: 3", "{1: 2, [3]: 4}", "a: [1, 2", "a: @b", "null: 1", "1.5: 2", "2001-01-01: 2",
    "order: 2\norder: 3", "a: ${b}\nb: ${a}", "# @package nope", "# @package _global_", "a: " + "[" * 200 + "]" * 200,
    "a: " + "[" * 5000, "\n".join("  " * k + "a:" for k in range(150)), LAUGHS, "a.b: 1", "a@b: 1", "'': 1",
    "_target_: os.getcwd", f"!!python/object/apply:os.mkdir [{OWNED}]", "hydra:\n  mode: MULTIRUN", "kind: null",
    "defaults: 3", "defaults: []", "defaults: [mine]", "defaults: [nope: 1]", "defaults: [_self_, _self_]",
    "defaults: [override /nope: x]", "defaults: [optional x: y]", "defaults: [model@x.y: ngram]",
    "defaults: [../model/nplm]", "defaults: [{a: 1, b: 2}]", "defaults: ['${x}']", "defaults: [model: [nplm, ngram]]",
)]
YAML += [
    "{file: [1]}", "../nplm", "0o17", "1_000", ".nan", "${", "${oc.decode:'['}", "${oc.create:{}}", "!!int x", "!x y",
    "!!binary aGk=", "!!set {x}", f"!!python/object/apply:os.mkdir [{OWNED}]", "!!python/name:os.system",
    "!!python/object:lmtool.errors.UserError {}", "{_target_: os.getcwd}", "{callbacks: {x: {_target_: nope.nope}}}",
    "{sweeper: {params: 3}}", "{searchpath: [x]}", "???", "[]", "{}", "  ",
]
OWN_FOLDERS = ["nowhere", "train.txt", "ow n", "own,x", "own=x", "ünï", "'own'", "~", "${seed}"]
ADDED = ["--help", "--cfg=job", "-m", "--info", "--resolve", "seed=1,2"]
# fmt: on


@st.composite
def setting(draw: st.DrawFn, verb: str) -> str:
    """Draw one word: a key of the verb, or nearly, and a value of its type, or any."""
    if draw(st.integers(0, 6)):
        key, value = draw(typed_setting(verb))
    else:
        groups = [*GROUP_MODULES, "experiment", "training", "+experiment"]
        key = draw(st.sampled_from([*HYDRA, *groups, "a", "a.b", "model@x", "x@y.z", "options", ""]))
        options = ["basic", "default", "none", "optuna"] if "/" in key else sorted(yaml_files(key.lstrip("+")))
        value = draw(st.sampled_from(options or ["basic"]) | NONSENSE)
    if draw(st.integers(0, 19)) == 0:
        key = draw(misspelt(key))
    prefix = draw(st.sampled_from([""] * 20 + ["+", "++", "~"]))
    joint = draw(st.sampled_from(["="] * 40 + ["", " = ", ":", "=="]))
    return f"{prefix}{key}{joint}{value}"


@st.composite
def misspelt(draw: st.DrawFn, word: str) -> str:
    if not word:
        return word
    place = draw(st.integers(0, len(word) - 1))
    new = draw(st.sampled_from(["", word[place] * 2, word[place].upper(), "_", ".", "x", "é", " "]))
    return word[:place] + new + word[place + 1 :]


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """Draw a line: the words of a right one, some left out, changed and added, in any order."""
    verb = draw(st.sampled_from(sorted(verbs())))
    words = list(draw(st.sampled_from(RIGHT[verb])))
    if words and draw(st.integers(0, 11)) == 0:
        place = draw(st.integers(0, len(words) - 1))
        words[place] = draw(misspelt(words[place]))
    words += draw(st.lists(setting(verb), max_size=draw(st.sampled_from([1, 1, 2, 4]))))
    if draw(st.integers(0, 7)) == 0:
        words += draw(st.lists(st.sampled_from(FLAGS) | NONSENSE.map(lambda text: text.lstrip("/")), max_size=2))
    if draw(st.integers(0, 9)) == 0:
        sweeps = st.sampled_from(["seed=1,2", "model.order=1,2", "split=valid,test", "threads=1,2"])
        words += ["-m", *draw(st.lists(sweeps, max_size=2))]
    if draw(st.integers(0, 9)) == 0:
        words = draw(st.permutations(words))
    first = draw(st.sampled_from([verb] * 60 + ["help", "completion", verb.upper(), verb[:-1], "", "-m", f"{verb} "]))
    kept = ("~/x", "run=~", "hydra/")  # slashes that are meant
    return [word if any(part in word for part in kept) else safe(word) for word in [first, *words]]


def check_line(case: list[str], place: Path) -> list[str]:
    return [] if takes_long(case) else commands.checked(case, place)


def takes_long(words: list[str]) -> bool:
    """Return whether a line may read a corpus that is not small, which is no fault, or start other programs."""
    small = any(word.startswith(("data=toy", "data=text", "run=", "runs=", "arpa=")) for word in words)
    slow = ("joblib", "submitit", "optuna", "spark", "pydoc", "wikitext", "hub", "synthetic")
    reads = words[0] in ("preprocess", "train", "tree", "convert")
    return (reads and not small) or any(name in " ".join(words) for name in slow)


@st.composite
def folders(draw: st.DrawFn) -> list[Any]:
    """Draw the number of a file, its damages, the folder it is in, and what is added to its line."""
    own = draw(st.sampled_from(["own"] * 9 + OWN_FOLDERS))
    where = [["--config-dir", own]] * 6 + [
        [f"--config-dir={own}"],
        [f"options={own}"],
        [f"hydra.searchpath=[file://{own}]"],
    ]
    added = [draw(st.sampled_from(ADDED))] if draw(st.integers(0, 9)) == 0 else []
    return [draw(st.integers(0, len(FILES) - 1)), draw(damages(YAML)), own, draw(st.sampled_from(where)) + added]


def check_folder(case: list[Any], place: Path) -> list[str]:
    """Write a file into a folder and run its line; return the refusal. Raises Fault."""
    number, changes, own, added = case
    name, text, words = FILES[number]

    def make(work: Path) -> None:
        path = work / own / name
        if own not in ("nowhere", "train.txt"):
            path.parent.mkdir(parents=True)
            path.write_text(text, encoding="utf-8")
            damage(path, changes)

    refused = commands.checked([*words, *added], place, make)
    if os.path.exists(place / "work" / OWNED):
        raise Fault("a YAML file was executed", str(refused))
    return refused


CAMPAIGNS = {
    "words": Generator(lines(), check_line, commands.prepare),
    "yaml": Generator(folders(), check_folder, commands.prepare),
}
