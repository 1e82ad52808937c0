"""Strategies of words: settings of lmtool by their types, and values of every wrong kind."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lmtool.cli.help_pages import VERBS, keys_of
from lmtool.config.options import HOMES, yaml_files
from lmtool.config.setting_types import SettingType, option_types, verb_types

# What a valid, larger value of would only make a case take long; such values are not drawn.
LONG = "epochs steps minutes count length resamples fit_contexts lr_range_steps tokens types threads iterations rounds"
LONG += (
    " passes valid_tokens test_tokens sample nce_noise candidates levels lr_range consecutive evaluate_every save_every"
)
FEW = {"training.epochs": "0.5", "training.steps": "2", "training.minutes": "0.001"}

NUMBERS = ["0", "1", "2", "3", "-1", "0.5", "-0.0", "1e-9", "1e308", "1e400", "nan", "inf", "-inf", "1_000", "0x10"]
# fmt: off
NUMBERS = [
    "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" + "0" * 400, "00", "1.", ".5", "١٢",
]
# fmt: on
SMALL = ["0", "1", "2", "3", "4", "0.5", "0.25", "1.0", "8"]
# fmt: off
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
    "", " ", "\t", "\n", "a\nb", "\x00"[:0], "\x1b[31m", "\\", "'", '"', "`", "#", "&", "*", "|", "@", "@a", "!",
    "!!int 3", "\udcff", "a" * 300, "-" * 5, "=", "==", "a=", ",", ",,", ":", ": ", "\u2028", "\ufeff", "é", "é",
    "A" * 5000,
]
# fmt: on

# fmt: off
HYDRA = [
    "hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.job.name", "hydra.verbose", "hydra.mode",
    "hydra.output_subdir", "hydra.job.chdir", "hydra.job.env_set.X", "hydra.help.header",
    "hydra.sweeper.max_batch_size", "hydra.nope", "hydra", "hydra/launcher", "hydra/sweeper", "hydra/job_logging",
    "hydra/hydra_logging", "hydra.searchpath", "hydra.job.config.override_dirname.kv_sep",
]
# fmt: on
HYDRA += ["hydra.callbacks", "hydra.launcher._target_", "hydra.job.num", "hydra.runtime.cwd", "hydra.sweeper.params"]
# fmt: off
FLAGS = [
    "-m", "--multirun", "--help", "-h", "--hydra-help", "--cfg", "--cfg=job", "-c", "job", "--resolve", "--package",
    "-p", "--run", "--config-dir", "--config-name", "-cn", "--config-path", "--info", "-i", "--version", "--nope", "-x",
    "--", "-", "--info=all", "--config-dir=.", "--config-dir=nowhere", "--shell-completion", "-sc",
    "--experimental-rerun", "--cfg=hydra", "--package=model",
]
# fmt: on


def _typed(type: SettingType) -> list[str]:
    """Some values that a setting of a type may have."""
    values = list(type.values)
    if "bool" in type.names:
        values += ["true", "false"]
    if type.names & {"int", "float"}:
        values += SMALL
    if "None" in type.names:
        values += ["null"]
    if type.item is not None:
        values += ["[1]", "[0,1]", "[a,b]", "[kn]", "[kn,net]", "[0.5,0.5]"]
    return values or ["kn", "valid", "train.txt", "auto"]


@cache
def typed_keys(verb: str) -> dict[str, SettingType]:
    """The whole keys of a verb, as often as they are few, and of all options of its groups."""
    keys = dict(_leaves(verb_types(verb), ""))
    for group in (*HOMES, "training"):
        if group not in keys_of(verb) and verb != "train":
            continue
        for name in yaml_files(group):
            keys |= dict(_leaves(option_types(group, name), f"{group}."))
    return keys


def _leaves(types: dict[str, SettingType], prefix: str) -> list[tuple[str, SettingType]]:
    found: list[tuple[str, SettingType]] = []
    for name, type in types.items():
        found += _leaves(type.fields, f"{prefix}{name}.") if type.fields else [(prefix + name, type)]
    return found


def _is_long(key: str) -> bool:
    return key.rpartition(".")[2] in LONG.split()


def safe(text: str) -> str:
    """A text that leads to no folder but the one a command is in."""
    return text.replace("/", "\u2215").replace("..", "\u2025").replace("\x00", "")


TEXT = st.text(st.characters(exclude_characters="\x00"), max_size=12).map(safe)
NONSENSE = st.one_of(*(st.sampled_from(pool) for pool in (NUMBERS, WORDS, NESTED, SWEEPS, STRANGE)), TEXT)
SHORT_NONSENSE = st.one_of(
    st.sampled_from([n for n in NUMBERS if not n.startswith(("1e", "92", "10"))]), st.sampled_from(STRANGE)
)


@st.composite
def setting(draw: st.DrawFn, verb: str) -> str:
    """One word: a key of the verb, or nearly, and a value of its type, or any."""
    keys = typed_keys(verb)
    if draw(st.integers(0, 6)):
        top = [key for key in keys if "." not in key]
        key = draw(st.one_of(st.sampled_from(sorted(keys)), st.sampled_from(sorted(top))))
        if _is_long(key):
            value = draw(st.one_of(st.just(FEW.get(key, "3")), SHORT_NONSENSE))
        else:
            value = draw(st.one_of(st.sampled_from(_typed(keys[key])), NONSENSE))
    else:
        groups = [f"{group}" for group in (*HOMES, "experiment", "training", "+experiment")]
        key = draw(st.sampled_from([*HYDRA, *groups, "a", "a.b", "model@x", "x@y.z", "options", ""]))
        options = (
            sorted(yaml_files(key.lstrip("+"))) or ["basic"]
            if "/" not in key
            else ["basic", "default", "none", "optuna"]
        )
        value = draw(st.one_of(st.sampled_from(options), NONSENSE))
    if draw(st.integers(0, 19)) == 0:
        key = draw(misspelt(key))
    prefix = draw(st.sampled_from([""] * 20 + ["+", "++", "~"]))
    joint = draw(st.sampled_from(["="] * 40 + ["", " = ", ":", "=="]))
    return f"{prefix}{key}{joint}{value}"


@st.composite
def misspelt(draw: st.DrawFn, word: str) -> str:
    """A word with a letter left out, doubled, changed or in another case."""
    if not word:
        return word
    place = draw(st.integers(0, len(word) - 1))
    new = draw(st.sampled_from(["", word[place] * 2, word[place].upper(), "_", ".", "x", "é", " "]))
    return word[:place] + new + word[place + 1 :]


def verbs() -> SearchStrategy[str]:
    """Verbs as often as anything has one."""
    return st.sampled_from(sorted(VERBS))
