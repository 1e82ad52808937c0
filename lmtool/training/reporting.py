"""What a person sees of a training, and what is kept of it: a bar or plain lines, metrics.jsonl, TensorBoard."""

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
SAY_EVERY = 10.0  # seconds between two lines where there is no terminal
MOVE_EVERY = 0.2  # seconds between two movements of the bar
log = logging.getLogger(__name__)
Line = dict[str, Any]


class Reporter:
    """Says how a training goes on. out: the run folder; None for a process that says and writes nothing.

    Raises UserError where TensorBoard is asked for and not installed.
    """

    def __init__(self, out: Path | None, *, bar: bool, tensorboard: bool) -> None:
        self._out = out
        self._bar = tqdm(
            total=100, unit="%", disable=not bar or out is None, leave=False, bar_format="{l_bar}{bar}| {postfix}"
        )
        self._every = SAY_EVERY if self._bar.disable else MOVE_EVERY
        self._said = time.perf_counter()
        self._board = _board(out) if tensorboard and out is not None else None

    def on_the_way(self, now: float, done: float, epoch: float, loss: float, speed: float, clock: float) -> None:
        """To be called at each step; says something every so often. loss: the mean since the last evaluation."""
        if now - self._said < self._every or self._out is None:
            return
        self._said = now
        left = _time(clock * (1 - done) / done) if done else "?"
        self._say(
            done,
            f"epoch {epoch:.2f}  loss {loss:.4f}  perplexity {_exp(loss):.1f}  {speed:,.0f} examples/s  {left} left",
        )

    def evaluation(self, done: float, line: Line) -> None:
        """Keep a line of metrics.jsonl and say it."""
        if self._out is None:
            return
        _append(self._out / METRICS, line)
        if self._board is not None:
            for name, value in line.items():
                if name != "step" and value is not None:
                    self._board.add_scalar(name, value, line["step"])
            self._board.flush()
        accuracy = "" if line["valid_accuracy"] is None else f"  accuracy {line['valid_accuracy']:.3f}"
        said = (
            f"epoch {line['epoch']:.2f}  loss {line['train_loss']:.4f}  valid {line['valid_loss']:.4f}  "
            f"perplexity {line['valid_perplexity']:.2f}{accuracy}  {line['examples_per_second']:,.0f} examples/s  "
            f"{_time(line['seconds'])}"
        )
        if not self._bar.disable:
            self._bar.write(said, file=sys.stderr)
        self._say(done, said)
        self._said = time.perf_counter()

    def go_back_to(self, step: int) -> None:
        """Forget what was kept of later steps: they will be made again."""
        if self._out is None or not (self._out / METRICS).exists():
            return
        kept = []
        for text in (self._out / METRICS).read_text(encoding="utf-8").splitlines(keepends=True):
            with suppress(ValueError):  # the last line may be cut off
                if json.loads(text)["step"] <= step:
                    kept.append(text)
        with written_whole(self._out / METRICS) as temporary:
            temporary.write_text("".join(kept), encoding="utf-8")

    def close(self) -> None:
        """Take the bar away."""
        self._bar.close()
        if self._board is not None:
            self._board.close()

    def _say(self, done: float, text: str) -> None:
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
