"""Output layers for language models over large vocabularies, for any PyTorch model; lmtool's own neural models use
them.

Each takes hidden `[B, D]` and targets `[B]` and gives the mean loss; `log_prob` and `log_dist` give exact
log-probabilities.
"""

from lmtool.neural.adaptive import AdaptiveSoftmax
from lmtool.neural.classes import ClassSoftmax
from lmtool.neural.hierarchical import HierarchicalSoftmax
from lmtool.neural.nce import NCELoss
from lmtool.neural.nodes import DotNodes, MorinBengioNodes
from lmtool.neural.optim import RowAdagrad, RowAdam, RowSGD, clip_gradients
from lmtool.neural.sampled import SampledSoftmax
from lmtool.neural.softmax import FullSoftmax

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
