"""Looking n-grams up: scores of text, candidates and whole distributions, and states for decoders."""
