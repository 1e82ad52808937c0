"""Two levels, class then word in class, as an output layer.

Legend of shapes: B examples, D hidden, O outputs, C classes, P pairs (example, word of its target's class).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from lmtool.neural.kernels.sparse_rows import Pairs, log_sum_exp, row_scores, stretches
from lmtool.neural.outputs.word_scores import log_unigram


class ClassSoftmax(nn.Module):
    """p(w|h) = p(class of w|h) p(w|class, h), a softmax each (Goodman 2001).

    classes: `[O]`, the class of each word, 0 to C-1, none empty. counts: `[O]`, to start the biases at the unigram
    distribution. A step works on the classes and on the words of the targets' classes. sparse: these words' gradients
    are sparse.
    """

    def __init__(self, dim: int, counts: Tensor, classes: Tensor, *, sparse: bool = False) -> None:
        super().__init__()
        sizes = classes.bincount()
        if len(classes) != len(counts) or (sizes == 0).any():
            raise ValueError("classes: one for each word, and none empty")
        self.sparse = sparse
        members, starts = classes.argsort(stable=True), F.pad(sizes.cumsum(0), (1, 0))
        place = torch.empty_like(classes)  # of a word among the members of its class
        place[members] = torch.arange(len(classes)) - starts[classes[members]]
        for name, values in (("classes", classes), ("members", members), ("starts", starts), ("place", place)):
            self.register_buffer(name, values, persistent=False)
        self.classes: Tensor
        self.members: Tensor
        self.starts: Tensor
        self.place: Tensor
        kind = torch.get_default_dtype()
        mass = torch.zeros(len(sizes), dtype=torch.float64).index_add_(0, classes, counts.double())
        self.class_bias = nn.Parameter(log_unigram(mass).to(kind))
        self.class_vectors = nn.Parameter(torch.empty(len(sizes), dim))
        self.bias = nn.Parameter(log_unigram(counts).to(kind))
        self.vectors = nn.Parameter(torch.empty(len(counts), dim))
        for vectors in (self.class_vectors, self.vectors):
            nn.init.normal_(vectors, std=dim**-0.5)

    def row_parameters(self) -> list[nn.Parameter]:
        """Those whose gradients are sparse."""
        return [self.vectors, self.bias] if self.sparse else []

    def _log_in_class(self, h: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """log p of the words of the classes chosen `[B]`, `[P]`, and where each example's begin."""
        starts, owner, places = stretches(self.starts, chosen)
        rows = self.members[places]
        scores = row_scores(h, self.vectors, self.bias, Pairs(rows, starts, owner), sparse=self.sparse)
        return scores - log_sum_exp(scores, starts, owner)[owner], starts[:-1]

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """Mean -log p(y|h) in nats over hidden `[B, D]` and targets `[B]`."""
        chosen = self.classes[y]
        in_class, first = self._log_in_class(h, chosen)
        of_class = F.cross_entropy(torch.addmm(self.class_bias, h, self.class_vectors.T), chosen)
        return of_class - in_class[first + self.place[y]].mean()

    def log_dist(self, h: Tensor) -> Tensor:
        """log p of all words, `[B, O]` in float64."""
        with torch.no_grad():
            of_class = torch.addmm(self.class_bias, h, self.class_vectors.T).double().log_softmax(1)
            scores = torch.addmm(self.bias, h, self.vectors.T).double()
            largest = torch.full_like(of_class, -torch.inf)
            largest.scatter_reduce_(1, self.classes.expand_as(scores), scores, "amax")
            total = torch.zeros_like(of_class).index_add_(1, self.classes, (scores - largest[:, self.classes]).exp())
            return scores + (of_class - largest - total.log())[:, self.classes]

    def log_prob(self, h: Tensor, y: Tensor) -> Tensor:
        """log p(y|h) in float64; y `[B]` or `[B, K]`, as the result."""
        if y.dim() > 1:
            return self.log_dist(h).gather(1, y)
        with torch.no_grad():
            chosen = self.classes[y]
            of_class = torch.addmm(self.class_bias, h, self.class_vectors.T).double().log_softmax(1)
            in_class, first = self._log_in_class(h, chosen)
            return of_class.gather(1, chosen[:, None])[:, 0] + in_class[first + self.place[y]].double()
