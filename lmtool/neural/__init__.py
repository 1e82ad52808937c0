"""Output layers for language models over large vocabularies, for any PyTorch model; lmtool's own neural models use
them.

Each takes hidden `[B, D]` and targets `[B]` and gives the mean loss; `log_prob` and `log_dist` give exact
log-probabilities.
"""

from lmtool.neural.outputs.adaptive import AdaptiveSoftmax
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
    "FullSoftmax",
    "HierarchicalSoftmax",
    "MorinBengioNodes",
    "NCELoss",
    "RowAdagrad",
    "RowAdam",
    "RowSGD",
    "SampledSoftmax",
    "clip_gradients",
]
