"""Classes of words learned from a text: merging (Brown et al. 1992), then exchange (Martin, Liermann & Ney 1998).

Both maximise the average mutual information of the classes of neighbours; exchange goes on where merging ends.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.data.vocabulary import Vocabulary
from lmtool.ngram.models.word_classes import WordClasses
from lmtool.system.arrays import IntArray
from lmtool.trees.brown import bigrams, clustered
from lmtool.trees.exchange import Bigrams, exchange


def learned_classes(
    ids: npt.NDArray[Any], vocabulary: Vocabulary, number: int, passes: int, *, merging: bool
) -> tuple[WordClasses, list[str]]:
    """Classes of the words of a vocabulary by the bigrams of a text, and lines on how they were found.

    ids: `[N]`, at least one, without `<s>`, so that `</s>` stands before each sentence but the first. number: of
    classes; beside them `<s>`, `</s>`, `<unk>` and the words that are not in the text have a class each. passes: of
    exchange, at most. merging: whether it starts from merged clusters, which take O(V number^2) time, or from the most
    frequent words as classes, and the others in the last.
    """
    words = len(vocabulary) - 1
    counts = np.bincount(ids, minlength=words)
    own = [i for i in (vocabulary.eos, vocabulary.unk) if i is not None and counts[i] > 0]
    order = np.argsort(-counts, kind="stable")
    order = order[(counts[order] > 0) & ~np.isin(order, own)]
    classes = min(number, len(order))
    names = [*(vocabulary.words[i] for i in own), "unseen"]
    class_of = np.full(words, classes + len(own), dtype=np.int64)
    class_of[own] = classes + np.arange(len(own))
    offsets = np.array([0, len(ids)])
    if merging and classes:
        clusters, _, _ = clustered(ids, offsets, counts, classes)
        class_of[order] = np.unique(clusters[order], return_inverse=True)[1]
    else:
        class_of[order] = np.minimum(np.arange(len(order)), classes - 1)
    closed = np.arange(classes + len(names)) >= classes
    found = exchange(Bigrams(*bigrams(ids, offsets, words)), class_of, len(closed), order, closed, passes)
    bits = found.information / math.log(2)
    about = [f"{classes:,} classes, {found.passes} passes of exchange: average mutual information {bits:.4f} bits"]
    if classes < number:
        about.append(f"model.classes={number}: only {classes:,} words can be put into classes; each is one of its own")
    of_words = np.append(found.class_of, len(closed))  # and of <s>
    return WordClasses.of(of_words, _names(found.class_of, counts, classes, names), vocabulary), about


def _names(class_of: IntArray, counts: IntArray, classes: int, others: list[str]) -> list[str]:
    """c1, c2, ... for the first `classes`, most frequent first; then those of the others, and `<s>`."""
    of_classes = np.bincount(class_of, counts, classes)[:classes]
    rank = np.empty(classes, dtype=np.int64)
    rank[np.argsort(-of_classes, kind="stable")] = np.arange(classes)
    return [*(f"c{r + 1}" for r in rank.tolist()), *others, "<s>"]
