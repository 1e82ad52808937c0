"""Custom config folders and folders of options whose YAML files are broken in every way."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzzing import commands
from fuzzing.campaign import Fault
from fuzzing.commands import NEURAL, prepare
from fuzzing.words import NONSENSE, SOME_TEXT

__all__ = ["CASES", "check", "prepare"]

OWNED = "owned"  # the file that hostile tags would make
# fmt: off
# Files that are right, each with a line that uses it.
RIGHT = [
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
OWN_FOLDERS = ["", "nowhere", "train.txt", "ow n", "own,x", "own=x", "ünï", "'own'", "~", "${seed}"]
ADDED = ["--help", "--cfg=job", "-m", "--config-name=mine", "--info", "--resolve", "seed=1,2"]
PYTHON = """\
from dataclasses import dataclass
from lmtool.config.groups import TreeConfig
from lmtool.trees import balanced_tree

@dataclass(slots=True)
class MineTree(TreeConfig):
    seed: int = 3

    def build(self, words):
        return balanced_tree(range(len(words.counts)))
"""
BAD_PYTHON = ["", "1/0", "raise SystemExit(3)", "x = (", "\x00", PYTHON[:80], "import sys\nsys.exit()"]
# A billion laughs: each line repeats the previous one nine times.
LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n"
LAUGHS += "\n".join(f"{k}: &{k} [{', '.join([f'*{chr(ord(k) - 1)}'] * 9)}]" for k in "bcdefghi")
LINES = [
    "\ta: 1", "a:\t1", "a: *b", "a: &a [*a]", "&x a: *x", "<<: *a", "<<: {a: 1}", "a: {<<: [1]}", "a: |", "a: >-\n x",
    "- a", "---", "...", "%YAML 9.9", "%TAG ! tag:x", "a", "a:", ": a", "?", "? a", "? [1, 2]\n: 3", "{1: 2, [3]: 4}",
    "a: [1, 2", "a: {b", "a: 'b", 'a: "b\\q"', "a: !!int x", "a: !x y", "a: @b", "a: `b", "null: 1", "~: 1", "true: 1",
    "1: 2", "1.5: 2", "2001-01-01: 2", "a: 2001-01-01", "a: 0o17", "a: 0x1F", "a: 1_000", "a: .nan", "a: .inf",
    f"a: !!python/object/apply:os.mkdir [{OWNED}]", f"!!python/object/apply:os.mkdir [{OWNED}]",
    "a: !!python/name:os.system", "a: !!python/tuple [1]", "a: !!python/object:lmtool.errors.UserError {}",
    "a: !!python/object/new:os.system [ls]", "a: !!binary aGk=", "a: !!set {x}", "a: !!omap [x: 1]",
    "_target_: os.getcwd", "a: {_target_: os.getcwd}", "_partial_: true", "_recursive_: 3", "_convert_: all",
    "kind: nope", "kind: ../nplm", "kind: [1]", "kind:", "kind: null", "kind: nplm", "hydra: {run: {dir: x}}",
    "hydra: 3", "hydra: {callbacks: {x: {_target_: nope.nope}}}", "hydra: {nope: 1}", "hydra: {job: {name: [1]}}",
    "hydra:\n  mode: MULTIRUN", "hydra: {sweeper: {params: {seed: '1,2'}}}", "hydra: {sweeper: {params: 3}}",
    "hydra: {searchpath: [x]}", "hydra: {searchpath: 3}", "a: ${oc.env:HOME}", "a: ${oc.env:NOWHERE}", "a: ${a}",
    "a: ${b}\nb: ${a}", "a: ${nope}", "a: ${", "a: ${nope:1}", "a: ${oc.decode:'['}", "a: ${oc.create:{}}",
    "seed: ${oc.env:HOME}", "seed: ${seed}", "model: ${model}", "model: 3", "model: null", "model: [1]", "model: ngram",
    "model: {kind: null}", "data: {}", "seed: {}", "seed: 1\nseed: 2", "seed: [1]", "seed: x", "seed: 1e999",
    "seed: 99999999999999999999", "seed: ???", "hidden_dim: ???", "order: ???", "order: x", "order: 2\norder: 3",
    "defaults: 3", "defaults:", "defaults: {}", "defaults: []", "defaults: [mine]", "defaults: [nope]",
    "defaults: [nope: 1]", "defaults: [model: nope]", "defaults: [[1]]", "defaults: [_self_, _self_]",
    "defaults: [null]", "defaults: [3]", "defaults: [/model: ngram]", "defaults: [override /model: ngram]",
    "defaults: [override /nope: x]", "defaults: [optional x: y]", "defaults: [model@x.y: ngram]",
    "defaults: [../model/nplm]", "defaults: [/model/nplm@_here_]", "defaults: [{a: 1, b: 2}]", "defaults: [a: [b, c]]",
    "defaults: ['${x}']", "defaults: [model: '${nope}']", "defaults: [model: null]", "defaults: [model: [nplm, ngram]]",
    "# @package", "# @package nope", "# @package _global_", "# @package a b", "#@package x", "vocabulary: 3",
    "vocabulary: []", "vocabulary: {file: [1]}", "vocabulary: {nope: 1}", "train: {a: 1}", "train: [1]", "name: [1]",
    "name: ''", "name: ../x", "name: null", "sentences: maybe", "a: " + "[" * 200 + "]" * 200,
    "a: " + "{a: " * 120 + "1" + "}" * 120, "a: " + "[" * 5000, "\n".join("  " * k + "a:" for k in range(150)),
    LAUGHS,
    "a: " + "9" * 5000, "\ufeffa: 1", "a: \x07", "a: \x85b", "\u2028a: 1", "ünï: 1", "a b: 1", "a.b: 1", "a/b: 1",
    "a@b: 1", "'': 1", "a: ''", "a: '\\'", "\x00", "a: \ud800",
]
WHOLE = [
    "", "\n", "#", "null", "3", "a", "[]", "[1, 2]", "{}", "---\n---\n", "- a\n- b\n", "\x00\x01",
    "---\na: 1\n---\nb: 2\n", "%", "!!null", "&a *a", "\ufeff", "'", "# mine",
]
# fmt: on


@st.composite
def broken(draw: st.DrawFn, text: str) -> str:
    """Draw a YAML text with lines inserted, changed, left out, indented or cut."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(WHOLE))
    for _ in range(draw(st.integers(1, 2))):
        lines = text.split("\n")
        place = draw(st.integers(0, len(lines) - 1))
        match draw(st.integers(0, 7)):
            case 0:
                lines[place : place + 1] = []
            case 1:
                lines[place] = " " * draw(st.integers(1, 3)) + lines[place]
            case 2:
                lines[place] = lines[place][: draw(st.integers(0, len(lines[place])))]
            case 3 if ":" in lines[place]:
                lines[place] = lines[place].partition(":")[0] + ": " + draw(NONSENSE | SOME_TEXT)
            case _:
                lines.insert(place, draw(st.sampled_from(LINES)))
        text = "\n".join(lines)
    return text


@st.composite
def folders(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a folder of YAML files, and the line that uses it. files: texts by path; null: a folder."""
    path, text, words = draw(st.sampled_from(RIGHT))
    files: dict[str, Any] = {path: draw(broken(text))}
    own = "own"
    match draw(st.integers(0, 19)):
        case 0:
            files = {path: None}
        case 1:
            files = {}
        case 2:
            files = {path.partition("/")[0]: draw(st.sampled_from(["", "a: 1"]))}  # a file instead of its folder
        case 3:
            other, text, _ = draw(st.sampled_from(RIGHT))
            files[other] = draw(broken(text))
        case 4:
            own = draw(st.sampled_from(OWN_FOLDERS))
    ways = [["--config-dir", own]] * 6 + [[f"--config-dir={own}"], [f"options={own}"]]
    where = draw(st.sampled_from([*ways, [f"hydra.searchpath=[file://{own}]"]]))
    if path.startswith("tree/") and draw(st.booleans()):
        files["tree/mine.py"] = draw(st.sampled_from([PYTHON, *BAD_PYTHON]))
        where = [f"options={own}"]
    added = [draw(st.sampled_from(ADDED))] if draw(st.integers(0, 9)) == 0 else []
    encoding = draw(st.sampled_from(["utf-8"] * 8 + ["utf-16", "latin-1"]))
    return {"files": files, "folder": own or "own", "words": [*words, *where, *added], "bytes": encoding}


CASES = folders()


def check(case: dict[str, Any], place: Path) -> None:
    """Write the folder and run the line. Raises Fault."""

    def make(work: Path) -> None:
        own = work / case["folder"]
        if not case["files"] or own.is_file():
            return
        for path, text in sorted(case["files"].items(), key=lambda item: item[0]):
            file = own / path
            if any(parent.is_file() for parent in file.parents) or file.exists():
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                file.mkdir()
            else:
                file.write_bytes(text.encode(case["bytes"], "replace"))

    outcome = commands.checked(case["words"], place, make)
    if os.path.exists(place / "work" / OWNED):
        raise Fault("a YAML file was executed", f"exit code {outcome.code}\n{outcome.err}")
