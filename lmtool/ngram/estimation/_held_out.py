"""Held-out text: its tokens as n-grams of the counts, and maximum likelihood on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lmtool.data.split import Split
from lmtool.ngram.counting.counts import Counts
from lmtool.system.arrays import IntArray

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class HeldOut:
    """N held-out tokens. context, ngram: their nodes of each order from 1 to n, int64 `[N]`, within the order below and
    within the order; -1 if they are not in the counts.
    """

    context: list[IntArray]
    ngram: list[IntArray]

    @classmethod
    def of(cls, counts: Counts, text: Split) -> HeldOut:
        """Find the tokens of a text in the counts."""
        contexts, targets = text.windows(np.arange(text.tokens), counts.order - 1)
        trie = counts.trie
        found = cls([np.zeros_like(targets)], [targets])
        nodes = trie.find_contexts(contexts, counts.bos, counts.order - 1)
        for k in range(2, counts.order + 1):
            node = nodes[:, k - 2].copy()
            ngram = trie.find_followers(node, targets)
            found.context.append(np.where(node >= 0, node - trie.first(k - 1), -1))
            found.ngram.append(np.where(ngram >= 0, ngram - trie.first(k), -1))
        return found


def minimize(parameters: list[Tensor], loss: Callable[[], Tensor], **limits: Any) -> None:
    """Minimize `loss` by L-BFGS, changing the parameters in place. limits: max_iter and tolerances of torch's LBFGS."""
    import torch

    optimizer = torch.optim.LBFGS(parameters, line_search_fn="strong_wolfe", **limits)

    def closure() -> Any:
        optimizer.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
