"""Counting n-grams: the options of the group `counts`, and what they share."""
