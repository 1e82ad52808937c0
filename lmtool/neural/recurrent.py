"""A recurrent language model: its contexts are all previous words, and its state is carried along a text.

Legend of shapes: B rows that are read in parallel, T words of each, N contexts or tokens, W numbers in a state of the
encoder, D dimension of the hidden states, V words of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from lmtool.data.split import Split
from lmtool.data.vocabulary import SpecialTokens
from lmtool.neural.encoders.recurrent import Recurrent
from lmtool.neural.model import NeuralModel, Rows
from lmtool.system.arrays import FloatArray, IntArray, in_chunks
from lmtool.system.terminal import token_bar

ROWS = 256  # pieces of text that are read in parallel
WORDS_PER_CHUNK = 1 << 12  # words read at once, over all rows
KEPT = 1 << 14  # hidden states of a long text that are kept, for a cache of that many tokens
PIECE, WARM_UP = 512, 128  # tokens of a long text per row for the loss in training, and tokens read before them
Piece = tuple[int, int, int]  # tokens: where reading begins, where scores begin, and the end of both


class _Reading(NamedTuple):
    """Where the reading of a long text ended: its ids, the weights' versions, the first token of its stream, the token
    before which it ended, the state `[1, W]` there, and the hidden states before the last tokens, float32 `[n, D]`.
    """

    ids: IntArray
    weights: list[tuple[int, int]]
    begin: int
    until: int
    state: Tensor
    hidden: Rows


class RecurrentModel(NeuralModel):
    """A recurrent encoder and an output layer. carried: the state `[B, W]` that training carries from batch to batch;
    None before the first.
    """

    carried: Tensor | None = None
    _read: _Reading | None = None

    @property
    def recurrent(self) -> Recurrent:
        """The encoder."""
        return cast(Recurrent, self.encoder)

    def forward(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of targets `[B, T]` after words `[B, T]`, which continue the last batch.

        Back-propagation ends at the first of these words (truncated back-propagation through time). The encoder's
        penalty only affects the gradients, so that the reported loss is the output layer's.
        """
        state = self.carried
        if state is None or len(state) != len(contexts):
            state = self.recurrent.zero_state(len(contexts))
        narrow = self.training and self.encodes_in_bf16(targets.numel())
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=narrow):
            h, after = self.recurrent.read(contexts, state)
        self.carried = after.detach().to(state.dtype)
        loss = self._loss(h.flatten(0, 1).to(state.dtype), targets.flatten())
        penalty = self.recurrent.penalty
        return loss if penalty is None else loss + (penalty - penalty.detach())

    def read_tokens(self, text: Split, tokens: IntArray, state: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the same as NeuralModel.read_tokens; from no state, rows are read as if a text began at each."""
        words, targets = text.as_stream(self.across_sentences).windows(tokens.ravel(), 1)
        words = words.reshape(tokens.shape)
        if state is None:
            words[:, 0], state = text.bos, self.recurrent.zero_state(len(words))
        h, state = self.recurrent.read(torch.from_numpy(words).to(self.device), state)
        return h.flatten(0, 1), torch.from_numpy(targets).to(self.device), state.detach()

    def carried_state(self) -> dict[str, Tensor]:
        return {} if self.carried is None else {"state": self.carried}

    def carry(self, state: dict[str, Tensor]) -> None:
        self.carried = state["state"].to(self.device) if state else None

    def score_text(self, text: Split, *, progress: bool = False, memory_limit: int | None = None) -> FloatArray:
        """Return log p of each predicted token `[N]`, read from the beginning of its sentence, document or text."""
        offsets = text.as_stream(self.across_sentences).offsets.tolist()
        pieces = [(first, first, last) for first, last in pairwise(offsets)]
        return self._score(text, pieces, self.output.log_prob, progress=progress)

    def score_tokens(
        self, text: Split, first: int, last: int, *, unnormalized: bool = False, progress: bool = False
    ) -> FloatArray:
        """Return log p of the tokens `first` to `last` - 1, or unnormalized_log_prob.

        In training mode, pieces of 512 tokens of a long text are scored in parallel, each after only the 128 tokens
        before it: an approximation for the loss on valid.
        """
        if unnormalized and not self.self_normalized:
            return super().score_tokens(text, first, last, unnormalized=True)
        method = self.output.unnormalized_log_prob if unnormalized else self.output.log_prob
        pieces: list[Piece] = []
        for begin, start, end in self._overlapping(text, first, last):
            if not self.training:
                pieces.append((begin, start, end))
                continue
            pieces += [(max(begin, at - WARM_UP), at, min(at + PIECE, end)) for at in range(start, end, PIECE)]
        if pieces[:-1] or self.training:
            return self._score(text, pieces, method, progress=progress)[first:last]
        log_prob = np.empty(last - first)
        with token_bar(last - first, shown=progress) as bar:
            for part in in_chunks(last - first, WORDS_PER_CHUNK):  # hidden_text continues a text that it has read
                h = torch.from_numpy(self.hidden_text(text, first + part.start, first + part.stop))
                targets = torch.from_numpy(text.ids[first:last][part].astype(np.int64)).to(self.device)
                log_prob[part] = method(h.to(self.recurrent.embedding.weight), targets).detach().cpu().numpy()
                bar.update(len(h))
        return log_prob

    def log_dist_text(self, text: Split, first: int, last: int) -> FloatArray:
        h = torch.from_numpy(self.hidden_text(text, first, last)).to(self.device)
        return np.asarray(torch.cat([self._log_dist(part) for part in torch.split(h, 256)]).cpu())

    def hidden_text(self, text: Split, first: int, last: int) -> Rows:
        """Return the hidden states before the tokens `first` to `last` - 1 of a text that is read from its beginning,
        `[last - first, D]`. Continues where the last call for this text ended, and keeps states for a cache.
        """
        vectors = np.empty((last - first, self.recurrent.output_dim), dtype=np.float32)
        pieces = list(self._overlapping(text, first, last))
        if len(pieces) != 1:
            for tokens, h in self._hidden(text, pieces):
                vectors[tokens - first] = h.float().cpu().numpy()
            return vectors
        begin, at, state, before = pieces[0][0], pieces[0][0], self.recurrent.zero_state(1), vectors[:0]
        weights = [(weight.data_ptr(), weight._version) for weight in self.parameters()]
        read = self._read
        known = read is not None and (read.weights, read.begin) == (weights, begin)
        if read is not None and known and np.array_equal(read.ids[begin : read.until], text.ids[begin : read.until]):
            kept = read.until - len(read.hidden)
            if kept <= first <= read.until <= last:
                at, state, before = read.until, read.state, read.hidden
                vectors[: at - first] = before[first - kept :]
        start = max(at, first)
        bounds = [np.array([token]) for token in (begin, start, last, at)]
        for tokens, h, after in self._rows(text, bounds[0], bounds[1], bounds[2], bounds[3], state):
            vectors[tokens - first], state = h.float().cpu().numpy(), after
        hidden = np.concatenate([before, vectors[start - first :]])[-KEPT:]
        self._read = _Reading(text.ids, weights, begin, last, state, hidden)
        return vectors

    @property
    def state_size(self) -> int:
        """The number of int64 that hold the bits of a state."""
        return -(-self.recurrent.state_dim * self.recurrent.embedding.weight.element_size() // 8)

    def begin(self, special_tokens: SpecialTokens, *, sentence_start: bool = True) -> IntArray:
        """Return the state before the first word: after `<s>`, or `<unk>` if no sentence begins."""
        word = special_tokens.bos if sentence_start else special_tokens.unk
        with torch.no_grad(), self._evaluating():
            _, state = self.recurrent.read(torch.tensor([[word]], device=self.device), self.recurrent.zero_state(1))
        first: IntArray = self._pack(state)[0]
        return first

    def advance(self, states: IntArray, words: IntArray, special_tokens: SpecialTokens) -> tuple[FloatArray, IntArray]:
        """Return log p(word | state) `[N]` of words `[N]` after states `[N, state_size]`, and the states after them."""
        words = self._checked_words("advance: words", words, (len(states),))
        with torch.no_grad(), self._evaluating():
            before, ids = self._unpack(states), torch.from_numpy(words).to(self.device)
            log_prob = self._log_prob(self.recurrent.top(before), ids).cpu().numpy()
            after = self._pack(self.recurrent.read(ids[:, None], before)[1])
        if special_tokens.eos is not None and not self.across_sentences:
            after[words == special_tokens.eos] = self.begin(special_tokens)
        return log_prob, after

    def _pack(self, state: Tensor) -> IntArray:
        numbers = state.cpu().numpy()
        size = self.state_size * 8 // numbers.itemsize
        padded: IntArray = np.ascontiguousarray(np.pad(numbers, ((0, 0), (0, size - numbers.shape[1])))).view(np.int64)
        return padded

    def _unpack(self, states: IntArray) -> Tensor:
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

    def _hidden(self, text: Split, pieces: list[Piece]) -> Iterator[tuple[IntArray, Tensor]]:
        """Yield tokens `[n]` of the pieces and the hidden states before them, `[n, D]`, in any order."""
        order = sorted(range(len(pieces)), key=lambda k: pieces[k][0] - pieces[k][2])  # longest first
        for rows in in_chunks(len(order), ROWS):
            begin, start, end = np.array([pieces[k] for k in order[rows]]).T
            state = self.recurrent.zero_state(len(begin))
            yield from (found[:2] for found in self._rows(text, begin, start, end, begin, state))

    @torch.no_grad()
    def _rows(
        self, text: Split, begin: IntArray, start: IntArray, end: IntArray, at: IntArray, state: Tensor
    ) -> Iterator[tuple[IntArray, Tensor, Tensor]]:
        """Read pieces side by side, from tokens `at` `[B]` and states `[B, W]` on; yield tokens `[n]` from `start` on,
        the hidden states before them, `[n, D]`, and the states after all that was read.
        """
        padded = text.in_memory.padded
        while len(at) and (at < end).any():
            width = max(1, min(int((end - at).max()), WORDS_PER_CHUNK // len(at)))
            tokens = at[:, None] + np.arange(width)  # [B, T]
            inside = tokens < end[:, None]
            before = np.where(inside, np.where(tokens == begin[:, None], 0, tokens) - 1, begin[:, None])
            with self._evaluating():
                words = torch.from_numpy(padded[before].astype(np.int64)).to(self.device)
                h, state = self.recurrent.read(words, state)
            wanted = inside & (tokens >= start[:, None])
            yield tokens[wanted], h[torch.from_numpy(wanted).to(h.device)], state
            at = at + width
            left = at < end
            begin, start, end, at = (array[left] for array in (begin, start, end, at))
            state = state[torch.from_numpy(left).to(state.device)]
