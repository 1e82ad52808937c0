"""Evaluations during a training, the loss on valid and the accuracy of the most likely word; and its reports: a
progress bar or plain lines, metrics.jsonl, and experiment trackers, none of which can end it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from lmtool import __version__
from lmtool.config.groups import TrackerConfig
from lmtool.config.request import flatten
from lmtool.data.split import Split, StoredTokens
from lmtool.errors import UserError, first_line
from lmtool.evaluation.metrics import split_accuracy
from lmtool.neural.model import NeuralModel
from lmtool.runs.run import METRICS_FILE, TRACKED
from lmtool.system import schemas
from lmtool.system.arrays import IntArray
from lmtool.system.files import atomic_write, cannot_write, read_json, sync, sync_names, write_json
from lmtool.system.terminal import progress_bar, write_above
from lmtool.training.processes import Processes

TOKENS_PER_CHUNK = 1 << 14  # tokens of valid scored between two checks for a signal
MIN_PREDICTIONS, MAX_SCORES = 256, 1 << 25  # limits of an accuracy: fewer predictions if the vocabulary is large
LINE_INTERVAL = 10.0  # seconds between two lines without a terminal
BAR_INTERVAL = 0.2  # seconds between two updates of the bar
# Settings that do not change the weights, and those of the data, which the store's fingerprint represents.
NOT_IN_FINGERPRINT = {
    "store_dir",
    "threads",
    "device",
    "training.trackers",
    "training.save_every",
    "training.log_every",
}
log = logging.getLogger(__name__)
Line = dict[str, Any]


def mean_loss(model: NeuralModel, split: Split, processes: Processes, check: Callable[[], None]) -> float:
    """Return the mean of -log p over a split, in nats; each process scores its share. check: called between chunks."""
    places = _full_windows(model, split)
    first, last = processes.share(split.tokens if places is None else len(places))
    parts = [np.empty(0)]
    for begin in range(first, last, TOKENS_PER_CHUNK):
        check()
        end = min(begin + TOKENS_PER_CHUNK, last)
        if places is None:
            parts.append(model.score_tokens(split, begin, end))
        else:
            parts.append(model.log_prob(*split.windows(places[begin:end], model.context_size)))
    return -float(processes.join_parts(np.concatenate(parts)).mean(dtype=np.float64))


def share_most_likely(
    model: NeuralModel, split: Split | StoredTokens, tokens: int, processes: Processes
) -> float | None:
    """Return the share of evenly spread tokens (recurrent: the first) that are the most likely; None for none."""
    places = _full_windows(model, split)
    every = split.tokens if places is None else len(places)
    count = min(tokens, max(MIN_PREDICTIONS, MAX_SCORES // model.vocabulary_size), every)
    if count == 0:
        return None
    if model.context_size is None and isinstance(split, Split):
        return split_accuracy(model, split, tokens=count)
    assert model.context_size is not None, "only such splits are streamed"
    index = np.unique(np.linspace(0, every - 1, count).astype(np.int64))
    index = index if places is None else places[index]
    first, last = processes.share(len(index))
    contexts, targets = split.windows(index[first:last], model.context_size)
    hits = (model.argmax(contexts) == targets).astype(np.float64)
    return float(processes.join_parts(hits).mean())


def _full_windows(model: NeuralModel, split: Split | StoredTokens) -> IntArray | None:
    """Return the positions of the tokens that an evaluation is of with model.full_windows; None: all tokens."""
    if not model.full_windows or isinstance(split, StoredTokens):
        return None
    return split.full_windows(model.encoder.config.context_size)


class Reporter:
    """The reporter of one training. out: the run folder; None for a process that reports nothing. loss_is_log_prob:
    whether the training loss is -log p, which gives a perplexity on train.
    """

    def __init__(self, out: Path | None, *, bar: bool, loss_is_log_prob: bool) -> None:
        self._out = out
        bar_format = "{percentage:3.0f} %|{bar}| {desc}"
        self._bar = progress_bar(total=100, disable=not bar or out is None, dynamic_ncols=True, bar_format=bar_format)
        self._every = LINE_INTERVAL if self._bar.disable else BAR_INTERVAL
        self._last_report = time.perf_counter()
        self._loss_is_log_prob = loss_is_log_prob
        self._first: tuple[float, float] | None = None  # used share of the budget and seconds at the first report

    def due(self, now: float) -> bool:
        """Return whether it is time for the next report; now: the value of time.perf_counter."""
        return now - self._last_report >= self._every and self._out is not None

    def step(self, done: float, epoch: float, loss: float, speed: float, clock: float) -> None:
        """Report on the training so far.

        done: used share of the budget. loss: the mean since the last evaluation, in nats. speed: examples per second.
        clock: seconds of training.
        """
        self._last_report = time.perf_counter()
        parts = [f"epoch {epoch:.2f}", self._on_train(loss), f"{speed:,.0f} examples/s", *self._left(done, clock)]
        if not self._advance(done, parts):
            self._bar.set_description_str("  ".join(parts))

    def add(self, line: Line) -> None:
        """Write a line of metrics.jsonl."""
        if self._out is None:
            return
        try:
            with (self._out / METRICS_FILE).open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(line) + "\n")
        except OSError as error:
            raise cannot_write(self._out / METRICS_FILE, error) from error

    def evaluation(self, done: float, line: Line) -> None:
        """Write a line of metrics.jsonl and report it."""
        self.add(line)
        if self._out is None:
            return
        parts = [f"epoch {line['epoch']:.2f}", self._on_train(line["train_loss"])]
        parts.append(f"valid perplexity {_perplexity(line['valid_perplexity'], 2)}")
        if line["valid_accuracy"] is not None:
            parts.append(f"valid accuracy {line['valid_accuracy']:.3f}")
        if "cloze_perplexity" in line:
            parts.append(f"cloze perplexity {_perplexity(line['cloze_perplexity'], 3)}")
        parts += [f"{line['examples_per_second']:,.0f} examples/s", *self._left(done, line["seconds"])]
        if not self._advance(done, parts):
            write_above(self._bar, "  ".join(parts))
        self._last_report = time.perf_counter()

    def sync(self) -> None:
        """Flush metrics.jsonl and its name to disk before a checkpoint refers to it."""
        if self._out is None:
            return
        try:
            sync(self._out / METRICS_FILE)
            sync_names(self._out)
        except OSError as error:
            raise cannot_write(self._out / METRICS_FILE, error) from error

    def rewind(self, step: int) -> None:
        """Remove the lines of later steps from metrics.jsonl: they will be written again."""
        if self._out is None or not (self._out / METRICS_FILE).exists():
            return
        lines = []
        for text in (self._out / METRICS_FILE).read_text(encoding="utf-8").splitlines(keepends=True):
            with suppress(ValueError):  # the last line may be cut off
                if schemas.parse_json(text, {"step": schemas.COUNT})["step"] <= step:
                    lines.append(text)
        with atomic_write(self._out / METRICS_FILE) as temporary:
            temporary.write_text("".join(lines), encoding="utf-8")

    def close(self) -> None:
        """Remove the bar."""
        self._bar.total = None  # a notebook keeps a bar that did not reach its total, in red
        self._bar.close()

    def _advance(self, done: float, parts: list[str]) -> bool:
        """Without a bar, write a line and return True; else set the bar's share and return False."""
        self._bar.n = round(100 * min(done, 1))
        if self._bar.disable:
            log.info("%3d %%  %s", self._bar.n, "  ".join(parts))
        return bool(self._bar.disable)

    def _left(self, done: float, clock: float) -> list[str]:
        """Return the remaining time as a part, by the used share of the budget and the seconds of training.

        It is extrapolated from the progress since the first report, which has none: loops are compiled before.
        """
        if self._first is None:
            self._first = done, clock
        share = done - self._first[0]
        if done < 1 and share <= 0:
            return []
        minutes, rest = divmod(round((clock - self._first[1]) * (1 - done) / share if done < 1 else 0), 60)
        text = f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
        return [f"{text} left"]

    def _on_train(self, loss: float) -> str:
        if self._loss_is_log_prob:
            return f"train perplexity {_perplexity(math.exp(min(loss, 700)), 1)}"
        return f"train loss {loss:.4f}"


class Trackers(AbstractContextManager["Trackers"]):
    """The trackers of one training; a context manager, at whose end trackers without a result are closed without one.

    folder: the run folder. about: settings and store of the training. resumed: whether earlier runs are continued.
    warn: called with a message if a tracker fails, which is left out from then on.
    """

    def __init__(self, options: list[TrackerConfig], folder: Path, about: Line, *, resumed: bool, warn: Any) -> None:
        self.running, self._warn, self._begun = options, warn, False
        if not options:
            return
        ids = read_json(folder / TRACKED, "delete it", {str: str}) if resumed and (folder / TRACKED).is_file() else {}
        settings = {key: value for key, value in flatten(about["settings"]).items() if value is not None}
        settings |= {"run": "/".join(folder.resolve().parts[-2:]), "lmtool": __version__}
        settings |= {"store": about["store"], "fingerprint": fingerprint(about)}
        self.tell(lambda each: ids.update({each.kind: each.begin(folder, settings, ids.get(each.kind))}))
        self._begun = True
        write_json(folder / TRACKED, ids)

    def __exit__(self, *_: object) -> None:
        self.end(None)

    def end(self, result: Line | None) -> None:
        """End all runs with the numbers of result.json, or without a result; no-op if called again."""
        self.tell(lambda each: each.end(None if result is None else numbers_in(result)))
        self.running = []

    def tell(self, call: Callable[[TrackerConfig], object]) -> None:
        """Call each tracker; leave out those that fail. Raises UserError if one is not installed."""
        for option in list(self.running):
            try:
                call(option)
            except Exception as error:  # raised by a library or a server
                if isinstance(error, ImportError) and not self._begun:
                    install = f'pip install "lmtool[{option.kind}]"'
                    raise UserError(f"training.trackers: {option.kind} is not installed; {install} ({error})") from None
                self.running.remove(option)
                with suppress(Exception):
                    option.end(None)
                why = f"{type(error).__name__}: {first_line(error)}"
                self._warn(f"training.trackers: {option.kind} failed ({why}): the training continues without it")


def fingerprint(about: Line) -> str:
    """Return 16 hexadecimal digits that are equal for trainings by the same version with the same text and settings."""
    settings, free = flatten(about["settings"]), NOT_IN_FINGERPRINT
    kept = {key: value for key, value in settings.items() if key not in free and not key.startswith("data.")}
    return hashlib.sha256(json.dumps([__version__, about["store"], kept], sort_keys=True).encode()).hexdigest()[:16]


def numbers_in(values: Line) -> dict[str, float]:
    """Return the numbers among values."""
    return {key: value for key, value in values.items() if type(value) in (int, float)}


def _perplexity(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}" if value < 1e6 else f"{value:.2e}"
