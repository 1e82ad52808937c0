"""Smoothers: the share of the probability that a seen n-gram gets, and the rest, which shorter ones get."""
