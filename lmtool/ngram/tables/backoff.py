"""The back-off table: what the estimator makes of every smoother, and what every n-gram model reads.

    p(w|h) = the stored probability of hw, where the table has that n-gram, else backoff(h) p(w|h')

with h' the context without its first word (Katz 1987, eq. 2; the form of the ARPA format). Interpolated smoothers have
this form, too: their probabilities are stored after interpolation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.errors import UserError
from lmtool.ngram.files.hdf5 import mapped, read_trie, write_array, write_trie
from lmtool.ngram.tables.quantized import QuantisedValues, quantise, read_quantised, write_quantised
from lmtool.ngram.tables.storage import Storage, whole_numbers_below
from lmtool.ngram.tables.trie import Trie, TrieBuilder, ngram_keys
from lmtool.system.arrays import FloatArray
from lmtool.system.hdf5_files import VERSION, atomic_hdf5, open_hdf5, require_own_content

Array = npt.NDArray[Any]
KIND = "lmtool back-off table"
FORMAT, SMALL_FORMAT = 2, 3  # of float32 values, and of quantised ones
REMEDY = "train the model again"


@dataclass(frozen=True, slots=True)
class BackoffTable:
    """The n-grams of orders 1 to n with their natural log-probabilities and back-off weights, float32 or quantised.

    log_prob: of each node of the trie. log_backoff: of each node of an order below n, 0 where nothing follows it. Both
    are float32 arrays, or both quantised: log_probs() and log_backoffs() give either, and `unpacked` float32 arrays.
    bos: the id of `<s>`. unseen: log-probability of types outside the vocabulary, -inf if they have none. missing: log
    back-off weight of contexts that are not in the table. normalised: whether these are probabilities or scores, which
    do not sum to one. suffix_closed: whether the table has the last k-1 words of each n-gram of order k. notes: what
    the user should know about the estimation.
    """

    trie: Trie
    log_prob: Array | QuantisedValues
    log_backoff: Array | QuantisedValues
    bos: int
    unseen: float
    missing: float = 0.0
    normalised: bool = True
    suffix_closed: bool = True
    notes: tuple[str, ...] = ()

    @property
    def order(self) -> int:
        """n, the order of the longest n-grams."""
        return self.trie.order

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return self.trie.vocabulary_size

    @property
    def sizes(self) -> list[int]:
        """The number of n-grams of each order; `<s>` is one of the unigrams."""
        return self.trie.sizes

    @property
    def arrays(self) -> list[Array]:
        """All arrays that it lies in."""
        values = (self.log_prob, self.log_backoff)
        parts = [part for v in values for part in (v.arrays if isinstance(v, QuantisedValues) else (v,))]
        return [part for part in (*self.trie.nodes, *parts) if isinstance(part, np.ndarray)]

    @property
    def quantised_bits(self) -> int | None:
        """The number of bits of a value; None for float32."""
        return self.log_prob.width if isinstance(self.log_prob, QuantisedValues) else None

    def log_probs(self, first: int, last: int) -> Array:
        """The log-probabilities of nodes `first` to before `last`, float32."""
        return _between(self.log_prob, first, last)

    def log_backoffs(self, first: int, last: int) -> Array:
        """The log back-off weights of nodes `first` to before `last` of orders below n, float32."""
        return _between(self.log_backoff, first, last)

    def unpacked(self) -> BackoffTable:
        """The same table with float32 arrays: itself, unless it is quantised."""
        if self.quantised_bits is None:
            return self
        log_prob, log_backoff = self.log_probs(0, len(self.log_prob)), self.log_backoffs(0, len(self.log_backoff))
        return replace(self, log_prob=log_prob, log_backoff=log_backoff)

    def quantised(self, bits: int, storage: Storage | None = None) -> BackoffTable:
        """The table with values of 4 to 8 bits, quantised by order (see quantised), over a small trie.

        storage: of the arrays; memory if None. Raises UserError where the values are quantised already.
        """
        if isinstance(self.log_prob, QuantisedValues) or isinstance(self.log_backoff, QuantisedValues):
            raise UserError(f"the model is quantised already, to {self.quantised_bits} bits: quantise the one before")
        storage = storage or Storage()
        return replace(
            self,
            trie=self.trie.small(storage),
            log_prob=quantise(self.log_prob, self.sizes, bits, storage),
            log_backoff=quantise(self.log_backoff, self.sizes[:-1], bits, storage),
        )

    def select(self, mask: Array, storage: Storage | None = None) -> BackoffTable:
        """The table of the n-grams marked in `mask`, bool `[nodes]`, with the same probabilities and weights.

        The context of a marked n-gram must be marked as well. Words whose 1-grams are not marked leave the vocabulary,
        and the others are numbered again in their order. storage: of the arrays; memory if None.
        """
        storage, plain = storage or Storage(), self.unpacked()
        marked_words = np.cumsum(mask[: self.vocabulary_size])
        builder = TrieBuilder(int(marked_words[-1]), storage)
        kind = whole_numbers_below(sum(self.sizes))
        new_words = numbers = (marked_words - 1).astype(kind)  # numbers: of the selected contexts, within their order
        for k in range(2, self.order + 1):
            here = mask[self.trie.first(k) : self.trie.first(k + 1)]
            keys = storage.empty(int(np.count_nonzero(here)), np.uint64)
            longer = storage.empty(len(here) if k < self.order else 0, kind)
            done = 0
            for first, last in self.trie.context_blocks(k):
                begins = self.trie.begins(k - 1, first, last)
                marked = here[begins[0] : begins[-1]]
                context = np.repeat(numbers[first:last], np.diff(begins))[marked]
                words = new_words[self.trie.words(k, int(begins[0]), int(begins[-1]))[marked]]
                keys[done : done + len(words)] = ngram_keys(context, words, builder.word_width)
                if k < self.order:
                    longer[begins[0] : begins[-1]] = done + np.cumsum(marked) - 1
                done += len(words)
                storage.keep_within()
            builder.add(keys)
            numbers = longer
        inner = mask[: self.trie.first(self.order)]
        return replace(
            self,
            trie=builder.finish(),
            log_prob=_marked(plain.log_probs(0, len(mask)), mask, storage),
            log_backoff=_marked(plain.log_backoffs(0, len(inner)), inner, storage),
            bos=int(new_words[self.bos]),
        )

    def save(self, path: Path, vocabulary_fingerprint: str) -> None:
        """Write the table to HDF5, whole or not at all. Raises UserError where it cannot be written."""
        size = sum(array.nbytes for array in self.arrays)
        with atomic_hdf5(path, size, mapped=True) as file:
            file.attrs["kind"] = KIND
            file.attrs["format"] = FORMAT if self.quantised_bits is None else SMALL_FORMAT
            file.attrs["vocabulary_fingerprint"] = vocabulary_fingerprint
            file.attrs["bos"] = self.bos
            for name in ("unseen", "missing", "normalised", "suffix_closed"):
                file.attrs[name] = getattr(self, name)
            file.attrs["notes"] = json.dumps(self.notes)
            write_trie(file, self.trie)
            for name, values in (("log_prob", self.log_prob), ("log_backoff", self.log_backoff)):
                if isinstance(values, QuantisedValues):
                    write_quantised(file, name, values)
                else:
                    write_array(file, name, values)

    @classmethod
    def open(cls, path: Path, vocabulary_fingerprint: str) -> BackoffTable:
        """Open a table; its file is verified, and its arrays are memory-mapped.

        Raises UserError where the file is missing, damaged, or made with another vocabulary.
        """
        if not path.is_file():
            raise UserError(f"the model file {path} is missing: {REMEDY}")
        try:
            with open_hdf5(path) as file:
                if file.attrs.get("kind") != KIND or file.attrs.get("format") not in (FORMAT, SMALL_FORMAT):
                    raise UserError(f"{path} is not a back-off table of format {FORMAT} or {SMALL_FORMAT}: {REMEDY}")
                if file.attrs["vocabulary_fingerprint"] != vocabulary_fingerprint:
                    raise UserError(f"{path} was made with another vocabulary: {REMEDY}")
                require_own_content(file, path)
                trie = read_trie(file)
                small = file.attrs["format"] == SMALL_FORMAT
                log_prob, log_backoff = (
                    read_quantised(file, name, trie.sizes[:orders]) if small else mapped(file[name], np.float32)
                    for name, orders in (("log_prob", trie.order), ("log_backoff", trie.order - 1))
                )
                table = cls(
                    trie=trie,
                    log_prob=log_prob,
                    log_backoff=log_backoff,
                    bos=int(file.attrs["bos"]),
                    unseen=float(file.attrs["unseen"]),
                    missing=float(file.attrs["missing"]),
                    normalised=bool(file.attrs["normalised"]),
                    suffix_closed=bool(file.attrs["suffix_closed"]),
                    notes=tuple(json.loads(file.attrs["notes"])),
                )
            if len(table.log_prob) != sum(trie.sizes) or len(table.log_backoff) != sum(trie.sizes[:-1]):
                raise ValueError("arrays of wrong lengths")
            if not 0 <= table.bos < table.vocabulary_size:
                raise ValueError("<s> is not a word")
            return table
        except (OSError, KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
            raise UserError(
                f"{path} is damaged or cut off, or of a newer HDF5 than {VERSION} ({error}): {REMEDY}"
            ) from error


def _between(values: Array | QuantisedValues, first: int, last: int) -> Array:
    return values.get(first, last) if isinstance(values, QuantisedValues) else values[first:last]


def _marked(values: Array, mask: Array, storage: Storage) -> Array:
    kept = storage.empty(int(np.count_nonzero(mask)), values.dtype)
    done = 0
    for first, last in storage.pieces(len(values)):
        here = values[first:last][mask[first:last]]
        kept[done : done + len(here)] = here
        done += len(here)
    return kept


def log(values: FloatArray) -> FloatArray:
    """Natural logarithms, -inf of 0 without a warning."""
    with np.errstate(divide="ignore"):
        logarithms: FloatArray = np.log(values)
    return logarithms
