"""A corpus in which each sentence is cut into several, of every s-th word each; its n-grams skip words.

With s = 2, `a b c d e` becomes `a c e` and `b d`. Nothing is written.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.data.corpus import Corpus, Split, StoredText
from lmtool.errors import UserError
from lmtool.system.arrays import IntArray


def every(step: int, offsets: IntArray) -> tuple[IntArray, IntArray]:
    """Where the tokens of the new sentences stand in the text, `[N]`, and where these begin, `[S' + 1]`, N the last.

    offsets: int64 `[S + 1]`, of the text's own sentences.
    """
    sentence = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    part = sentence * step + (np.arange(len(sentence)) - offsets[sentence]) % step
    places = np.argsort(part, kind="stable")
    begins = np.flatnonzero(np.diff(part[places], prepend=-1))
    return places, np.append(begins, len(places))


class SkipCorpus(Corpus):
    """The corpus cut so; the corpus that it is made from must stay open.

    Its counts are not kept beside the store: `folder` is None, as for a store that has no folder.
    """

    def __init__(self, corpus: Corpus, step: int) -> None:
        """step: s, 1 or more."""
        Corpus.__init__(self, corpus._file, corpus.path)
        self._step = step
        self.fingerprint = f"{self.fingerprint}, every {step}"

    @property
    def folder(self) -> Path | None:
        """None."""
        return None

    def split(self, name: str) -> Split:
        """Read a split, cut so. Raises UserError, naming those there are, where it is missing."""
        split = Corpus.split(self, name)
        places, offsets = every(self._step, split.offsets)
        return replace(split, ids=split.ids[places], offsets=offsets, oov_positions=_new(split.oov_positions, places))

    @property
    def sources(self) -> dict[str, tuple[int, int]]:
        """Those of the text: sentences stay in their places. Raises UserError for a stream, whose words do not."""
        found = super().sources
        if found and not self.sentences:
            raise UserError(
                "data.sentences=false: every s-th word of a stream is of no one source; give data.train a list"
            )
        return found

    def text(self, name: str) -> StoredText:
        """The same, without what is not counted. Raises UserError where it is missing."""
        split = self.split(name)
        return StoredText(split.ids, split.offsets)


def _new(positions: IntArray, places: IntArray) -> npt.NDArray[Any]:
    """Positions in the text as positions in the cut one, ascending."""
    position = np.empty(len(places), dtype=np.int64)
    position[places] = np.arange(len(places))
    return np.sort(position[positions])
