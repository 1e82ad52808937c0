"""Find the known words that are most similar to an unknown one."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable, Sequence
from itertools import pairwise

COMPARED = 300  # maximum number of words that difflib compares letter by letter, about 0.03 ms each


def close_words(word: str, known: Sequence[str], count: int = 3) -> list[str]:
    """Return at most `count` known words that are similar to `word`, the most similar first.

    The same word in another case comes first. Among more than COMPARED words only those of about the same length with
    the same first or last letter are compared: a million words take a few tenths of a second.
    """
    cases = [form for form in (word.lower(), word.capitalize(), word.upper()) if form != word]
    compared: Iterable[str] = known
    if len(known) > COMPARED:
        shortest, longest, head, tail = len(word) - 2, len(word) + 2, word[:1], word[-1:]
        near = [w for w in known if shortest <= len(w) <= longest and (w[:1] == head or w[-1:] == tail)]
        letters, pairs = set(word), [a + b for a, b in pairwise(word)]

        def shared(known_word: str) -> int:
            return len(letters.intersection(known_word)) + sum(pair in known_word for pair in pairs)

        compared = heapq.nlargest(COMPARED, near, key=shared)
    present = set(cases).intersection(known)
    close = difflib.get_close_matches(word, compared, n=count, cutoff=0.6)
    return list(dict.fromkeys([*(form for form in cases if form in present), *close]))[:count]


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the end of an error message with the names similar to `word`, or all names if none is similar."""
    names = sorted(known)
    close = close_words(word, names)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; there are {', '.join(names)}" if names else ""
