"""Mixtures of language models, each a model itself: linear, by class of context, log-linear, with a cache."""
