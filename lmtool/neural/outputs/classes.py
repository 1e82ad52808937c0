r"""Two softmaxes: over classes of words by frequency, and over the words of one class.

.. math::

    p(w|h) = p(g(w)|h)\,p(w|g(w), h) = \frac{e^{b_g + v_g \cdot h}}{\sum_{g'} e^{b_{g'} + v_{g'} \cdot h}} \cdot
        \frac{e^{b_w + u_w \cdot h}}{\sum_{w':\,g(w') = g(w)} e^{b_{w'} + u_{w'} \cdot h}}

g(w) is the class of w: the words, most frequent first, are cut into classes of about equal counts.

Legend of shapes: B examples, D dimension of the hidden states, O words that can be predicted, C classes, P pairs
(example, word of its target's class), K words asked for.

Source: Goodman (2001), "Classes for fast maximum entropy training", ICASSP.
Complexity: O(D (C + words of the target's class)) for each example, with C of about the square root of O; O(D O) for a
    whole distribution.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.neural.checks import require_counts, require_ids, require_size
from lmtool.neural.outputs.base import OutputLayer
from lmtool.neural.outputs.softmax import log_unigram
from lmtool.neural.rows import Pairs, RowScores, log_sum_exp, log_sum_exp_by_group, segments


class ClassSoftmax(RowScores, OutputLayer):
    """p(w|h) = p(class of w|h) p(w|class, h), a softmax each (Goodman 2001, "Classes for fast maximum entropy
    training").

    A step works on the classes and on the words of the targets' classes.

    >>> import torch
    >>> from lmtool.neural import ClassSoftmax
    >>> layer = ClassSoftmax(16, torch.arange(100, 0, -1), torch.arange(100) // 10)
    >>> h, y = torch.randn(8, 16), torch.randint(100, (8,))
    >>> loss = layer(h, y)  # a scalar with gradients
    >>> layer.log_dist(h).exp().sum(dim=1).allclose(torch.ones(8).double())
    True
    """

    classes: Tensor
    members: Tensor
    starts: Tensor
    place: Tensor

    def __init__(self, dim: int, counts: Tensor, classes: Tensor, *, sparse: bool = False) -> None:
        """dim: D. counts: `[O]` of the words in train; the biases start at the unigram distribution.

        classes: `[O]`, int64, the class of each word, 0 to C-1, none empty. sparse: whether the gradients of the words'
        vectors and biases are sparse. Raises ValueError for classes that do not fit counts, or are empty.
        """
        super().__init__()
        counts = require_counts("ClassSoftmax: counts", counts)
        words = self.word_count = len(counts)
        dim = self.input_dim = require_size("ClassSoftmax: dim", dim)
        classes = require_ids(self, ": classes", classes, ((words,),), words, counts)
        sizes = classes.bincount()
        if (sizes == 0).any():
            raise ValueError(
                f"ClassSoftmax: classes must be 0 to C-1, none empty; got no word in {int(sizes.argmin())}"
            )
        self.sparse = sparse
        members, starts = classes.argsort(stable=True), F.pad(sizes.cumsum(0), (1, 0))
        place = torch.empty_like(classes)  # position of each word among the members of its class
        place[members] = torch.arange(len(classes)) - starts[classes[members]]
        self.register_tensors(classes=classes, members=members, starts=starts, place=place)
        dtype = torch.get_default_dtype()
        mass = torch.zeros(len(sizes), dtype=torch.float64).index_add_(0, classes, counts.double())
        self.class_bias = nn.Parameter(log_unigram(mass).to(dtype))
        self.class_vectors = nn.Parameter(torch.empty(len(sizes), dim))
        self.bias = nn.Parameter(log_unigram(counts).to(dtype))
        self.vectors = nn.Parameter(torch.empty(len(counts), dim))
        for vectors in (self.class_vectors, self.vectors):
            nn.init.normal_(vectors, std=dim**-0.5)

    def structure(self) -> list[npt.NDArray[Any]]:
        """Return the class of each word."""
        return [self.classes.cpu().numpy()]

    def log_probs_in_class(self, h: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Compute log p(w|class, h) of the words of classes `[B]`, `[P]`, and the start of each example's, `[B]`."""
        starts, owner, places = segments(self.starts, classes)
        scores = self.computed("pair_scores", h, Pairs(self.members[places], starts, owner))  # [P]
        return scores - log_sum_exp(scores, starts, owner)[owner], starts[:-1]

    def loss(self, h: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Compute -log p(class|h) - log p(y|class, h) in nats for h `[B, D]` and targets `[B]`."""
        classes = self.classes[y]
        in_class, first = self.log_probs_in_class(h, classes)
        class_loss = F.cross_entropy(F.linear(h, self.class_vectors, self.class_bias), classes, reduction=reduction)
        word_log_prob = in_class[first + self.place[y]]  # [B]
        return class_loss - (word_log_prob if reduction == "none" else word_log_prob.mean())

    def log_probs(self, h: Tensor) -> Tensor:
        class_log_probs = F.linear(h, self.class_vectors, self.class_bias).double().log_softmax(1)  # [B, C]
        scores = F.linear(h, self.vectors, self.bias).double()  # [B, O]
        in_class = log_sum_exp_by_group(scores, self.classes, class_log_probs.shape[1])  # [B, C]
        return scores + (class_log_probs - in_class)[:, self.classes]

    def log_probs_of(self, h: Tensor, y: Tensor) -> Tensor:
        """Compute log p of words `[B, K]` in float64, `[B, K]`; for K = 1 only from the words of the same class."""
        if y.shape[1] != 1:
            return super().log_probs_of(h, y)
        classes = self.classes[y[:, 0]]
        class_log_probs = (
            F.linear(h, self.class_vectors, self.class_bias).double().log_softmax(1).gather(1, classes[:, None])
        )
        in_class, first = self.log_probs_in_class(h, classes)
        return class_log_probs + in_class[first + self.place[y[:, 0]]].double()[:, None]
