"""Two levels: words in classes of about equal share (Goodman 2001, "Classes for fast maximum entropy training")."""

from __future__ import annotations

import math

import numpy as np

from lmtool.errors import UserError
from lmtool.trees.assemble import graft
from lmtool.trees.halves import balanced
from lmtool.trees.huffman import huffman
from lmtool.trees.tree import Int64s, Tree


def class_of_words(counts: Int64s, number: int | None) -> Int64s:
    """`[W]`: the class of each word, from 0 on and ascending; no class is empty.

    counts: `[W]`, commonest first, as a vocabulary has them: the cut is in the order of the ids. number: how many
    classes; about the square root of W if None, which makes both levels of a softmax as long. Each class gets about
    the share of the counts that is left for it when those before it are cut off; a word without counts is taken for
    half an occurrence. Raises UserError for more classes than words, or none.
    """
    words = len(counts)
    classes = max(round(math.sqrt(words)), 1) if number is None else number
    if not 1 <= classes <= words:
        raise UserError(f"tree.classes={classes}: {words} words go into 1 to {words} classes; choose one of these")
    before = np.concatenate([[0], np.cumsum(np.maximum(2 * counts, 1))])  # [W + 1]
    starts = [0]
    for left in range(classes - 1, 0, -1):
        target = before[starts[-1]] + (before[-1] - before[starts[-1]]) / (left + 1)
        end = int(np.searchsorted(before, target))
        end -= int(target - before[end - 1] <= before[end] - target)
        starts.append(min(max(end, starts[-1] + 1), words - left))
    return np.repeat(np.arange(classes), np.diff([*starts, words])).astype(np.int64)


def classes(counts: Int64s, number: int | None) -> Tree:
    """Words in order of frequency in `number` classes: a Huffman tree over the classes, a balanced tree in each.

    counts: `[W]`, in any order. As class_of_words, also for the error.
    """
    order = np.argsort(-counts, kind="stable").astype(np.int64)
    class_of = class_of_words(counts[order], number)
    ends = np.searchsorted(class_of, np.arange(1, class_of[-1] + 1))
    members = np.split(order, ends)
    of_size = {size: balanced(np.arange(size)) for size in {len(own) for own in members}}
    top = huffman(np.bincount(class_of, weights=counts[order]).astype(np.int64))
    return graft(top, [of_size[len(own)] for own in members], members)
