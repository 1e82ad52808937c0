"""`lmtool eval nbest=FILE`: n-best lists with a language model's score, best first."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from lmtool.config.verbs import EvalConfig
from lmtool.errors import UserError
from lmtool.system.files import write_json
from lmtool.system.tables import cell_text

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus
    from lmtool.language_model import LanguageModel
    from lmtool.runs.run import Run


def rescore(config: EvalConfig, run: Run, model: LanguageModel, corpus: Corpus, out: Path) -> float | None:
    """Score the hypotheses, choose the weight, write the lists; returns the word error rate, None without references.

    Raises UserError for a dynamic model, for lists that cannot be read, and where a hypothesis has probability 0.
    """
    import numpy as np

    from lmtool.data.text_form import cut_words
    from lmtool.evaluation.nbest import hypothesis_log_prob, read_nbest, read_references, write_nbest
    from lmtool.evaluation.word_errors import best_weight, chosen, word_errors
    from lmtool.runs.load import text_model_of

    assert config.nbest is not None
    if model.dynamic:
        raise UserError(f"nbest={config.nbest}: {run.folder} has a cache, which needs running text: take another")
    nbest = read_nbest(config.nbest, config.nbest_costs)
    references = read_references(config.nbest_reference, nbest) if config.nbest_reference is not None else None
    start = time.perf_counter()
    text_model = text_model_of(run, model, corpus.vocabulary)
    log_prob = hypothesis_log_prob(nbest, text_model.score)
    seconds = time.perf_counter() - start
    if np.isneginf(log_prob).any():
        words = nbest.texts[int(np.isneginf(log_prob).argmax())]
        raise UserError(f"{run.folder} gives {words!r} of {config.nbest} probability 0: take a smoothed model")
    result: dict[str, object] = {
        "nbest": config.nbest,
        "lists": len(nbest.lists),
        "hypotheses": len(nbest.texts),
        "seconds": seconds,
    }
    weight, rate = config.nbest_weight, None
    if references is not None:
        of_list = np.repeat(np.arange(len(references)), np.diff(nbest.offsets))
        errors = np.array([word_errors(w, references[k]) for w, k in zip(nbest.texts, of_list.tolist(), strict=True)])
        if weight is None:
            weight = best_weight(nbest.total, log_prob, errors, nbest.offsets).weight
            result["tuned"] = True
        total = sum(len(cut_words(line)) for line in references)
        if total == 0:
            raise UserError(f"{config.nbest_reference} has no words: give the right transcriptions")
        best = np.minimum.reduceat(errors, nbest.offsets[:-1]).sum()
        rate = float(errors[chosen(nbest.total, log_prob, nbest.offsets, weight)].sum() / total)
        result |= {
            "reference_words": total,
            "word_error_rate": rate,
            "word_error_rate_before": float(errors[chosen(nbest.total, log_prob, nbest.offsets, 0.0)].sum() / total),
            "word_error_rate_oracle": float(best / total),
        }
    weight = 1.0 if weight is None else weight
    files = write_nbest(out, nbest, log_prob, nbest.total + weight * log_prob)
    write_json(out / "result.json", result | {"weight": weight})
    print(f"run {run.folder}")
    for name, value in (
        ("lists", len(nbest.lists)),
        ("hypotheses", len(nbest.texts)),
        ("weight", weight),
        ("word error rate", rate),
        ("  before", result.get("word_error_rate_before")),
        ("  oracle", result.get("word_error_rate_oracle")),
    ):
        if value is not None:
            print(f"{name:<24} {cell_text(value):>12}")  # type: ignore[arg-type]
    if result.get("tuned"):
        print("note: the weight was tuned on these lists themselves; use it for other lists by nbest_weight=")
    print(f"wrote {', '.join(str(path) for path in files)}")
    return rate
