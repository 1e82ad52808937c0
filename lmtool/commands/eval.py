"""`lmtool eval`: run + store, any text or n-best lists -> perplexity, or the lists in a new order."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmtool.commands._settings import EvaluationConfig
from lmtool.config.rules import is_number, require
from lmtool.errors import UserError
from lmtool.results.base import NOT_COMPARABLE, UNSAVED, Figures, figure
from lmtool.results.scores import Evaluation
from lmtool.session import Session

if TYPE_CHECKING:
    from lmtool.text_model import TextModel


class Settings(EvaluationConfig):
    """Settings of `lmtool eval`, and what they allow."""

    def __post_init__(self) -> None:
        EvaluationConfig.__post_init__(self)
        penalty, can_tune = self.nbest_word_penalty, self.nbest_reference is not None
        known = penalty is None or is_number(penalty, -1e9, 1e9) or (penalty == "tuned" and can_tune)
        require(known, "nbest_word_penalty", penalty, "null, a number, or with nbest_reference=FILE tuned")


@dataclass(repr=False)
class Rescored(Figures):
    """The result of `eval nbest=`: reordered n-best lists.

    nbest: the file of lists.
    files: the written files.
    word_error_rate: share of the reference words; also before reordering and of the best hypotheses (oracle); None
    without references.
    tuned: whether the weight or the penalty was fitted on these lists.
    word_penalty: subtracted per word; None without one.
    """

    title = "run {0.run}"
    measure = "word_error_rate"
    name_width = 24

    run: str = field(metadata=UNSAVED)
    nbest: str
    seconds: float
    lists: int = field(metadata=figure("lists"))
    hypotheses: int = field(metadata=figure("hypotheses"))
    weight: float = field(metadata=figure("weight"))
    files: list[Path] = field(metadata=UNSAVED)
    tuned: bool = False
    word_penalty: float | None = field(metadata=figure("word penalty"), default=None)
    word_error_rate: float | None = field(metadata=figure("word error rate"), default=None)
    word_error_rate_before: float | None = field(metadata=figure("  before"), default=None)
    word_error_rate_oracle: float | None = field(metadata=figure("  oracle"), default=None)
    reference_words: int | None = None


def run(settings: Settings, session: Session) -> Evaluation | Rescored:
    """Score a split, a text or n-best lists with a finished run's model."""
    from lmtool.commands._eval_scores import evaluate_run, evaluate_text
    from lmtool.evaluation.token_scores import SCORES_FILE
    from lmtool.runs.load import load_named
    from lmtool.runs.run import Run, run_folder

    if settings.text is None and settings.nbest is None:
        evaluation = evaluate_run(settings, Run.open(run_folder(settings.run)), session)
    else:
        loaded = load_named(settings.run, settings.arpa, settings.device)
        loaded = loaded.reading(settings.blank_lines)
        if settings.nbest is not None:
            return rescore(settings, settings.nbest, loaded, session)
        evaluation = evaluate_text(settings, loaded, session)
    if evaluation.scores is not None:
        evaluation.scores.save(session.out / SCORES_FILE)
    session.finish(evaluation, f"run {evaluation.run}\n{evaluation.table_text()}")
    if evaluation.normalized is False:
        session.note(f"these scores do not sum to one: {NOT_COMPARABLE}")
    return evaluation


def rescore(settings: Settings, nbest_file: str, loaded: TextModel, session: Session) -> Rescored:
    """Score the hypotheses of n-best lists, choose the weight, and write the lists with the best hypothesis first."""
    import numpy as np

    from lmtool.data.tokenizer import split_words
    from lmtool.evaluation import nbest
    from lmtool.ngram.models.ngram_model import NgramModel
    from lmtool.system.arrays import LN10

    if loaded.dynamic:
        raise UserError(f"nbest={nbest_file}: {loaded.name} has a cache, which needs running text: take another")
    lists = nbest.read_nbest(nbest_file, settings.nbest_costs)
    file = settings.nbest_reference
    references = None if file is None else nbest.read_references(file, lists)
    start = time.perf_counter()
    log_prob = nbest.hypothesis_log_prob(lists, loaded.score)
    seconds = time.perf_counter() - start
    if zeros := int(np.isneginf(log_prob).sum()):
        log10, model = -100.0 if settings.unk_log10 is None else settings.unk_log10, loaded.model
        if isinstance(model, NgramModel):
            loaded = replace(loaded, model=model.with_floor(log10 * LN10))
        log_prob = nbest.hypothesis_log_prob(lists, loaded.score, log10 * LN10)
        session.note(
            f"{zeros:,} of {len(log_prob):,} hypotheses have words to which {loaded.name} gives probability 0, e.g. "
            f"outside its vocabulary: each has log10 p = {log10:g} (unk_log10=) before back-off weights"
        )
    rates: dict[str, Any] = {}
    sizes = np.array([len(split_words(text)) for text in lists.texts])
    given, weight, tuned = settings.nbest_word_penalty, settings.nbest_weight, False
    penalty = None if given == "tuned" else float(given or 0)
    if references is not None:
        of_list = np.repeat(np.arange(len(references)), np.diff(lists.offsets))
        errors = np.array(
            [nbest.word_errors(w, references[k]) for w, k in zip(lists.texts, of_list.tolist(), strict=True)]
        )
        tuned = weight is None or penalty is None
        weight, penalty = nbest.tuned_weights(lists.total, log_prob, sizes, errors, lists.offsets, weight, penalty)
        reference_words = sum(len(split_words(line)) for line in references)
        if reference_words == 0:
            raise UserError(f"{file} has no words: give the right transcriptions")
        both = (lists.total - penalty * sizes, weight), (lists.total, 0.0)
        new, old = (errors[nbest.chosen(total, log_prob, lists.offsets, by)].sum() for total, by in both)
        best = np.minimum.reduceat(errors, lists.offsets[:-1]).sum()
        names = ("word_error_rate", "word_error_rate_before", "word_error_rate_oracle")
        rates = {name: float(count / reference_words) for name, count in zip(names, (new, old, best), strict=True)}
        rates["reference_words"] = reference_words
    weight, penalty = 1.0 if weight is None else weight, penalty or 0.0
    files = nbest.write_nbest(session.out, lists, log_prob, lists.total + weight * log_prob - penalty * sizes)
    about = loaded.name, nbest_file, seconds, len(lists.lists), len(lists.texts), weight, list(files), tuned
    rescored = Rescored(*about, None if given is None else penalty, **rates)
    session.finish(rescored, f"{rescored.heading()}\n{rescored.table_text()}")
    if tuned:
        used = f"nbest_weight={weight:.6g}" + ("" if given is None else f" nbest_word_penalty={penalty:.6g}")
        session.note(f"tuned on these lists themselves; for other lists, use {used}")
    session.say(f"wrote {', '.join(map(str, files))}")
    return rescored
