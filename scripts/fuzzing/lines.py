"""Command lines of the grammar of lmtool's settings and of Hydra's overrides, right, nearly right and wrong; and lines
that read folders of YAML files and options that are broken in every way.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzzing import commands
from fuzzing.campaign import Fault, Generator
from fuzzing.commands import NEURAL
from fuzzing.damage import NUMBERS
from lmtool.commands import top_level_keys, verb_setting_types, verbs
from lmtool.config.options import GROUP_MODULES, yaml_files
from lmtool.config.types import TRAINING, SettingType, option_types

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

# Settings whose valid, larger values only make a case take long; these get a value of SHORT or a small one.
LONG = """epochs steps minutes count length resamples fit_contexts lr_range_steps tokens types threads iterations rounds
    passes valid_tokens test_tokens sample nce_noise candidates levels lr_range consecutive evaluate_every save_every"""
SHORT = {"training.epochs": "0.5", "training.steps": "2", "training.minutes": "0.001"}
SMALL = ["0", "1", "2", "3", "4", "0.5", "0.25", "1.0", "8"]
WORDS = [
    "null", "true", "false", "yes", "None", "NULL", "auto", "tuned", "-", ".", "kn", "net", "mix", "nowhere", "the",
    "train.txt", "valid.txt", "words.txt", "empty.txt", "lists.txt", "kn.arpa", "tree.txt", "stores", "kn/model.h5",
    "train", "valid", "test", "dev", "text", "cat sat", "ünï", "ﬀ", "\u202e", "🙂", "a=b", "a,b", "a:b", "~", "~/x",
    "%s", "???", "${seed}", "${nowhere}", "${oc.env:HOME}", "${oc.env:NOWHERE}", "${hydra:job.name}", "${now:%Y}", "$x",
    "${", "${oc.decode:'1'}", "${oc.create:[1]}", "${.x}", "${..}", "${${seed}}", "\\${x}", "x${seed}y", "${a.b[0]}",
    "${nope:1}",
]
NESTED = [
    "[]", "{}", "[1,2]", "[1,[2,[3]]]", "{a:1}", "{a:{b:[1,{c:2}]}}", "[kn,net]", "[kn,kn]", "[the,cat]", "[1,a,null]",
    "[0,0,1]", "[0.5,0.5]", "[nan,1]", "[1", "1]", "{a", "[,]", "[a,]", "(1,2)", "'a", '"a', "'a'", '"a b"', "'it\\'s'",
]
SWEEPS = [
    "1,2", "a,b", "range(1,3)", "choice(1,2)", "range(0,1e9)", "glob(*)", "interval(0,1)", "shuffle(1,2)", "sort(2,1)",
    "int(3)", "str(3)", "float(a)", "bool(2)", "json_str(1)", "extend_list(1)", "choice(", "range(1)", "tag(a,1)",
    "nope(1)",
]
STRANGE = [
    "", " ", "\t", "\n", "a\nb", "\x1b[31m", "\\", "'", '"', "`", "#", "&", "*", "|", "@", "@a", "!", "!!int 3",
    "\udcff", "a" * 300, "-" * 5, "=", "==", "a=", ",", ",,", ":", ": ", "\u2028", "\ufeff", "é", "é", "A" * 5000,
]
HYDRA = [
    "out", "hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.job.name", "hydra.verbose", "hydra.mode",
    "hydra.output_subdir", "hydra.job.chdir", "hydra.job.env_set.X", "hydra.help.header",
    "hydra.sweeper.max_batch_size", "hydra.nope", "hydra", "hydra/launcher", "hydra/sweeper", "hydra/job_logging",
    "hydra/hydra_logging", "hydra.searchpath", "hydra.job.config.override_dirname.kv_sep", "hydra.callbacks",
    "hydra.launcher._target_", "hydra.job.num", "hydra.runtime.cwd", "hydra.sweeper.params",
]
FLAGS = [
    "-m", "--multirun", "--help", "-h", "--cfg", "--cfg=job", "-c", "job", "--resolve", "--package",
    "-p", "--config-dir", "--config-name", "-cn", "--info", "-i", "--version", "--nope", "-x",
    "--", "-", "--info=all", "--config-dir=.", "--config-dir=nowhere",
    "--cfg=hydra", "--package=model",
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
# Lines of syntax, and lines of keys with the values of YAML_VALUES or nonsense.
SYNTAX = [
    "\ta: 1", "a:\t1", "a: *b", "a: &a [*a]", "&x a: *x", "<<: *a", "<<: {a: 1}", "a: {<<: [1]}", "a: |", "a: >-\n x",
    "- a", "---", "...", "%YAML 9.9", "%TAG ! tag:x", "a", "a:", ": a", "?", "? a", "? [1, 2]\n: 3", "{1: 2, [3]: 4}",
    "a: [1, 2", "a: {b", "a: 'b", 'a: "b\\q"', "a: @b", "a: `b", "null: 1", "~: 1", "true: 1", "1: 2", "1.5: 2",
    "2001-01-01: 2", "order: 2\norder: 3", "a: ${b}\nb: ${a}", "# @package", "# @package nope", "# @package _global_",
    "# @package a b", "#@package x", "a: " + "[" * 200 + "]" * 200, "a: " + "{a: " * 120 + "1" + "}" * 120,
    "a: " + "[" * 5000, "\n".join("  " * k + "a:" for k in range(150)), LAUGHS, "a: " + "9" * 5000, "\ufeffa: 1",
    "a: \x07", "a: \x85b", "\u2028a: 1", "ünï: 1", "a b: 1", "a.b: 1", "a/b: 1", "a@b: 1", "'': 1", "a: '\\'", "\x00",
    "a: \ud800", "_target_: os.getcwd", "_partial_: true", "_recursive_: 3", "_convert_: all",
    f"!!python/object/apply:os.mkdir [{OWNED}]", "hydra:\n  mode: MULTIRUN",
]
YAML_KEYS = ["a", "kind", "seed", "model", "data", "order", "hidden_dim", "vocabulary", "train", "name", "hydra"]
YAML_VALUES = [
    "", "null", "3", "x", "[1]", "{}", "''", "{kind: null}", "{file: [1]}", "{nope: 1}", "{a: 1}", "nplm", "../nplm",
    "maybe", "1e999", "2001-01-01", "0o17", "0x1F", "1_000", ".nan", ".inf", "99999999999999999999", "???", "${a}",
    "${", "${oc.decode:'['}", "${oc.create:{}}", "${model}", "!!int x", "!x y", "!!binary aGk=", "!!set {x}",
    "!!omap [x: 1]", f"!!python/object/apply:os.mkdir [{OWNED}]", "!!python/name:os.system", "!!python/tuple [1]",
    "!!python/object:lmtool.errors.UserError {}", "!!python/object/new:os.system [ls]", "{_target_: os.getcwd}",
    "{run: {dir: x}}", "{callbacks: {x: {_target_: nope.nope}}}", "{job: {name: [1]}}",
    "{sweeper: {params: {seed: '1,2'}}}", "{sweeper: {params: 3}}", "{searchpath: [x]}", "{searchpath: 3}",
]
DEFAULTS = [
    "3", "", "{}", "[]", "[mine]", "[nope]", "[nope: 1]", "[model: nope]", "[[1]]", "[_self_, _self_]", "[null]", "[3]",
    "[/model: ngram]", "[override /model: ngram]", "[override /nope: x]", "[optional x: y]", "[model@x.y: ngram]",
    "[../model/nplm]", "[/model/nplm@_here_]", "[{a: 1, b: 2}]", "[a: [b, c]]", "['${x}']", "[model: '${nope}']",
    "[model: null]", "[model: [nplm, ngram]]",
]
WHOLE = [
    "", "\n", "#", "null", "3", "a", "[]", "[1, 2]", "{}", "---\n---\n", "- a\n- b\n", "\x00\x01",
    "---\na: 1\n---\nb: 2\n", "%", "!!null", "&a *a", "\ufeff", "'", "# mine",
]
# fmt: on


def safe(text: str) -> str:
    """Return a text that leads to no folder but the one a command is in."""
    return text.replace("/", "\u2215").replace("..", "\u2025").replace("\x00", "")


SOME_TEXT = st.text(st.characters(exclude_characters="\x00"), max_size=12).map(safe)
NONSENSE = st.one_of(*map(st.sampled_from, (NUMBERS, WORDS, NESTED, SWEEPS, STRANGE)), SOME_TEXT)
SHORT_NONSENSE = st.sampled_from(STRANGE) | st.sampled_from(["-1", "nan", "inf", "00", "1_000", "x"])


def typed_values(type: SettingType) -> list[str]:
    """Return some values that a setting of a type may have, and the bounds of its range."""
    values = list(type.values)
    values += ["true", "false"] if "bool" in type.names else []
    values += SMALL if type.names & {"int", "float"} else []
    values += ["null"] if "None" in type.names else []
    values += ["[1]", "[0,1]", "[a,b]", "[kn]", "[kn,net]", "[0.5,0.5]"] if type.item is not None else []
    if type.rule is not None:
        values += [*type.rule.words, *(f"{bound:g}" for bound in (type.rule.low, type.rule.high) if abs(bound) < 100)]
    return values or ["kn", "valid", "train.txt", "auto"]


@cache
def typed_keys(verb: str) -> dict[str, SettingType]:
    """Return the keys of a verb and of all options of its groups."""
    sources = [("", verb_setting_types(verb))]
    for group in (*GROUP_MODULES, TRAINING):
        if group in top_level_keys(verb) or verb == "train":
            sources += [(f"{group}.", option_types(group, name)) for name in yaml_files(group)]
    keys = {}
    for prefix, types in sources:
        for name, type in types.items():
            inner = {f"{prefix}{name}.{key}": type.below(key.split(".")) or type for key in type.leaves()}
            keys |= inner or {prefix + name: type}
    return keys


@st.composite
def typed_setting(draw: st.DrawFn, verb: str) -> tuple[str, str]:
    """Draw a key of a verb and a value of its type, or any."""
    keys = typed_keys(verb)
    key = draw(st.sampled_from(sorted(keys)) | st.sampled_from(sorted(key for key in keys if "." not in key)))
    if key.rpartition(".")[2] in LONG.split():
        return key, draw(st.just(SHORT.get(key, "3")) | SHORT_NONSENSE)
    return key, draw(st.sampled_from(typed_values(keys[key])) | NONSENSE)


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
    """Draw a word with a letter left out, doubled, changed or in another case."""
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
    """Run a line, and return its refusal. Raises Fault."""
    return [] if takes_long(case) else commands.checked(case, place)


def takes_long(words: list[str]) -> bool:
    """Return whether a line may read a corpus that is not small, which is no fault, or start other programs."""
    small = any(word.startswith(("data=toy", "data=text", "run=", "runs=", "arpa=")) for word in words)
    slow = ("joblib", "submitit", "optuna", "spark", "pydoc", "wikitext", "hub", "synthetic")
    reads = words[0] in ("preprocess", "train", "tree", "convert")
    return (reads and not small) or any(name in " ".join(words) for name in slow)


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
            case 4 | 5:
                value = draw(st.sampled_from(YAML_VALUES) | st.sampled_from(NESTED))
                lines.insert(place, f"{draw(st.sampled_from(YAML_KEYS))}: {value}")
            case 6:
                lines.insert(place, f"defaults: {draw(st.sampled_from(DEFAULTS))}")
            case _:
                lines.insert(place, draw(st.sampled_from(SYNTAX)))
        text = "\n".join(lines)
    return text


@st.composite
def folders(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a folder of YAML files, and the line that uses it. files: texts by path; null: a folder."""
    path, text, words = draw(st.sampled_from(FILES))
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
            other, text, _ = draw(st.sampled_from(FILES))
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


def check_folder(case: dict[str, Any], place: Path) -> list[str]:
    """Write a folder and run its line; return the refusal. Raises Fault."""

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

    refused = commands.checked(case["words"], place, make)
    if os.path.exists(place / "work" / OWNED):
        raise Fault("a YAML file was executed", str(refused))
    return refused


CAMPAIGNS = {
    "words": Generator(lines(), check_line, commands.prepare),
    "yaml": Generator(folders(), check_folder, commands.prepare),
}
