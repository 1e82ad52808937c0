"""A binary tree from groups within groups, such as a thesaurus has."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from lmtool.trees.assemble import arranged
from lmtool.trees.tree import Int64s, Tree

Item = tuple[int, int, int]  # count; position, for ties; node, or -1 - word


def _joined(items: list[Item], children: list[tuple[int, int]]) -> tuple[int, int]:
    """Join the two items of the smallest counts until one is left, appending to `children`: its count and node."""
    heapq.heapify(items)
    position = len(items)
    while len(items) > 1:
        lighter, heavier = heapq.heappop(items), heapq.heappop(items)
        children.append((heavier[2], lighter[2]))
        heapq.heappush(items, (lighter[0] + heavier[0], position, len(children) - 1))
        position += 1
    return items[0][0], items[0][2]


def binary_hierarchy(parents: Sequence[int], group_of: Int64s, counts: Int64s) -> Tree:
    """The binary tree in which every group's words are the leaves below one node.

    parents: `[G]`, the group that each group is in, -1 for one at the top. group_of: int64 `[W]`, the group that each
    word is in directly. counts: int64 `[W]`. The groups and words within a group are joined by a Huffman tree on their
    counts, which needs no vectors, as clustering them would (Morin & Bengio cluster by the documents that words occur
    in). A group with a single member, or none, adds no node.
    """
    groups = len(parents)
    depths = np.full(groups + 1, -1)  # the last one is the top
    depths[-1] = 0
    for group in range(groups):
        path = []
        while depths[group] < 0:
            path.append(group)
            group = parents[group]
        for inner in reversed(path):
            depths[inner] = depths[parents[inner]] + 1
    members: list[list[Item]] = [[] for _ in range(groups + 1)]
    for word in np.argsort(counts, kind="stable").tolist():
        group_members = members[group_of[word]]
        group_members.append((int(counts[word]), len(group_members), -1 - word))
    children: list[tuple[int, int]] = []
    for group in np.argsort(-depths, kind="stable").tolist():
        if group < groups and members[group]:
            count, node = _joined(members[group], children)
            outer = members[parents[group]]
            outer.append((count, len(outer), node))
    _joined(members[-1], children)
    return arranged(np.array(children, dtype=np.int32), len(children) - 1, np.arange(len(counts)))
