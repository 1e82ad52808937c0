"""Command lines of the grammar of lmtool's settings and of Hydra's overrides: valid, nearly valid and invalid."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from fuzzing import commands
from fuzzing.commands import NEURAL, prepare
from lmtool.cli.help_pages import VERBS, keys_of
from lmtool.config.index import SettingType, option_types, verb_types
from lmtool.config.options import HOMES, yaml_files

__all__ = ["CASES", "check", "prepare"]

# fmt: off
TEXT = ["data=text", "data.train=train.txt", "data.valid=valid.txt"]
# Lines that are right, for each verb: what is added to them makes them wrong, or right in another way.
RIGHT = {
    "preprocess": [["data=toy"], TEXT],
    "train": [["data=toy", "model=ngram", "model.order=2"], [*TEXT, "model=ngram"], ["model=nplm", *NEURAL],
              ["model=lbl", *NEURAL]],
    "eval": [["run=kn"], ["run=net", "split=test"], ["arpa=kn.arpa", "text=valid.txt"], ["run=kn", "nbest=lists.txt"]],
    "score": [["run=kn", "text=valid.txt", "to=scores.tsv"], ["run=net", "text=train.txt", "to=s.jsonl"]],
    "ensemble": [["runs=[kn,net]"], ["runs=[kn]", "cache=unigram"],
                 ["runs=[kn,net]", "method=log_linear", "fit_contexts=100"]],
    "compare": [["runs=[kn,net]", "resamples=100"]],
    "distil": [["run=net", "like=kn"]],
    "tree": [["data=toy", f"tree={name}"] for name in ("huffman", "brown", "union", "random", "classes")],
    "predict": [["the cat", "run=kn"], ["a", "run=net", "oov=unk"], ["run=mix"]],
    "generate": [["the", "run=kn", "count=1", "length=4"], ["run=net", "count=1", "length=2", "seed=1"]],
    "neighbors": [["the", "cat", "run=net"]],
    "report": [["kn", "map=none"]],
    "verify": [["kn"], ["net", "mix"]],
    "export": [["run=kn", "to=a.arpa"], ["run=net", "to=v.txt"], ["run=net", "to=w.safetensors"]],
    "convert": [["run=kn", "to=b.arpa"], ["arpa=kn.arpa", "data=toy"], ["run=kn", "quantize=8"],
                ["runs=[kn,kn]", "weights=[0.5,0.5]"]],
}

# Settings whose valid, larger values only make a case take long; these get a value of SHORT or a small one.
LONG = """epochs steps minutes count length resamples fit_contexts lr_range_steps tokens types threads iterations rounds
    passes valid_tokens test_tokens sample nce_noise candidates levels lr_range consecutive evaluate_every save_every"""
SHORT = {"training.epochs": "0.5", "training.steps": "2", "training.minutes": "0.001"}
SMALL = ["0", "1", "2", "3", "4", "0.5", "0.25", "1.0", "8"]
NUMBERS = ["0", "1", "2", "3", "-1", "0.5", "-0.0", "nan", "inf", "-inf", "1_000", "0x10", "00", "1.", ".5", "١٢"]
LARGE = ["1e-9", "1e308", "1e400", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
         "1" + "0" * 400]
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
    "hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.job.name", "hydra.verbose", "hydra.mode",
    "hydra.output_subdir", "hydra.job.chdir", "hydra.job.env_set.X", "hydra.help.header",
    "hydra.sweeper.max_batch_size", "hydra.nope", "hydra", "hydra/launcher", "hydra/sweeper", "hydra/job_logging",
    "hydra/hydra_logging", "hydra.searchpath", "hydra.job.config.override_dirname.kv_sep", "hydra.callbacks",
    "hydra.launcher._target_", "hydra.job.num", "hydra.runtime.cwd", "hydra.sweeper.params",
]
FLAGS = [
    "-m", "--multirun", "--help", "-h", "--hydra-help", "--cfg", "--cfg=job", "-c", "job", "--resolve", "--package",
    "-p", "--run", "--config-dir", "--config-name", "-cn", "--config-path", "--info", "-i", "--version", "--nope", "-x",
    "--", "-", "--info=all", "--config-dir=.", "--config-dir=nowhere", "--shell-completion", "-sc",
    "--experimental-rerun", "--cfg=hydra", "--package=model",
]
# fmt: on


def safe(text: str) -> str:
    """Return a text that leads to no folder but the one a command is in."""
    return text.replace("/", "\u2215").replace("..", "\u2025").replace("\x00", "")


SOME_TEXT = st.text(st.characters(exclude_characters="\x00"), max_size=12).map(safe)
NONSENSE = st.one_of(*map(st.sampled_from, (NUMBERS + LARGE, WORDS, NESTED, SWEEPS, STRANGE)), SOME_TEXT)
SHORT_NONSENSE = st.sampled_from(NUMBERS) | st.sampled_from(STRANGE)


def typed_values(type: SettingType) -> list[str]:
    """Return some values that a setting of a type may have."""
    values = list(type.values)
    values += ["true", "false"] if "bool" in type.names else []
    values += SMALL if type.names & {"int", "float"} else []
    values += ["null"] if "None" in type.names else []
    values += ["[1]", "[0,1]", "[a,b]", "[kn]", "[kn,net]", "[0.5,0.5]"] if type.item is not None else []
    return values or ["kn", "valid", "train.txt", "auto"]


@cache
def typed_keys(verb: str) -> dict[str, SettingType]:
    """Return the keys of a verb and of all options of its groups."""
    keys = dict(_leaves(verb_types(verb), ""))
    for group in (*HOMES, "training"):
        if group in keys_of(verb) or verb == "train":
            for name in yaml_files(group):
                keys |= dict(_leaves(option_types(group, name), f"{group}."))
    return keys


def _leaves(types: dict[str, SettingType], prefix: str) -> list[tuple[str, SettingType]]:
    found: list[tuple[str, SettingType]] = []
    for name, type in types.items():
        found += _leaves(type.fields, f"{prefix}{name}.") if type.fields else [(prefix + name, type)]
    return found


@st.composite
def setting(draw: st.DrawFn, verb: str) -> str:
    """Draw one word: a key of the verb, or nearly, and a value of its type, or any."""
    keys = typed_keys(verb)
    if draw(st.integers(0, 6)):
        top = [key for key in keys if "." not in key]
        key = draw(st.sampled_from(sorted(keys)) | st.sampled_from(sorted(top)))
        if key.rpartition(".")[2] in LONG.split():
            value = draw(st.just(SHORT.get(key, "3")) | SHORT_NONSENSE)
        else:
            value = draw(st.sampled_from(typed_values(keys[key])) | NONSENSE)
    else:
        groups = [*HOMES, "experiment", "training", "+experiment"]
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
    verb = draw(st.sampled_from(sorted(VERBS)))
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


CASES = lines()


def check(case: list[str], place: Path) -> None:
    """Run a line. Raises Fault."""
    if not takes_long(case):
        commands.checked(case, place)


def takes_long(words: list[str]) -> bool:
    """Return whether a line may read a corpus that is not small, which is no fault, or start other programs."""
    small = any(word.startswith(("data=toy", "data=text", "run=", "runs=", "arpa=")) for word in words)
    slow = ("joblib", "submitit", "optuna", "spark", "pydoc", "wikitext", "hub", "synthetic")
    reads = words[0] in ("preprocess", "train", "tree", "convert")
    return (reads and not small) or any(name in " ".join(words) for name in slow)
