"""A recurrent language model: its contexts are all words before, and its state is carried along a text.

Legend of shapes: B rows that are read side by side, T words of each, N contexts or tokens, W numbers in a state of the
encoder, D dimension of the hidden states, V words of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lmtool.data.split import MAX_POSITION, Split
from lmtool.data.vocabulary import SpecialTokens
from lmtool.neural.encoders.recurrent import Recurrent
from lmtool.neural.model import NeuralModel
from lmtool.system.arrays import FloatArray, IntArray, in_chunks
from lmtool.system.terminal import token_bar

ROWS = 256  # pieces of text that are read side by side
WORDS_PER_CHUNK = 1 << 12  # words of all rows together that are read at once
PIECE, WARM_UP = 512, 128  # tokens of a long text whose loss in training is computed by one row, and those before
Piece = tuple[int, int, int]  # tokens: where reading begins, where scores begin, and the end of both


class RecurrentModel(NeuralModel):
    """A recurrent encoder and an output layer. carried: the state `[B, W]` that training carries from batch to batch;
    None before the first.
    """

    carried: Tensor | None = None
    _read_until: tuple[object, int, Tensor] | None = None  # a text, a number of its tokens, the state after them

    @property
    def recurrent(self) -> Recurrent:
        """The encoder."""
        return cast(Recurrent, self.encoder)

    def forward(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """Return the mean training loss of targets `[B, T]` after words `[B, T]`, which continue the last batch.

        Back-propagation ends at the first of these words (truncated back-propagation through time).
        """
        state = self.carried
        if state is None or len(state) != len(contexts):
            state = self.recurrent.zero_state(len(contexts))
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.encodes_in_bf16(targets.numel())):
            h, after = self.recurrent.read(contexts, state)
        self.carried, self._read_until = after.detach().to(state.dtype), None  # the weights will change
        return self._loss(h.flatten(0, 1).to(state.dtype), targets.flatten())

    def carried_state(self) -> dict[str, Tensor]:
        """Return the state that training carries, if any."""
        return {} if self.carried is None else {"state": self.carried}

    def carry(self, state: dict[str, Tensor]) -> None:
        """Continue from what carried_state returned."""
        self.carried = state["state"].to(self.device) if state else None

    def contexts_of(self, text: Split, index: IntArray) -> tuple[IntArray, IntArray]:
        """Return contexts and targets of the tokens at index `[B]`, contexts cut to the last 255 words: an
        approximation, for statistics of single tokens. score_text and log_dist_text read the whole text.
        """
        longest = min(MAX_POSITION, int(index.max(initial=0)) + 1)
        return text.as_stream(self.across_sentences).windows(index, longest)

    def score_text(self, text: Split, *, progress: bool = False, memory_limit: int | None = None) -> FloatArray:
        """Return log p of each predicted token `[N]`, read from the beginning of its sentence, document or text."""
        offsets = text.as_stream(self.across_sentences).offsets.tolist()
        pieces = [(first, first, last) for first, last in pairwise(offsets)]
        return self._score(text, pieces, self.output.log_prob, progress=progress)

    def score_tokens(
        self, text: Split, first: int, last: int, *, unnormalized: bool = False, progress: bool = False
    ) -> FloatArray:
        """Return log p of the tokens `first` to `last` - 1, or unnormalized_log_prob.

        In a long text each 512 tokens are scored after the 128 before them alone, side by side: an approximation, with
        which training computes the loss on valid.
        """
        if unnormalized and not self.self_normalised:
            return super().score_tokens(text, first, last, unnormalized=True)
        method = self.output.unnormalized_log_prob if unnormalized else self.output.log_prob
        pieces = []
        for begin, start, end in self._overlapping(text, first, last):
            pieces += [(max(begin, at - WARM_UP), at, min(at + PIECE, end)) for at in range(start, end, PIECE)]
        return self._score(text, pieces, method, progress=progress)[first:last]

    def log_dist_text(self, text: Split, first: int, last: int) -> FloatArray:
        """Return log p of all words before the tokens `first` to `last` - 1, `[last - first, V]`."""
        h = torch.from_numpy(self.hidden_text(text, first, last)).to(self.device)
        dists = [F.pad(self.output.log_dist(part), (0, 1), value=-torch.inf) for part in torch.split(h, 256)]
        return np.asarray(torch.cat(dists).cpu())

    def hidden_text(self, text: Split, first: int, last: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        """Return the hidden states before the tokens `first` to `last` - 1 of a text that is read from its beginning,
        `[last - first, D]`. Continues where the last call for this text ended.
        """
        found = np.empty((last - first, self.recurrent.output_dim), dtype=np.float32)
        for tokens, h in self._hidden(text, list(self._overlapping(text, first, last)), keeps=True):
            found[tokens - first] = h.float().cpu().numpy()
        return found

    @property
    def state_size(self) -> int:
        """The number of int64 that hold the bits of a state."""
        return -(-self.recurrent.state_dim * self.recurrent.embedding.weight.element_size() // 8)

    def begin(self, special_tokens: SpecialTokens, *, sentence_start: bool = True) -> IntArray:
        """Return the state before the first word: after `<s>`, or `<unk>` if no sentence begins."""
        word = special_tokens.bos if sentence_start else special_tokens.unk
        with torch.no_grad(), self._evaluating():
            _, state = self.recurrent.read(torch.tensor([[word]], device=self.device), self.recurrent.zero_state(1))
        first: IntArray = self._packed(state)[0]
        return first

    def advance(self, states: IntArray, words: IntArray, special_tokens: SpecialTokens) -> tuple[FloatArray, IntArray]:
        """Return log p(word | state) `[N]` of words `[N]` after states `[N, state_size]`, and the states after them."""
        words = self._checked_words("advance: words", words, (len(states),))
        with torch.no_grad(), self._evaluating():
            before, ids = self._unpacked(states), torch.from_numpy(words).to(self.device)
            log_prob = self._log_prob(self.recurrent.top(before), ids).cpu().numpy()
            after = self._packed(self.recurrent.read(ids[:, None], before)[1])
        if special_tokens.eos is not None and not self.across_sentences:
            after[words == special_tokens.eos] = self.begin(special_tokens)
        return log_prob, after

    def _packed(self, state: Tensor) -> IntArray:
        numbers = state.cpu().numpy()
        size = self.state_size * 8 // numbers.itemsize
        padded: IntArray = np.ascontiguousarray(np.pad(numbers, ((0, 0), (0, size - numbers.shape[1])))).view(np.int64)
        return padded

    def _unpacked(self, states: IntArray) -> Tensor:
        like = self.recurrent.zero_state(0)
        numbers = np.ascontiguousarray(states).view(like.cpu().numpy().dtype)
        return torch.from_numpy(numbers[:, : self.recurrent.state_dim].copy()).to(self.device)

    def _overlapping(self, text: Split, first: int, last: int) -> Iterator[Piece]:
        """Yield the pieces of the sentences, or other streams, that have tokens from `first` to `last` - 1."""
        offsets = text.as_stream(self.across_sentences).offsets
        for k in range(int(np.searchsorted(offsets, first, "right")) - 1, len(offsets) - 1):
            begin, end = int(offsets[k]), int(offsets[k + 1])
            if begin >= last:
                return
            yield begin, max(begin, first), min(end, last)

    def _score(
        self, text: Split, pieces: list[Piece], method: Callable[[Tensor, Tensor], Tensor], *, progress: bool
    ) -> FloatArray:
        """Return method(h, targets) of the pieces' tokens, in an array for the whole text `[N]`."""
        log_prob = np.zeros(text.tokens)
        with token_bar(text.tokens, shown=progress) as bar:
            for tokens, h in self._hidden(text, pieces):
                targets = torch.from_numpy(text.ids[tokens].astype(np.int64)).to(self.device)
                with torch.no_grad():
                    log_prob[tokens] = method(h, targets).cpu().numpy()
                bar.update(len(tokens))
        return log_prob

    @torch.no_grad()
    def _hidden(self, text: Split, pieces: list[Piece], *, keeps: bool = False) -> Iterator[tuple[IntArray, Tensor]]:
        """Yield tokens `[n]` of the pieces and the hidden states before them, `[n, D]`, in any order.

        keeps: if there is one piece, continue from where the last such call ended, and keep the state after it.
        """
        order = sorted(range(len(pieces)), key=lambda k: pieces[k][0] - pieces[k][2])  # the longest first
        ids = np.append(text.ids.astype(np.int64), text.bos)
        for rows in in_chunks(len(order), ROWS):
            begin, start, end = np.array([pieces[k] for k in order[rows]]).T
            at, state = begin.copy(), self.recurrent.zero_state(len(begin))
            if keeps and len(pieces) == 1 and self._read_until is not None:
                of_text, until, kept = self._read_until
                if of_text is text.ids and begin[0] < until <= start[0]:
                    at[0], state = until, kept
            while len(at):
                width = max(1, min(int((end - at).max()), WORDS_PER_CHUNK // len(at)))
                tokens = at[:, None] + np.arange(width)  # [B, T]
                inside = tokens < end[:, None]
                before = np.where(inside, np.where(tokens == begin[:, None], 0, tokens) - 1, begin[:, None])
                with self._evaluating():
                    h, state = self.recurrent.read(torch.from_numpy(ids[before]).to(self.device), state)
                wanted = inside & (tokens >= start[:, None])
                yield tokens[wanted], h[torch.from_numpy(wanted).to(h.device)]
                at = at + width
                if keeps and len(pieces) == 1 and at[0] == end[0]:
                    self._read_until = text.ids, int(end[0]), state
                left = at < end
                begin, start, end, at = (array[left] for array in (begin, start, end, at))
                state = state[torch.from_numpy(left).to(state.device)]
