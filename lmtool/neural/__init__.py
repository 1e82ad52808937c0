"""Output layers for language models over large vocabularies, for any PyTorch model, and the optimizers of their sparse
gradients; lmtool's neural models use them.

Each layer takes hidden states `[B, D]` and targets `[B]` and returns the mean loss; log_prob and log_dist return exact
log-probabilities. Encoder and OutputLayer are the base classes of custom options. An argument that does not fit (its
shape, dtype, device or an id) raises ValueError, in one line. A name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmtool.system.lazy_names import lazy_names

if TYPE_CHECKING:
    from lmtool.neural.encoders.base import Encoder as Encoder
    from lmtool.neural.optimizers.base import clip_gradients as clip_gradients
    from lmtool.neural.optimizers.rows import RowAdagrad as RowAdagrad
    from lmtool.neural.optimizers.rows import RowAdam as RowAdam
    from lmtool.neural.optimizers.rows import RowSGD as RowSGD
    from lmtool.neural.outputs.adaptive import AdaptiveSoftmax as AdaptiveSoftmax
    from lmtool.neural.outputs.base import OutputLayer as OutputLayer
    from lmtool.neural.outputs.classes import ClassSoftmax as ClassSoftmax
    from lmtool.neural.outputs.hierarchical import DotNodes as DotNodes
    from lmtool.neural.outputs.hierarchical import HierarchicalSoftmax as HierarchicalSoftmax
    from lmtool.neural.outputs.hierarchical import MorinBengioNodes as MorinBengioNodes
    from lmtool.neural.outputs.nce import NCELoss as NCELoss
    from lmtool.neural.outputs.negative_sampling import NegativeSampling as NegativeSampling
    from lmtool.neural.outputs.sampled import SampledSoftmax as SampledSoftmax
    from lmtool.neural.outputs.softmax import FullSoftmax as FullSoftmax

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lmtool.neural.encoders.base": "Encoder",
        "lmtool.neural.optimizers.base": "clip_gradients",
        "lmtool.neural.optimizers.rows": "RowAdagrad RowAdam RowSGD",
        "lmtool.neural.outputs.adaptive": "AdaptiveSoftmax",
        "lmtool.neural.outputs.base": "OutputLayer",
        "lmtool.neural.outputs.classes": "ClassSoftmax",
        "lmtool.neural.outputs.hierarchical": "DotNodes HierarchicalSoftmax MorinBengioNodes",
        "lmtool.neural.outputs.nce": "NCELoss",
        "lmtool.neural.outputs.negative_sampling": "NegativeSampling",
        "lmtool.neural.outputs.sampled": "SampledSoftmax",
        "lmtool.neural.outputs.softmax": "FullSoftmax",
    },
)
