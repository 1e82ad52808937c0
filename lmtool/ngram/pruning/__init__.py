"""Pruning a model: by relative entropy, by expected gain, to a given size."""
