"""Smoothers, one file each: the share of the probability that a seen n-gram gets, and what is left to shorter ones."""
