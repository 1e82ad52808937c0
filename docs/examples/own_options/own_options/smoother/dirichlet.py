"""Smoothing with a Dirichlet prior (MacKay & Peto 1995, "A hierarchical Dirichlet language model", eq. 14).

    p(w|h) = (c(hw) + mu p(w|h')) / (c(h.) + mu)

h' is h without its first word; mu is the weight of the shorter context, in words of text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lmtool.config.groups import SmootherConfig
from lmtool.config.rules import setting
from lmtool.data.vocabulary import Vocabulary
from lmtool.ngram.smoothers.base import Contexts, Smoother


@dataclass(slots=True)
class DirichletConfig(SmootherConfig):
    """Smoothing with a Dirichlet prior."""

    mu: float = setting(above=0)

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        """Return the smoother, which estimates nothing."""
        return Dirichlet(order, mu=self.mu)


class Dirichlet(Smoother):
    """One parameter, mu, for all orders."""

    def __init__(self, order: int, *, mu: float) -> None:
        Smoother.__init__(self, order)
        self.mu = mu

    def denominator(self, k: int, h: Contexts) -> Any:
        """c(h.) + mu"""
        return h.total + self.mu

    def weight(self, k: int, h: Contexts) -> Any:
        """mu / (c(h.) + mu)"""
        return self.mu / (h.total + self.mu)
