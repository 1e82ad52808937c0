"""Linear mixtures of language models (Jelinek & Mercer 1980): p(w|h) = sum_k weight_k p_k(w|h)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lmtool.data.corpus import Split
from lmtool.errors import UserError
from lmtool.evaluation.score import Scored
from lmtool.language_model import FloatArray, IntArray, LanguageModel, reads_across


@dataclass(frozen=True, slots=True)
class Fit:
    """Mixture weights `[M]` and the proof that they are the best ones.

    `gap` bounds how many nats a token the optimum can be better: the mean log-likelihood is concave
    in the weights, so that it exceeds the one reached by at most log max_k mean_t p_k(t)/p(t).
    """

    weights: FloatArray
    iterations: int
    gap: float


def fit_weights(log_prob: FloatArray, *, tolerance: float = 1e-9, iterations: int = 20_000) -> Fit:
    """Weights that maximise the likelihood of held-out tokens, by EM (Dempster, Laird & Rubin 1977).

    log_prob: `[M, N]`, each model's natural log-probability of each token. Stops when the `gap` of Fit is
    at most `tolerance`, that is at the optimum, not where the steps become small.
    Raises UserError where some token has probability zero under every model.
    """
    members, tokens = log_prob.shape
    best = log_prob.max(axis=0)
    if np.isneginf(best).any():
        where = int(np.isneginf(best).argmax())
        raise UserError(f"token {where} of fit_split has probability zero under every run: no weights fit it")
    relative = np.exp(log_prob - best)  # [M, N], each column's largest is 1
    weights = np.full(members, 1 / members)
    gap, done = np.inf, 0
    while gap > tolerance and done < iterations:
        done += 1
        # E and M step in one: the mean responsibility of model k is weight_k mean_t p_k(t)/p(t).
        ratio = relative @ (1 / (weights @ relative)) / tokens  # [M]
        gap = float(np.log(ratio.max()))
        if gap > tolerance:
            weights = weights * ratio
            weights /= weights.sum()
    return Fit(weights, done, max(gap, 0.0))


def mix(log_prob: FloatArray, weights: FloatArray) -> FloatArray:
    """log sum_k weight_k p_k over the first axis: `[M, ...]` and `[M]` give `[...]`."""
    with np.errstate(divide="ignore"):
        weighted = log_prob + np.log(weights).reshape(-1, *[1] * (log_prob.ndim - 1))
    mixed: FloatArray = np.logaddexp.reduce(weighted, axis=0)
    return mixed


class Ends(NamedTuple):
    """The ids of `</s>` and `<s>`."""

    eos: int
    bos: int


def seen_by(member: LanguageModel, contexts: IntArray, ends: Ends | None = None) -> IntArray:
    """As much of contexts `[N, C]` as a member reads.

    ends: for contexts that may go on across sentences; a member that does not read such ones has `<s>` in place of
    what is before its sentence.
    """
    seen = contexts[:, contexts.shape[1] - member.context_size :]
    if ends is None or reads_across(member):
        return seen
    before = np.logical_or.accumulate((seen == ends.eos)[:, ::-1], axis=1)[:, ::-1]
    return np.where(before, ends.bos, seen)


def longest_context(members: list[LanguageModel]) -> int:
    """What the one reads that reads most."""
    return max(member.context_size for member in members)


class Members:
    """Language models and a weight for each, `[M]`; ends: where some of them reads across sentences."""

    def __init__(self, members: list[LanguageModel], weights: FloatArray, ends: Ends | None = None) -> None:
        self.members = members
        self.weights = weights
        self.ends = ends

    @property
    def context_size(self) -> int:
        """The longest of the members' contexts."""
        return longest_context(self.members)

    @property
    def across_sentences(self) -> bool:
        """Whether a member reads across sentences."""
        return any(map(reads_across, self.members))


class Mixture(Members):
    """A linear mixture, itself a language model: each member sees as much of the context as it reads."""

    @property
    def normalised(self) -> bool:
        """Whether all members are."""
        return all(getattr(member, "normalised", True) for member in self.members)

    @property
    def dynamic(self) -> bool:
        """Whether a member changes with the text that it scores."""
        return any(getattr(member, "dynamic", False) for member in self.members)

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """As LanguageModel.log_prob."""
        found = [member.log_prob(seen_by(member, contexts, self.ends), targets) for member in self.members]
        return mix(np.stack(found), self.weights)

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """As LanguageModel.log_dist."""
        found = [member.log_dist(seen_by(member, contexts, self.ends)) for member in self.members]
        return mix(np.stack(found), self.weights)

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """As LanguageModel.log_prob_candidates."""
        found = [
            member.log_prob_candidates(seen_by(member, contexts, self.ends), candidates) for member in self.members
        ]
        return mix(np.stack(found), self.weights)

    def log_prob_split(self, split: Split, scored: Scored) -> FloatArray:
        """As SplitScorer.log_prob_split."""
        return mix(np.stack([scored(member, split) for member in self.members]), self.weights)
