r"""Recurrent encoders: LSTM, gated recurrent units (GRU) and Elman's network, which read all words before.

.. math::

    i, f, o &= \sigma(W x_t + U h_{t-1} + b) \qquad g = \tanh(W_g x_t + U_g h_{t-1} + b_g) \\
    c_t &= f \odot c_{t-1} + i \odot g \qquad h_t = o \odot \tanh(c_t) & \text{(LSTM)} \\
    h_t &= \tanh(W x_t + U h_{t-1} + b) & \text{(Elman)}

x_t is the embedding of w_t, or h_t of the layer below. Reading `<s>` sets the state to zero first, so that what follows
does not depend on what precedes it. The products are torch's (torch.lstm, torch.gru, torch.rnn_tanh).

Legend of shapes: B examples, T words of each, S segments, E dimension of the embeddings, D dimension of the hidden
states that the output layer reads, W numbers in a state, V words of the vocabulary.

Source: Elman (1990), "Finding structure in time"; Mikolov et al. (2010), "Recurrent neural network based language
    model", Interspeech; Hochreiter & Schmidhuber (1997), "Long short-term memory"; Cho et al. (2014), EMNLP; dropout:
    Zaremba et al. (2014), Gal & Ghahramani (2016), Merity, Keskar & Socher (2018), "Regularizing and optimizing LSTM
    language models", ICLR; regularization: Merity, McCann & Socher (2017), "Revisiting activation regularization for
    language RNNs".
Complexity: O(layers g H (E + H)) for each word, g being 4, 3 and 1 matrices; V E weights besides these.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from lmtool.errors import UserError
from lmtool.neural.encoders.base import Encoder
from lmtool.neural.encoders.settings import Cell, LstmSettings

MODULES: dict[Cell, Callable[..., nn.RNNBase]] = {Cell.lstm: nn.LSTM, Cell.gru: nn.GRU, Cell.rnn: nn.RNN}
FUNCTIONS: dict[Cell, Callable[..., tuple[Tensor, ...]]] = {
    Cell.lstm: torch.lstm,
    Cell.gru: torch.gru,
    Cell.rnn: torch.rnn_tanh,
}


class Recurrent(Encoder):
    """Layers of recurrent cells; the state `[B, W]` holds h of each layer, and for an LSTM c after each h.

    The last layer has the dimension of the embeddings if they are tied to the output vectors. dropout acts between the
    layers, output_dropout before the output layer, input_dropout on the embeddings, each by one mask for all words of a
    row (Gal & Ghahramani 2016); embedding_dropout on whole words; weight_dropout on the matrices U (Merity et al.
    2018). penalty: penalty of the hidden states read last, to add to the training loss; None outside training.
    """

    config: LstmSettings
    penalty: Tensor | None = None

    def __init__(self, config: LstmSettings, vocabulary_size: int, *, tied: bool, sparse: bool = False) -> None:
        """vocabulary_size: V. tied: whether D must be E. sparse: whether the gradient of the embeddings is sparse."""
        super().__init__(config, vocabulary_size, sparse=sparse)
        self.context_size = None
        self.bos = vocabulary_size - 1
        inner, last = config.units, config.embedding_dim if tied else config.units
        sizes = [config.embedding_dim, *[inner] * (config.layers - 1), last]
        kind = MODULES[config.cell]
        self.cells = nn.ModuleList(kind(before, after, batch_first=True) for before, after in pairwise(sizes))
        self.each = 2 if config.cell is Cell.lstm else 1  # parts of a layer's state
        self.parts = [size for size in sizes[1:] for _ in range(self.each)]
        self.output_dim, self.state_dim = last, sum(self.parts)

    def zero_state(self, rows: int) -> Tensor:
        """Return the state before any word, `[rows, W]`."""
        return self.embedding.weight.new_zeros(rows, self.state_dim)

    def top(self, state: Tensor) -> Tensor:
        """Return the hidden states `[B, D]` that the output layer reads in states `[B, W]`."""
        first = self.state_dim - self.output_dim * self.each
        return state[:, first : first + self.output_dim]

    def encode(self, contexts: Tensor) -> Tensor:
        """Compute hidden states `[B, D]` after contexts `[B, C]`, from the last `<s>` of each or a state of zeros."""
        size = contexts.shape[1]
        if not len(contexts):
            return self.top(self.zero_state(0))
        places = torch.arange(size, device=contexts.device)
        start = torch.where(contexts == self.bos, places, 0).amax(1)  # start of each row
        moved = (places + start[:, None]).clamp(max=size - 1)
        h, _ = self._layers(contexts.gather(1, moved), self.zero_state(len(contexts)), (size - start).cpu())
        return h[torch.arange(len(contexts), device=h.device), size - start - 1]

    def of_embeddings(self, x: Tensor) -> Tensor:
        """Raise NotImplementedError: this encoder needs the words, because `<s>` sets its state to zero."""
        raise NotImplementedError("a recurrent encoder reads words")

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Raise UserError: the products are torch's own, which a compiler does not change."""
        raise UserError("training.compile=true: a recurrent network is not compiled; leave it out")

    def read(self, words: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Read words `[B, T]` after states `[B, W]`; return the hidden states, `[B, T, D]`, and the last states."""
        resets = words == self.bos
        if not bool(resets[:, 1:].any()):
            return self._layers(words, state.masked_fill(resets[:, :1], 0), None)
        # Rows are cut before each `<s>`, and the segments read side by side.
        rows, size = words.shape
        begins = resets.clone()
        begins[:, 0] = True
        row, first = begins.nonzero(as_tuple=True)
        following = torch.cat([row[1:] == row[:-1], row.new_zeros(1, dtype=torch.bool)])  # in the same row
        end = torch.where(following, torch.cat([first[1:], first[:1]]), size)
        lengths = end - first
        within = torch.arange(int(lengths.max()), device=words.device)
        place = (first[:, None] + within).clamp(max=size - 1)  # [S, longest]
        start = torch.where(resets[row, first][:, None], 0, state[row])
        found, after = self._layers(words[row[:, None], place], start, lengths.cpu())
        h = found[within < lengths[:, None]]  # segments are in the order of the text
        return h.view(rows, size, -1), after[~following]

    def _layers(self, words: Tensor, state: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """Read words `[S, T]` after states `[S, W]`. lengths: length of each row, on the CPU; None for T."""
        config, parts, after = self.config, list(torch.split(state, self.parts, 1)), []
        x = self._embed(words)
        x = self._shared_dropout(x, config.input_dropout)
        for number, cell in enumerate(self.cells):
            x, own = self._cell(
                cast(nn.RNNBase, cell), x, parts[self.each * number : self.each * (number + 1)], lengths
            )
            after += own
            if number + 1 < len(self.cells):
                x = self._shared_dropout(x, config.dropout)
        dropped = self._shared_dropout(x, config.dropout if config.output_dropout is None else config.output_dropout)
        penalized = self.training and (config.activation_regularization or config.temporal_regularization)
        self.penalty = self._penalty(x, dropped, lengths) if penalized else None
        return dropped, torch.cat(after, 1)

    def _penalty(self, h: Tensor, dropped: Tensor, lengths: Tensor | None) -> Tensor:
        """Return the penalty of hidden states `[S, T, D]`: of their size after dropout and of their steps before."""
        config, places, dtype = self.config, torch.arange(h.shape[1]), self.embedding.weight.dtype
        inside = places < (lengths[:, None] if lengths is not None else torch.full((len(h), 1), h.shape[1]))
        inside = inside.to(h.device)
        size, steps = dropped[inside].to(dtype), (h[:, 1:] - h[:, :-1])[inside[:, 1:]].to(dtype)
        # Rows of one word have no steps, and their mean would be NaN.
        temporal = steps.square().sum() / max(1, steps.numel())
        return config.activation_regularization * size.square().mean() + config.temporal_regularization * temporal

    def _cell(
        self, cell: nn.RNNBase, x: Tensor, state: list[Tensor], lengths: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Run one layer over x `[S, T, H]`; return its h `[S, T, H']` and the parts of its state."""
        u = cast(Tensor, cell.weight_hh_l0)
        if self.training and self.config.weight_dropout:
            u = F.dropout(u, self.config.weight_dropout)
        weights = [cell.weight_ih_l0, u, cell.bias_ih_l0, cell.bias_hh_l0]
        start = [part[None].to(x.dtype).contiguous() for part in state]
        if lengths is None:
            return self._call((x,), start, weights, True)
        data, sizes, order, unsorted = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        h, after = self._call((data, sizes), [part[:, order] for part in start], weights)
        padded, _ = pad_packed_sequence(PackedSequence(h, sizes, order, unsorted), True, total_length=x.shape[1])
        return padded, [part[unsorted] for part in after]

    def _call(
        self, inputs: tuple[Any, ...], state: list[Tensor], weights: list[Any], *batch_first: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Call torch's function of one layer; return its h and the parts of its state `[S, H']`."""
        given = tuple(state) if len(state) > 1 else state[0]
        graph = torch.is_grad_enabled()  # cuDNN keeps the data for gradients only in training mode
        h, *after = FUNCTIONS[self.config.cell](*inputs, given, weights, True, 1, 0.0, graph, False, *batch_first)
        return h, [part[0] for part in after]

    def _embed(self, words: Tensor) -> Tensor:
        """Look up embeddings `[S, T, E]`; in training, all embeddings of a dropped word are 0."""
        x: Tensor = self.embedding(words)
        if not (self.training and self.config.embedding_dropout):
            return x
        kept = F.dropout(x.new_ones(len(self.embedding.weight)), self.config.embedding_dropout)
        return x * kept[words][:, :, None]

    def _shared_dropout(self, x: Tensor, share: float) -> Tensor:
        """In training, apply to `[S, T, H]` a dropout mask that all words of a row share."""
        if not (self.training and share):
            return x
        return x * F.dropout(x.new_ones(len(x), 1, x.shape[2]), share)
