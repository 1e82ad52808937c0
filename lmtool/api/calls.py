"""Functions that take other arguments than the settings of their verb: `lmtool.train`, `evaluate`, `surprisal` ..."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from lmtool.api.running import (
    Callback,
    Option,
    RunLike,
    as_text_model,
    new_folder,
    normalize_arguments,
    output_folder,
    restore_logging,
    run_verb,
    shows_progress,
)
from lmtool.commands import verbs
from lmtool.commands.surprisal import Surprisals
from lmtool.config.composition import hydra_state
from lmtool.config.grammar import to_hydra_text
from lmtool.config.options import EXPERIMENT, GROUP_MODULES, folder_in_use
from lmtool.config.request import Request, to_plain_value
from lmtool.config.rules import require, require_flags
from lmtool.config.types import TRAINING
from lmtool.errors import UserError
from lmtool.results import Evaluation, RateTest, SweepTable, TrainedRun
from lmtool.runs.resume import BEGUN
from lmtool.session import IfRunExists, Session

if TYPE_CHECKING:
    import pandas

    from lmtool.data.corpus import Corpus
    from lmtool.evaluation.text_scores import TextScore
    from lmtool.plots.word_trees import WordTree


@overload
def train(
    model: Option | None = None, data: Option | Corpus | None = None, *, lr_range: Literal[True], **settings: Any
) -> RateTest: ...
@overload
def train(
    model: Option | None = None,
    data: Option | Corpus | None = None,
    *,
    lr_range: Literal[False] = False,
    **settings: Any,
) -> TrainedRun: ...
def train(
    model: Option | None = None,
    data: Option | Corpus | None = None,
    *,
    lr_range: bool = False,
    resume: RunLike | bool | None = None,
    overwrite: bool = False,
    out: str | PathLike[str] | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> TrainedRun | RateTest:
    """Train a model into a run folder, like `lmtool train`.

    model: an option by name, e.g. "nplm", or with settings, e.g. {"kind": "nplm", "hidden_dim": 100}. data: likewise,
    or a Corpus. lr_range: whether to run a learning-rate range test instead, which returns a RateTest. resume: a run
    folder, whose training is resumed in place; other arguments then change its budget, schedule, batch size, or the
    numbers of its optimizer, e.g. optim={"lr": 0.01}; True: the training in `out`, if there is one, so that a cell can
    be run again: its settings must be those of the training, except for the budget. overwrite: whether a run in `out`
    is replaced instead of an error. out: the run folder; None: a new one below ./outputs/train. callback: called after
    each evaluation with its line of metrics.jsonl, e.g. {"epoch": 1.0, "valid_perplexity": 210.3, ...}; if it returns
    True, the training ends. progress: as in `preprocess`. settings: any other setting of `lmtool train`: output, tree,
    smoother, counts, optim and schedule are options as model is, training has settings, e.g. {"epochs": 3}, experiment
    is the name of a YAML file in conf/experiment; also seed, device, prune_counts=[0, 0, 1], threads=1 ...

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
    settings |= {"model": model, "data": data, "resume": resume or None, "lr_range": lr_range or None}
    kind: type[TrainedRun] | type[RateTest] = RateTest if lr_range else TrainedRun
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
    from lmtool.commands._eval_scores import EvaluationOptions, evaluate_split

    loaded = as_text_model(run, settings.pop("device", "auto"), settings.pop("options", None))
    split_of_text = loaded.split_of(text, across_sentences=settings.pop("across_sentences", False))
    usable = {"accuracy", "unnormalized"}
    if settings.keys() - usable:
        raise UserError(f"{', '.join(settings.keys() - usable)}: cannot be used with text that is given as a list")
    require_flags(**settings)
    session = Session(Path(), progress=shows_progress(progress), quiet=True)
    evaluation = evaluate_split(loaded, split_of_text, session, "text", EvaluationOptions(**settings))
    evaluation.notes = session.notes
    for warning in session.warnings:
        warnings.warn(warning, stacklevel=2)
    return evaluation


def tree(
    tree: Option | None = None,
    data: Option | Corpus | None = None,
    *,
    out: str | PathLike[str] | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> WordTree:
    """Build a tree over the words of a data set, like `lmtool tree`.

    tree: an option of the group `tree`, e.g. "huffman", or its settings. data: an option, its settings, or a Corpus.
    out: a folder for result.json and the picture; None: nothing is written. settings: run, words, levels, to.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"])
    >>> round(lmtool.tree("huffman", corpus).analysis.weighted_mean_depth, 3)
    2.375
    """
    from lmtool.plots.word_trees import WordTree

    return run_verb(WordTree, "tree", {"tree": tree, "data": data, **settings}, out, progress)


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
    from lmtool.requests.run_sweep import run_sweep
    from lmtool.sweeps.result_table import as_typed, common_metric, jobs_table, read_rows, seeds_table

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
    hydra_values = {"hydra.job_logging.root.handlers": ["file"]}
    request = replace(shared, choices=choices | hydra_choices, values=values_in_grammar | hydra_values, sweep=True)
    request = request.with_out(str(folder))
    # Hydra sets up logging for the whole process.
    with folder_in_use(settings.get("options")), hydra_state(), restore_logging():
        run_sweep(request, quiet=True, progress=shows_progress(progress))
    rows = read_rows(folder)
    metric, tables = common_metric(rows), [(jobs_table(each), seeds_table(each)) for each in (rows, as_typed(rows))]
    (jobs, seeds), (jobs_typed, seeds_typed) = tables
    by_seed = None
    if seeds is not None and seeds_typed is not None:
        by_seed = SweepTable(folder, f"mean {metric}", typed=seeds_typed[1], header=seeds[0], table=seeds[1])
    return SweepTable(folder, metric, by_seed, jobs_typed[1], header=jobs[0], table=jobs[1])


def score_texts(
    run: RunLike,
    texts: Iterable[str],
    *,
    run_out: RunLike | None = None,
    across_sentences: bool = False,
    device: str = "auto",
    options: str | PathLike[str] | None = None,
) -> Iterator[TextScore]:
    """Yield the score of each text in order, as in `lmtool score`: tokens, oov, log_prob, perplexity, difference.

    run: a run folder, the result of `train`, `ensemble` or `load`, or an ARPA file. texts: an iterable of strings, each
    a separate text whose lines are sentences; it is read some megabytes ahead of the scores. run_out: a second run, of
    general text, for the difference (Moore & Lewis 2010). across_sentences: whether contexts continue from line to line
    of a text, for networks trained this way; if False, each line is read separately. device: for neural models.
    options: as in `load`. Raises UserError immediately for a single string or a model with a cache, and for
    a non-string item when it is reached.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> [(score.tokens, score.oov) for score in lmtool.score_texts(run, ["the cat sat", "the bird"])]
    [(4, 0), (3, 1)]
    """
    from lmtool.evaluation.text_scores import ScoringModel, TextsScorer, scores_of

    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise UserError(f"texts={texts!r:.40}: give a list of texts, or another iterable, e.g. [{texts!r:.20}]")
    require_flags(across_sentences=across_sentences)
    runs = [run] if run_out is None else [run, run_out]
    models = [as_text_model(each, device, options) for each in runs]
    scoring = [ScoringModel(each.model, each.form, each.name) for each in models]

    def strings() -> Iterator[str]:
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise UserError(f"texts[{number}] must be a string; got {type(text).__name__}")
            yield text

    return scores_of(strings(), TextsScorer(*scoring, across=across_sentences))


def surprisal(
    run: RunLike | Sequence[RunLike],
    text: str | PathLike[str] | Iterable[str | Sequence[str]] | pandas.DataFrame,
    *,
    out: str | PathLike[str] | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> pandas.DataFrame:
    """Return a DataFrame with a row per word as a reader sees it, with its surprisal, like `lmtool surprisal`.

    run: a run folder, the result of `train`, `ensemble` or `load`, or an ARPA file; or a list of these, each with
    its own columns. text: the path of a text or a table, as a pathlib.Path; sentences, each a string or a list of
    words; or a DataFrame with a word per row, which is returned with new columns, and the same rows and index.
    out: a folder for result.json. progress: as in `preprocess`. settings: any other setting of `lmtool surprisal`, e.g.
    words="ptb", spillover=1, entropy=True or to="surprisal.tsv". Raises UserError for text given as a single string,
    for a row without a word, and if pandas is not installed.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> lmtool.surprisal(run, ["the bird sat"])[["word", "oov"]]  # also surprisal, in bits, and more
       word  oov
    0   the    0
    1  bird    1
    2   sat    0
    """
    try:
        import pandas
    except ImportError:
        remedy = "pip install pandas, or write a table by lmtool surprisal to=FILE"
        raise UserError(f"lmtool.surprisal returns a DataFrame of pandas, which is not installed: {remedy}") from None
    from lmtool.commands.surprisal import score_rows
    from lmtool.data.word_rows import columns_of_sentences, rows_of_table

    if isinstance(text, str) or not isinstance(text, PathLike | Iterable):
        raise UserError(f"text={text!r:.40}: give a pathlib.Path, a DataFrame or a list of sentences")
    arguments: dict[str, Any] = {"run": run, **settings}
    if isinstance(item := arguments.get("item_column"), str):
        arguments["item_column"] = [item]
    if isinstance(text, PathLike):
        return run_verb(Surprisals, "surprisal", arguments | {"text": str(text)}, out, progress).to_pandas()

    spaces = None
    if isinstance(text, pandas.DataFrame):
        values, names = text.astype(object).where(text.notna(), None), list(map(str, text.columns))
        if len(set(names)) < len(names):
            raise UserError(f"text: it has two columns of one name ({', '.join(names)}): rename one")
        columns = {name: values.iloc[:, k].tolist() for k, name in enumerate(names)}
    else:
        lines: list[Any] = [
            each if isinstance(each, Iterable) else [each] for each in text
        ]  # whose error names the row
        columns, spaces = columns_of_sentences([lines], settings.get("sentences"))

    def score_columns(config: Any, session: Any) -> Surprisals:
        session.use_threads(config.threads)
        names = config.word_column, config.item_column, config.sentence_column
        return score_rows(config, session, [rows_of_table(columns, "text", *names, config.sentences, spaces=spaces)])

    arguments["text"] = "text"
    table = run_verb(Surprisals, "surprisal", arguments, out, progress, command=score_columns).to_pandas()
    if isinstance(text, pandas.DataFrame):
        return text.assign(**{name: table[name].array for name in table.columns if name not in columns})
    return table
