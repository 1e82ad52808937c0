"""Each tree of the group is built from its settings as its function builds it; the public face is lazy and whole."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lmtool.trees
from lmtool.config.groups import TreeConfig
from lmtool.config.options import conf_dir, kinds
from lmtool.config.settings import build_named_option
from lmtool.data.split import Split
from lmtool.errors import UserError
from lmtool.trees._neighbor_vectors import neighbor_vectors
from lmtool.trees.brown import brown_tree
from lmtool.trees.builders import balanced_tree, classes_tree, frequency_tree, huffman_tree, random_tree, union
from lmtool.trees.clusters import clusters_tree
from lmtool.trees.codes import write_tree
from lmtool.trees.division import Division, Method
from lmtool.trees.options import (
    BalancedTree,
    BrownTree,
    ClassesTree,
    ClustersTree,
    FileTree,
    FrequencyTree,
    HuffmanTree,
    RandomTree,
    Representation,
    UnionTree,
    WordnetTree,
)
from lmtool.trees.tree import Tree, TreeWords
from tests.trees.checks import check, codes, same

NAMES = ("the", "cat", "<unk>", "sat", "a", "mat")
COUNTS = np.array([9, 5, 4, 3, 2, 0])
IDS = np.random.default_rng(0).integers(0, 6, 200)
TRAIN = Split(IDS, np.array([0, 90, 200]), np.empty(0, dtype=np.int64), 0, bos=6)
VECTORS = np.random.default_rng(1).normal(size=(6, 4))


def run_vectors(path: str, of_contexts: bool) -> np.ndarray:
    assert path == "runs/first"
    return VECTORS if of_contexts else -2 * VECTORS[::-1]


WORDS = TreeWords(NAMES, COUNTS, lambda: TRAIN, run_vectors)


def clusters(
    run: str | None,
    representation: Representation | None,
    split: Division = Division.adaptive,
    method: Method = Method.gaussians,
    epsilon: float = 0.25,
) -> ClustersTree:
    settings = {"split": split, "method": method, "epsilon": epsilon, "seed": 3, "dimensions": 2, "max_tokens": 150}
    return ClustersTree("clusters", run=run, representation=representation, **settings)


BY_CONTEXTS = clusters_tree(VECTORS, COUNTS, "adaptive", "gaussians", 0.25, 3)
BY_EMBEDDINGS = clusters_tree(-2 * VECTORS[::-1], COUNTS, "balanced", "kmeans", 0.0, 3)
OF_NEIGHBORS = neighbor_vectors(IDS[:150], np.array([0, 90, 150]), COUNTS, 2)  # NAMES has no </s>
BY_NEIGHBORS = clusters_tree(OF_NEIGHBORS, COUNTS, "adaptive", "gaussians", 0.25, 3)


@pytest.mark.parametrize(
    ("settings", "tree"),
    [
        (BalancedTree("balanced", "ceil"), balanced_tree(np.array([2, 4, 1, 5, 3, 0]))),
        (BalancedTree("balanced", "floor"), balanced_tree([2, 4, 1, 5, 3, 0], "floor")),
        (RandomTree("random", seed=4), random_tree(6, 4)),
        (FrequencyTree("frequency"), frequency_tree(COUNTS)),
        (HuffmanTree("huffman"), huffman_tree(COUNTS)),
        (ClassesTree("classes", classes=None), classes_tree(COUNTS, None)),
        (ClassesTree("classes", classes=3), classes_tree(COUNTS, 3)),
        (BrownTree("brown", clusters=3), brown_tree(IDS, np.array([0, 90, 200]), COUNTS, 3)),
        (clusters("runs/first", Representation.contexts), BY_CONTEXTS),
        (clusters("runs/first", None), BY_CONTEXTS),
        (clusters("runs/first", Representation.embeddings, Division.balanced, Method.kmeans, 0.0), BY_EMBEDDINGS),
        (clusters(None, None), BY_NEIGHBORS),
        (clusters(None, Representation.neighbors), BY_NEIGHBORS),
        (UnionTree("union", ["huffman", "frequency"]), union([huffman_tree(COUNTS), frequency_tree(COUNTS)])),
        (
            UnionTree("union", [{"kind": "random", "seed": 4}, "huffman"]),
            union([random_tree(6, 4), huffman_tree(COUNTS)]),
        ),
    ],
    ids=lambda value: value.kind if isinstance(value, TreeConfig) else "",
)
def test_settings_build_their_tree(settings: TreeConfig, tree: Tree) -> None:
    assert same(settings.build(WORDS), tree)


def test_a_tree_of_a_file(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree.txt", huffman_tree(COUNTS), NAMES)
    assert same(FileTree("file", str(tmp_path / "tree.txt")).build(WORDS), huffman_tree(COUNTS))


def test_what_does_not_fit_the_words(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^tree\.classes=7: at most 6 with this vocabulary$"):
        ClassesTree("classes", classes=7).build(WORDS)
    with pytest.raises(UserError, match=rf"no WordNet in {tmp_path}"):
        WordnetTree("wordnet", folder=str(tmp_path)).build(WORDS)
    with pytest.raises(UserError, match=r"^the tree: no file "):
        FileTree("file", str(tmp_path / "none.txt")).build(WORDS)


@pytest.mark.parametrize(
    ("division", "method", "epsilon", "said"),
    [
        (Division.balanced, Method.gaussians, 0.2, "several codes per word need tree.split=adaptive"),
        (Division.adaptive, Method.kmeans, 0.2, "tree.method=gaussians"),
        (Division.adaptive, Method.gaussians, 0.5, "tree.epsilon=0.5: must be from 0 to below 0.5"),
        (Division.adaptive, Method.gaussians, float("nan"), "tree.epsilon=nan: must be"),
    ],
)
def test_the_settings_follow_the_rule_of_the_function(
    division: Division, method: Method, epsilon: float, said: str
) -> None:
    with pytest.raises(UserError) as by_settings:
        clusters("x", Representation.contexts, division, method, epsilon)
    with pytest.raises(UserError) as by_function:
        clusters_tree(VECTORS, COUNTS, division.value, method.value, epsilon, 1)
    assert said in str(by_settings.value) and str(by_settings.value) == str(by_function.value)


def test_the_codes_of_a_union() -> None:
    halves = balanced_tree(np.arange(3))  # 00, 01, 1
    both = union([halves, balanced_tree(np.array([2, 1, 0]))])
    check(both, 3, one_code=False)
    assert list(zip(both.leaf_words.tolist(), codes(both), strict=True)) == [
        *((0, "000"), (0, "11")),
        *((1, "001"), (1, "101")),
        *((2, "01"), (2, "100")),
    ]
    three = union([halves] * 3)
    check(three, 3, one_code=False)
    assert [codes(three)[leaf] for leaf in np.flatnonzero(three.leaf_words == 2)] == ["001", "011", "11"]
    one_word = union([balanced_tree(np.arange(1))] * 2)
    assert codes(one_word) == ["0", "1"] and one_word.words == 1


@pytest.mark.parametrize(
    ("trees", "said"),
    [
        (["brown"], r"^tree\.trees=\['brown'\]: must be 2 to 16 options of tree=$"),
        (["brown", "bron"], r"^tree\.trees\[1\]=bron: no option of tree=; did you mean brown\?$"),
        ([3, "brown"], r"^tree\.trees\[0\]=3: must be the name of an option of tree=, or \{kind: NAME, \.\.\.\}$"),
        (["brown", {"kind": "brown", "cluster": 3}], r"no key 'tree\.trees\[1\]\.cluster'; did you mean clusters\?"),
        (["brown", {"kind": "brown", "clusters": "x"}], r"tree\.trees\[1\]\.clusters=x: must be a whole number"),
        (["brown", {"kind": "file"}], r"tree\.trees\[1\]\.path has no value"),
        ([{"kind": "clusters", "representation": "contexts"}, "brown"], "of an earlier run; name it, e.g. tree.run="),
    ],
)
def test_what_is_no_union(trees: list[Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        UnionTree("union", trees)


def test_runs_and_neighbors_exclude_each_other() -> None:
    with pytest.raises(UserError, match=r"^tree\.representation=embeddings: these vectors are of an earlier run"):
        clusters(None, Representation.embeddings)
    with pytest.raises(UserError, match=r"^tree\.run=x: is not used with tree\.representation=neighbors"):
        clusters("x", Representation.neighbors)


def test_the_public_face() -> None:
    assert all(
        callable(getattr(lmtool.trees, name)) and getattr(lmtool.trees, name).__doc__ for name in lmtool.trees.__all__
    )
    assert set(lmtool.trees.__all__) <= set(dir(lmtool.trees))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lmtool.trees.nothing
    code = "import sys, lmtool.trees; assert not {'numpy', 'numba', 'torch'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_which_trees_give_a_word_several_codes() -> None:
    """As the page of output=hierarchical says: union, clusters and file may, no other does."""
    assert "tree: union" in (conf_dir() / "output" / "hierarchical.yaml").read_text()
    words = replace(WORDS, words=tuple("abcdefghijklmnopqrst"), counts=np.arange(20, 0, -1))
    train = Split(np.random.default_rng(2).integers(0, 20, 900), np.array([0, 900]), np.empty(0, np.int64), 0, bos=20)
    words = replace(words, train=lambda: train)
    settings = {kind: {"kind": kind} for kind in kinds("tree") if kind not in ("file", "wordnet")}
    settings["clusters"] |= {"epsilon": 0.4}
    several = set()
    for kind, given in settings.items():
        tree = build_named_option("tree", given, "tree").build(words)
        several |= {kind} if tree.leaves > tree.words else set()
    assert several == {"union", "clusters"}
