"""Kinds of kills: commands that are killed, lose power, or run out of disk or memory, and are then run again.

What must hold afterwards, and how to run them, is in docs/development/reliability.md.
"""
