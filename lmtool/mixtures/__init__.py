"""Mixtures of language models, each itself one: linear, with weights by class of context, log-linear, with a cache."""

from lmtool.mixtures.linear import Ends, Fit, Mixture, fit_weights, longest_context, mix

__all__ = ["Ends", "Fit", "Mixture", "fit_weights", "longest_context", "mix"]
