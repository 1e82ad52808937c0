"""Any model of lmtool in flashlight-text's decoders (and torchaudio's): n-gram models, networks and mixtures."""

from __future__ import annotations

import math

from flashlight.lib.text.decoder import LM, LMState

import lmtool


class LmtoolLM(LM):
    """A language model for LexiconDecoder, with scores in log10, as in flashlight's KenLM."""

    def __init__(self, model: lmtool.TextModel, words: list[str]) -> None:
        """words: by the indices of the decoder's dictionary of words."""
        super().__init__()
        self.model = model
        self.words = words
        self.states: dict[LMState, lmtool.State] = {}

    def start(self, start_with_nothing: bool) -> LMState:
        """Return the state before the first word, and forget the states of earlier decodings."""
        start = LMState()
        self.states = {start: self.model.begin(sentence_start=not start_with_nothing)}
        return start

    def score(self, state: LMState, word: int) -> tuple[LMState, float]:
        """Return the state after a word, and the word's score."""
        after = state.child(word)
        log_p, self.states[after] = self.model.advance(self.states[state], self.words[word])
        return after, log_p / math.log(10)

    def finish(self, state: LMState) -> tuple[LMState, float]:
        """Return the state after the end of the sentence, and its score."""
        after = state.child(-1)
        log_p, self.states[after] = self.model.advance(self.states[state], "</s>")
        return after, log_p / math.log(10)
