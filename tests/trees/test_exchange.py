"""Exchange: every move against the likelihood worked out afresh."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lmtool.trees._brown_kernels import f_table
from lmtool.trees.brown import Bigrams, bigrams
from lmtool.trees.exchange import exchange
from tests.trees.test_brown import TEXTS, information, text


def of_classes(pairs: Bigrams, class_of: np.ndarray, classes: int) -> float:
    """Return the average mutual information of classes, in nats times the number of bigrams."""
    n = np.zeros((classes, classes))
    np.add.at(n, (class_of[pairs.first], class_of[pairs.second]), pairs.counts)
    return information(n)


def plain_exchange(
    pairs: Bigrams, class_of: np.ndarray, classes: int, movable: np.ndarray, closed: np.ndarray, passes: int
) -> tuple[np.ndarray, int]:
    class_of = class_of.copy()
    for done in range(1, passes + 1):
        moved = False
        for word in movable:
            old = class_of[word]
            if closed[old] or (class_of == old).sum() == 1:
                continue
            found = []
            for c in range(classes):
                class_of[word] = c
                found.append(-np.inf if closed[c] else of_classes(pairs, class_of, classes))
            best = old
            for c in range(classes):  # the first of those that are equal up to rounding
                best = c if found[c] > found[best] + 1e-6 else best
            class_of[word] = best
            moved |= best != old
        if not moved:
            return class_of, done
    return class_of, passes


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 10), st.integers(1, 5), st.integers(0, 4))
@example(378, 4, 5, 1)  # two classes are the same to a word
def test_words_move_where_the_likelihood_is_highest(seed: int, words: int, classes: int, passes: int) -> None:
    ids, offsets, counts = text(seed, words)
    pairs = bigrams(ids, offsets, words)
    start = np.random.default_rng(seed).integers(0, classes, words)
    movable = np.argsort(-counts, kind="stable")[: words - seed % 2]
    closed = np.arange(classes) == classes - seed % 3
    found = exchange(pairs, start, classes, movable, closed, passes)
    wanted, needed = plain_exchange(pairs, start, classes, movable, closed, passes)
    np.testing.assert_array_equal(found.class_of, wanted)
    assert found.passes == needed if passes else found.passes == 0
    total = pairs.counts.sum()
    assert found.information == pytest.approx(of_classes(pairs, wanted, classes) / total, abs=1e-9)


def test_the_classes_of_a_text_of_two_kinds_of_words() -> None:
    ids = np.array([0, 2, 1, 3, 0, 3, 1, 2] * 3)  # 0 and 1 come before 2 and 3
    pairs = bigrams(ids, np.array([0, len(ids)]), 4)
    found = exchange(pairs, np.array([0, 1, 0, 1]), 2, np.arange(4), np.zeros(2, bool), 9)
    assert found.class_of[0] == found.class_of[1] != found.class_of[2] == found.class_of[3]
    # 12 bigrams from one class to the other and 11 back: H of the first words, which the second words determine.
    p = np.array([12, 11]) / 23
    assert found.information == pytest.approx(-(p * np.log(p)).sum(), abs=1e-12)


@pytest.mark.parametrize("name", TEXTS)
def test_a_short_table_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = int(TEXTS[name][0].max()) + 1
    pairs = bigrams(*TEXTS[name], words)
    given = pairs, np.arange(words) // 2 % 4, 4, np.arange(words), np.zeros(4, bool), 20
    whole, table = exchange(*given), f_table()
    for length in range(2, 24):
        monkeypatch.setattr("lmtool.trees.exchange.f_table", lambda end=length: table[:end])
        found = exchange(*given)
        assert found.class_of.tolist() == whole.class_of.tolist() and found.passes == whole.passes
        assert found.information == pytest.approx(whole.information, rel=1e-9)


def test_a_text_without_bigrams() -> None:
    none = bigrams(np.array([1]), np.array([0, 1]), 3)
    found = exchange(none, np.array([0, 1, 1]), 2, np.arange(3), np.zeros(2, bool), 5)
    assert found.class_of.tolist() == [0, 1, 1] and (found.information, found.passes) == (0.0, 0)
