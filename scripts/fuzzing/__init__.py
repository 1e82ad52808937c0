"""Campaigns of nonsense: generators of cases, and what must hold of each; see docs/development/fuzzing.md."""
