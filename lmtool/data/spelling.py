"""The words of a vocabulary that are spelt most like one that is not in it."""

from __future__ import annotations

import difflib
import heapq
from itertools import pairwise

from lmtool.data.vocabulary import Vocabulary

COMPARED = 300  # words that difflib compares letter by letter, which takes it some hundredths of a millisecond each


def alike(word: str, vocabulary: Vocabulary, count: int = 3) -> list[str]:
    """At most `count` words that can be predicted, the most alike first; none where none is alike.

    The word in other cases comes first. All words are looked at, but most of them only at their length and ends: a
    million take some tenths of a second.
    """
    forms = (word.lower(), word.capitalize(), word.upper())
    cases = [form for form in forms if vocabulary.ids.get(form, vocabulary.bos) != vocabulary.bos]
    shortest, longest, head, tail = len(word) - 2, len(word) + 2, word[0], word[-1]
    words = vocabulary.words[:-1]
    near = [w for w in words if shortest <= len(w) <= longest and (w[0] == head or w[-1] == tail)]
    letters, pairs = set(word), [a + b for a, b in pairwise(word)]
    shared = heapq.nlargest(COMPARED, near, key=lambda w: len(letters.intersection(w)) + sum(p in w for p in pairs))
    close = difflib.get_close_matches(word, shared, n=count, cutoff=0.6)
    return list(dict.fromkeys([*cases, *close]))[:count]
