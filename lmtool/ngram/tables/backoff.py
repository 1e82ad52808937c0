"""The back-off table: the result of estimating with any smoother, and what every n-gram model reads.

    p(w|h) = the stored probability of hw, if the table has that n-gram, else backoff(h) p(w|h')

with h' the context without its first word (Katz 1987, eq. 2; the form of the ARPA format). Interpolated smoothers
have this form too: their probabilities are stored after interpolation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lmtool.errors import UserError
from lmtool.ngram.tables.quantized import QuantizedValues, quantize
from lmtool.ngram.tables.storage import Storage, whole_numbers_below
from lmtool.ngram.tables.trie import Trie, TrieBuilder
from lmtool.system.arrays import Array, FloatArray


@dataclass(frozen=True, slots=True)
class BackoffTable:
    """The n-grams of orders 1 to n with their natural log-probabilities and back-off weights, float32 or quantized.

    log_prob: log-probability of each node of the trie.
    log_backoff: log back-off weight of each node of an order below n, 0 if nothing follows it. Both are float32 arrays,
    or both quantized; a range of either is a float32 array, and `unpacked` makes whole ones.
    bos: the id of `<s>`.
    unseen: log-probability of types outside the vocabulary, -inf if they have none.
    missing: log back-off weight of contexts that are not in the table.
    normalized: whether these are probabilities or scores, which do not sum to one.
    suffix_closed: whether the table has the last k-1 words of each n-gram of order k.
    interpolated: whether p(w|h) of each n-gram is its share plus backoff(h) p(w|h').
    notes: notes for the user about the estimation.
    """

    trie: Trie
    log_prob: Array | QuantizedValues
    log_backoff: Array | QuantizedValues
    bos: int
    unseen: float
    missing: float = 0.0
    normalized: bool = True
    suffix_closed: bool = True
    interpolated: bool = False
    notes: tuple[str, ...] = ()

    @property
    def order(self) -> int:
        return self.trie.order

    @property
    def vocabulary_size(self) -> int:
        return self.trie.vocabulary_size

    @property
    def sizes(self) -> list[int]:
        return self.trie.sizes

    @property
    def arrays(self) -> list[Array]:
        values = (self.log_prob, self.log_backoff)
        parts = [part for v in values for part in (v.arrays if isinstance(v, QuantizedValues) else (v,))]
        return [part for part in (*self.trie.nodes, *parts) if isinstance(part, np.ndarray)]

    @property
    def quantized_bits(self) -> int | None:
        """Bits per value; None for float32."""
        return self.log_prob.width if isinstance(self.log_prob, QuantizedValues) else None

    def unpack(self) -> BackoffTable:
        """Return the table with float32 arrays: itself, unless it is quantized."""
        if self.quantized_bits is None:
            return self
        return replace(self, log_prob=self.log_prob[:], log_backoff=self.log_backoff[:])

    def quantize(self, bits: int, storage: Storage | None = None) -> BackoffTable:
        """Return the table with values quantized order by order to 4 to 8 bits, in `storage` (None: in memory)."""
        if isinstance(self.log_prob, QuantizedValues) or isinstance(self.log_backoff, QuantizedValues):
            raise UserError(
                f"the model is quantized already, to {self.quantized_bits} bits: quantize the one it was made from"
            )
        storage = storage or Storage()
        return replace(
            self,
            log_prob=quantize(self.log_prob, self.sizes, bits, storage),
            log_backoff=quantize(self.log_backoff, self.sizes[:-1], bits, storage),
            interpolated=False,  # only roughly: shares would be differences of rounded numbers
        )

    def select(self, mask: Array, storage: Storage | None = None) -> BackoffTable:
        """Return the table of the n-grams marked in `mask`, bool `[nodes]`, with the same probabilities and weights.

        The context of a marked n-gram must be marked too. Words whose 1-grams are not marked leave the vocabulary; the
        others keep their order. storage: where the arrays go; memory if None.
        """
        storage, plain = storage or Storage(), self.unpack()
        marked_words = np.cumsum(mask[: self.vocabulary_size])
        builder = TrieBuilder(int(marked_words[-1]), storage)
        kind = whole_numbers_below(sum(self.sizes))
        new_words = numbers = (marked_words - 1).astype(kind)  # numbers: of the selected contexts, within their order
        for k in range(2, self.order + 1):
            here = mask[self.trie.span(k)]
            keys = storage.empty(int(np.count_nonzero(here)), np.uint64)
            longer = storage.empty(len(here) if k < self.order else 0, kind)
            done = 0
            for first, last in self.trie.context_blocks(k):
                begins = self.trie.begins(k - 1, first, last)
                marked = here[begins[0] : begins[-1]]
                context = np.repeat(numbers[first:last], np.diff(begins))[marked]
                words = new_words[self.trie.words(k, int(begins[0]), int(begins[-1]))[marked]]
                keys[done : done + len(words)] = builder.keys(context, words)
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
            log_prob=_select_values(plain.log_prob[:], mask, storage),
            log_backoff=_select_values(plain.log_backoff[:], inner, storage),
            bos=int(new_words[self.bos]),
        )


def _select_values(values: Array, mask: Array, storage: Storage) -> Array:
    kept = storage.empty(int(np.count_nonzero(mask)), values.dtype)
    done = 0
    for first, last in storage.pieces(len(values)):
        here = values[first:last][mask[first:last]]
        kept[done : done + len(here)] = here
        done += len(here)
    return kept


def log(values: FloatArray) -> FloatArray:
    """Return natural logarithms, -inf for 0 without a warning."""
    with np.errstate(divide="ignore"):
        logarithms: FloatArray = np.log(values)
    return logarithms
