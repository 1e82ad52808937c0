"""Output layers for language models over large vocabularies, for any PyTorch model, and the optimisers of their sparse
gradients; lmtool's own neural models use them.

Each layer takes hidden `[B, D]` and targets `[B]` and returns the mean loss; log_prob and log_dist return exact
log-probabilities. Encoder and OutputLayer are what options of one's own derive from. What does not fit - a shape, type,
device or id - raises ValueError, in one line. A name is imported when it is first used, without the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lmtool.neural.encoders.base import Encoder
    from lmtool.neural.outputs.adaptive import AdaptiveSoftmax
    from lmtool.neural.outputs.base import OutputLayer
    from lmtool.neural.outputs.classes import ClassSoftmax
    from lmtool.neural.outputs.hierarchical import HierarchicalSoftmax
    from lmtool.neural.outputs.nce import NCELoss
    from lmtool.neural.outputs.sampled import SampledSoftmax
    from lmtool.neural.outputs.softmax import FullSoftmax
    from lmtool.neural.outputs.tree_nodes import DotNodes, MorinBengioNodes
    from lmtool.neural.sparse_optim import RowAdagrad, RowAdam, RowSGD, clip_gradients

__all__ = [
    "AdaptiveSoftmax",
    "ClassSoftmax",
    "DotNodes",
    "Encoder",
    "FullSoftmax",
    "HierarchicalSoftmax",
    "MorinBengioNodes",
    "NCELoss",
    "OutputLayer",
    "RowAdagrad",
    "RowAdam",
    "RowSGD",
    "SampledSoftmax",
    "clip_gradients",
]

_MODULES = {
    "AdaptiveSoftmax": "outputs.adaptive",
    "ClassSoftmax": "outputs.classes",
    "DotNodes": "outputs.tree_nodes",
    "Encoder": "encoders.base",
    "FullSoftmax": "outputs.softmax",
    "HierarchicalSoftmax": "outputs.hierarchical",
    "MorinBengioNodes": "outputs.tree_nodes",
    "NCELoss": "outputs.nce",
    "OutputLayer": "outputs.base",
    "RowAdagrad": "sparse_optim",
    "RowAdam": "sparse_optim",
    "RowSGD": "sparse_optim",
    "SampledSoftmax": "outputs.sampled",
    "clip_gradients": "sparse_optim",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
