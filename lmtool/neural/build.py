"""Build a neural language model from its settings."""

from __future__ import annotations

import numpy as np
import torch

from lmtool.config.groups import EncoderConfig, OutputConfig, is_tied
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.neural.encoders.base import Encoder
from lmtool.neural.model import NeuralModel
from lmtool.neural.recurrent import RecurrentModel
from lmtool.system.process import memory_available
from lmtool.system.terminal import size_text
from lmtool.trees.tree import Tree

BYTES = 4  # per weight, without gradients and optimizer state


def build_neural(
    model: EncoderConfig, output: OutputConfig, vocabulary: Vocabulary, tree: Tree | None = None
) -> NeuralModel:
    """Build the model of the settings on the CPU, with weights from torch's random state.

    tree: over the words that can be predicted, for an output layer that needs one.
    """
    tied = is_tied(model, output)
    if output.needs_tree and tree is None:
        raise UserError(f"output={output.kind} is built over a tree: choose one with tree=NAME")
    require_memory(model, len(vocabulary))
    # A dense gradient from the output layer also makes the gradient of the shared embeddings dense.
    encoder = model.build(len(vocabulary), tied=tied, sparse=not (tied and output.dense_gradient))
    if not isinstance(encoder, Encoder):
        raise UserError(f"model={model.kind} builds a {type(encoder).__name__}, not an Encoder: correct the option")
    vectors = next(encoder.embedding.parameters()) if tied else None
    counts = torch.from_numpy(np.asarray(vocabulary.counts[:-1]))
    layer = output.build(encoder.output_dim, counts, vectors, tree)
    layer.loss_is_log_prob &= output.loss_is_log_prob  # a custom option may say so in its settings class alone
    kind = NeuralModel if encoder.context_size is not None else RecurrentModel
    network = kind(encoder, layer, len(vocabulary))
    model.initialize(network)
    return network


def require_memory(model: EncoderConfig, words: int) -> None:
    """Raise UserError, naming the settings, if an encoder's weights alone take more memory than is free.

    words: V. Otherwise the system would end the process, or torch raise an error without these names.
    """
    free, needed = memory_available(), BYTES * model.weight_count(words)
    if free is None or needed <= free:
        return
    given = ", ".join(f"model.{name}={getattr(model, name)}" for name in model.size_settings())
    raise UserError(
        f"{given}: {needed // BYTES:,} parameters with a vocabulary of {words:,} words take {size_text(needed)}, "
        f"and {size_text(free)} are free; make them smaller"
    )
