"""Figures, rows and pictures of small trees."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from lmtool.errors import UserError
from lmtool.trees.analysis import PathRow, TreeAnalysis, analyze, path_rows, top_of, tree_text
from lmtool.trees.builders import balanced_tree, huffman_tree
from lmtool.trees.codes import from_codes
from tests.trees.checks import zipf

needs_matplotlib = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib")
WORDS = ["the", "cat", "sat", "$ no \\frac"]
CODES = from_codes([(0, "0"), (1, "10"), (2, "110"), (3, "111")])
COUNTS = np.array([4, 2, 1, 1])
# Word 0 at depths 1 and 3.
SEVERAL = from_codes([(0, "0"), (0, "111"), (1, "10"), (2, "110")])


def test_figures_by_hand() -> None:
    assert analyze(CODES, COUNTS) == TreeAnalysis(
        words=4,
        leaves=4,
        nodes=3,
        mean_depth=2.25,
        weighted_mean_depth=1.75,
        minimal_depth=1,
        maximal_depth=3,
        entropy=1.75,
        depths=(0, 1, 1, 2),
    )


def test_several_codes_count_with_their_mean() -> None:
    found = analyze(SEVERAL, np.array([2, 1, 1]))
    assert (found.words, found.leaves, found.nodes) == (3, 4, 3)
    assert found.mean_depth == pytest.approx((2 + 2 + 3) / 3)
    assert found.weighted_mean_depth == (2 * 2 + 2 + 3) / 4
    assert found.entropy == 1.5 and found.depths == (0, 1, 1, 2)


def test_nothing_occurs_and_one_word() -> None:
    assert analyze(CODES, np.array([0, 1, 0, 0])).entropy == 0
    found = analyze(CODES, np.zeros(4, dtype=np.int64))
    assert found.weighted_mean_depth == found.mean_depth == 2.25 and found.entropy == 0
    one = analyze(balanced_tree(np.arange(1)), np.array([3]))
    assert one == TreeAnalysis(1, 1, 0, 0.0, 0.0, 0, 0, 0.0, (1,))


def test_huffman_is_near_the_entropy() -> None:
    found = analyze(huffman_tree(zipf(5000)), zipf(5000))
    assert found.entropy <= found.weighted_mean_depth <= found.entropy + 0.05


def test_rows() -> None:
    assert path_rows(CODES, WORDS, COUNTS, [2, 0]) == [
        PathRow("sat", 1, 0.125, 3, "110"),
        PathRow("the", 4, 0.5, 1, "0"),
    ]
    assert path_rows(CODES, WORDS, np.array([0, 1, 0, 0]), [1]) == [PathRow("cat", 1, 1.0, 2, "10")]
    assert [row.code for row in path_rows(SEVERAL, WORDS, np.array([2, 1, 1]), [0])] == ["0", "111"]
    assert path_rows(balanced_tree(np.arange(1)), WORDS, np.array([0]), [0]) == [PathRow("the", 0, 0.0, 0, "")]


def test_text() -> None:
    assert tree_text(top_of(CODES, WORDS, COUNTS, 2)).splitlines() == [
        "· 100.0%",
        "  0  50.0% the",
        "  1  50.0%",
        "    0  25.0% cat",
        "    1  25.0% sat, $ no \\frac",
    ]
    assert tree_text(top_of(SEVERAL, WORDS, np.array([2, 1, 1]), 1)).splitlines() == [
        "· 100.0%",
        "  0  25.0% the",
        "  1  75.0% the, cat, sat",
    ]
    many = [" ", "\n", "w" * 17, "w" * 16, "e"]
    assert tree_text(top_of(balanced_tree(np.arange(5)), many, np.zeros(5, dtype=np.int64), 0)) == (
        f"· 100.0% ' ', \\n, {'w' * 15}…, {'w' * 16}, … (5 words)"
    )
    # The most frequent first, up to four, each once.
    assert tree_text(top_of(CODES, WORDS, np.array([1, 1, 4, 2]), 0)) == "· 100.0% sat, $ no \\frac, the, cat"
    assert tree_text(top_of(SEVERAL, WORDS, np.array([2, 1, 1]), 0)) == "· 100.0% the, cat, sat"
    assert tree_text(top_of(balanced_tree(np.arange(1)), ["a"], np.array([1]), 4)) == "· 100.0% a"


@needs_matplotlib
def test_pictures(tmp_path: Path) -> None:
    from lmtool.plots.style import save_png
    from lmtool.plots.word_pictures import tree_figure

    names = [f"語{word}" for word in range(3000)]  # signs that the font may lack
    tops = {
        "one": top_of(CODES, WORDS, COUNTS, 4),
        "several": top_of(SEVERAL, WORDS, np.array([2, 1, 1]), 4),
        "large": top_of(huffman_tree(zipf(3000)), names, zipf(3000), 5),
        "leaf": top_of(balanced_tree(np.arange(1)), ["a"], np.array([1]), 4),
    }
    for name, top in tops.items():
        save_png(tree_figure(top), tmp_path / f"{name}.png")
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.iterdir())
    assert len(list(tmp_path.iterdir())) == 4
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UserError, match="is a folder: name a file"):
        save_png(tree_figure(tops["one"]), tmp_path / "folder.png")
