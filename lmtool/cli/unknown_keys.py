"""The wording of unknown keys and unused groups.

A key is searched for by its last part, by other tools' names for it, in the options that are not chosen, in the other
verbs, and finally by its spelling.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from omegaconf.errors import OmegaConfBaseException

from lmtool.cli.help_pages import PLUGINS
from lmtool.commands import own_types, verbs
from lmtool.config.compose import Composition
from lmtool.config.options import CHOSEN, EXPERIMENT, HOMES, conf_dir, kinds, yaml_files
from lmtool.config.renamed import RENAMED
from lmtool.config.request import OUT, Request
from lmtool.config.settings import keys_beside
from lmtool.config.types import SettingType
from lmtool.config.yaml_files import letters_of, option_file, read
from lmtool.system.terminal import close_words, nearest

SHOWN = 3  # maximum number of options or verbs in a hint
# Other tools' names, without punctuation, for lmtool's keys.
SYNONYMS = {
    "optim.lr": "lr learningrate",
    "optim.weight_decay": "wd l2",
    "training.epochs": "numepochs numtrainepochs maxepochs nepochs",
    "training.steps": "maxsteps numsteps iterations maxiter",
    "training.batch_size": "bs batch batchsize pdtbs traindevicebatchsize",
    "training.max_grad_norm": "clip gradclip gradientclipval maxgradnorm gradientclipping",
    "training.patience": "earlystopping",
    "training.precision": "fp16 bf16 amp dtype",
    "model.order": "n ngram ngrams ngramorder",
    "model.hidden_dim": "hidden hiddensize nhid nhidden hiddenunits units hdim",
    "model.embedding_dim": "emsize embedding embsize embdim embeddim embeddingsize vectorsize nembd",
    "model.context_size": "context contextlength window windowsize seqlen blocksize bptt maxlen",
    "model.layers": "numlayers nlayers nlayer depth",
    "model.activation": "nonlinearity activationfunction",
    "data": "corpus dataset",
    "data.train": "trainfile traindata traintext",
    "data.valid": "validfile dev val devfile validation validationfile",
    "data.test": "testfile testdata",
    "data.vocabulary.file": "vocab vocabfile vocabularyfile",
    "data.vocabulary.size": "vocabsize maxvocab maxvocabsize vocabularysize",
    "data.vocabulary.lowercase": "lower dolowercase",
    "data.vocabulary.unit": "tokenizer tokenizer tokens level tokenization",
    "smoother": "smoothing discounting",
    "smoother.discounts": "d discount",
    "optim": "optimizer optimizer opt",
    "schedule": "scheduler lrscheduler lrschedule",
    "output": "loss criterion",
    "output.num_noise": "k negatives numnegatives negativesamples",
    "smoother.alpha": "k",
    "device": "gpu cuda usecuda",
    "threads": "jobs njobs workers numworkers numthreads",
    "seed": "randomseed randomstate",
    "run": "checkpoint ckpt modelpath load lm modeldir",
    "runs": "checkpoints models run",
    "paths": "runs run folders",
    "resume": "resumefrom resumefromcheckpoint",
    "text": "file input inputfile textfile prompt",
    "to": "outfile outputfile",
    "prune_entropy": "prune",
    "symbol_table": "words readsymboltable",
    "out": "rundir sweepdir outdir outputdir dir savedir logdir outputpath",
    "temperature": "temp",
    "count": "numsamples nsamples",
    "length": "maxlength maxtokens maxnewtokens",
}
MEANINGS: dict[str, list[str]] = {}
for _key, _names in SYNONYMS.items():
    for _name in _names.split():
        MEANINGS.setdefault(_name, []).append(_key)


def unknown_key(key: str, value: str, jobs: Sequence[Composition], *, python: bool = False) -> str:
    """Return a one-line message for an unknown key, which ends with what may have been meant.

    jobs: of a sweep, else the only one. python: whether the settings are arguments of a function.
    """
    if key in RENAMED and any(job.type_of(RENAMED[key]) is not None for job in jobs):
        return f"{key} has been renamed: write {RENAMED[key]}={value}"
    head, _, rest = key.partition(".")
    job = next((job for job in jobs if head in job.groups and job.type_of(key) is None), jobs[0])
    if head not in job.own and (rest or head in HOMES) and yaml_files(head, job.request.folders):
        return _of_group(key, value, job)
    known = [*job.keys(), *job.groups]
    other = _meant(key, known)
    if close := [other] if other in known else _same_name(key, known):
        chosen = job.request.choices
        said = [
            _in_python(name, value, chosen.get(name.partition(".")[0])) if python else _with_value(name, value, job)
            for name in close
        ]
        return f"no key {key!r}; did you mean {' or '.join(said)}?"
    elsewhere = _in_other_options(other, value, job, python=python) or _in_other_verbs(key)
    return f"no key {key!r}; {elsewhere}" if elsewhere else f"no key {key!r}{_by_spelling(key, job)}"


def _of_group(key: str, value: str, job: Composition) -> str:
    """Describe an unknown key of a group, or an unused group."""
    group, _, rest = key.partition(".")
    if group not in job.groups:
        return unused(group, value, job, f".{rest}" if rest else "")
    options, chosen = _kinds(group, job), job.groups[group]
    path = rest.split(".")
    having = [name for name in _plain_first(options) if path[0] in options[name].fields and options[name].below(path)]
    if having:
        remedy = "" if group in job.request.choices else f": add {group}={having[0]}"
        named = " or ".join(f"{group}={name}" for name in having[:SHOWN])
        return f"{key}: not a setting of {group}={chosen}, but of {named}{remedy}"
    known = job.keys()
    other = _meant(key, [*known, *job.groups])
    close = [other] if other in (*known, *job.groups) else _same_name(key, known)
    beside = [name.removeprefix(f"{group}.") for name in known if name.startswith(f"{group}.")]
    if close := close or [f"{group}.{name}" for name in close_words(rest, beside)]:
        return f"no key {key!r}; did you mean {' or '.join(close)}?"
    return f"no key {key!r}{nearest(rest, job.option(group).fields)}"


def unknown_hydra_key(key: str, error: BaseException | None, request: Request) -> str:
    """Describe a key that Hydra's settings, or a YAML file, lack."""
    for part in ("launcher", "sweeper"):
        if key.startswith(f"hydra.{part}.") and f"hydra/{part}" not in request.choices:
            options = ", ".join(option for option, extra in PLUGINS[f"hydra/{part}"].items() if extra)
            return f"no key {key!r} with hydra/{part}=basic; choose one of {options} too"
    if _meant(key, [OUT]) == OUT:
        return f"no key {key!r}; did you mean {OUT}?"
    beside = keys_beside(error) if isinstance(error, OmegaConfBaseException) else []
    hint = nearest(key.rpartition(".")[2], beside)
    return f"no key {key!r}{hint or f'; to add it write +{key}={request.values.get(key)}'}"


def _kinds(group: str, job: Composition) -> dict[str, SettingType]:
    """Return the settings of a group's options that are not presets; the verb's default comes first."""
    if group not in HOMES:
        return {job.groups[group]: job.option(group)}
    default = read(conf_dir() / f"{job.request.verb}.yaml").groups.get(group)
    return {name: job.option(group, name) for name in sorted(kinds(group), key=lambda name: name != default)}


def _below(group: str, option: str, job: Composition) -> dict[str, str]:
    """Return the options of other groups that an option chooses."""
    return option_file(group, option, job.request.folders).groups


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def _last(key: str) -> str:
    return letters_of(key.rpartition(".")[2])


def _meant(key: str, known: list[str]) -> str:
    """Return the key that another tool's name means, a known key if possible; else the key unchanged."""
    meanings = MEANINGS.get(letters_of(key)) or MEANINGS.get(_last(key)) or [key, _last(key)]
    return next((name for name in meanings if name in known), meanings[0])


def _same_name(key: str, known: list[str]) -> list[str]:
    """Return the outermost known keys that end in the same name."""
    earlier = [new for old, new in RENAMED.items() if _last(old) == _last(key) and new in known]
    keys = [name for name in known if _last(key) == _last(name)] or earlier
    return [name for name in keys if name.count(".") == min(each.count(".") for each in keys)]


def _plain_first(names: Iterable[str]) -> list[str]:
    """Sort names of options: a name that contains another option's name comes last."""
    known = list(names)
    return sorted(known, key=lambda name: any(other in name for other in known if other != name))


def _in_other_options(other: str, value: str, job: Composition, *, python: bool) -> str | None:
    """Suggest an option, of a group in use, that has the intended key or chooses an option that has it."""
    for group in job.groups:
        options = _kinds(group, job)
        for name in _plain_first(options):
            below = {each: option for each, option in _below(group, name, job).items() if each not in job.groups}
            if other in below:
                return f"did you mean {other}=, which {group}={name} uses?"
            keys = [f"{group}.{key}" for key in options[name].leaves()]
            keys += [f"{each}.{key}" for each, kind in below.items() for key in job.option(each, kind).leaves()]
            close = [other] if other in keys else _same_name(other, keys)
            if close and python:
                return f"did you mean {_in_python(close[0], value, name if close[0].startswith(group) else None)}?"
            if close:
                return f"did you mean {close[0]}, with {group}={name}?"
    return None


def _in_python(key: str, value: str, kind: str | None = None) -> str:
    """Return a setting as an argument of a function, e.g. model={"kind": "ngram", "order": 3}."""
    group, _, name = key.partition(".")
    if re.match(r"[^\[{'\"]*,", value):  # the values of a sweep
        return f'over={{"{key}": [{value}]}}'
    if not name:
        return f"{group}={value}"
    return f'{group}={{{f""""kind": "{kind}", """ if kind else ""}"{name}": {value}}}'


def _in_other_verbs(key: str) -> str | None:
    having = [f"lmtool {verb}" for verb in verbs() if key in own_types(verb)]
    return f"it is a key of {_some(having)}" if having else None


def _by_spelling(key: str, job: Composition) -> str:
    known = job.keys()
    top = [*job.own, *job.groups, *[f"+{EXPERIMENT}"] * ("model" in job.groups)]
    close = close_words(key, top)
    ends = {name.rpartition(".")[2]: name for name in known}
    close += [ends[name] for name in close_words(key.rpartition(".")[2], list(ends)) if ends[name] not in close]
    return f"; did you mean {' or '.join(close[:SHOWN])}?" if close else nearest(key, top)


def _with_value(key: str, value: str, job: Composition) -> str:
    """Return a group with the option that the value names, else the key."""
    return f"{key}={value}" if key in job.groups and value in yaml_files(key, job.request.folders) else key


def unused(group: str, option: str, composition: Composition, rest: str = "") -> str:
    """Describe a group, or a setting of one, that a request does not use."""
    word = f"{group}{rest}={option}"
    for used, chosen in composition.groups.items():
        users = [f"{used}={name}" for name in _kinds(used, composition) if group in _below(used, name, composition)]
        if users:
            return f"{word}: not used with {used}={chosen}, but with {_some(users)}"
    owners = [verb for verb in verbs() if group in read(conf_dir() / f"{verb}.yaml").groups]
    if not owners and group not in CHOSEN:
        return f"no group {group!r}{nearest(group.rpartition('/')[2], composition.groups)}"
    said = [f"lmtool {verb}" for verb in owners] or [f"{CHOSEN[group]}=NAME"]
    verb = composition.request.verb
    reason = ": a run has it from its training" if "run" in composition.own else ""
    return f"{word}: lmtool {verb} takes no {group}={reason}; it is for {_some(said)}"
