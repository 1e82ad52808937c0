"""The learning rate of every step, kept as the few points between which it is a straight line."""

from __future__ import annotations

import math
from pathlib import Path

from lmtool.system.files import cannot_write, written_whole

LEARNING_RATES = "learning_rates.csv"
HEADER = "step,lr\n"
TOLERANCE = 0.002  # largest distance of a rate from the lines, as a share of the highest rate so far

Point = tuple[int, float]  # step, rate


class RateTrace:
    """Thins the rates of steps to the points of a polyline, which no rate is further from than TOLERANCE.

    The swing filter of Elmeleegy et al. 2009 (Online piece-wise linear approximation of numerical streams with
    precision guarantees, section 3), with lines that begin and end at rates: a line goes on while its slope is within
    those that all rates since its beginning allow.
    """

    def __init__(self) -> None:
        self._begin: Point | None = None  # of the line
        self._last: Point = 0, 0.0
        self._slopes = -math.inf, math.inf
        self._highest = 0.0

    def add(self, step: int, rate: float) -> Point | None:
        """Take the rate of the next step; returns the point of the polyline that is then known, if any."""
        self._highest = max(self._highest, rate)
        point = None
        if self._begin is None:
            point = self._begin = step, rate
        else:
            slope = _slope(self._begin, step, rate)
            if not self._slopes[0] <= slope <= self._slopes[1]:
                point = self.end()
            margin = TOLERANCE * self._highest
            low, high = (_slope(self._begin, step, bound) for bound in (rate - margin, rate + margin))
            self._slopes = max(low, self._slopes[0]), min(high, self._slopes[1])
        self._last = step, rate
        return point

    def end(self) -> Point | None:
        """End the line at the last step, where another one begins; returns that point, unless it was returned."""
        if self._begin is None or self._last == self._begin:
            return None
        self._begin, self._slopes = self._last, (-math.inf, math.inf)
        return self._begin


def _slope(begin: Point, step: int, rate: float) -> float:
    return (rate - begin[1]) / (step - begin[0])


class RateFile:
    """learning_rates.csv of a run: the points of its RateTrace. Raises UserError where it cannot be written."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LEARNING_RATES
        self._trace = RateTrace()

    def add(self, step: int, rate: float) -> None:
        """Take the rate of the next step, after `step` others."""
        self._write(self._trace.add(step, rate))

    def flush(self) -> None:
        """Write all that is known."""
        self._write(self._trace.end())

    def rewind(self, step: int) -> None:
        """Remove the points of the steps from this one on, which will be made again."""
        if not self._path.exists():
            return
        header, *lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True) or [HEADER]
        kept = [line for line in lines if line.endswith("\n") and int(line.partition(",")[0]) < step]
        with written_whole(self._path) as temporary:
            temporary.write_text(header + "".join(kept), encoding="utf-8")

    def _write(self, point: Point | None) -> None:
        if point is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as handle:
                if not handle.tell():
                    handle.write(HEADER)
                handle.write(f"{point[0]},{point[1]!r}\n")
        except OSError as error:
            raise cannot_write(self._path, error) from error
