"""The help pages, read off the conf/ folder itself: what it says there is what a person sees.

Only the standard library is imported here, so that a page appears at once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lmtool.errors import UserError


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: the module of lmtool.commands that runs it, a line about it, three examples.

    argument: the key of what may be given without one, `words...` where it may be several words.
    """

    module: str
    summary: str
    examples: tuple[str, str, str]
    argument: str | None = None


VERBS = {
    "preprocess": Verb(
        "preprocess",
        "text -> HDF5 store",
        (
            "lmtool preprocess",
            "lmtool preprocess data=text data.name=mine data.train=train.txt data.valid=valid.txt",
            "lmtool preprocess data=ptb data.vocabulary.size=5000",
        ),
    ),
    "train": Verb(
        "train",
        "store -> trained model, in a run folder",
        (
            "lmtool train",
            "lmtool train model=ngram model.order=3 data=ptb",
            "lmtool train -m model=nplm,hsoftmax,nce seed=1,2",
        ),
    ),
    "eval": Verb(
        "eval",
        "run + store, or any text -> perplexity",
        (
            "lmtool eval",
            "lmtool eval run=runs/kn5 split=test hydra.run.dir=runs/kn5-test",
            "lmtool eval run=runs/kn5 text=letter.txt detail=true",
        ),
    ),
    "ensemble": Verb(
        "ensemble",
        "runs -> their mixture's perplexity",
        (
            "lmtool ensemble runs=[runs/kn5,runs/nplm]",
            "lmtool ensemble runs=[runs/kn5,runs/nplm] fit_split=valid split=test",
            "lmtool ensemble runs=[runs/kn5,runs/nplm] cache=neural",
        ),
    ),
    "compare": Verb(
        "compare",
        "scores of the same tokens -> one table, with tests",
        (
            "lmtool compare runs=[runs/kn5,runs/nplm]",
            "lmtool compare runs=[runs/kn5,runs/nplm,runs/mix] split=test",
            "lmtool compare runs=[runs/kn5,kenlm-query.txt,srilm-debug2.txt.gz]",
        ),
    ),
    "tree": Verb(
        "tree",
        "store -> a tree for hierarchical softmax, looked at",
        (
            "lmtool tree tree=huffman",
            "lmtool tree data=ptb tree=brown words=[the,of,market] levels=5",
            "lmtool tree data=ptb tree=clusters tree.run=runs/nplm to=tree.txt",
        ),
    ),
    "predict": Verb(
        "predict",
        "run + text -> the likeliest next words",
        (
            'lmtool predict "the cat sat on"',
            'lmtool predict "the cat sat on" run=runs/kn5 top=3 oov=unk',
            "lmtool predict run=runs/nplm < contexts.txt",
        ),
        argument="text",
    ),
    "generate": Verb(
        "generate",
        "run -> texts drawn from it",
        (
            "lmtool generate",
            'lmtool generate "the cat" run=runs/kn5 count=3 seed=7',
            "lmtool generate run=runs/nplm temperature=0.8 top_k=50 top_p=0.95 length=100",
        ),
        argument="text",
    ),
    "neighbors": Verb(
        "neighbors",
        "neural run + words -> the words most like them",
        (
            "lmtool neighbors value",
            "lmtool neighbors value function run=runs/nplm top=5",
            "lmtool neighbors value by=dot of=output",
        ),
        argument="words...",
    ),
    "report": Verb(
        "report",
        "runs, sweeps, trees -> one page with pictures",
        (
            "lmtool report",
            "lmtool report runs hydra.run.dir=page",
            "lmtool report runs/nplm runs/kn5-valid map=tsne words=500",
        ),
        argument="paths...",
    ),
    "export": Verb(
        "export",
        "run -> word2vec, ARPA or safetensors file",
        (
            "lmtool export run=runs/nplm to=vectors.txt",
            "lmtool export run=runs/nplm to=model.safetensors",
            "lmtool export run=runs/kn5 to=kn5.arpa.gz",
        ),
    ),
    "convert": Verb(
        "convert",
        "n-gram run <-> ARPA file",
        (
            "lmtool convert run=runs/kn5 to=kn5.arpa.gz",
            "lmtool convert arpa=kn5.arpa.gz data=ptb hydra.run.dir=runs/imported",
            "lmtool convert arpa=other.arpa data=text data.name=mine data.train=train.txt data.valid=valid.txt",
        ),
    ),
}


SWEEPS = (
    "-m runs every combination of comma-separated values, one after the other, or at once with hydra/launcher=joblib,",
    "submitit_local or submitit_slurm; hydra/sweeper=optuna searches; -m resume=DIR goes on with a sweep.",
)


EXPERIMENT = "experiment"


def conf_dir() -> Path:
    """The folder of YAML files: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "train.yaml").is_file():
            return folder
    raise UserError(f"conf/ is missing beside {package}: install lmtool again")


def nearest(word: str, known: Iterable[str]) -> str:
    """The names most like `word`, as the end of an error line; all of them where none is alike."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.6)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; there are {', '.join(names)}" if names else ""


def groups_of(config: str) -> dict[str, str]:
    """The groups that a YAML file's defaults list names, each with the option it takes by itself.

    `config` is a path below conf/ without its suffix, such as `train` or `model/nplm`.
    """
    found: dict[str, str] = {}
    for line in _text(config).splitlines():
        entry = re.match(r"\s*- /?(?:override /?)?(\w+)(?:@\S+)?:\s*(\w+)", line)
        if entry and (conf_dir() / entry[1]).is_dir():
            found[entry[1]] = entry[2]
    return found


def keys_of(verb: str) -> set[str]:
    """The top-level keys of a verb, `hydra` among them."""
    return set(re.findall(r"^(\w+):", _text("common") + _text(verb), flags=re.M))


def chosen_groups(verb: str, words: list[str]) -> dict[str, str]:
    """The groups that a command line uses, each with its option: its own choices, else the defaults.

    Raises UserError for an option that does not exist.
    """
    given = dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("-"))
    experiment = given.get(f"+{EXPERIMENT}")
    if experiment is not None:
        if experiment not in options_of(EXPERIMENT):
            raise UserError(f"no {EXPERIMENT}={experiment}{nearest(experiment, options_of(EXPERIMENT))}")
        given = groups_of(f"{EXPERIMENT}/{experiment}") | given
    groups: dict[str, str] = {}
    waiting = [verb]
    while waiting:
        for group, default in groups_of(waiting.pop(0)).items():
            groups[group] = option = given.get(group, default)
            if option not in options_of(group):
                raise UserError(f"no {group}={option}{nearest(option, options_of(group))}")
            waiting.append(f"{group}/{option}")
    return groups


def options_of(group: str) -> dict[str, str]:
    """The options of a group, each with the first sentence of what its YAML file opens with."""
    paths = sorted((conf_dir() / group).glob("*.yaml"))
    return {path.stem: _first_sentence(_description(f"{group}/{path.stem}")) for path in paths}


def overview() -> str:
    """The page of `lmtool --help`."""
    lines = ["lmtool: train, evaluate, mix and compare the language models that came before Transformers", ""]
    lines += ["Usage: lmtool <verb> [group=option] [key=value] [-m]", "", "Verbs:"]
    lines += [f"  {name:<11} {verb.summary}" for name, verb in VERBS.items()]
    lines += ["  completion  the shell's script for completing verbs, groups and keys", "", "Examples:"]
    lines += [f"  {VERBS[name].examples[0]}" for name in VERBS]
    lines += [
        "",
        "lmtool <verb> --help shows the verb's groups and options; lmtool <verb> --cfg job all settings.",
        "LMTOOL_DATA names the folder of raw corpora.",
        *SWEEPS,
    ]
    return "\n".join(lines)


def verb_page(verb: str, words: list[str]) -> str:
    """The page of `lmtool <verb> --help`; overrides on the line choose which options are shown in full."""
    if verb not in VERBS:
        raise UserError(f"no verb {verb!r}{nearest(verb, VERBS)}")
    groups = chosen_groups(verb, words)
    argument = VERBS[verb].argument
    usage = f"lmtool {verb} [{argument.upper()}]" if argument else f"lmtool {verb}"
    lines = [f"{usage}: {VERBS[verb].summary}", "", _description(verb), ""]
    for group in groups:
        lines.append(f"{group}= one of")
        lines += [
            f"  {'*' if name == groups[group] else ' '} {name:<20} {about}" for name, about in options_of(group).items()
        ]
        lines.append("")
    if verb == "train":
        lines += [f"+{EXPERIMENT}= complete settings by name", *_experiments(), ""]
    lines += ["Keys (* marks the options chosen above):", ""]
    lines += _keys("common", "") + _keys(verb, "")
    for group, option in groups.items():
        lines += ["", f"{group}={option}", *_keys(f"{group}/{option}", f"{group}.")]
    lines += ["", *SWEEPS, "", "Examples:"] + [f"  {example}" for example in VERBS[verb].examples]
    return "\n".join(lines)


def _experiments() -> list[str]:
    return [f"    {name:<20} {about}" for name, about in options_of(EXPERIMENT).items()]


def _text(config: str) -> str:
    path = conf_dir() / f"{config}.yaml"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _description(config: str) -> str:
    """The comment that a YAML file opens with, without its first line, the command."""
    lines = []
    for line in _text(config).splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("# @"):
            lines.append(line.lstrip("# "))
    return " ".join(lines[1:])


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.) (?=[A-Z])", text, maxsplit=1)[0]


def _keys(config: str, prefix: str) -> list[str]:
    """A YAML file's keys as it writes them, comments included; without its opening, defaults and hydra."""
    kept: list[str] = []
    inside = ""
    for line in _text(config).splitlines():
        if re.match(r"\w", line):
            inside = line.split(":")[0]
        if inside and inside not in ("defaults", "hydra", "kind") and line.strip():
            kept.append("  " + (prefix if re.match(r"\w", line) else "") + line)
    return kept
