"""`lmtool rescore`: model + n-best lists -> the lists in a new order."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from lmtool.config.rules import MISSING, is_number, require, setting
from lmtool.config.verbs import ModelUserConfig
from lmtool.errors import UserError
from lmtool.results.base import UNSAVED, Figures, figure
from lmtool.session import Session


@dataclass(slots=True)
class Settings(ModelUserConfig):
    makes: ClassVar[str] = "files"

    nbest: str = MISSING
    costs: str | None = MISSING
    weight: float | None = setting(min=0)
    word_penalty: Any = setting(said="null, a number, or tuned")
    reference: str | None = MISSING
    unk_log10: float | None = setting(min=-1000, max=0)

    def __post_init__(self) -> None:
        ModelUserConfig.__post_init__(self)
        penalty, can_tune = self.word_penalty, self.reference is not None
        known = penalty is None or is_number(penalty, -1e9, 1e9) or (penalty == "tuned" and can_tune)
        require(known, "word_penalty", penalty, "null, a number, or with reference=FILE tuned")


@dataclass(repr=False)
class RescoreResult(Figures):
    """The result of `rescore`: reordered n-best lists.

    nbest: the file of lists.
    files: the written files.
    word_error_rate: share of the reference words; also before reordering and of the best hypotheses (oracle); None
    without references.
    tuned: whether the weight or the penalty was fitted on these lists.
    word_penalty: subtracted per word; None without one.
    """

    title = "run {0.run}"
    metric_name = "word_error_rate"
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


def run(settings: Settings, session: Session) -> RescoreResult:
    """Score the hypotheses of n-best lists, choose the weight, and write the lists with the best hypothesis first.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> from pathlib import Path
    >>> _ = Path("lists.txt").write_text("0 ||| the sat dog ||| f= 1 ||| 1\\n0 ||| the dog sat ||| f= 1 ||| 1\\n")
    >>> found = lmtool.rescore(run, "lists.txt", out="rescored")
    >>> Path("rescored/best.txt").read_text().strip()
    'the dog sat'
    """
    import numpy as np

    from lmtool.data.tokenizer import split_words
    from lmtool.evaluation import nbest
    from lmtool.ngram.models.ngram_model import NgramModel
    from lmtool.runs.load import load_named
    from lmtool.system.arrays import LN10

    loaded = load_named(settings.run, settings.arpa, settings.device)
    if loaded.dynamic:
        raise UserError(f"nbest={settings.nbest}: {loaded.name} has a cache, which needs running text: take another")
    lists = nbest.read_nbest(settings.nbest, settings.costs)
    file = settings.reference
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
    given, weight, tuned = settings.word_penalty, settings.weight, False
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
        new, old = (errors[nbest.best_hypotheses(total, log_prob, lists.offsets, by)].sum() for total, by in both)
        best = np.minimum.reduceat(errors, lists.offsets[:-1]).sum()
        names = ("word_error_rate", "word_error_rate_before", "word_error_rate_oracle")
        rates = {name: float(count / reference_words) for name, count in zip(names, (new, old, best), strict=True)}
        rates["reference_words"] = reference_words
    weight, penalty = 1.0 if weight is None else weight, penalty or 0.0
    files = nbest.write_nbest(session.out, lists, log_prob, lists.total + weight * log_prob - penalty * sizes)
    rescored = RescoreResult(
        run=loaded.name,
        nbest=settings.nbest,
        seconds=seconds,
        lists=len(lists.lists),
        hypotheses=len(lists.texts),
        weight=weight,
        files=list(files),
        tuned=tuned,
        word_penalty=None if given is None else penalty,
        **rates,
    )
    session.finish(rescored, f"{rescored.heading()}\n{rescored.table_text()}")
    if tuned:
        used = f"weight={weight:.6g}" + ("" if given is None else f" word_penalty={penalty:.6g}")
        session.note(f"tuned on these lists themselves; for other lists, use {used}")
    session.say(f"wrote {', '.join(map(str, files))}")
    return rescored
