"""What does not fit is refused in one line, and what is taken gives the right numbers: layers, encoders, optimizers and
trees.
"""

from __future__ import annotations

import ast
import math
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lmtool.errors import UserError
from lmtool.mixtures.cache import UnigramCache
from lmtool.neural import (
    ClassSoftmax,
    DotNodes,
    FullSoftmax,
    HierarchicalSoftmax,
    NCELoss,
    RowAdagrad,
    RowSGD,
    SampledSoftmax,
)
from lmtool.neural.forms import only_plain
from lmtool.neural.model import NeuralModel, nearest
from lmtool.system.arrays import whole_numbers
from lmtool.trees import (
    Tree,
    analyze,
    balanced_tree,
    brown_tree,
    classes_tree,
    clusters_tree,
    frequency_tree,
    huffman_tree,
    path_rows,
    top_of,
)
from tests.conftest import ROOT, nplm
from tests.shape_walks import COUNTS, OPTIMIZERS, TREE, D, O, walk_optimizer

CHECKS = (
    "neural/checks",
    "neural/outputs/base",
    "neural/encoders/base",
    "neural/optimizers/base",
    "neural/optimizers/rows",
    "neural/rows",
    "system/arrays",
    "trees/tree",
)


WALK = """
import sys
from lmtool.neural.forms import only_plain
from tests.shape_walks import walk_layers_and_encoders
wrong = []
for plain in (False, True):
    with only_plain(plain):
        wrong += [f"plain={plain}, {line}" for line in walk_layers_and_encoders()]
sys.exit("\\n".join(wrong) or 0)
"""


def test_nothing_ends_the_process() -> None:
    command = [sys.executable, "-W", "error", "-c", WALK]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{done.returncode}\n{done.stderr}"


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_change_rows_of_their_own(name: str, plain: bool) -> None:
    with only_plain(plain):
        assert list(walk_optimizer(name)) == []


@pytest.mark.parametrize("name", CHECKS)
def test_checks_are_no_assertions(name: str) -> None:
    """`python -O` leaves assertions out."""
    tree = ast.parse((ROOT / "lmtool" / f"{name}.py").read_text())
    assert not [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)]


def cell(rows: int, dim: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(rows, dim))


def of_nodes(nodes: DotNodes) -> HierarchicalSoftmax:
    return HierarchicalSoftmax(D, TREE, nodes=nodes)


def model_of(words: int, dim: int) -> NeuralModel:
    return NeuralModel(nplm().build(words, tied=False, sparse=False), FullSoftmax(dim, COUNTS), words)


NCE, SAMPLED = NCELoss(D, COUNTS, noise=2).loss_with, SampledSoftmax(D, COUNTS, samples=2).loss_with
HIDDEN, IDS, ROWS = torch.zeros(2, D), torch.zeros(2).long(), [cell(2, 2)]
REFUSED: list[tuple[Any, ...]] = [  # the error, what is called, and its arguments
    (r"FullSoftmax: counts must be numbers \[O\], one or more; got float64 \[0\]", FullSoftmax, D, []),
    ("NCELoss: counts must be finite numbers of 0 or more; got a minimum of -1", NCELoss, D, -COUNTS[-1:]),
    ("FullSoftmax: counts must be finite", FullSoftmax, D, torch.tensor([1.0, math.nan])),
    ("FullSoftmax: dim must be a whole number of 1 or more; got 0", FullSoftmax, 0, COUNTS),
    (r"vectors must be floating-point \[23 or more, 6\]; got float32 \[22, 6\]", FullSoftmax, D, COUNTS, cell(22, D)),
    (r"NCELoss: vectors must be .*; got float32 \[23, 5\]", partial(NCELoss, noise=1), D, COUNTS, cell(O, 5)),
    (r"noise=1\.5", partial(NCELoss, noise=1.5), D, COUNTS),
    (r"samples=2\.0", partial(SampledSoftmax, samples=2.0), D, COUNTS),
    ("loss_with: draws must be ids from 0 to 22; got a maximum of 23", NCE, HIDDEN, IDS, torch.tensor([1, 23])),
    (r"draws must be int64 \[k\] or \[2, k\]; got int64 \[3, 2\]", NCE, HIDDEN, IDS, torch.ones(3, 2).long()),
    ("loss_with: draws must be ids from 0 to 22; got a minimum of -3", SAMPLED, HIDDEN, IDS, torch.tensor([1, -3])),
    ("loss_with: y must be ids from 0 to 22", SAMPLED, HIDDEN, IDS + O, torch.tensor([1])),
    ("HierarchicalSoftmax: tree must be a Tree; got a list", HierarchicalSoftmax, D, []),
    (r"HierarchicalSoftmax: counts must be numbers \[23\]; got int64 \[22\]", HierarchicalSoftmax, D, TREE, COUNTS[1:]),
    ("nodes must be 22, as the tree has, of dimension 6; got 5 of dimension 6", of_nodes, DotNodes(D, torch.zeros(5))),
    ("of dimension 6; got 22 of dimension 4", of_nodes, DotNodes(4, torch.zeros(22))),
    (r"log_odds must be a floating-point tensor \[N\]; got int64 \[3\]", DotNodes, D, torch.zeros(3).long()),
    ("classes must be ids from 0 to 22; got a minimum of -1", ClassSoftmax, D, COUNTS, torch.arange(O) - 1),
    (
        "layer must be of dimension 8, as the encoder, and over 23 words; got FullSoftmax of dimension 6",
        model_of,
        24,
        D,
    ),
    ("over 30 words; got FullSoftmax of dimension 8 over 23", model_of, 31, 8),
    (r"\[R\] or \[R, H\]; got float32 \[1, 2, 3\]", RowSGD, [nn.Parameter(torch.zeros(1, 2, 3))], 0.1),
    ("RowAdagrad: lr must be finite and 0 or more; got nan", RowAdagrad, ROWS, math.nan),
    ("RowSGD: momentum must be finite and 0 or more; got -1", partial(RowSGD, momentum=-1), ROWS, 0.1),
    ("top 1 or more; got word -1 and top 1", nearest, np.eye(3, dtype=np.float32), {-1: 1}, 1, "cosine"),
    ("size=0: a cache holds 1 token or more", UnigramCache, 0),
    ("integers from 0 to 8 .N, 3.; got int64 .2.", partial(whole_numbers, below=9), "contexts", [1, 2], ("N", 3)),
    # trees
    ("brown_tree: ids must be integers from 0 to 1; got a maximum of 7", brown_tree, [0, 7], [0, 2], [1, 1], 2),
    ("brown_tree: offsets must ascend from 0 to 2, the number of ids", brown_tree, [0, 1], [0, 3], [1, 1], 2),
    ("brown_tree: offsets must ascend", brown_tree, [0, 1], [0, 2, 1, 2], [1, 1], 2),
    ("balanced_tree: order must be integers", balanced_tree, [0.0, 1.0]),
    (r"path_rows: counts must be whole numbers \[23\]", path_rows, TREE, ["a"] * O, np.array([1]), [0]),
    ("path_rows: which must be integers from 0 to 22", path_rows, TREE, ["a"] * O, COUNTS.numpy(), [O]),
    (r"top_of: counts must be whole numbers \[23\]", top_of, TREE, ["a"] * O, np.array([1]), 1),
    ("not a tree: its nodes and words must be integers", Tree, [[-1.0, -2.0]], [0, 1]),
    ("Tree: leaf_words cannot be read as an array", Tree, [[-1, -2]], [0, [1]]),
]


@pytest.mark.parametrize(("error", "call", "given"), [(error, call, given) for error, call, *given in REFUSED])
def test_what_is_refused(error: str, call: Callable[..., Any], given: list[Any]) -> None:
    with pytest.raises(ValueError, match=error) as caught:
        call(*given)
    assert "\n" not in str(caught.value)


def test_counts_may_be_a_list_or_an_array() -> None:
    for counts in ([3, 1], np.array([3, 1]), torch.tensor([3.0, 1.0])):
        torch.testing.assert_close(FullSoftmax(D, counts).bias.exp(), torch.tensor([0.7, 0.3]))  # type: ignore[arg-type]


# Trees

CODES = [(-1, 1), (-2, -3)]  # of counts 3, 1, 1: word 0 has the code 0, the others 10 and 11


@pytest.mark.parametrize(
    "counts",
    [
        [3, 1, 1],
        (3, 1, 1),
        torch.tensor([3, 1, 1]),
        torch.tensor([3.0, 1.0, 1.0]),
        np.array([3, 1, 1], dtype=np.uint16),
    ],
    ids=["list", "tuple", "tensor", "float tensor", "uint16"],
)
def test_counts_of_a_tree(counts: Any) -> None:
    for build in (huffman_tree, frequency_tree):
        assert build(counts).children.tolist() == [list(pair) for pair in CODES]
    assert analyze(huffman_tree(counts), counts).weighted_mean_depth == 1.4
    assert classes_tree(counts, 1).words == 3 and balanced_tree(torch.tensor([2, 0, 1])).words == 3


BUILDERS: dict[str, Callable[[Any], Any]] = {
    "huffman_tree": huffman_tree,
    "frequency_tree": frequency_tree,
    "classes_tree": lambda counts: classes_tree(counts, None),
    "brown_tree": lambda counts: brown_tree(np.array([0, 1, 0]), np.array([0, 3]), counts, 2),
    "clusters_tree": lambda counts: clusters_tree(np.eye(2), counts, "balanced", "kmeans", 0.0, 0),
    "analyze": lambda counts: analyze(huffman_tree([1, 1]), counts),
}


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize(
    ("counts", "error"),
    [
        ([], r"got float64 \[0\]"),
        ([1, -2], "must be whole numbers of 0 or more; got -2"),
        ([[1, 2], [3, 4]], r"got int64 \[2, 2\]"),
        ([1, math.nan], "got nan"),
        ([1, math.inf], "got inf"),
        ([1.5, 1], "got 1.5"),
        ([True, False], r"got bool \[2\]"),
        (["a", "b"], "got <U1"),
        (None, "got object"),
        (7, r"got int64 \[\]"),
        ([1, [2]], "cannot be read as an array"),
        (torch.ones(2, requires_grad=True), "cannot be read as an array: .*requires grad"),
        (torch.ones(2, device="meta"), "cannot be read as an array: .*meta device"),
        ([1 << 61, 1 << 61], "must have a sum below"),
    ],
)
def test_what_is_no_counts(name: str, counts: Any, error: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: counts .*{error}"):
        BUILDERS[name](counts)


def test_a_tree_of_lists_and_vectors_beyond_float32() -> None:
    tree = Tree([[-1, -2]], torch.tensor([0, 1]))  # type: ignore[arg-type]
    assert tree.children.dtype == tree.leaf_words.dtype == np.int32 and tree.words == 2
    for vectors in ([[1e300], [-1e300]], [[math.inf], [0.0]]):
        with pytest.raises(UserError, match="the word vectors are not finite"):
            clusters_tree(np.array(vectors), np.array([1, 1]), "adaptive", "gaussians", 0.25, 0)
