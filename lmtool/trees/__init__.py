"""Binary trees over words for the hierarchical softmax: the Tree, its builders, its files and its statistics.

A name is imported when it is first used: compiled loops and WordNet's reader load only with the functions that need
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmtool.system.lazy_names import lazy_names

if TYPE_CHECKING:
    from lmtool.trees.analysis import DrawnNode as DrawnNode
    from lmtool.trees.analysis import PathRow as PathRow
    from lmtool.trees.analysis import TreeAnalysis as TreeAnalysis
    from lmtool.trees.analysis import analyze as analyze
    from lmtool.trees.analysis import path_rows as path_rows
    from lmtool.trees.analysis import top_of as top_of
    from lmtool.trees.analysis import tree_text as tree_text
    from lmtool.trees.brown import brown_tree as brown_tree
    from lmtool.trees.builders import balanced_tree as balanced_tree
    from lmtool.trees.builders import classes_tree as classes_tree
    from lmtool.trees.builders import frequency_tree as frequency_tree
    from lmtool.trees.builders import huffman_tree as huffman_tree
    from lmtool.trees.builders import random_tree as random_tree
    from lmtool.trees.clusters import clusters_tree as clusters_tree
    from lmtool.trees.codes import code_strings as code_strings
    from lmtool.trees.codes import from_codes as from_codes
    from lmtool.trees.codes import read_tree as read_tree
    from lmtool.trees.codes import write_tree as write_tree
    from lmtool.trees.tree import Paths as Paths
    from lmtool.trees.tree import Tree as Tree
    from lmtool.trees.wordnet import wordnet_tree as wordnet_tree

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lmtool.trees.analysis": "DrawnNode PathRow TreeAnalysis analyze path_rows top_of tree_text",
        "lmtool.trees.brown": "brown_tree",
        "lmtool.trees.builders": "balanced_tree classes_tree frequency_tree huffman_tree random_tree",
        "lmtool.trees.clusters": "clusters_tree",
        "lmtool.trees.codes": "code_strings from_codes read_tree write_tree",
        "lmtool.trees.tree": "Paths Tree",
        "lmtool.trees.wordnet": "wordnet_tree",
    },
)
