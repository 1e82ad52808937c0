"""The functions that take other arguments than the settings of their verb: `lmtool.train`, `evaluate`, `sweep` ..."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from lmtool.api.running import (
    Callback,
    Option,
    RunLike,
    load_model,
    new_folder,
    normalize_arguments,
    output_folder,
    restore_logging,
    run_verb,
    shows_progress,
    warn_once,
)
from lmtool.api.verbs import verb_function
from lmtool.commands import tree as _tree
from lmtool.commands import verbs
from lmtool.config.compose import hydra_state
from lmtool.config.grammar import escape_interpolation, to_hydra_text
from lmtool.config.options import EXPERIMENT, GROUP_MODULES, folder_in_use
from lmtool.config.request import OUT, Request, to_plain_value
from lmtool.config.rules import require, require_flags
from lmtool.config.types import TRAINING
from lmtool.errors import UserError
from lmtool.results import Evaluation, RateTest, SweepTable, TrainedRun, Written
from lmtool.runs.resume import BEGUN
from lmtool.session import IfRunExists, Session

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus


@overload
def train(
    model: Option | None = None, data: Option | Corpus | None = None, *, lr_range: Literal[True], **settings: Any
) -> RateTest: ...
@overload
def train(
    model: Option | None = None,
    data: Option | Corpus | None = None,
    *,
    output: Option | None = None,
    tree: Option | None = None,
    smoother: Option | None = None,
    counts: Option | None = None,
    optim: Option | None = None,
    schedule: Option | None = None,
    training: Mapping[str, Any] | None = None,
    experiment: str | None = None,
    seed: int | None = None,
    device: str | None = None,
    resume: RunLike | bool | None = None,
    overwrite: bool = False,
    out: str | PathLike[str] | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    lr_range: Literal[False] = False,
    **settings: Any,
) -> TrainedRun: ...
def train(
    model: Option | None = None,
    data: Option | Corpus | None = None,
    *,
    output: Option | None = None,
    tree: Option | None = None,
    smoother: Option | None = None,
    counts: Option | None = None,
    optim: Option | None = None,
    schedule: Option | None = None,
    training: Mapping[str, Any] | None = None,
    experiment: str | None = None,
    seed: int | None = None,
    device: str | None = None,
    resume: RunLike | bool | None = None,
    overwrite: bool = False,
    out: str | PathLike[str] | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    lr_range: bool = False,
    **settings: Any,
) -> TrainedRun | RateTest:
    """Train a model into a run folder, like `lmtool train`.

    model, output, tree, smoother, counts, optim, schedule: options by name, e.g. model="nplm", or with settings, e.g.
    model={"kind": "nplm", "hidden_dim": 100}. data: likewise, or a Corpus. training: settings, e.g. {"epochs": 3}.
    experiment: name of a YAML file in conf/experiment. resume: a run folder, whose training is resumed in place; other
    arguments then change its budget; True: the training in `out`, if there is one, so that a cell can be run again:
    its settings must be those of the training, except for the budget.
    overwrite: whether a run in `out` is replaced instead of an error. out: the run folder; None: a new one below
    ./outputs/train. callback: called after each evaluation with its line of metrics.jsonl, e.g. {"epoch": 1.0,
    "valid_perplexity": 210.3, ...}; if it returns True, the training ends. progress: as in `preprocess`. lr_range:
    whether to run a learning-rate range test instead, which returns a RateTest. settings: any other setting of `lmtool
    train`, e.g. prune_counts=[0, 0, 1], threads=1.

    KeyboardInterrupt leaves a checkpoint; resume=out continues from it. Raises UserError for a mistake in a setting,
    and for `out` together with the folder of `resume`.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> round(run.valid_perplexity, 4), run.model.predict("the", 2)[0][0]
    (1.3176, 'cat')
    """
    require_flags(overwrite=overwrite)
    if_run_exists: IfRunExists = "overwrite" if overwrite else "resume" if resume is True else None
    if resume and overwrite:
        raise UserError(
            f"overwrite=True: resume={resume} continues a run, which would be replaced: remove one of the two"
        )
    if resume is True and out is None:
        raise UserError("resume=True: name the run folder, e.g. out=PATH")
    if resume is not True and resume and out is not None:
        raise UserError(f"out={out}: a training is resumed in its own folder: remove out=")
    if resume == "":
        raise UserError("resume='': must be a run folder, or True for the training in out=")
    if resume is True:
        resume = out if (Path(str(out)) / BEGUN).is_file() else None
    named_settings = {
        **{"model": model, "data": data, "output": output, "tree": tree, "smoother": smoother, "counts": counts},
        **{"optim": optim, "schedule": schedule, "training": training, "experiment": experiment},
        **{"seed": seed, "device": device, "resume": resume or None, "lr_range": lr_range or None},
    }
    kind: type[TrainedRun] | type[RateTest] = RateTest if lr_range else TrainedRun
    settings = named_settings | settings
    return run_verb(kind, "train", settings, out, progress, callback=callback, if_run_exists=if_run_exists)


def evaluate(
    run: RunLike,
    split: str | None = None,
    *,
    text: str | PathLike[str] | Iterable[str | Sequence[str]] | None = None,
    out: str | PathLike[str] | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Evaluation:
    """Score a split of the run's data, or any text.

    run: a run folder, the result of `train`, `ensemble` or `load`, or an ARPA file. split: valid (also None), test or
    train. text: sentences, each a string or a list of words; or the path of a file, as a pathlib.Path. out: a folder
    for result.json and scores.h5; None: nothing is written. settings: any other setting of `lmtool eval`, e.g.
    accuracy=True or across_sentences=True. Raises UserError for text given as a single string or
    together with a split, and for a mistake in a setting.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> lmtool.evaluate(run).perplexity == run.valid_perplexity
    True
    >>> lmtool.evaluate(run, text=["the bird sat"]).oov
    1
    """
    if isinstance(text, str):
        raise UserError(
            f"text={text[:40]!r}: give a list of sentences, e.g. [{text[:20]!r}], or a file as a pathlib.Path"
        )
    if text is not None and split is not None:
        raise UserError(f"split={split}: text= is scored instead; remove one of the two")
    if text is None or isinstance(text, PathLike):
        source = {"split": split, "text": None if text is None else str(text)}
        return run_verb(Evaluation, "eval", {"run": run, **source, **settings}, out, progress)
    from lmtool.commands._eval_scores import evaluate_split

    loaded = load_model(run, settings.pop("device", "auto"), settings.pop("options", None))
    split_of_text = loaded.split_of(text, across_sentences=settings.pop("across_sentences", False))
    usable = {"accuracy", "unnormalized"}
    if settings.keys() - usable:
        raise UserError(f"{', '.join(settings.keys() - usable)}: cannot be used with text that is given as a list")
    require_flags(**settings)
    session = Session(Path(), progress=shows_progress(progress), quiet=True)
    evaluation = evaluate_split(loaded, split_of_text, session, "text", **settings)
    evaluation.notes = session.notes
    warn_once(session.warnings, loaded.name, stacklevel=3)
    return evaluation


def merge(runs: Sequence[RunLike], weights: Sequence[float] | None = None, **settings: Any) -> Written:
    """Merge n-gram models into one with their linear mixture, like `lmtool convert runs=A,B weights=.6,.4`.

    runs: n-gram runs and ARPA files, with a weight each, or one linear mixture of such runs, which has weights already.
    settings: as in `convert`.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> other = lmtool.train({"kind": "ngram", "order": 1}, corpus, smoother="witten_bell")
    >>> merged = lmtool.merge([run, other], [0.5, 0.5], out="merged")
    >>> lmtool.load("merged").predict("the", 1)[0][0]
    'cat'
    """
    merged: Written = verb_function("convert", "convert")(runs=runs, weights=weights, **settings)
    return merged


def tree(
    *given: Option | Corpus,
    tree: Option | None = None,
    data: Option | Corpus | None = None,
    out: str | PathLike[str] | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> _tree.Result:
    """Build a tree over the words of a data set, like `lmtool tree`.

    given: the tree, then the data; either can be given by name. tree: an option of the group `tree`, e.g. "huffman", or
    its settings. data: an option, its settings, or a Corpus. out: a folder for result.json and the picture; None:
    nothing is written. settings: words, levels, to. Raises UserError for two trees or two data sets.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"])
    >>> round(lmtool.tree("huffman", corpus).analysis.weighted_mean_depth, 3)
    2.375
    """
    from lmtool.data.corpus import Corpus

    named_settings: dict[str, Any] = {"tree": tree, "data": data}
    for value in given:
        key = "data" if isinstance(value, Corpus) or named_settings["tree"] is not None else "tree"
        if named_settings[key] is not None:
            raise UserError(
                f"{key}={value!r}: {key} is given twice; pass one tree and one data set, as ('huffman', data)"
            )
        named_settings[key] = value
    return run_verb(_tree.Result, "tree", named_settings | settings, out, progress)


def sweep(
    over: Mapping[str, Iterable[Any]],
    *,
    out: str | PathLike[str] | None = None,
    launcher: str | None = None,
    verb: str = "train",
    progress: bool | None = None,
    **settings: Any,
) -> SweepTable:
    """Run a command for every combination of values.

    over: the values of each key, e.g. {"optim.lr": [0.001, 0.002], "seed": range(3)}. out: the folder of the sweep,
    which is resumed if it was interrupted; None: a new one below ./multirun. launcher: a Hydra launcher, e.g. "joblib".
    verb: the command. progress: as in `preprocess`. settings: settings of the command, shared by all jobs. Raises
    UserError for a key without values, and for a mistake in a shared setting; a failed job is a row of the table.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> table = lmtool.sweep({"model.order": [1, 2]}, model="ngram", data=corpus, smoother="witten_bell")
    >>> [row["model.order"] for row in table.rows], table.best["model.order"]
    ([2, 1], 2)
    """
    from lmtool.cli.sweeping import run_sweep
    from lmtool.sweeps.result_table import Table, common_metric, jobs_table, read_rows, seeds_table

    if not isinstance(over, Mapping):
        raise UserError(f"over={over!r}: name the values of each key, e.g. {{'seed': [1, 2]}}")
    if resume := settings.get("resume"):
        raise UserError(f"resume={resume!r}: a sweep with the same out= is resumed by itself: remove resume=")
    require(verb in verbs(), "verb", verb, f"one of {', '.join(verbs())}")
    folder = output_folder(out) or new_folder("multirun", verb)
    shared = Request.from_arguments(verb, normalize_arguments(verb, settings))
    choices = shared.choices | ({} if launcher is None else {"hydra/launcher": launcher})
    values_in_grammar = {key: to_hydra_text(value) for key, value in shared.values.items()}
    for key, values in over.items():
        require(isinstance(key, str), "over", f"{key!r:.40}", "the values of each key, e.g. {'seed': [1, 2]}")
        listed = [] if isinstance(values, str) or not isinstance(values, Iterable) else [*values]
        if not listed:
            raise UserError(f"over[{key!r}]: name its values, e.g. {{{key!r}: [a, b]}}")
        if key in (*GROUP_MODULES, TRAINING, EXPERIMENT):
            choices[f"{'+' * (key == EXPERIMENT)}{key}"] = ",".join(map(str, listed))
        else:
            values_in_grammar[key] = ",".join(to_hydra_text(to_plain_value(value, key)) for value in listed)
    hydra_choices = {"hydra/hydra_logging": "none"}
    hydra_values = {OUT: escape_interpolation(str(folder)), "hydra.job_logging.root.handlers": ["file"]}
    request = replace(shared, choices=choices | hydra_choices, values=values_in_grammar | hydra_values, sweep=True)
    # Hydra sets up logging for the whole process.
    with folder_in_use(settings.get("options")), hydra_state(), restore_logging():
        run_sweep(request, quiet=True, progress=shows_progress(progress))
    rows = read_rows(folder)

    def make_table(table: Table, metric: str, by_seed: SweepTable | None = None) -> SweepTable:
        return SweepTable(folder, metric, by_seed, header=table[0], table=table[1])

    seeds, metric = seeds_table(rows), common_metric(rows)
    return make_table(jobs_table(rows), metric, make_table(seeds, f"mean {metric}") if seeds is not None else None)
