"""Campaigns of kills: commands that are killed, whose machine loses its power, whose disk or memory is full. What must
hold afterwards, and how to run them, is in docs/development/reliability.md.

A campaign is one file here, with `campaign(commands, seconds, seed) -> Row` for each of its kinds, named in `__main__`.
"""
