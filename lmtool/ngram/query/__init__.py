"""Queries of n-grams: scores of text, candidates and whole distributions, and states for decoders."""
