"""Counts to back-off tables: estimation, tuning, and merging the counts of several sources."""
