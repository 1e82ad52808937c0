"""Parameters of a smoother by the likelihood of held-out text, those of all orders together.

The report of CS287 HW3 turned the discounts of Kneser-Ney by hand until the development set liked them. An
interpolated model's probability of one token depends on a few numbers an order, the count of the n-gram and what is
known of its context, so that the likelihood and its gradient over a held-out text take milliseconds, and the best
parameters seconds.
The smoother's own formulas are used as they are, on PyTorch's arrays in place of numpy's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from lmtool.data.corpus import Split
from lmtool.errors import UserError
from lmtool.language_model import FloatArray, IntArray
from lmtool.ngram.counts import Counts
from lmtool.ngram.estimate import (
    Contexts,
    Form,
    Smoother,
    adjusted_counts,
    contexts_of,
    count_of_counts,
    newest_count,
)
from lmtool.ngram.packed import read
from lmtool.ngram.scoring import SHORT, find_contexts, find_grams
from lmtool.ngram.storage import Storage


@dataclass(frozen=True, slots=True)
class Tuned:
    """Perplexity of the held-out text with the parameters that tuning began with, and with those it found."""

    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Observed:
    """What one order knows of N held-out tokens: a(hw), the context's sums, and whether it was ever seen."""

    a: IntArray
    contexts: FloatArray
    seen: Any


def fit_and_tune(counts: Counts, smoother: Smoother, held_out: Split, storage: Storage) -> Tuned:
    """Set smoother.values to what gives the held-out text the highest likelihood, beginning with the estimates.

    Raises UserError for a form whose probabilities are not interpolated.
    """
    if smoother.form is not Form.interpolated:
        raise UserError("only interpolated smoothers can be tuned: set smoother.interpolate=true")
    import torch

    windows = held_out.windows(np.arange(held_out.tokens), counts.order - 1)
    observed = [_observe(counts, smoother, k, windows, storage) for k in range(1, counts.order + 1)]
    types = counts.trie.vocabulary_size - 1 + smoother.unknown
    low, high = (torch.tensor(bound, dtype=torch.float64) for bound in (smoother.low, smoother.high))
    span = high - low
    begin = torch.tensor(smoother.values, dtype=torch.float64)
    inside = ((begin - low) / span.clamp(min=1e-12)).clamp(1e-4, 1 - 1e-4)
    free = torch.logit(inside).requires_grad_(True)
    tensors = [
        (torch.from_numpy(o.a), Contexts(*torch.from_numpy(o.contexts)), torch.from_numpy(o.seen)) for o in observed
    ]

    def loss() -> Any:
        p = torch.full((held_out.tokens,), 1.0 / types, dtype=torch.float64)
        for k, (a, h, seen) in enumerate(tensors, start=1):
            p = torch.where(seen, smoother.kept(k, a) / smoother.norm(k, h) + smoother.weight(k, h) * p, p)
        return -p.log().mean()

    smoother.values = begin
    with torch.no_grad():
        before = float(loss().exp())
    optimiser = torch.optim.LBFGS(
        [free], max_iter=300, tolerance_grad=1e-9, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def step() -> Any:
        optimiser.zero_grad()
        smoother.values = low + span * torch.sigmoid(free)
        found = loss()
        found.backward()
        return found

    optimiser.step(step)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        smoother.values = low + span * torch.sigmoid(free)
        after = float(loss().exp())
        smoother.values = smoother.values.numpy() if after < before else begin.numpy()
    return Tuned(before, min(before, after))


def _observe(
    counts: Counts, smoother: Smoother, k: int, windows: tuple[IntArray, IntArray], storage: Storage
) -> Observed:
    """What order k knows of the held-out tokens; the smoother's own estimates are made on the way."""
    contexts, targets = windows
    nodes, trie = counts.trie.nodes, counts.trie
    a = adjusted_counts(counts, k, smoother.counting, storage)
    smoother.fit(k, count_of_counts(a), newest_count(counts, a, k))
    if k == 1:
        everything = a.all()
        h = contexts_of(everything, np.array([0, len(everything)]))
        sums = np.concatenate([h.total, h.ones, h.twos, h.more])
        return Observed(
            everything[targets], np.repeat(sums[:, None], len(targets), axis=1), np.ones(len(targets), bool)
        )
    node = np.full(len(targets), SHORT)
    gram = np.full(len(targets), SHORT)
    arrays = nodes.searching
    find_contexts(*arrays, counts.bos, contexts, k - 1, node)
    find_grams(*arrays, node, targets, gram)
    asked, place = np.unique(node[node >= 0], return_inverse=True)
    found = np.ones((4, len(targets)))
    if len(asked):
        within = asked - trie.first(k - 1)
        every = trie.begins(k - 1, 0, trie.sizes[k - 2])
        begins = np.stack([every[within], every[within + 1]], axis=1)
        sums = np.zeros((4, len(asked)))
        _sum_some(a.bits, a.width, begins, sums)
        found[:, node >= 0] = sums[:, place]
    own = np.zeros(len(targets), dtype=np.int64)
    if (gram >= 0).any():
        own[gram >= 0] = a.at(gram[gram >= 0] - trie.first(k))
    seen = (node >= 0) & (found[0] > 0)
    found[0, ~seen] = 1.0  # nothing is divided by zero where the shorter context decides
    return Observed(own, found, seen)


@numba.njit(cache=True, nogil=True)
def _sum_some(bits: Any, width: int, begins: Any, sums: Any) -> None:
    for c in range(len(begins)):
        for i in range(begins[c, 0], begins[c, 1]):
            a = read(bits, width, i)
            sums[0, c] += a
            if a > 0:
                sums[min(a, 3), c] += 1
