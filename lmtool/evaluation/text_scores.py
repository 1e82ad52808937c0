"""Scores of many texts by one or two models: the number of tokens and OOVs and log p of each text.

The difference of two models' cross-entropies selects text that is similar to the first model's (Moore & Lewis 2010). A
journal of scores on disk, from which interrupted work is resumed, has their rows and the number of blocks of texts that
these cover.
"""

from __future__ import annotations

import json
import operator
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import tee
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lmtool.config.data import Unit
from lmtool.data.faults import SKIP, STOP, Faults
from lmtool.data.oov import unknown_words
from lmtool.data.text_form import EncodedTexts, TextEncoder, TextForm
from lmtool.data.text_records import RecordBlock, blocks_of
from lmtool.data.tokenizer import TextBlock
from lmtool.errors import RecordError, UserError
from lmtool.evaluation.metrics import require_across, require_no_cache, with_unk_as_oov
from lmtool.language_model import LanguageModel
from lmtool.system.arrays import FloatArray, IntArray
from lmtool.system.files import cannot_write, read_json, write_json
from lmtool.system.lock import folder_lock
from lmtool.system.schemas import JOURNAL

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[Any]  # of dtype TEXT, TWO (two models) or BAG (hashed n-grams)
TEXT = np.dtype([("tokens", np.int64), ("oov", np.int64), ("log_prob", np.float64)])
MAX_EXAMPLES, EXAMPLE_BYTES = 1000, 1 << 16  # unknown words collected, and bytes of a block searched for them
TWO = np.dtype([*TEXT.descr, ("oov_out", np.int64), ("log_prob_out", np.float64)])
BAG = np.dtype([*TEXT.descr, ("log_prob_out", np.float64)])
ROWS, ERRORS, PROGRESS = "rows", "errors", "progress.json"  # files of a journal
FAULTY = -1  # in place of the number of tokens, for a record with a fault
SAVE_SECONDS = 2.0  # time between two saves
ROWS_PER_CHUNK = 1 << 18  # rows in memory


class ScoringModel(NamedTuple):
    """A model and the rules that turn text into its words. name: name of the run, for messages."""

    model: LanguageModel
    form: TextForm
    name: str


@dataclass(frozen=True, slots=True)
class TextScore:
    """The score of one text.

    tokens: number of words and of `</s>` (one per line).
    oov: number of tokens outside the vocabulary.
    log_prob: natural log-probability, summed over the tokens.
    perplexity: exp(-log_prob / tokens); None without tokens.
    difference: the cross-entropy under the first model minus that under the second, in nats per token: the lower, the
    more similar to the first model's text; None without tokens or a second model.
    """

    tokens: int
    oov: int
    log_prob: float
    perplexity: float | None
    difference: float | None = None


class TextsScorer:
    """A scorer of blocks of texts.

    across_sentences: whether contexts crossed sentences; None if no model can do so. unknown: some words that were
    outside the first model's vocabulary.
    """

    def __init__(self, *models: ScoringModel, across: bool = False, one_text: bool = False) -> None:
        """models: one or two, which tokenize alike and have no cache; the second is of general text. across: whether
        contexts cross the sentences of a text. one_text: whether they also cross the texts, over all blocks in order.
        """
        for each in models:
            require_no_cache(each.model, each.name)
        if len({_text_units(each.form) for each in models}) > 1:
            names = " and ".join(each.name for each in models)
            raise UserError(f"{names} do not cut text into the same tokens: take two that do")
        self.dtype = TEXT if len(models) == 1 else TWO
        able = [each for each in models if each.model.across_sentences]
        if across:
            first = (able or models)[0]
            require_across(first.model, first.form.vocabulary, first.name)
        self._models, self._across, self.one_text = models, across, one_text
        self.unknown: list[str] = []
        self.across_sentences = across if able else None
        self._before: list[IntArray] = [np.empty(0, dtype=np.int64)] * 2  # last tokens before a block
        self._encoders = [TextEncoder(each.form) for each in models]
        self.same_words = len({frozenset(each.form.vocabulary.words) for each in models}) == 1
        # Both have the same ids if their words are in the same order, which follows the counts in each model's train.
        self._shared = len({(each.form.vocabulary.fingerprint(), each.form.rules) for each in models}) == 1

    def __call__(self, block: TextBlock, *, progress: bool = False) -> Rows:
        """Return a row for each text, in order. progress: whether slow models show bars."""
        rows = np.empty(len(block.ends), dtype=self.dtype)
        texts = self._encoders[0](block)
        for k, suffix in enumerate(("", "_out")[: len(self._models)]):
            if k and not self._shared:
                texts = self._encoders[k](block)
            model, form, _ = self._models[k]
            oov = with_unk_as_oov(texts.split, model, form.vocabulary).oov_positions
            rows[f"oov{suffix}"] = np.diff(np.searchsorted(oov, texts.documents))
            rows[f"log_prob{suffix}"] = self._log_probs(k, texts, progress)
        rows["tokens"] = np.diff(texts.documents)
        if rows["oov"].any() and len(self.unknown) < MAX_EXAMPLES:
            self.unknown += unknown_words(block.content[:EXAMPLE_BYTES], self._models[0].form)
        return rows

    def each(self, block: TextBlock, *, progress: bool = False) -> tuple[Rows, dict[int, str]]:
        """Return a row for each text, and the faults of texts that the models cannot cut into tokens, by position."""
        try:
            return self(block, progress=progress), {}
        except RecordError as error:
            half = len(block.ends) // 2
            if not half:
                return np.zeros(1, self.dtype), {0: str(error)}
            cut = int(block.ends[half - 1])
            rows, faults = self.each(TextBlock(block.content[:cut], block.ends[:half]))
            more, others = self.each(TextBlock(block.content[cut:], block.ends[half:] - cut))
            return np.append(rows, more), faults | {half + k: fault for k, fault in others.items()}

    def _log_probs(self, k: int, texts: EncodedTexts, progress: bool) -> FloatArray:
        """Return the natural log p of each text under model k, `[D]`; 0 for a text without tokens."""
        (model, form, _), before = self._models[k], self._before[k]
        split = replace(texts.split, independent_sentences=not self._across)
        if not split.tokens:
            return np.zeros(len(texts.documents) - 1)
        if self.one_text:
            ids = np.concatenate([before, split.ids])
            size = len(ids) if model.context_size is None else model.context_size
            self._before[k] = ids[max(0, len(ids) - size) :]
            ends = split.offsets[0 if form.vocabulary.sentences else -1 :] + len(before)
            split = replace(split, ids=ids, offsets=np.unique(np.append(0, ends)), documents=None)
        if model.context_size is None:
            return sums(model.score_tokens(split, len(before), split.tokens, progress=progress), texts.documents)
        return sums(model.score_text(split, progress=progress)[len(before) :], texts.documents)


def _text_units(form: TextForm) -> tuple[Unit, bool, bool, bool, bool, str | None]:
    """Return the settings that decide where tokens begin and end."""
    tokenizer, vocabulary = None if form.subwords is None else form.subwords.json, form.vocabulary
    return form.unit, form.tags, vocabulary.sentences, vocabulary.eos is not None, form.blank_lines, tokenizer


def sums(values: FloatArray, offsets: IntArray) -> FloatArray:
    """Return the sums of values `[N]` between consecutive offsets `[D + 1]`: `[D]`."""
    total = np.zeros(len(offsets) - 1)
    some = np.flatnonzero(np.diff(offsets))
    if len(some):
        total[some] = np.add.reduceat(values, offsets[some])
    return total


def perplexities(rows: Rows, log_prob: str = "log_prob") -> FloatArray:
    """Return exp(-log p / tokens) of each text; nan without tokens. log_prob: name of the column of log p."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(rows["tokens"] > 0, np.exp(-rows[log_prob] / rows["tokens"]), np.nan)


def differences(rows: Rows) -> FloatArray:
    """Return the first model's cross-entropy minus the second's, in nats per token; nan if neither has one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((rows["log_prob_out"] - rows["log_prob"]) / rows["tokens"])


def log_weights(rows: Rows) -> FloatArray:
    """Return log p of each text under the first model minus that under the second; nan as for differences."""
    return np.asarray(-differences(rows) * rows["tokens"])


def criterion(rows: Rows, max_oov: float | None = None, noise: np.random.Generator | None = None) -> FloatArray:
    """Return the criterion of selection, the lower the better: the perplexity, the difference with two models, or minus
    the log weight with hashed n-grams; nan for a text without tokens or with a larger share of OOVs than max_oov.

    With noise, it is minus the log weight and Gumbel noise: the k lowest rows are then a sample without replacement, in
    which each text is drawn with a probability proportional to its weight (Gumbel top-k; Xie et al. 2023).
    """
    if noise is not None:
        values = -log_weights(rows) - noise.gumbel(size=len(rows))
    else:
        values = perplexities(rows) if rows.dtype == TEXT else differences(rows)
        values = values * rows["tokens"] if rows.dtype == BAG else values
    return values if max_oov is None else np.where(rows["oov"] > max_oov * rows["tokens"], np.nan, values)


def scores_of(texts: Iterable[str], scorer: TextsScorer) -> Iterator[TextScore]:
    """Yield the scores of texts in order; texts are read some megabytes ahead."""
    for block in blocks_of(texts):
        rows = scorer(block)
        columns = [rows["tokens"], rows["oov"], rows["log_prob"], perplexities(rows)]
        columns += [differences(rows)] if scorer.dtype == TWO else []
        for tokens, *rest in zip(*(column.tolist() for column in columns), strict=True):
            oov, log_prob, *numbers = rest
            yield TextScore(tokens, oov, log_prob, *(value if value == value else None for value in numbers))


class ScoreJournal:
    """Rows of scores in a folder. blocks: number of blocks of texts whose rows are saved. complete: whether all are.
    faults: of their records, which have no tokens and, unless they are skipped, an error.
    """

    def __init__(self, folder: Path, files: list[IO[bytes]], identity: object, dtype: np.dtype[Any], on_error: str):
        self._folder, self._files, self._identity, self.dtype = folder, files, identity, dtype
        self._saved = time.monotonic()
        self.blocks, self.rows, self.complete, self.faults = 0, 0, False, Faults(on_error)
        try:
            progress = read_json(folder / PROGRESS, "delete it", JOURNAL)
        except UserError:  # interrupted before the first save
            progress = {"identity": None, "rows": 0, "errors": 0}
        sizes = [progress["rows"] * dtype.itemsize, progress["errors"]]
        file_sizes = [os.fstat(file.fileno()).st_size for file in files]
        if identity is not None and progress["identity"] == identity and all(map(operator.ge, file_sizes, sizes)):
            self.blocks, self.rows, self.complete = progress["blocks"], progress["rows"], progress["complete"]
            self.faults.count, self.faults.first_messages = progress["faults"], progress["of_first"]
        for file, size in zip(files, sizes, strict=True):
            file.truncate(size if self.rows else 0)  # what was written after the last save goes

    @classmethod
    @contextmanager
    def open(cls, folder: Path, identity: object, dtype: np.dtype[Any], on_error: str = STOP) -> Iterator[ScoreJournal]:
        """Open the journal of a folder, which this process locks until the block ends; then the folder is removed, or,
        after an error, left if it has rows from which work can be resumed. Rows of other work are dropped.

        identity: plain values that are equal if and only if the work can be resumed; None if it cannot.
        """
        keep = True
        with folder_lock(folder):
            try:
                with (folder / ROWS).open("ab+") as rows, (folder / ERRORS).open("ab+") as errors:
                    journal = cls(folder, [rows, errors], identity, dtype, on_error)
                    try:
                        yield journal
                        keep = False
                    except BaseException:
                        journal.save()
                        keep = journal.blocks > 0 and identity is not None
                        raise
            except BrokenPipeError:  # of standard output, whose reader has enough
                raise
            except OSError as error:
                raise cannot_write(folder, error) from error
            finally:
                if not keep:
                    shutil.rmtree(folder, ignore_errors=True)

    def add(self, rows: Rows, faults: dict[int, str]) -> None:
        """Add the rows of the next block. faults: faults of its records, by position."""
        rows[list(faults)] = 0  # also with blank_lines=sentence
        rows["tokens"][list(faults)] = FAULTY
        messages = [faults[k] for k in sorted(faults)]
        self._files[0].write(rows.tobytes())
        self._files[1].write("".join(f"{json.dumps(message)}\n" for message in messages).encode())
        self.faults.add(messages)
        self.blocks += 1
        self.rows += len(rows)
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self.save()

    def finish(self) -> None:
        """Record that the rows are complete."""
        self.complete = True
        self.save()

    def save(self) -> None:
        """Write the rows and the progress to disk."""
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
        progress = {"identity": self._identity, "blocks": self.blocks, "rows": self.rows, "complete": self.complete}
        errors = os.fstat(self._files[1].fileno()).st_size
        progress |= {"faults": self.faults.count, "of_first": self.faults.first_messages, "errors": errors}
        write_json(self._folder / PROGRESS, progress)
        self._saved = time.monotonic()

    def kept(self, rows: Rows, errors: list[str | None]) -> tuple[Mask, Rows, list[str | None]]:
        """Return the records that have a row in tables, `[M]` (with NULL, all), and their rows and errors."""
        faulty = rows["tokens"] == FAULTY
        chosen = ~faulty | (self.faults.on_error != SKIP)
        if not faulty.any():  # nearly all blocks: no row is copied
            return chosen, rows, errors
        rows["tokens"][faulty] = 0
        return chosen, rows[chosen], [errors[k] for k in np.flatnonzero(chosen).tolist()]

    def _read(self, sizes: Iterable[int]) -> Iterator[tuple[Mask, Rows, list[str | None]]]:
        """Yield rows in order, in chunks of the given sizes, as records, rows and errors (see `kept`)."""
        for file in self._files:
            file.flush()
        with (self._folder / ROWS).open("rb") as file, (self._folder / ERRORS).open("rb") as errors:
            for size in sizes:
                rows = np.fromfile(file, self.dtype, size)
                faulty = (rows["tokens"] == FAULTY).tolist()
                yield self.kept(rows, [str(json.loads(errors.readline())) if each else None for each in faulty])

    def parts(self) -> Iterator[tuple[Rows, list[str | None]]]:
        """Yield all rows that are kept, in order, in parts, with their errors."""
        firsts = range(0, self.rows, ROWS_PER_CHUNK)
        for _, rows, errors in self._read(min(ROWS_PER_CHUNK, self.rows - first) for first in firsts):
            yield rows, errors

    def of_blocks(self, blocks: Iterable[RecordBlock]) -> Iterator[tuple[RecordBlock, Rows, list[str | None]]]:
        """Yield blocks of the texts in order, read a second time, with the rows that are kept and their errors."""
        first, second = tee(blocks)
        for block, (chosen, rows, errors) in zip(second, self._read(map(len, first)), strict=True):
            yield block.where(chosen), rows, errors
