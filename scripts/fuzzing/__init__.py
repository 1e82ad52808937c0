"""Campaigns of nonsense: generators of cases, and what must hold for each; see docs/development/fuzzing.md.

A generator is a file of this folder, as `fuzzing.campaign.Generator` describes it.
"""
