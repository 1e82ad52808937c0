"""Binary trees over words, for the hierarchical softmax: the Tree, the functions that build one, its files and figures.

What is named here is imported when it is used: compiled loops and WordNet's reader load with the functions they belong
to.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lmtool.trees.analysis import PathRow, TreeAnalysis, analyse, path_rows
    from lmtool.trees.brown import brown_tree
    from lmtool.trees.classes import classes_tree
    from lmtool.trees.clusters import clusters_tree
    from lmtool.trees.codes import code_string, code_strings, from_codes
    from lmtool.trees.drawing import DrawnNode, top_of, tree_text
    from lmtool.trees.frequency import frequency_tree
    from lmtool.trees.halving import balanced_tree
    from lmtool.trees.huffman_code import huffman_tree
    from lmtool.trees.random import random_tree
    from lmtool.trees.tree import Paths, Tree
    from lmtool.trees.tree_file import read_tree, write_tree
    from lmtool.trees.wordnet import wordnet_tree

_MODULE_OF = {
    "DrawnNode": "drawing",
    "PathRow": "analysis",
    "Paths": "tree",
    "Tree": "tree",
    "TreeAnalysis": "analysis",
    "analyse": "analysis",
    "balanced_tree": "halving",
    "brown_tree": "brown",
    "classes_tree": "classes",
    "clusters_tree": "clusters",
    "code_string": "codes",
    "code_strings": "codes",
    "frequency_tree": "frequency",
    "from_codes": "codes",
    "huffman_tree": "huffman_code",
    "path_rows": "analysis",
    "random_tree": "random",
    "read_tree": "tree_file",
    "top_of": "drawing",
    "tree_text": "drawing",
    "wordnet_tree": "wordnet",
    "write_tree": "tree_file",
}

__all__ = [
    "DrawnNode",
    "PathRow",
    "Paths",
    "Tree",
    "TreeAnalysis",
    "analyse",
    "balanced_tree",
    "brown_tree",
    "classes_tree",
    "clusters_tree",
    "code_string",
    "code_strings",
    "frequency_tree",
    "from_codes",
    "huffman_tree",
    "path_rows",
    "random_tree",
    "read_tree",
    "top_of",
    "tree_text",
    "wordnet_tree",
    "write_tree",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
