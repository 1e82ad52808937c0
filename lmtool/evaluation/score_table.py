"""The columns of a table of scores with a row per text, and the buckets of texts, whose limits are exact quantiles."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.data.readers import read_text
from lmtool.data.tables import cells_of, number
from lmtool.errors import UserError
from lmtool.evaluation.text_scores import BAG, TWO, Rows, criterion, differences, log_weights, perplexities
from lmtool.system.arrays import FloatArray, IntArray
from lmtool.system.files import cannot_write

DECIMALS = {"difference": 6}  # number of decimals of columns that differ from the table's


def score_columns(rows: Rows) -> dict[str, npt.NDArray[Any]]:
    """Return the columns `[M]` of a table of scores."""
    if rows.dtype == BAG:
        return {"tokens": rows["tokens"], "log_weight_nats": log_weights(rows)}
    columns = {"tokens": rows["tokens"], "oov": rows["oov"], "log_prob_nats": rows["log_prob"]}
    columns["perplexity"] = perplexities(rows)
    if rows.dtype == TWO:
        columns |= {"oov_out": rows["oov_out"], "perplexity_out": perplexities(rows, "log_prob_out")}
        columns["difference"] = differences(rows)
    return columns


@dataclass(slots=True)
class Buckets:
    """Buckets of texts by the criterion of selection.

    names: K names, the lowest bucket first. limits: K - 1 numbers, ascending; a text is in the first bucket whose limit
    it does not exceed. max_oov: maximum share of OOVs of a text in a bucket. totals: the number of texts, tokens and
    OOVs of each bucket, int64 `[K, 3]`.
    """

    names: list[str]
    limits: list[float]
    max_oov: float | None = None
    totals: IntArray = field(init=False)

    def __post_init__(self) -> None:
        self.totals = np.zeros((len(self.names), 3), dtype=np.int64)

    def put(self, rows: Rows) -> list[str | None]:
        """Add texts to the totals; return the bucket of each, None for a text without tokens or with too many OOVs."""
        values = criterion(rows, self.max_oov)
        places = np.searchsorted(np.array(self.limits), values)
        some = ~np.isnan(values)
        figures = np.stack([np.ones_like(rows["oov"]), rows["tokens"], rows["oov"]], axis=1)
        np.add.at(self.totals, places[some], figures[some])
        return [
            self.names[place] if known else None for place, known in zip(places.tolist(), some.tolist(), strict=True)
        ]


def quantiles(parts: Iterable[FloatArray], shares: list[float], folder: Path) -> list[float]:
    """Return for each share the smallest number that at least this share of all numbers does not exceed, if any exist.

    parts: the numbers; nan are left out. folder: of the temporary file that holds them, so that memory does not grow.
    """
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(tempfile.TemporaryFile(dir=folder))
            for part in parts:
                file.write(part[~np.isnan(part)].astype(np.float64).tobytes())
            file.flush()
        except OSError as error:
            raise cannot_write(folder, error) from error
        count = file.tell() // 8
        if not count:
            return []
        values = np.memmap(file, dtype=np.float64)
        ranks = [max(math.ceil(share * count * (1 - 1e-12)), 1) - 1 for share in shares]
        values.partition(ranks)
        return [float(values[rank]) for rank in ranks]


def percentiles(path: str, column: str, shares: list[float]) -> list[float]:
    """Return quantiles from a CSV file of percentiles, such as CCNet's cutoff.csv. Its first column has ascending
    percentages; each other column, with a name, has the numbers that these percentages of all texts do not exceed.

    A share between two percentages is interpolated linearly.
    """
    header, rows, mark = cells_of(read_text(path), path)
    if column not in header[1:]:
        raise UserError(f"bucket_language={column}: {path} has the columns {', '.join(header[1:]) or '(none)'}")
    place = header.index(column, 1)
    points = np.array([[number(row[0], mark), number(row[place], mark)] for row in rows]).reshape(-1, 2)
    if not len(points) or not np.isfinite(points).all() or (np.diff(points, axis=0) < [1e-9, 0]).any():
        raise UserError(f"{path}: must have percentages in its first column and numbers in {column}, both ascending")
    wanted = [round(100 * share, 9) for share in shares]  # 0.29 is 28.999999999999996 %
    if not points[0, 0] <= wanted[0] <= wanted[-1] <= points[-1, 0]:
        low, high = points[[0, -1], 0] / 100
        raise UserError(f"bucket_quantiles={shares}: {path} has those from {low:g} to {high:g}")
    return list(map(float, np.interp(wanted, *points.T)))
