"""Score the texts of an iterable one by one, as `lmtool score` does with files: `lmtool.score_texts`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any

from lmtool.api.running import RunLike, model_of
from lmtool.errors import UserError

if TYPE_CHECKING:
    from lmtool.evaluation.text_scores import TextScore


def score_texts(
    run: RunLike,
    texts: Iterable[str],
    *,
    run_out: RunLike | None = None,
    across_sentences: bool = False,
    device: str = "auto",
    store_dir: str | PathLike[str] | None = None,
    options: str | PathLike[str] | None = None,
) -> Iterator[TextScore]:
    """Yield the score of each text in order, as in `lmtool score`: tokens, oov, log_prob, perplexity, difference.

    run: a run folder, the result of `train`, `ensemble` or `load`, or an ARPA file. texts: an iterable of strings, each
    a separate text whose lines are sentences; it is read some megabytes ahead of the scores. run_out: a second run, of
    general text, for the difference (Moore & Lewis 2010). across_sentences: whether contexts continue from line to line
    of a text, for networks trained this way; if False, each line is read separately. device: for neural models.
    store_dir, options: as in `load`. Raises UserError immediately for a single string or a model with a cache, and for
    a non-string item when it is reached.
    """
    from lmtool.commands.score import scorer_of
    from lmtool.evaluation.text_scores import scores_of

    if isinstance(texts, str):
        raise UserError(f"texts={texts[:40]!r}: give a list of texts, or another iterable, as [{texts[:20]!r}]")
    models = [model_of(each, device, store_dir, options) for each in (run, run_out) if each is not None]
    return scores_of(_checked(texts), scorer_of(models, across=across_sentences))


def _checked(texts: Iterable[Any]) -> Iterator[str]:
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(f"texts[{number}] must be a string; got {type(text).__name__}")
        yield text
