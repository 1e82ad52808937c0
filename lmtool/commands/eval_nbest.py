"""`lmtool eval nbest=FILE`: n-best lists with a language model's score, best first."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from lmtool.config.verbs import EvalConfig
from lmtool.errors import UserError
from lmtool.results import Rescored
from lmtool.session import Session
from lmtool.system.files import write_json

if TYPE_CHECKING:
    from lmtool.text_model import TextModel


def rescore(config: EvalConfig, loaded: TextModel, session: Session) -> Rescored:
    """Score the hypotheses, choose the weight, write the lists.

    Raises UserError for a dynamic model, for lists that cannot be read, and where a hypothesis has probability 0.
    """
    import numpy as np

    from lmtool.data.text_form import split_words
    from lmtool.evaluation.nbest import hypothesis_log_prob, read_nbest, read_references, write_nbest
    from lmtool.evaluation.word_errors import best_weight, chosen, word_errors

    assert config.nbest is not None
    if loaded.dynamic:
        raise UserError(f"nbest={config.nbest}: {loaded.name} has a cache, which needs running text: take another")
    nbest = read_nbest(config.nbest, config.nbest_costs)
    references = read_references(config.nbest_reference, nbest) if config.nbest_reference is not None else None
    start = time.perf_counter()
    log_prob = hypothesis_log_prob(nbest, loaded.score)
    seconds = time.perf_counter() - start
    if np.isneginf(log_prob).any():
        words = nbest.texts[int(np.isneginf(log_prob).argmax())]
        raise UserError(f"{loaded.name} gives {words!r} of {config.nbest} probability 0: take a smoothed model")
    result: dict[str, Any] = {
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
        total = sum(len(split_words(line)) for line in references)
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
    files = write_nbest(session.out, nbest, log_prob, nbest.total + weight * log_prob)
    write_json(session.out / "result.json", result | {"weight": weight})
    rescored = Rescored(
        run=loaded.name,
        lists=len(nbest.lists),
        hypotheses=len(nbest.texts),
        weight=weight,
        word_error_rate=rate,
        word_error_rate_before=result.get("word_error_rate_before"),
        word_error_rate_oracle=result.get("word_error_rate_oracle"),
        tuned="tuned" in result,
        files=list(files),
        notes=session.notes,
    )
    session.say(f"{rescored.heading()}\n{rescored.lines()}")
    if rescored.tuned:
        session.note("the weight was tuned on these lists themselves; use it for other lists by nbest_weight=")
    session.say(f"wrote {', '.join(str(path) for path in files)}")
    return rescored
