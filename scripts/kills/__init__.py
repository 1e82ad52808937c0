"""Campaigns of kills: commands that are killed, lose power, or run out of disk or memory, and are then run again.

What must hold afterwards, and how to run them, is in docs/development/reliability.md. A kind of campaign is a function
`kind(command, budget) -> Row`, named in `__main__`.
"""
