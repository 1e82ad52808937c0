"""Suggestions for a key that a command line does not have.

The key is searched for by its last part, by other tools' names for it, in the options that are not chosen, in the other
verbs, and finally by its spelling.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lmtool.cli.arguments import CommandLine
from lmtool.cli.help_pages import EXPERIMENT, VERBS
from lmtool.cli.line_settings import LineSettings
from lmtool.config.options import CHOSEN, letters_of
from lmtool.config.overrides import key_of
from lmtool.config.renamed import RENAMED
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
    "data.vocabulary.unit": "tokenizer tokeniser tokens level tokenization",
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
    "hydra.run.dir": "rundir out outdir outputdir dir savedir logdir outputpath",
    "hydra.sweep.dir": "sweepdir",
    "temperature": "temp",
    "count": "numsamples nsamples",
    "length": "maxlength maxtokens maxnewtokens",
}
MEANINGS: dict[str, list[str]] = {}
for _key, _names in SYNONYMS.items():
    for _name in _names.split():
        MEANINGS.setdefault(_name, []).append(_key)


def unknown_key(word: str, settings: LineSettings, beside: Sequence[str] = ()) -> str:
    """Return a one-line message for an override with an unknown key, which ends with what may have been meant.

    beside: the siblings of an unknown Hydra key.
    """
    key = key_of(word)
    head, _, rest = key.partition(".")
    lacking = (job for job in settings.jobs if head in job.groups and job.type_of(key) is None)
    settings = next(lacking, settings.jobs[0])
    if settings.is_group(head):
        return _of_group(word, head, rest, settings)
    known = [*settings.all_keys(), *settings.groups]
    meant = _meant(key, known)
    close = [meant] if meant in known else _same_name(key, known, settings)
    if close:
        return f"no key {key!r}; did you mean {' or '.join(_with_value(name, word, settings) for name in close)}?"
    if head == "hydra":
        return f"no key {key!r}{nearest(rest.rpartition('.')[2], beside) or f'; to add it write +{word}'}"
    elsewhere = _in_other_options(meant, settings) or _in_other_verbs(key, settings)
    if elsewhere:
        return f"no key {key!r}; {elsewhere}"
    return f"no key {key!r}{_by_spelling(key, settings)}"


def _of_group(word: str, group: str, rest: str, settings: LineSettings) -> str:
    """Describe an unknown key of a group, or an unused group."""
    if group not in settings.groups:
        return unused(word, settings)
    key, path = f"{group}.{rest}", rest.split(".")
    kinds, option = settings.kinds(group), settings.groups[group]
    having = [name for name in _plain_first(kinds) if path[0] in kinds[name].fields and kinds[name].below(path)]
    if having and settings.option(group, option).below(path) is None:
        options = " or ".join(f"{group}={name}" for name in having[:SHOWN])
        chooses = any(other.startswith(f"{group}=") for other in settings.words)
        remedy = "" if chooses else f": add {group}={having[0]}"
        return f"{key}: not a setting of {group}={option}, but of {options}{remedy}"
    known = settings.all_keys()
    beside = [name.removeprefix(f"{group}.") for name in known if name.startswith(f"{group}.")]
    meant = _meant(key, [*known, *settings.groups])
    close = [meant] if meant in (*known, *settings.groups) else _same_name(key, known, settings)
    if close := close or [f"{group}.{name}" for name in close_words(rest, beside)]:
        return f"no key {key!r}; did you mean {' or '.join(close)}?"
    return f"no key {key!r}{nearest(rest, settings.option(group, option).fields)}"


def unused(word: str, settings: LineSettings) -> str:
    """Describe a group, or a setting of one, that the line does not use."""
    group = key_of(word).partition(".")[0]
    for used, option in settings.groups.items():
        users = [f"{used}={name}" for name in settings.kinds(used) if group in settings.text(used, name).groups]
        if users:
            return f"{word}: not used with {used}={option}, but with {_some(users)}"
    verbs = [f"lmtool {verb}" for verb in VERBS if group in LineSettings(CommandLine(verb, [], [])).groups]
    if not verbs and group not in CHOSEN:
        return f"no group {group!r}{nearest(group.rpartition('/')[2], settings.groups)}"
    verbs = verbs or [f"{CHOSEN[group]}=NAME"]
    reason = ": a run has it from its training" if "run" in settings.top else ""
    return f"{word}: lmtool {settings.verb} takes no {group}={reason}; it is for {_some(verbs)}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def _last(key: str) -> str:
    return letters_of(key.rpartition(".")[2])


def _meant(key: str, known: list[str]) -> str:
    """Return the key that another tool's name means, a known key if possible; else the key unchanged."""
    meanings = MEANINGS.get(letters_of(key)) or MEANINGS.get(_last(key)) or [key, _last(key)]
    return next((name for name in meanings if name in known), meanings[0])


def _same_name(key: str, known: list[str], settings: LineSettings) -> list[str]:
    """Return the outermost known keys that end in the same name or had it earlier."""
    earlier = {name: _last(was) for was, name in RENAMED.items()}
    keys = [name for name in known if _last(key) in (_last(name), earlier.get(name))]
    return [name for name in keys if name.count(".") == min(each.count(".") for each in keys)]


def _plain_first(names: Iterable[str]) -> list[str]:
    """Sort names of options: a name that contains another option's name comes last."""
    known = list(names)
    return sorted(known, key=lambda name: any(other in name for other in known if other != name))


def _in_other_options(meant: str, settings: LineSettings) -> str | None:
    """Suggest an option, in a line's groups, that has the intended key or chooses an option that has it."""
    for group in settings.groups:
        kinds = settings.kinds(group)
        for name in _plain_first(kinds):
            type = kinds[name]
            below = {g: option for g, option in settings.text(group, name).groups.items() if g not in settings.groups}
            if meant in below:
                return f"did you mean {meant}=, which {group}={name} uses?"
            keys = [f"{group}.{key}" for key in type.leaves()]
            keys += [f"{g}.{key}" for g, option in below.items() for key in settings.option(g, option).leaves()]
            close = [meant] if meant in keys else _same_name(meant, keys, settings)
            if close:
                return f"did you mean {close[0]}, with {group}={name}?"
    return None


def _in_other_verbs(key: str, settings: LineSettings) -> str | None:
    verbs = [f"lmtool {verb}" for verb in VERBS if key in LineSettings(CommandLine(verb, [], [])).top]
    return f"it is a key of {_some(verbs)}" if verbs else None


def _by_spelling(key: str, settings: LineSettings) -> str:
    top = [*settings.top, *settings.groups, *[f"+{EXPERIMENT}"] * ("model" in settings.groups)]
    close = close_words(key, top)
    ends = {name.rpartition(".")[2]: name for name in settings.all_keys()}
    close += [ends[name] for name in close_words(key.rpartition(".")[2], list(ends)) if ends[name] not in close]
    return f"; did you mean {' or '.join(close[:SHOWN])}?" if close else nearest(key, top)


def _with_value(key: str, word: str, settings: LineSettings) -> str:
    """Return a group with the option that the word names, else the key."""
    value = word.partition("=")[2]
    return f"{key}={value}" if key in settings.groups and value in settings.files(key) else key
