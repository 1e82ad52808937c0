"""Reports of a training: a progress bar or plain lines, metrics.jsonl, TensorBoard."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tqdm import tqdm

from lmtool.errors import UserError
from lmtool.system.files import cannot_write, written_whole

METRICS = "metrics.jsonl"
LINE_EVERY = 10.0  # seconds between two lines without a terminal
BAR_EVERY = 0.2  # seconds between two updates of the bar
log = logging.getLogger(__name__)
Line = dict[str, Any]


class Reporter:
    """Reports on one training. out: the run folder; None for a process that reports nothing.

    Raises UserError where TensorBoard is wanted and not installed.
    """

    def __init__(self, out: Path | None, *, bar: bool, tensorboard: bool) -> None:
        self._out = out
        self._bar = tqdm(
            total=100, unit="%", disable=not bar or out is None, leave=False, bar_format="{l_bar}{bar}| {postfix}"
        )
        self._every = LINE_EVERY if self._bar.disable else BAR_EVERY
        self._last_report = time.perf_counter()
        self._board = _board(out) if tensorboard and out is not None else None

    def step(self, now: float, done: float, epoch: float, loss: float, speed: float, clock: float) -> None:
        """Report on the training so far, if the last report is some time ago.

        now: of time.perf_counter. done: the share of the budget that is used up. loss: the mean since the last
        evaluation, in nats. speed: examples per second. clock: seconds of training.
        """
        if now - self._last_report < self._every or self._out is None:
            return
        self._last_report = now
        left = _time(clock * (1 - done) / done) if done else "?"
        self._show(
            done,
            f"epoch {epoch:.2f}  loss {loss:.4f}  perplexity {_exp(loss):.1f}  {speed:,.0f} examples/s  {left} left",
        )

    def evaluation(self, done: float, line: Line) -> None:
        """Write a line of metrics.jsonl and report it."""
        if self._out is None:
            return
        _append(self._out / METRICS, line)
        if self._board is not None:
            for name, value in line.items():
                if name != "step" and value is not None:
                    self._board.add_scalar(name, value, line["step"])
            self._board.flush()
        accuracy = "" if line["valid_accuracy"] is None else f"  accuracy {line['valid_accuracy']:.3f}"
        text = (
            f"epoch {line['epoch']:.2f}  loss {line['train_loss']:.4f}  valid {line['valid_loss']:.4f}  "
            f"perplexity {line['valid_perplexity']:.2f}{accuracy}  {line['examples_per_second']:,.0f} examples/s  "
            f"{_time(line['seconds'])}"
        )
        if not self._bar.disable:
            self._bar.write(text, file=sys.stderr)
        self._show(done, text)
        self._last_report = time.perf_counter()

    def rewind(self, step: int) -> None:
        """Remove the lines of later steps from metrics.jsonl: these steps will be made again."""
        if self._out is None or not (self._out / METRICS).exists():
            return
        lines = []
        for text in (self._out / METRICS).read_text(encoding="utf-8").splitlines(keepends=True):
            with suppress(ValueError):  # the last line may be cut off
                if json.loads(text)["step"] <= step:
                    lines.append(text)
        with written_whole(self._out / METRICS) as temporary:
            temporary.write_text("".join(lines), encoding="utf-8")

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()
        if self._board is not None:
            self._board.close()

    def _show(self, done: float, text: str) -> None:
        if self._bar.disable:
            log.info("%3.0f %%  %s", 100 * min(done, 1), text)
        else:
            self._bar.n = round(100 * min(done, 1))
            self._bar.set_postfix_str(text)


def _board(out: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(
            'training.tensorboard=true: TensorBoard is not installed; pip install "lmtool[tensorboard]"'
        ) from None
    return SummaryWriter(str(out / "tensorboard"))


def _append(path: Path, line: Line) -> None:
    try:
        with path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(line) + "\n")
    except OSError as error:
        raise cannot_write(path, error) from error


def _exp(loss: float) -> float:
    return math.exp(min(loss, 700.0))


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
