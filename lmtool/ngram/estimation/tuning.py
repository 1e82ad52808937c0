"""Tune a smoother's parameters, those of all orders together, by maximum likelihood on held-out text, or of the answers
of cloze questions, renormalized over their candidates.

Chen & Goodman (1998) tune their smoothers so; the report of CS287 HW3 did it by hand. The probability of a token under
an interpolated model depends on a few numbers per order: the n-gram's count and the sums over its context. So the
likelihood of a held-out text and its gradient take milliseconds, and L-BFGS finds the optimum in seconds. The
likelihood may have several maxima, e.g. where an estimated discount is at its bound; so L-BFGS starts there and from
the middle of all ranges. The smoother's formulas are evaluated on tensors instead of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lmtool.data.cloze import Cloze, unk_sharers
from lmtool.data.split import Split
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import Counts
from lmtool.ngram.estimation.formulas import Observations, contexts_of, fit_order, num_unseen_types, observations
from lmtool.ngram.smoothers.base import Combination, Contexts, Smoother
from lmtool.ngram.tables.storage import Storage
from lmtool.system.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from torch import Tensor

# Share of its range that a tuned parameter keeps from its bounds: at a discount of 0 or a lambda of 1, the optimum for
# held-out text without unseen words, unseen words would have probability 0.
BOUND_MARGIN = 1e-9
MIN_GAIN = 1e-7  # of the perplexity, relative, by which another start must be better to be chosen
# Where L-BFGS ends. A smoother with its own gradient takes a pass over all n-grams for each step.
LIMITS = {"max_iter": 300, "tolerance_grad": 1e-9, "tolerance_change": 1e-12}
LIMITS_OF_GRADIENT = {"max_iter": 200, "tolerance_grad": 1e-7, "tolerance_change": 1e-6}


@dataclass(frozen=True, slots=True)
class Tuned:
    """Perplexity of the held-out text or questions before and after tuning."""

    before: float
    after: float


def held_out_nodes(counts: Counts, text: Split) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the nodes of N held-out tokens in each order k from 1 to n: of their contexts, within order k-1, and of
    their n-grams, within order k; both int64 `[N]`, -1 if they are not in the counts.
    """
    trie, words = counts.trie, text.ids.astype(np.int64)
    yield np.zeros_like(words), words
    starts = text.offsets[:-1][np.diff(text.offsets) > 0]
    ngram = words
    for k in range(2, counts.order + 1):
        # In running text the context of a word is the n-gram of the order below that ends in the word before it.
        context = np.append(np.int64(-1), ngram)[:-1]
        context[starts] = counts.bos if k == 2 else -1
        ngram = trie.find_followers(context, words)
        yield np.where(context >= 0, context - trie.first(k - 1), -1), np.where(ngram >= 0, ngram - trie.first(k), -1)


def candidate_nodes(counts: Counts, questions: Cloze) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the nodes of the N = Q K candidates of questions, as held_out_nodes those of tokens."""
    trie, words, size = counts.trie, questions.candidates.reshape(-1), counts.order - 1
    yield np.zeros_like(words), words
    found = trie.find_contexts(questions.contexts_matrix(size, counts.bos), counts.bos, size)
    for k in range(2, counts.order + 1):
        context = np.repeat(found[:, k - 2], questions.candidates.shape[1])
        ngram = trie.find_followers(context, words)
        yield np.where(context >= 0, context - trie.first(k - 1), -1), np.where(ngram >= 0, ngram - trie.first(k), -1)


def _nodes_and_loss(counts: Counts, held_out: Split | Cloze) -> tuple[list[tuple[IntArray, IntArray]], Any]:
    """Return the nodes of N tokens or candidates in each order, and the function of their probabilities, a tensor
    `[N]`, that is minimized: the mean -log p of the tokens or of the answers.
    """
    if isinstance(held_out, Split):
        return list(held_out_nodes(counts, held_out)), lambda p: -p.log().mean()
    import torch

    candidates, answers = held_out.candidates, torch.from_numpy(held_out.answers[:, None])
    shares = torch.from_numpy((candidates != counts.bos) / unk_sharers(candidates, counts.unk))

    def loss(p: Any) -> Any:
        shared = p.reshape(shares.shape) * shares
        return (shared.sum(1).log() - shared.gather(1, answers)[:, 0].log()).mean()

    return list(candidate_nodes(counts, held_out)), loss


def fit_and_tune(counts: Counts, smoother: Smoother, held_out: Split | Cloze, storage: Storage) -> Tuned:
    """Estimate smoother.values, then tune them and sources' weights to the highest likelihood of held-out text or
    answers.
    """
    if smoother.combination is not Combination.interpolated:
        raise UserError("only interpolated smoothers can be tuned: set smoother.interpolate=true")
    import torch

    nodes, loss_of_p = _nodes_and_loss(counts, held_out)
    types = counts.trie.vocabulary_size - 1 + num_unseen_types(counts, smoother)

    def loss_and_slope(p: FloatArray) -> tuple[float, FloatArray]:
        tensor = torch.from_numpy(p).requires_grad_()
        with torch.enable_grad():
            value = loss_of_p(tensor)
        return float(value.detach()), torch.autograd.grad(value, tensor)[0].numpy()

    gradient = smoother.gradient(counts, nodes, types, loss_and_slope)
    tensors: list[Any] = []
    if gradient is None:
        for k, a in enumerate(observations(counts, smoother, storage), start=1):
            fit_order(counts, smoother, k, a)
            token_counts, sums, seen = _observe(counts, k, a, *nodes[k - 1])
            tensors.append((torch.from_numpy(token_counts), Contexts(*torch.from_numpy(sums)), torch.from_numpy(seen)))
    margin, limits = (BOUND_MARGIN, LIMITS) if gradient is None else (0.0, LIMITS_OF_GRADIENT)
    low, high = torch.tensor([*smoother.bounds.values()], dtype=torch.float64).reshape(-1, 2).T
    span = high - low
    start = torch.tensor(smoother.values, dtype=torch.float64)
    shares = (
        torch.zeros(0, dtype=torch.float64) if smoother.weights is None else torch.from_numpy(smoother.weights)
    )  # of the sources

    def loss(weights: Any, values: Any) -> Any:
        if gradient is not None:
            value, by_weight, by_value = gradient(weights.detach().numpy(), values.detach().numpy())
            linear = (weights * torch.from_numpy(by_weight)).sum() + (values * torch.from_numpy(by_value)).sum()
            return value + (linear - linear.detach())  # has the gradient that autograd cannot compute
        smoother.values = values
        p = torch.full((len(nodes[0][1]),), 1.0 / types, dtype=torch.float64)
        for k, (a, h, seen) in enumerate(tensors, start=1):
            share = smoother.numerator(k, a) / smoother.denominator(k, h)
            p = torch.where(seen, share + smoother.weight(k, h) * p, p)
        return loss_of_p(p)

    def bounded(scores: Any, logits: Any) -> tuple[Any, Any]:  # weights and values of unconstrained numbers
        return torch.softmax(scores, 0), low + span * (margin + (1 - 2 * margin) * torch.sigmoid(logits))

    def loss_of(scores: Any, logits: Any) -> Any:
        return loss(*bounded(scores, logits))

    best = shares, start
    with torch.no_grad():
        before = after = float(loss(*best).exp())
    fraction = ((start - low) / span.clamp(min=1e-12)).clamp(1e-4, 1 - 1e-4)
    for begin in (fraction, torch.full_like(fraction, 0.5)):
        free = shares.log().requires_grad_(True), torch.logit(begin).requires_grad_(True)
        _minimize(free, partial(loss_of, *free), **limits)
        with torch.no_grad():
            found = bounded(*free)
            perplexity = float(loss(*found).exp())
        if perplexity < after * (1 - MIN_GAIN):
            after, best = perplexity, found
            smoother.notes_on_values.clear()
    smoother.values = best[1].numpy()
    if smoother.weights is not None:
        smoother.weights = best[0].numpy()
    return Tuned(before, after)


def _observe(
    counts: Counts, k: int, a: Observations, context: IntArray, ngram: IntArray
) -> tuple[npt.NDArray[Any], FloatArray, Any]:
    """Return for N held-out tokens in order k: a(hw) `[N]`, or `[N, 2]` with tables; the sums of Contexts, float64
    `[4, N]`; whether the context was seen, bool `[N]`.
    """
    distinct, place = np.unique(context[context >= 0], return_inverse=True)
    sums = np.ones((4, len(context)))
    sums[:, context >= 0] = _context_sums(counts, k, a, distinct)[:, place]
    found = a[ngram[ngram >= 0]]
    token_counts = np.zeros((len(ngram), *found.shape[1:]), dtype=found.dtype)
    token_counts[ngram >= 0] = found
    seen = (context >= 0) & (sums[0] > 0)
    sums[0, ~seen] = 1.0  # no division by zero if the shorter context decides
    return token_counts, sums, seen


def _context_sums(counts: Counts, k: int, a: Observations, contexts: IntArray) -> FloatArray:
    """Return the sums of Contexts, float64 `[4, D]`, for ascending contexts `[D]`, nodes within order k-1."""
    trie, sums = counts.trie, np.empty((4, len(contexts)))
    for first, last in trie.context_blocks(k) if k > 1 else [(0, 1)]:
        begins = trie.begins(k - 1, first, last) if k > 1 else np.array([0, len(a)])
        h = contexts_of(a[int(begins[0]) : int(begins[-1])], begins - begins[0])
        here = slice(*np.searchsorted(contexts, (first, last)).tolist())
        some = contexts[here] - first
        sums[:, here] = h.total[some], h.types[some], h.ones[some], h.twos[some]
    return sums


def _minimize(parameters: Sequence[Tensor], loss: Callable[[], Tensor], **limits: Any) -> None:
    """Minimize `loss` by L-BFGS, changing the parameters in place. limits: max_iter and tolerances of torch's LBFGS."""
    import torch

    optimizer = torch.optim.LBFGS(list(parameters), line_search_fn="strong_wolfe", **limits)

    def closure() -> Any:
        optimizer.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
