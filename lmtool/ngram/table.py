"""The back-off table: what every smoother makes and every n-gram model reads.

p(w|h) is the probability kept for (h, w) where that n-gram is kept, else backoff(h) p(w|h') with h' the context
without its first word (Katz 1987, eq. 2; the form of the ARPA format). An interpolated smoother fits it as well:
its probabilities are kept with the interpolation done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from lmtool.errors import UserError
from lmtool.files import reserve, written_whole
from lmtool.model import FloatArray, IntArray

FORMAT = 1
REMEDY = "train the model again"


@dataclass(frozen=True, slots=True)
class TableOrder:
    """The n-grams of one order, sorted by key; M of them.

    keys: `[M]` as in OrderCounts. log_prob: `[M]`, log p of the last word after the others. log_backoff:
    `[M]`, log of the back-off weight of the whole n-gram as a context, 0 where it is never one.
    """

    keys: IntArray
    log_prob: FloatArray
    log_backoff: FloatArray


@dataclass(frozen=True, slots=True)
class BackoffTable:
    """Orders 1 to n; natural logarithms; V words, of which `<s>` is only context.

    unseen: log-probability that the unigram distribution keeps for types that are not in the vocabulary
    (-inf for none). notes: what the estimator had to do that the user should know.
    """

    orders: list[TableOrder]
    vocabulary_size: int
    bos: int
    unseen: float
    notes: tuple[str, ...] = ()

    @property
    def order(self) -> int:
        """n, the length of the longest n-grams."""
        return len(self.orders)

    @property
    def sizes(self) -> list[int]:
        """How many n-grams there are of each order; `<s>` is one of the unigrams."""
        return [len(order.keys) for order in self.orders]

    def save(self, path: Path, vocabulary_fingerprint: str) -> None:
        """Write the table to HDF5, whole or not at all."""
        size = sum(24 * len(order.keys) for order in self.orders) + (1 << 16)
        with written_whole(path) as temporary, _created(temporary, size) as file:
            file.attrs["kind"] = "lmtool back-off table"
            file.attrs["format"] = FORMAT
            file.attrs["vocabulary_fingerprint"] = vocabulary_fingerprint
            file.attrs["vocabulary_size"] = self.vocabulary_size
            file.attrs["bos"] = self.bos
            file.attrs["unseen"] = self.unseen
            file.attrs["order"] = self.order
            for k, order in enumerate(self.orders, start=1):
                group = file.create_group(f"order{k}")
                group["keys"] = order.keys
                group["log_prob"] = order.log_prob
                group["log_backoff"] = order.log_backoff

    @classmethod
    def load(cls, path: Path, vocabulary_fingerprint: str) -> BackoffTable:
        """Read a table. Raises UserError where it is missing, damaged, or of another vocabulary."""
        if not path.is_file():
            raise UserError(f"the model file {path} is missing: {REMEDY}")
        try:
            with h5py.File(path, "r") as file:
                if file.attrs.get("kind") != "lmtool back-off table" or file.attrs.get("format") != FORMAT:
                    raise UserError(f"{path} is no back-off table of format {FORMAT}: {REMEDY}")
                if file.attrs["vocabulary_fingerprint"] != vocabulary_fingerprint:
                    raise UserError(f"{path} was made with another vocabulary: {REMEDY}")
                groups = [file[f"order{k}"] for k in range(1, int(file.attrs["order"]) + 1)]
                orders = [
                    TableOrder(group["keys"][:], group["log_prob"][:], group["log_backoff"][:]) for group in groups
                ]
                return cls(
                    orders,
                    int(file.attrs["vocabulary_size"]),
                    int(file.attrs["bos"]),
                    float(file.attrs["unseen"]),
                )
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path} is damaged or cut off: {REMEDY}") from error


@contextmanager
def _created(path: Path, size: int) -> Iterator[h5py.File]:
    reserve(path, size)
    with h5py.File(path, "w") as file:
        yield file


def log(values: FloatArray) -> FloatArray:
    """Natural logarithm, -inf for 0 without a warning."""
    with np.errstate(divide="ignore"):
        found: FloatArray = np.log(values)
    return found
