"""The wording of unknown keys and unused groups.

A key is searched for by its last part, by other tools' names for it, in the options that are not chosen, in the other
verbs, and finally by its spelling.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from omegaconf.errors import OmegaConfBaseException

from lmtool.cli.help_pages import PLUGINS
from lmtool.commands import verb_setting_types, verbs
from lmtool.config.compose import Composition
from lmtool.config.options import EXPERIMENT, GROUP_MODULES, GROUP_SETTINGS, conf_dir, kinds, yaml_files
from lmtool.config.renamed import RENAMED
from lmtool.config.request import OUT, Request
from lmtool.config.settings import find_sibling_keys
from lmtool.config.types import SettingType
from lmtool.config.yaml_files import normalize_name, read_option, read_yaml
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
    "data.vocabulary.unit": "tokenizer tokeniser tokens level tokenization tokenisation",
    "smoother": "smoothing discounting",
    "smoother.discounts": "d discount",
    "optim": "optimizer optimiser opt",
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


def describe_unknown_key(key: str, value: str, jobs: Sequence[Composition], *, python: bool = False) -> str:
    """Return a one-line message for an unknown key, which ends with what may have been meant.

    jobs: of a sweep, else the only one. python: whether the settings are arguments of a function.
    """
    new = RENAMED.get(key, "")
    if new.startswith("lmtool ") or any(job.type_of(new) is not None for job in jobs):
        return f"{key} has been renamed: write {new}={value}"
    head, _, rest = key.partition(".")
    job = next((job for job in jobs if head in job.groups and job.type_of(key) is None), jobs[0])
    if head not in job.verb_types and (rest or head in GROUP_MODULES) and yaml_files(head, job.request.folders):
        return _describe_group_key(key, value, job)
    known = [*job.keys(), *job.groups]
    other = _intended_key(key, known)
    if close := [other] if other in known else _keys_of_same_name(key, known):
        if python:
            choices = job.request.choices
            suggestions = [_format_argument(name, value, choices.get(name.partition(".")[0])) for name in close]
        else:
            suggestions = [_add_value(name, value, job) for name in close]
        return f"no key {key!r}; did you mean {' or '.join(suggestions)}?"
    elsewhere = _suggest_other_option(other, value, job, python=python) or _suggest_other_verb(key)
    return f"no key {key!r}; {elsewhere}" if elsewhere else f"no key {key!r}{_suggest_spelling(key, job)}"


def _describe_group_key(key: str, value: str, job: Composition) -> str:
    """Describe an unknown key of a group, or an unused group."""
    group, _, rest = key.partition(".")
    if group not in job.groups:
        return describe_unused_group(group, value, job, f".{rest}" if rest else "")
    options, chosen = _option_types(group, job), job.groups[group]
    path = rest.split(".")
    options_with_key = [
        name for name in _sort_plain_first(options) if path[0] in options[name].fields and options[name].below(path)
    ]
    if options_with_key:
        remedy = "" if group in job.request.choices else f": add {group}={options_with_key[0]}"
        named = " or ".join(f"{group}={name}" for name in options_with_key[:SHOWN])
        return f"{key}: not a setting of {group}={chosen}, but of {named}{remedy}"
    known = job.keys()
    other = _intended_key(key, [*known, *job.groups])
    close = [other] if other in (*known, *job.groups) else _keys_of_same_name(key, known)
    siblings = [name.removeprefix(f"{group}.") for name in known if name.startswith(f"{group}.")]
    if close := close or [f"{group}.{name}" for name in close_words(rest, siblings)]:
        return f"no key {key!r}; did you mean {' or '.join(close)}?"
    return f"no key {key!r}{nearest(rest, job.option(group).fields)}"


def describe_unknown_hydra_key(key: str, error: BaseException | None, request: Request) -> str:
    """Describe a key that Hydra's settings, or a YAML file, lack."""
    for part in ("launcher", "sweeper"):
        if key.startswith(f"hydra.{part}.") and f"hydra/{part}" not in request.choices:
            options = ", ".join(option for option, extra in PLUGINS[f"hydra/{part}"].items() if extra)
            return f"no key {key!r} with hydra/{part}=basic; choose one of {options} too"
    if _intended_key(key, [OUT]) == OUT:
        return f"no key {key!r}; did you mean {OUT}?"
    siblings = find_sibling_keys(error) if isinstance(error, OmegaConfBaseException) else []
    hint = nearest(key.rpartition(".")[2], siblings)
    return f"no key {key!r}{hint or f'; to add it write +{key}={request.values.get(key)}'}"


def _option_types(group: str, job: Composition) -> dict[str, SettingType]:
    """Return the settings of a group's options that are not presets; the verb's default comes first."""
    if group not in GROUP_MODULES:
        return {job.groups[group]: job.option(group)}
    default = read_yaml(conf_dir() / f"{job.request.verb}.yaml").groups.get(group)
    return {name: job.option(group, name) for name in sorted(kinds(group), key=lambda name: name != default)}


def _groups_of_option(group: str, option: str, job: Composition) -> dict[str, str]:
    """Return the options of other groups that an option chooses."""
    return read_option(group, option, job.request.folders).groups


def _list_some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def _last_part(key: str) -> str:
    return normalize_name(key.rpartition(".")[2])


def _intended_key(key: str, known: list[str]) -> str:
    """Return the key that another tool's name means, a known key if possible; else the key unchanged."""
    meanings = MEANINGS.get(normalize_name(key)) or MEANINGS.get(_last_part(key)) or [key, _last_part(key)]
    return next((name for name in meanings if name in known), meanings[0])


def _keys_of_same_name(key: str, known: list[str]) -> list[str]:
    """Return the outermost known keys that end in the same name."""
    earlier = [new for old, new in RENAMED.items() if _last_part(old) == _last_part(key) and new in known]
    keys = [name for name in known if _last_part(key) == _last_part(name)] or earlier
    return [name for name in keys if name.count(".") == min(each.count(".") for each in keys)]


def _sort_plain_first(names: Iterable[str]) -> list[str]:
    """Sort names of options: a name that contains another option's name comes last."""
    known = list(names)
    return sorted(known, key=lambda name: any(other in name for other in known if other != name))


def _suggest_other_option(other: str, value: str, job: Composition, *, python: bool) -> str | None:
    """Suggest an option, of a group in use, that has the intended key or chooses an option that has it."""
    for group in job.groups:
        options = _option_types(group, job)
        for name in _sort_plain_first(options):
            below = {
                each: option for each, option in _groups_of_option(group, name, job).items() if each not in job.groups
            }
            if other in below:
                return f"did you mean {other}=, which {group}={name} uses?"
            keys = [f"{group}.{key}" for key in options[name].leaves()]
            keys += [f"{each}.{key}" for each, kind in below.items() for key in job.option(each, kind).leaves()]
            close = [other] if other in keys else _keys_of_same_name(other, keys)
            if close and python:
                return (
                    f"did you mean {_format_argument(close[0], value, name if close[0].startswith(group) else None)}?"
                )
            if close:
                return f"did you mean {close[0]}, with {group}={name}?"
    return None


def _format_argument(key: str, value: str, kind: str | None = None) -> str:
    """Return a setting as an argument of a function, e.g. model={"kind": "ngram", "order": 3}."""
    group, _, name = key.partition(".")
    if re.match(r"[^\[{'\"]*,", value):  # the values of a sweep
        return f'over={{"{key}": [{value}]}}'
    if not name:
        return f"{group}={value}"
    return f'{group}={{{f""""kind": "{kind}", """ if kind else ""}"{name}": {value}}}'


def _suggest_other_verb(key: str) -> str | None:
    verbs_with_key = [f"lmtool {verb}" for verb in verbs() if key in verb_setting_types(verb)]
    return f"it is a key of {_list_some(verbs_with_key)}" if verbs_with_key else None


def _suggest_spelling(key: str, job: Composition) -> str:
    known = job.keys()
    top = [*job.verb_types, *job.groups, *[f"+{EXPERIMENT}"] * ("model" in job.groups)]
    close = close_words(key, top)
    ends = {name.rpartition(".")[2]: name for name in known}
    close += [ends[name] for name in close_words(key.rpartition(".")[2], list(ends)) if ends[name] not in close]
    return f"; did you mean {' or '.join(close[:SHOWN])}?" if close else nearest(key, top)


def _add_value(key: str, value: str, job: Composition) -> str:
    """Return a group with the option that the value names, else the key."""
    return f"{key}={value}" if key in job.groups and value in yaml_files(key, job.request.folders) else key


def describe_unused_group(group: str, option: str, composition: Composition, rest: str = "") -> str:
    """Describe a group, or a setting of one, that a request does not use."""
    word = f"{group}{rest}={option}"
    for used, chosen in composition.groups.items():
        users = [
            f"{used}={name}"
            for name in _option_types(used, composition)
            if group in _groups_of_option(used, name, composition)
        ]
        if users:
            return f"{word}: not used with {used}={chosen}, but with {_list_some(users)}"
    owners = [verb for verb in verbs() if group in read_yaml(conf_dir() / f"{verb}.yaml").groups]
    if not owners and group not in GROUP_SETTINGS:
        return f"no group {group!r}{nearest(group.rpartition('/')[2], composition.groups)}"
    places = [f"lmtool {verb}" for verb in owners] or [f"{GROUP_SETTINGS[group]}=NAME"]
    verb = composition.request.verb
    reason = ": a run has it from its training" if "run" in composition.verb_types else ""
    return f"{word}: lmtool {verb} takes no {group}={reason}; it is for {_list_some(places)}"
