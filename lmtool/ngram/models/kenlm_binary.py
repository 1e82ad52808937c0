"""Models in KenLM's binary files (`en.arpa.bin`), of all its types, scored by KenLM's own Python module."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from lmtool.data.vocabulary import BOS, EOS
from lmtool.errors import UserError, first_line
from lmtool.language_model import LanguageModel
from lmtool.ngram.files.arpa_model import vocabulary_of
from lmtool.ngram.files.arpa_read import ZERO
from lmtool.ngram.query.sums import SUM_SLACK
from lmtool.system.arrays import LN10, Array, FloatArray, IntArray

# After 88 bytes of magic and test values: order, multiplier, type, whether the words are at the end, version; 1-grams.
HEADER, HEADER_AT = struct.Struct("<B3xfI?3xIQ"), 88
FIRST_WORD = b"<unk>\0"  # first of the words at the end, each followed by a NUL; the number of 1-grams may omit it
REMEDY = "use the ARPA file that it was made from"


class KenlmBinary(LanguageModel):
    """An n-gram model in a binary file of KenLM, queried word by word through the module `kenlm`.

    vocabulary: the words of the file in its order, with counts of 0. Values are KenLM's float32. `log_dist`, and what
    needs it (`top`, `sample`), is slow: one call of the module per context and word of the vocabulary.
    """

    def __init__(self, path: str) -> None:
        try:
            import kenlm

            if kenlm.__name__ == "lmtool.kenlm":  # lmtool's replacement of kenlm, for a decoder, would query this class
                raise ImportError("not KenLM's module")
        except ImportError as error:
            remedy = f"install KenLM's module (pip install 'lmtool[kenlm]'), or {REMEDY}"
            raise UserError(f"{path} is a KenLM binary, as build_binary writes it: {remedy}") from error
        try:
            self._model = kenlm.Model(path)
        except OSError as error:
            cause = first_line(error).rpartition("'. ")[2].rstrip(")")  # without the place in KenLM's source
            raise UserError(f"{path}: KenLM's module cannot read it ({cause}): {REMEDY}") from error
        self._new_state, self._order = kenlm.State, int(self._model.order)
        words, before, after = _words(path), self._state_after([]), kenlm.State()
        log10 = {word: self._model.BaseScore(before, word, after) for word in words if word != BOS}
        self._normalized = bool(abs(sum(10.0**value for value in log10.values()) - 1) <= SUM_SLACK)
        self._model.BeginSentenceWrite(before)
        first = sum(self._model.BaseFullScore(before, word, after).ngram_length > 1 for word in log10)
        self.vocabulary = vocabulary_of(words, ends=log10.get(EOS, ZERO) > ZERO, starts=first > 1)

    @property
    def vocabulary_size(self) -> int:
        return len(self.vocabulary)

    @property
    def context_size(self) -> int:
        return self._order - 1

    @property
    def normalized(self) -> bool:
        return self._normalized

    def log_dist(self, contexts: IntArray) -> FloatArray:
        contexts, words = self._checked_contexts("log_dist", contexts), np.arange(self.vocabulary_size)
        return self.log_prob_candidates(contexts, np.tile(words, (len(contexts), 1)))

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        contexts = self._checked_contexts("log_prob_candidates", contexts)
        candidates = self._checked_words("log_prob_candidates: candidates", candidates, (len(contexts), "K"))
        log10, after, bos = np.empty(candidates.shape), self._new_state(), self.vocabulary.bos
        words, score = self.vocabulary.words, self._model.BaseScore
        for values, context, row in zip(log10, contexts.tolist(), candidates.tolist(), strict=True):
            state = self._state_after(context)
            values[:] = [score(state, words[k], after) if k != bos else -np.inf for k in row]
        return log10 * LN10

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        log10 = np.array(self._ask("log_prob", self._model.BaseScore, contexts, targets), dtype=np.float64)
        log10[np.asarray(targets) == self.vocabulary.bos] = -np.inf
        return log10 * LN10

    def matched_lengths(self, contexts: IntArray, targets: IntArray) -> IntArray:
        found = self._ask("matched_lengths", self._model.BaseFullScore, contexts, targets)
        return np.array([each.ngram_length for each in found], dtype=np.int64)

    @property
    def context_classes(self) -> int:
        return self._order

    def context_lengths(self, contexts: IntArray) -> IntArray:
        rows, ask = self._checked_contexts("context_lengths", contexts).tolist(), self._model.BaseFullScore
        found = (ask(self._state_after(row[:-1]), self.vocabulary.words[row[-1]], self._new_state()) for row in rows)
        return np.array([each.ngram_length for each in found], dtype=np.int64)

    def explain(self, contexts: IntArray, targets: IntArray) -> dict[str, Array]:
        return {"order": self.matched_lengths(contexts, targets)}  # all that KenLM's module gives

    def _ask(self, method: str, ask: Callable[..., Any], contexts: IntArray, targets: IntArray) -> list[Any]:
        """Return the answers of one of KenLM's functions for targets after contexts.

        In running text a context is the preceding context with its target, so the state after that target is reused.
        """
        contexts = self._checked_contexts(method, contexts)
        targets = self._checked_words(f"{method}: targets", targets, (len(contexts),))
        follows = np.zeros(len(contexts), dtype=bool)
        before, last = contexts[:-1], contexts[1:, -1]
        follows[1:] = (contexts[1:, :-1] == before[:, 1:]).all(axis=1) & (last == targets[:-1])
        answers, words, state, after = [], self.vocabulary.words, self._new_state(), self._new_state()
        for k, (target, same) in enumerate(zip(targets.tolist(), follows.tolist(), strict=True)):
            if not same:
                state = self._state_after(contexts[k].tolist())
            answers.append(ask(state, words[target], after))
            state, after = after, state
        return answers

    def _state_after(self, context: list[int]) -> Any:
        """Return KenLM's state after words, before which nothing is known."""
        state, after = self._new_state(), self._new_state()
        self._model.NullContextWrite(state)
        for word in context:
            self._model.BaseScore(state, self.vocabulary.words[word], after)
            state, after = after, state
        return state


def _words(path: str) -> list[str]:
    """Return the words of a file that KenLM can read."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        *_, has_words, _, count = HEADER.unpack_from(content, HEADER_AT)
        if not has_words:
            raise UserError(
                f"{path} has no words, as build_binary -v leaves them out: build it without -v, or {REMEDY}"
            )
        words, at = [b""], len(content)
        while len(words) - 1 < count and at >= 0:  # a word may end like the first one
            at = content.rfind(FIRST_WORD, 0, at)
            words = content[at:].split(b"\0") if at >= 0 else words
    try:
        if len(words) - 1 not in (count, count + 1) or words[-1]:
            raise UserError(f"{path} is damaged: {count:,} words should be at its end; {REMEDY}")
        return [word.decode() for word in words[:-1]]
    except UnicodeDecodeError as error:
        raise UserError(f"{path} has words that are not UTF-8 ({error}): {REMEDY}, in UTF-8") from error
