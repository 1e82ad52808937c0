"""A neural language model: an encoder and an output layer, asked in numpy like any other model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from lmtool import config as schema
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.language_model import FloatArray, IntArray
from lmtool.neural.encoders.cbow import CBOW
from lmtool.neural.encoders.lbl import LBL
from lmtool.neural.encoders.nplm import NPLM
from lmtool.neural.memory_check import require_room
from lmtool.neural.outputs.adaptive import AdaptiveSoftmax
from lmtool.neural.outputs.classes import ClassSoftmax
from lmtool.neural.outputs.hierarchical import HierarchicalSoftmax, node_log_odds
from lmtool.neural.outputs.nce import NCELoss
from lmtool.neural.outputs.sampled import SampledSoftmax
from lmtool.neural.outputs.softmax import FullSoftmax
from lmtool.neural.outputs.tree_nodes import MorinBengioNodes
from lmtool.trees.classes import class_of_words
from lmtool.trees.tree import Tree

Encoder = NPLM | LBL | CBOW
OutputLayer = FullSoftmax | HierarchicalSoftmax | NCELoss | SampledSoftmax | AdaptiveSoftmax | ClassSoftmax
CHUNK = 1024  # contexts scored at once: bounds the memory of their distributions


class NeuralModel(nn.Module):
    """Encoder `[B, C] -> [B, D]`, output layer `[B, D] -> p` of the V - 1 words that can be predicted; a
    LanguageModel.
    """

    def __init__(self, encoder: Encoder, output: OutputLayer, vocabulary_size: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.output = output
        self._bos = vocabulary_size - 1
        self.autocast: torch.dtype | None = None  # of the encoder's products in training; None: its weights' own

    @property
    def vocabulary_size(self) -> int:
        """V, with the one that is never predicted."""
        return self._bos + 1

    @property
    def context_size(self) -> int:
        """C."""
        return self.encoder.context_size

    @property
    def across_sentences(self) -> bool:
        """As LanguageModel."""
        return self.encoder.config.across_sentences

    @property
    def parameter_count(self) -> int:
        """Trained numbers; what is tied counts once."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.encoder.embedding.weight.device

    def row_parameters(self) -> list[nn.Parameter]:
        """Those whose gradients are sparse: for the optimisers of lmtool.neural.sparse_optim; each once."""
        found: dict[int, nn.Parameter] = {}
        for module in self.modules():
            if getattr(module, "sparse", False):
                found |= {id(parameter): parameter for parameter in cast(Any, module).row_parameters()}
        return list(found.values())

    def forward(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """What training lowers, the mean over targets `[B]` after contexts `[B, C]`: -log p in nats, or the output
        layer's own form of it."""
        if self.autocast is None:
            hidden = self.encoder(contexts)
        else:
            with torch.autocast(self.device.type, dtype=self.autocast):
                hidden = self.encoder(contexts).float()
        found: Tensor = self.output(hidden, targets)
        return found

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """As LanguageModel.log_prob."""
        return self._asked(self._log_prob, contexts, targets)

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """As LanguageModel.log_dist."""
        return self._asked(lambda h: nn.functional.pad(self.output.log_dist(h), (0, 1), value=-torch.inf), contexts)

    def hidden(self, contexts: IntArray) -> npt.NDArray[np.float32]:
        """What the encoder makes of contexts `[N, C]`, before the output layer: `[N, D]`."""
        return self._asked(lambda h: h.float(), contexts).astype(np.float32, copy=False)

    def likeliest(self, contexts: IntArray) -> IntArray:
        """As Choosing.likeliest: only the words leave the device."""
        return self._asked(lambda h: self.output.log_dist(h).argmax(dim=1), contexts).astype(np.int64)

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """As LanguageModel.log_prob_candidates."""
        return self._asked(self._log_prob, contexts, candidates)

    def top(self, contexts: IntArray, k: int) -> tuple[IntArray, FloatArray]:
        """As Ranking.top: with a tree by best-first descent, else from the whole distribution."""
        output = self.output

        def both(h: Tensor) -> Tensor:
            if isinstance(output, HierarchicalSoftmax):
                words, log_p = output.top(h, k)
            else:
                log_p, words = output.log_dist(h).topk(k, 1)
            return torch.stack([words.double(), log_p], 1)  # [B, 2, k]; float64 has every id exactly

        found = self._asked(both, contexts)
        return found[:, 0].astype(np.int64), found[:, 1]

    def log_z(self, contexts: IntArray) -> FloatArray | None:
        """log of what the scores of the output layer, as they are trained, sum to after contexts `[N, C]`: `[N]`.

        None for a layer whose scores are meant to be normalised: only with NCE it says something.
        """
        if not isinstance(self.output, NCELoss):
            return None
        output = self.output
        return self._asked(output.trained_log_z, contexts)

    def unnormalised(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """Scores of targets `[N]` after contexts `[N, C]` without the sum over all words, `[N]`.

        Raises UserError for an output layer that was not trained for it.
        """
        if not isinstance(self.output, NCELoss):
            raise UserError("unnormalised=true: only a model trained with output=nce has scores that nearly sum to one")
        return self._asked(self.output.unnormalised, contexts, targets)

    def _log_prob(self, h: Tensor, words: Tensor) -> Tensor:
        found = self.output.log_prob(h, words.clamp(max=self._bos - 1))
        return found.masked_fill(words == self._bos, -torch.inf)

    @torch.no_grad()
    def _asked(self, answer: Callable[..., Tensor], contexts: IntArray, *words: IntArray) -> FloatArray:
        training = self.training
        self.eval()
        found = []
        for first in range(0, len(contexts), CHUNK):
            hidden = self.encoder(torch.from_numpy(contexts[first : first + CHUNK]).to(self.device))
            asked = (torch.from_numpy(array[first : first + CHUNK]).to(self.device) for array in words)
            found.append(answer(hidden, *asked).cpu().numpy())
        self.train(training)
        return np.concatenate(found)


def build_neural(
    model: schema.EncoderModel, output: schema.OutputConfig, vocabulary: Vocabulary, tree: Tree | None = None
) -> NeuralModel:
    """The model of a configuration, with weights from torch's random state; tree: for output=hierarchical.

    Raises UserError where settings contradict each other or the vocabulary, and where memory is not enough.
    """
    tied = _tied(model, output)
    require_room(model, len(vocabulary))
    # With a dense gradient from the output, that of the embeddings is dense too.
    encoder = _encoder(model, len(vocabulary), tied, sparse=not (tied and isinstance(output, schema.SoftmaxOutput)))
    vectors = encoder.embedding.weight if tied else None
    assert vectors is None or isinstance(vectors, nn.Parameter)
    counts = torch.from_numpy(np.asarray(vocabulary.counts[:-1]))
    layer = _output(output, encoder.output_dim, counts, vectors, tree)
    network = NeuralModel(encoder, layer, len(vocabulary))
    if isinstance(model, schema.NplmModel) and model.init_std is not None:
        for parameter in network.parameters():
            nn.init.normal_(parameter, std=model.init_std)
    return network


def _tied(model: schema.EncoderModel, output: schema.OutputConfig) -> bool:
    can = isinstance(output, schema.SoftmaxOutput | schema.NceOutput | schema.SampledOutput)
    if model.tied and not can:
        raise UserError(
            f"model.tied=true: output={output.kind} has no vector for each word to share; take model.tied=null"
        )
    if model.tied is None:
        narrow = model.projection_dim if isinstance(model, schema.NplmModel) else None
        return can and narrow in (None, model.embedding_dim)
    return model.tied


def _encoder(model: schema.EncoderModel, size: int, tied: bool, *, sparse: bool) -> Encoder:
    match model:
        case schema.NplmModel():
            return NPLM(model, size, tied=tied, sparse=sparse)
        case schema.LblModel():
            return LBL(model, size, sparse=sparse)
        case schema.CbowModel():
            return CBOW(model, size, sparse=sparse)
    raise UserError(f"model={model.kind} is not known to this version of lmtool")


def _output(
    output: schema.OutputConfig, dim: int, counts: Tensor, vectors: nn.Parameter | None, tree: Tree | None
) -> OutputLayer:
    words = len(counts)
    match output:
        case schema.SoftmaxOutput():
            precision = torch.bfloat16 if output.precision is schema.Precision.bf16 else None
            return FullSoftmax(dim, counts, vectors, precision=precision)
        case schema.HierarchicalOutput():
            assert tree is not None, "conf/output/hierarchical.yaml chooses one"
            if output.nodes is schema.NodeForm.dot:
                return HierarchicalSoftmax(dim, tree, counts, sparse=True)
            sizes = {"hidden_dim": output.hidden_dim, "node_dim": output.node_dim}
            nodes = MorinBengioNodes(dim, node_log_odds(tree, counts), **sizes, sparse=True)
            return HierarchicalSoftmax(dim, tree, counts, nodes=nodes)
        case schema.NceOutput():
            _at_most(output.noise, words, "noise")
            return NCELoss(
                dim,
                counts,
                vectors,
                noise=output.noise,
                shared=output.shared,
                power=output.power,
                learn_normaliser=output.learn_normaliser,
                sparse=True,
            )
        case schema.SampledOutput():
            _at_most(output.samples, words, "samples")
            return SampledSoftmax(dim, counts, vectors, samples=output.samples, power=output.power, sparse=True)
        case schema.AdaptiveOutput():
            try:
                return AdaptiveSoftmax(dim, counts, cutoffs=output.cutoffs, div_value=output.div_value)
            except ValueError as error:
                raise UserError(f"output.{error}") from None
        case schema.ClassesOutput():
            if output.classes is not None:
                _at_most(output.classes, words, "classes")
            classes = class_of_words(counts.numpy(), output.classes)
            return ClassSoftmax(dim, counts, torch.from_numpy(classes), sparse=True)
    raise UserError(f"output={output.kind} is not known to this version of lmtool")


def _at_most(value: int, words: int, name: str) -> None:
    if value > words:
        raise UserError(f"output.{name}={value}: at most {words} with this vocabulary")
