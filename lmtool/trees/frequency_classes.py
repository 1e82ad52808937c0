"""Words in classes of about equal share: Goodman (2001), "Classes for fast maximum entropy training"."""

from __future__ import annotations

import math

import numpy as np

from lmtool.errors import UserError
from lmtool.trees.tree import Int64s


def class_of_words(counts: Int64s, number: int | None, *, key: str = "tree.classes") -> Int64s:
    """int64 `[W]`: the class of each word, from 0 on and ascending; no class is empty.

    counts: int64 `[W]`, most frequent first, as a vocabulary has them: classes are cut in the order of the ids. number:
    of classes; None for about the square root of W, with which both levels of a softmax are equally long. Each class
    gets about an equal share of the counts that those before it leave; a word that does not occur counts as half an
    occurrence. Raises UserError, naming the setting `key`, for more classes than words, or none.
    """
    words = len(counts)
    classes = max(round(math.sqrt(words)), 1) if number is None else number
    if classes > words:
        raise UserError(f"{key}={classes}: at most {words} with this vocabulary")
    if classes < 1:
        raise UserError(f"{key}={classes}: must be 1 or more")
    before = np.concatenate([[0], np.cumsum(np.maximum(2 * counts, 1))])  # [W + 1]
    starts = [0]
    for left in range(classes - 1, 0, -1):
        target = before[starts[-1]] + (before[-1] - before[starts[-1]]) / (left + 1)
        end = int(np.searchsorted(before, target))
        end -= int(target - before[end - 1] <= before[end] - target)
        starts.append(min(max(end, starts[-1] + 1), words - left))
    return np.repeat(np.arange(classes), np.diff([*starts, words])).astype(np.int64)
