"""Corpora derived from a store without writing files: other units instead of its words, or skipped words."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lmtool.data.cloze import Cloze
from lmtool.data.corpus import Corpus
from lmtool.data.split import Split
from lmtool.data.store import StoredText
from lmtool.data.text_form import TextForm
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.system.arrays import Array, IntArray


@dataclass(frozen=True, slots=True)
class MappedIds:
    """The units `[N]` of the ids `[N]` of a stored text, read piece by piece. unit_of: unit of each id, `[V]`."""

    ids: Any
    unit_of: Array

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: Any) -> Any:
        return self.unit_of[self.ids[index]]


class DerivedCorpus(Corpus):
    """A corpus made from another corpus, which must stay open, or from a text; pickling saves what it is made of."""

    folder = None  # counts are not kept in the folder of the store
    _made_of: tuple[Any, ...]  # the constructor's arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made_of


class MappedCorpus(DerivedCorpus):
    """A corpus in which unit_of[w] stands for word w. oov: bool `[V]`, the words (not `<unk>`) that become `<unk>`."""

    def __init__(self, corpus: Corpus, unit_of: IntArray, units: Vocabulary) -> None:
        """unit_of: int64 `[V]`; the last entry, of `<s>`, is the `<s>` of `units`. units: the vocabulary of U units."""
        super().__init__(corpus)
        self._made_of = corpus, unit_of, units
        assert len(unit_of) == len(corpus.vocabulary) and unit_of[-1] == units.bos
        self._unit_of = unit_of.astype(np.min_scalar_type(len(units)))
        self.oov = (self._unit_of == units.unk) & (np.arange(len(unit_of)) != corpus.vocabulary.unk)
        self._oov_of_train = float(corpus.vocabulary.counts[self.oov].sum()) / corpus.tokens("train")
        self._units = units
        content = f"{self.fingerprint}\0{units.fingerprint()}\0".encode() + self._unit_of.tobytes()
        self.fingerprint = hashlib.sha256(content).hexdigest()

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return self._units

    def split(self, name: str) -> Split:
        split = super().split(name)
        oov = np.union1d(split.oov_positions, np.flatnonzero(self.oov[split.ids]))
        return replace(split, ids=self._unit_of[split.ids], oov_positions=oov)

    def oov_share(self, name: str) -> float:
        """Return the OOV rate of a split, from 0 to 1; for train, it is computed from the counts of words."""
        if name == "train":
            return super().oov_share(name) + self._oov_of_train
        return len(self.split(name).oov_positions) / self.tokens(name)

    def cloze(self, name: str) -> Cloze | None:
        words, unit_of = super().cloze(name), self._unit_of.astype(np.int64)
        return words and replace(words, context_ids=unit_of[words.context_ids], candidates=unit_of[words.candidates])

    def text(self, name: str) -> StoredText:
        stored = super().text(name)
        return StoredText(MappedIds(stored.ids, self._unit_of), stored.offsets)


class TextCorpus(DerivedCorpus):
    """A corpus without a store, whose only split is a given text."""

    def __init__(self, text: Split, name: str, form: TextForm) -> None:
        """name: name of the text and the split. form: the rules by which the text was encoded."""
        self._made_of = text, name, form
        self.name, self.path, self.splits, self._text = name, Path(name), [name], text
        self.vocabulary, self.subwords = form.vocabulary, form.subwords

    def split(self, name: str) -> Split:
        return self._text

    def cloze(self, name: str) -> Cloze | None:
        return None


def limit_words(corpus: Corpus, words: Collection[str]) -> MappedCorpus:
    """Return the corpus with `<unk>` for each word except `words`, whose ids keep their order, `<s>` and `</s>`."""
    units, word_mask = corpus.vocabulary.limit(words)
    return MappedCorpus(corpus, np.where(word_mask, np.cumsum(word_mask) - 1, units.unk), units)


def interleave(step: int, offsets: IntArray) -> tuple[IntArray, IntArray]:
    """Return the positions `[N]` of every step-th word of each sentence in turn, and the starts of new sentences."""
    sentence = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    part = sentence * step + (np.arange(len(sentence)) - offsets[sentence]) % step
    places = np.argsort(part, kind="stable")
    begins = np.flatnonzero(np.diff(part[places], prepend=-1))
    return places, np.append(begins, len(places))


class SkipCorpus(DerivedCorpus):
    """A corpus whose sentences are cut into `step` sentences of every step-th word: `a b c d` into `a c` and `b d`."""

    def __init__(self, corpus: Corpus, step: int) -> None:
        super().__init__(corpus)
        self._made_of = corpus, step
        self._step = step
        self.fingerprint = f"{self.fingerprint}, every {step}"

    def split(self, name: str) -> Split:
        split = super().split(name)
        places, offsets = interleave(self._step, split.offsets)
        position = np.empty(len(places), dtype=np.int64)  # position of each token of the text in the cut text
        position[places] = np.arange(len(places))
        oov = np.sort(position[split.oov_positions])
        return replace(split, ids=split.ids[places], offsets=offsets, oov_positions=oov)

    @property
    def sources(self) -> dict[str, tuple[int, int]]:
        found = super().sources  # the token ranges are unchanged as sentences stay in place
        if found and not self.sentences:
            stream = "skipped words of a stream do not belong to one source"
            raise UserError(f"data.sentences=false: {stream}; give data.train a list")
        return found

    def text(self, name: str) -> StoredText:
        split = self.split(name)
        return StoredText(split.ids, split.offsets)
