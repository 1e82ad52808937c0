"""Mixtures of language models, each itself one: linear, with weights by class of context, log-linear, with a cache."""

from lmtool.ensemble.linear import Fit, Mixture, fit_weights, mix

__all__ = ["Fit", "Mixture", "fit_weights", "mix"]
