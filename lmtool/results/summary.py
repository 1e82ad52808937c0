"""The entries of a result.json that describe a model, read by reports, sweeps and mixtures."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from lmtool.system.files import read_json
from lmtool.system.schemas import RESULT

METRICS = ("valid_perplexity", "perplexity")
CLOZE_METRIC = "cloze_perplexity"  # the metric if no text is scored


@dataclass(kw_only=True)
class Summary:
    """The entries of a result.json that say how good a model is, with inf where JSON has null.

    metric: name of the figure by which models are compared; None if result.json has none of METRICS and CLOZE_METRIC.
    perplexity: perplexity on the scored split; on valid for a training.
    cloze: results of the cloze questions.
    normalized: whether the scores sum to one, None if unknown.
    tied: whether a network's output vectors are its embeddings.
    result: all entries, as they are saved.
    """

    metric: str | None = None
    perplexity: float | None = None
    split: str = ""
    perplexity_per_word: float | None = None
    bits_per_character: float | None = None
    seconds: float | None = None
    parameters: int | None = None
    cloze: dict[str, float] = field(default_factory=dict)
    normalized: bool | None = True
    tied: bool | None = None
    dynamic: bool = False
    result: dict[str, Any] = field(default_factory=dict)

    def of_metric(self) -> float | None:
        """Return the value of the metric."""
        return self.cloze.get("perplexity") if self.metric == CLOZE_METRIC else self.perplexity


def read_summary(folder: Path, remedy: str) -> Summary:
    """Read the result.json of a folder. Raises UserError, ending with `remedy`, if it is damaged or missing."""
    saved = read_json(folder / "result.json", remedy, RESULT)
    known = {each.name: saved[each.name] for each in fields(Summary) if saved.get(each.name) is not None}
    known |= {"normalized": saved["normalized"]} if "normalized" in saved else {}
    cloze = {key: math.inf if value is None else value for key, value in known.pop("cloze", {}).items()}
    metric = next((name for name in METRICS if name in saved), CLOZE_METRIC if cloze else None)
    if metric in saved:
        known["perplexity"] = math.inf if saved[metric] is None else float(saved[metric])
    return Summary(**known | {"metric": metric, "cloze": cloze, "result": saved})
