"""An ARPA file as a model by itself: its words are the vocabulary, and no text is needed."""

from __future__ import annotations

import numpy as np

from lmtool.data.vocabulary import BOS, EOS, UNK, Vocabulary
from lmtool.ngram.files.arpa_read import Arpa, arpa_table, read_arpa
from lmtool.ngram.models.ngram_model import NgramModel


def arpa_model(path: str) -> NgramModel:
    """The model of an ARPA file over its own words, in the order of the file, with counts of 0.

    `<unk>`, or `<UNK>`, is what words out of the vocabulary are; where the file has none, they have probability 0. A
    file without `</s>`, or in which it is never predicted, is a model of text without sentences. Raises UserError as
    read_arpa and arpa_table do.
    """
    arpa = read_arpa(path)
    vocabulary = _vocabulary(arpa)
    return NgramModel(arpa_table(arpa, vocabulary), vocabulary)


def _vocabulary(arpa: Arpa) -> Vocabulary:
    words = [word for word in arpa.words if word not in (BOS, EOS)]
    if UNK not in words:
        words.append(UNK)
    if _ends_sentences(arpa):
        words.append(EOS)
    ids = {word: k for k, word in enumerate(words)}
    words.append(BOS)
    return Vocabulary(tuple(words), np.zeros(len(words), dtype=np.int64), ids.get(EOS), ids[UNK])


def _ends_sentences(arpa: Arpa) -> bool:
    """Whether `</s>` is ever predicted. lmtool writes one with probability 0 for text without sentences."""
    if EOS not in arpa.words:
        return False
    eos = arpa.words.index(EOS)
    _, log_prob, _, _ = arpa.grams[0]
    return bool(log_prob[eos] > -np.inf) or any((words[:, -1] == eos).any() for words, *_ in arpa.grams[1:])
