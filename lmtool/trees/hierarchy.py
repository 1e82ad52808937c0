"""A binary tree from groups in groups, such as a thesaurus has."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from lmtool.trees.assemble import arranged
from lmtool.trees.tree import Int64s, Tree

Item = tuple[int, int, int]  # count; where it stood, for ties; node, or -1 - word


def _joined(items: list[Item], children: list[tuple[int, int]]) -> tuple[int, int]:
    """Join the two with the smallest counts until one is left: its count and its node. Writes nodes to `children`."""
    heapq.heapify(items)
    made = len(items)
    while len(items) > 1:
        lighter, heavier = heapq.heappop(items), heapq.heappop(items)
        children.append((heavier[2], lighter[2]))
        heapq.heappush(items, (lighter[0] + heavier[0], made, len(children) - 1))
        made += 1
    return items[0][0], items[0][2]


def binary_hierarchy(parents: Sequence[int], group_of: Int64s, counts: Int64s) -> Tree:
    """The binary tree in which every group's words stand below one node.

    parents: `[G]`, the group that each group is in, -1 for one at the top. group_of: `[W]`, the group that each word is
    in directly. counts: `[W]`. What a group holds, groups and words, is joined by a Huffman tree on the counts
    below: common things have short codes, and it needs no vectors, as clustering them would (Morin & Bengio cluster by
    the documents that words occur in). A group that holds one thing, or none, leaves no trace.
    """
    groups = len(parents)
    depths = np.full(groups + 1, -1)  # the last one stands for the top
    depths[-1] = 0
    for group in range(groups):
        way = []
        while depths[group] < 0:
            way.append(group)
            group = parents[group]
        for back in reversed(way):
            depths[back] = depths[parents[back]] + 1
    holds: list[list[Item]] = [[] for _ in range(groups + 1)]
    for word in np.argsort(counts, kind="stable").tolist():
        held = holds[group_of[word]]
        held.append((int(counts[word]), len(held), -1 - word))
    children: list[tuple[int, int]] = []
    for group in np.argsort(-depths, kind="stable").tolist():
        if group < groups and holds[group]:
            count, node = _joined(holds[group], children)
            outer = holds[parents[group]]
            outer.append((count, len(outer), node))
    _joined(holds[-1], children)
    return arranged(np.array(children, dtype=np.int32), len(children) - 1, np.arange(len(counts)))
