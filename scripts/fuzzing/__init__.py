"""Campaigns of nonsense: generators of cases, and what must hold for each.

docs/development/fuzzing.md says how to run them.

A generator is one file here, with `CASES`, a Hypothesis strategy of cases, each of which JSON can hold; `check(case,
place)`, which raises Fault where the case shows one; and `prepare()`, called once, in an empty folder.
"""
