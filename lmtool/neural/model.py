"""A neural language model: an encoder and an output layer, called with numpy arrays like any other model; and similar
words by its vectors.

Legend of shapes: N or B contexts, C words in each, E dimension of the embeddings, D dimension of the hidden states, K
candidates, V words of the vocabulary, of which `<s>`, the last, is never predicted, O = V - 1, W words with a vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from lmtool.config.training import Precision
from lmtool.data.split import Split
from lmtool.errors import UserError
from lmtool.language_model import LanguageModel
from lmtool.neural.checks import require_size
from lmtool.neural.devices import multiplies_bf16
from lmtool.neural.encoders.base import Encoder
from lmtool.neural.forms import tiles
from lmtool.neural.outputs.base import OutputLayer
from lmtool.system.arrays import FloatArray, IntArray, in_chunks, rows_at_once, whole_numbers

MIN_BF16_PRODUCTS = 1 << 26  # examples x weights of the encoder for which precision=auto chooses bf16
CONTEXTS_PER_CHUNK = 1024  # contexts scored at once
CONTEXTS_PER_BATCH = 1 << 14  # contexts encoded at once, without their distributions
Rows = npt.NDArray[np.float32]


class NeuralModel(nn.Module, LanguageModel):
    """Encoder `[B, C] -> [B, D]`, then output layer `[B, D] -> p` of the V - 1 words that can be predicted: a
    LanguageModel.

    normalized and dynamic are as LanguageModel has them: each distribution sums to one, and none depends on what was
    read before its context. Training is in the precision of the weights, until use_precision says otherwise.
    Every method raises ValueError for contexts, words and tensors of another shape, type or range.
    """

    def __init__(self, encoder: Encoder, output: OutputLayer, vocabulary_size: int) -> None:
        """vocabulary_size: V; the output layer is over V - 1 words.

        A layer that does not declare its sizes must have those of the model. Raises ValueError for a layer with other
        sizes.
        """
        super().__init__()
        output.input_dim = encoder.output_dim if output.input_dim is None else output.input_dim
        output.word_count = vocabulary_size - 1 if output.word_count is None else output.word_count
        sizes, wanted = (output.input_dim, output.word_count), (encoder.output_dim, vocabulary_size - 1)
        if sizes != wanted:
            raise ValueError(
                f"NeuralModel: the output layer must be of dimension {wanted[0]}, as the encoder, and over {wanted[1]} "
                f"words; got {type(output).__name__} of dimension {sizes[0]} over {sizes[1]}"
            )
        self.encoder = encoder
        self.output = output
        self.full_windows = encoder.config.full_windows
        self._bos = vocabulary_size - 1
        self._autocast_from = math.inf  # examples in a batch

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return self._bos + 1

    @property
    def context_size(self) -> int | None:
        """C, the number of words before the predicted one that the encoder reads; None for all."""
        return self.encoder.context_size

    @property
    def across_sentences(self) -> bool:
        """Whether contexts reach into previous sentences, with `</s>` among their words."""
        return self.encoder.across_sentences

    @property
    def reads_near(self) -> bool:
        return self.encoder.config.reads_near

    @property
    def parameter_count(self) -> int:
        """The number of weights; tied ones count once."""
        return sum(self.parameter_sizes().values())

    def parameter_sizes(self) -> dict[str, int]:
        """Return the number of weights of each parameter by name, without an embedding of `<s>` that is not trained."""
        sizes = {name: parameter.numel() for name, parameter in self.named_parameters()}
        if self.encoder.zero_padding:
            sizes["encoder.embedding.weight"] -= self.encoder.config.embedding_dim
        return sizes

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.encoder.embedding.weight.device

    def sparse_parameters(self) -> list[nn.Parameter]:
        """Return the parameters with sparse gradients, each once, for the optimizers of lmtool.neural.optimizers."""
        both = [*self.encoder.sparse_parameters(), *self.output.sparse_parameters()]
        return list({id(parameter): parameter for parameter in both}.values())

    def use_dense_gradients(self) -> None:
        """Give all parameters dense gradients from now on: faster on a GPU, if they fit into its memory."""
        self.encoder.use_dense_gradients()
        self.output.use_dense_gradients()

    def use_precision(self, precision: Precision) -> None:
        """Set the precision of the large products of training; evaluation is in the precision of the weights.

        bf16: the encoder's by torch.autocast. auto: the same if the products are large enough, and the device has tiles
        for bf16 (forms.tiles) or torch multiplies it faster. fp32 is never TF32.
        """
        self.output.use_precision(precision)
        self._autocast_from, embeddings = math.inf, self.encoder.embedding.weight
        if precision is Precision.bf16:
            self._autocast_from = 0
        elif precision is Precision.auto and (tiles.fit(embeddings) or multiplies_bf16(embeddings)):
            weights = [p.numel() for p in self.encoder.parameters() if p.dim() > 1]
            weights.remove(embeddings.numel())
            self._autocast_from = math.ceil(MIN_BF16_PRODUCTS / max(1, sum(weights)))

    def encodes_in_bf16(self, examples: int) -> bool:
        """Return whether the encoder's products are in bf16 in a training step of this number of examples."""
        return examples >= self._autocast_from

    def forward(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """Return the loss, a scalar: the mean over contexts `[B, C]` and targets `[B]`, both int64.

        -log p in nats, or in training mode the output layer's approximation of it; with gradients.
        """
        if not (self.training and self.encodes_in_bf16(len(contexts))):
            hidden = self.encoder(contexts)
        else:
            with torch.autocast(self.device.type, dtype=torch.bfloat16):
                hidden = self.encoder(contexts).float()
        return self._loss(hidden, targets)

    def _loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        # All targets count; a layer that overrides forward may not have this setting.
        named = {"ignore_index": None} if type(self.output).forward is OutputLayer.forward else {}
        loss: Tensor = self.output(hidden, targets, **named)
        return loss

    def read_tokens(self, text: Split, tokens: IntArray, state: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the hidden states before tokens `[B, T]` of a text, `[B T, D]`, with gradients, the targets `[B T]`,
        and, if the model has states, the state before the next tokens of each row.
        """
        contexts, targets = map(torch.from_numpy, self.contexts_of(text, tokens.ravel()))
        return self.encoder(contexts.to(self.device)), targets.to(self.device), None

    def carried_state(self) -> dict[str, Tensor]:
        """Return the state that a recurrent model carries from one training step to the next, for a checkpoint."""
        return {}

    def carry(self, state: dict[str, Tensor]) -> None:
        """Continue from a state that carried_state returned."""

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """Return log p(target | context), `[N]` in float64, for contexts `[N, C]` and targets `[N]`; -inf for `<s>`."""
        return self._in_chunks("log_prob", self._log_prob, contexts, targets=targets)

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """Return log p of all words after contexts `[N, C]`, `[N, V]` in float64; rows have log-sum-exp 0, `<s>`
        -inf.
        """
        return self._in_chunks("log_dist", self._log_dist, contexts, whole=True)

    def probabilities(self, contexts: IntArray) -> npt.NDArray[Any]:
        """Return p of all words after contexts `[N, C]`, `[N, V]` in float32 or float64; 0 for `<s>`."""
        width = self.vocabulary_size
        return self._in_chunks("probabilities", lambda h: self.output.probabilities(h, width), contexts, whole=True)

    @property
    def hidden_dim(self) -> int:
        """D."""
        return self.encoder.output_dim

    def word_vectors(self, of: str) -> Rows:
        """Return a vector for each word: the embeddings, `[V, E]`, `<s>` the last, or the output vectors `[V-1, D]`.

        of: "embeddings" or "output". Raises UserError for the output vectors of a layer that has none.
        """
        vectors = self.encoder.embedding.weight if of == "embeddings" else self.output.word_vectors()
        if vectors is None:
            raise UserError("the output layer of this run has no vector for each word; take the embeddings")
        return vectors.detach().cpu().numpy()

    def hidden(self, contexts: IntArray) -> Rows:
        """Return the hidden states after contexts `[N, C]`, `[N, D]`."""
        return self._in_chunks("hidden", lambda h: h.float(), contexts).astype(np.float32, copy=False)

    def argmax(self, contexts: IntArray) -> IntArray:
        """Return the most likely word after contexts `[N, C]`, never `<s>`: `[N]`. Only words leave the device."""
        most_likely = self._in_chunks("argmax", lambda h: self.output.log_dist(h).argmax(dim=1), contexts, whole=True)
        return most_likely.astype(np.int64)

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """Return log p(candidate | context), `[N, K]` in float64, for contexts `[N, C]` and candidates `[N, K]`.

        They are not renormalized over the candidates; `<s>` has -inf.
        """
        return self._in_chunks("log_prob_candidates", self._log_prob, contexts, candidates=candidates)

    def top(self, contexts: IntArray, k: int) -> tuple[IntArray, FloatArray]:
        """Return the k most likely words after contexts `[N, C]` and their log p, both `[N, k]`, most likely first.

        k is at most V - 1: `<s>` is never among them.
        """
        k = require_size("NeuralModel.top: k", k)
        if k >= self.vocabulary_size:
            raise ValueError(f"NeuralModel.top: k must be from 1 to {self._bos:,}; got {k:,}")

        def words_and_log_p(h: Tensor) -> Tensor:
            words, log_p = self.output.top(h, k)
            return torch.stack([words.double(), log_p], 1)  # [B, 2, k]; float64 has every id exactly

        both = self._in_chunks("top", words_and_log_p, contexts, whole=True)
        return both[:, 0].astype(np.int64), both[:, 1]

    @property
    def self_normalized(self) -> bool:
        """Whether the output layer is self-normalized."""
        return self.output.self_normalized

    def log_z(self, contexts: IntArray) -> FloatArray:
        """Return the log-sum-exp of all unnormalized scores after contexts `[N, C]`, `[N]`, if self-normalized."""
        if not self.self_normalized:
            return super().log_z(contexts)
        return self._in_chunks("log_z", self.output.log_partition, contexts)

    def unnormalized_log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """Return scores of targets `[N]` after contexts `[N, C]`, as LanguageModel does, if self-normalized."""
        if not self.self_normalized:
            return super().unnormalized_log_prob(contexts, targets)
        return self._in_chunks("unnormalized_log_prob", self.output.unnormalized_log_prob, contexts, targets=targets)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Run the block without dropout."""
        training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(training)

    def _log_dist(self, h: Tensor) -> Tensor:
        return nn.functional.pad(self.output.log_dist(h), (0, 1), value=-torch.inf)

    def _log_prob(self, h: Tensor, words: Tensor) -> Tensor:
        log_prob = self.output.log_prob(h, words.clamp(max=self._bos - 1))
        return log_prob.masked_fill(words == self._bos, -torch.inf)

    @torch.no_grad()
    def _in_chunks(
        self, method: str, answer: Callable[..., Tensor], contexts: IntArray, *, whole: bool = False, **words: IntArray
    ) -> FloatArray:
        """Apply `answer` to the hidden states of contexts `[N, C]` and the words beside them, without dropout.

        whole: whether `answer` computes whole distributions. words: targets `[N]` or candidates `[N, K]`. Raises
        ValueError, naming the method, for other shapes, types and ids.
        """
        where, vocabulary = f"NeuralModel.{method}", self.vocabulary_size
        contexts = whole_numbers(f"{where}: contexts", contexts, ("N", self.context_size or "C"), below=vocabulary)
        size = len(contexts)
        beside = [
            whole_numbers(f"{where}: {name}", ids, (size, "K") if name == "candidates" else (size,), below=vocabulary)
            for name, ids in words.items()
        ]
        with self._evaluating():
            # Without contexts, one empty chunk gives the result its shape.
            for rows in in_chunks(max(size, 1), rows_at_once(vocabulary if whole else 1, CONTEXTS_PER_CHUNK)):
                ids = (torch.from_numpy(array[rows]).to(self.device) for array in (contexts, *beside))
                hidden = self.encoder(next(ids))
                part = answer(hidden, *ids).cpu().numpy()
                if len(part) == size:
                    return part
                if not rows.start:  # one array: small kept arrays would lie between large freed blocks
                    found = np.empty((size, *part.shape[1:]), part.dtype)
                found[rows] = part
        return found


def nearest(vectors: Rows, words: Mapping[int, int], top: int, by: str) -> tuple[IntArray, FloatArray]:
    """Return at most `top` words most similar to a word, or a sum of words, by vectors `[W, D]`, and the similarities.

    words: the sign of each word in the sum, 1 or -1; none of them is returned. by: dot, or cosine, for which all
    vectors first get length 1 (3CosAdd: Levy & Goldberg 2014); one of length 0 has cosine 0. Raises ValueError for a
    word without a vector and a top below 1.
    """
    if not all(0 <= word < len(vectors) for word in words) or top < 1:
        wanted = f"word must be from 0 to {len(vectors) - 1:,} and top 1 or more"
        raise ValueError(f"nearest: {wanted}; got word {', '.join(map(str, words))} and top {top}")
    used, lengths = list(words), np.ones(len(vectors))
    if by == "cosine":  # no copy of all vectors is made
        lengths = np.sqrt(np.einsum("wd,wd->w", vectors, vectors, dtype=np.float64))
        lengths[lengths == 0] = 1
    query = (np.array(list(words.values())) / lengths[used]) @ vectors[used]
    query = unit_rows(query) if by == "cosine" else query
    similarity = (vectors @ query.astype(vectors.dtype)).astype(np.float64) / lengths
    similarity[used] = -np.inf
    ids = np.argsort(-similarity, kind="stable")[: min(top, len(vectors) - len(used))]
    return ids, similarity[ids]


def answers(vectors: Rows, questions: IntArray) -> IntArray:
    """Return for each question a, b, c `[N, 3]` the word nearest to b - a + c, as `nearest` by cosine: `[N]`."""
    rows, found = unit_rows(vectors), np.empty(len(questions), np.int64)
    for part in in_chunks(len(questions), rows_at_once(len(rows), CONTEXTS_PER_CHUNK)):
        a, b, c = rows[questions[part].T]
        similarity = (b - a + c) @ rows.T
        np.put_along_axis(similarity, questions[part], -np.inf, 1)
        found[part] = similarity.argmax(1)
    return found


def unit_rows(vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return vectors `[..., D]` with length 1; those of length 0 stay."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths, lengths, 1)


@torch.no_grad()
def word_representations(model: NeuralModel, split: Split | None) -> Rows:
    """Return a vector for each word that can be predicted, to group similar words; the model is on the CPU.

    With a split: the mean hidden state `[O, D]` before the word (Mnih & Hinton 2009, section 4), over all positions for
    a word that does not occur. None: the word's embedding, `[O, E]`.
    """
    vectors = model.encoder.embedding.weight[:-1]
    if split is None:
        return vectors.numpy().copy()
    model.eval()
    words = len(vectors)
    total = torch.zeros(words, model.encoder.output_dim)
    count = torch.zeros(words)
    split = split.as_stream(model.across_sentences)
    for part in in_chunks(split.tokens, CONTEXTS_PER_BATCH):
        ids = torch.from_numpy(split.ids[part].astype(np.int64))
        total.index_add_(0, ids, torch.from_numpy(model.hidden_text(split, part.start, part.stop)))
        count += ids.bincount(minlength=words)
    mean = total / count.clamp(min=1)[:, None]
    mean[count == 0] = total.sum(0) / count.sum()
    return mean.numpy()
