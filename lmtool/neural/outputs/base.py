"""The interface of output layers: hidden states -> log-probabilities of the words that can be predicted.

Shapes: B examples, D dimension of the hidden states, O words that can be predicted (ids 0 to O-1), K words asked for.
"""

from __future__ import annotations

import hashlib
from abc import ABC
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.config.training import Precision
from lmtool.neural.checks import INTEGERS, Shape, require_hidden, require_ids, require_size
from lmtool.neural.forms import Formed
from lmtool.neural.rows import SparseRows, rows_of
from lmtool.trees.tree import Tree

FINGERPRINT = "fingerprint"  # name in the state_dict
SEVERAL_WORDS = ("log_prob", "scores")  # methods whose y may be [B, K]
Method = TypeVar("Method", bound=Callable[..., Any])


def public(method: Method) -> Method:
    """Decorate a method of hidden states `[B, D]` that any PyTorch model may call.

    Hidden states may be `[B, T, D]`, with words `[B, T]`: results then begin with [B, T]. Inside torch.autocast in
    bfloat16 the method computes in the dtype of the weights, unless it is the training loss of a layer that
    `autocasts`. Raises ValueError inside torch.autocast in float16 and on the meta device. torch.compile calls the
    method uncompiled, through a graph break.
    """

    parameters = signature(method)

    @wraps(method)
    def call(self: Any, h: Any, *others: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():  # only here: disabling imports the compiler, which takes a second
            return torch.compiler.disable(call)(self, h, *others, **named)  # type: ignore[no-untyped-call]
        if not isinstance(h, Tensor):
            return method(self, h, *others, **named)
        device, where = h.device.type, f"{type(self).__name__}.{method.__name__}"
        if h.is_meta:
            require_hidden(self, f".{method.__name__}: h", h, self.input_dim, self.reference())
            raise ValueError(f"{where}: h has no values on the meta device: use to_empty, then reset_parameters")
        narrow = torch.is_autocast_enabled(device)
        if narrow and torch.get_autocast_dtype(device) is torch.float16:
            raise ValueError(f"{where}: torch.autocast in float16 is not supported: use dtype=torch.bfloat16")
        off = narrow and not (method.__name__ == "forward" and self.autocasts and self.training)
        with torch.autocast(device, enabled=False) if off else nullcontext():
            if h.dim() <= 2:
                return method(self, h, *others, **named)
            lead = h.shape[:-1]
            h = require_hidden(self, f".{method.__name__}: h", h, self.input_dim, self.reference())
            bound = parameters.bind(self, h, *others, **named)
            given = bound.arguments
            for name, shapes in ("y", word_shapes(method.__name__, lead)), ("draws", (("k",), (*lead, "k"))):
                if name in given:
                    given[name] = require_ids(self, f".{method.__name__}: {name}", given[name], shapes, None, h)
            for name, value in given.items():
                if isinstance(value, Tensor) and value.shape[: len(lead)] == lead:
                    given[name] = value.flatten(0, len(lead) - 1)
            found = method(*bound.args, **bound.kwargs)
            parts = found if isinstance(found, tuple) else (found,)
            parts = tuple(part.unflatten(0, lead) if part.dim() else part for part in parts)
            return parts if isinstance(found, tuple) else parts[0]

    return cast(Method, call)


class OutputLayer(Formed, ABC):
    """Hidden states `[B, D]` -> log p of O words; the interface of the group `output`, usable with any PyTorch model.

    A custom layer implements loss and log_probs; log_probs_of, best and draw have defaults that call log_probs. They
    are called by forward, log_dist, log_prob, top and sample, which check the arguments first. Log-probabilities are
    natural, in float64 and without gradients. Hidden states may also be sequences `[B, T, D]`, with words `[B, T]`.

    tree: the tree that the layer is built over, None for a layer without one.
    uses_all_parameters: whether each batch reaches every parameter with a dense gradient.
    self_normalized: whether training brings the sum of exp(score) over all words near 1, so that the layer has
    unnormalized_log_prob and log_partition.
    precision: precision of the large products of a training step, for layers that have some; evaluation is in the
    precision of the weights.
    autocasts: whether the training loss follows torch.autocast in bfloat16.
    loss_is_log_prob: whether `loss` is the mean of -log p, so that it is also used in eval mode; if not, forward
    computes exact_loss there.
    input_dim: D, and word_count: O, which the constructor sets; None disables their check.

    Raises ValueError, with the method, its argument, what it must be and what it is, for hidden states that are not a
    floating-point tensor `[B, D]`, and for words that are not integers `[B]` on the same device, on a CPU also for
    words out of range; words may also be an array or a list.

    The state_dict of a layer over a tree or classes has their `fingerprint`, uint8 `[16]`; load_state_dict raises
    ValueError for a state of another tree or other classes. A state without it is loaded unchecked.

    >>> import torch
    >>> from torch.nn import functional as F
    >>> from lmtool.neural import OutputLayer
    >>> class Cosines(OutputLayer):
    ...     def __init__(self, dim: int, words: int) -> None:
    ...         super().__init__()
    ...         self.vectors = torch.nn.Parameter(torch.randn(words, dim))
    ...     def scores(self, h):
    ...         return 10 * F.normalize(h, dim=1) @ F.normalize(self.vectors, dim=1).T
    ...     def loss(self, h, y):
    ...         return F.cross_entropy(self.scores(h), y)
    ...     def log_probs(self, h):
    ...         return self.scores(h).double().log_softmax(dim=1)
    >>> Cosines(16, 100).top(torch.randn(5, 16), 3)[1].shape  # the three likeliest words of five
    torch.Size([5, 3])
    """

    tree: Tree | None = None
    uses_all_parameters: bool = True
    self_normalized: bool = False
    precision: Precision = Precision.fp32
    autocasts: bool = False
    loss_is_log_prob: bool = True
    input_dim: int | None = None
    word_count: int | None = None

    @public
    def forward(self, h: Tensor, y: Tensor, *, ignore_index: int | None = -100, reduction: str = "mean") -> Tensor:
        """Return the loss of hidden states `[B, D]` and targets `[B]`, int64, with gradients.

        -log p(y|h) in nats, or in training mode the layer's approximation of it, in the dtype of the weights.
        ignore_index: targets of a tensor that do not count; None for none, which saves a GPU the search for them.
        reduction: mean, sum, or none for the loss of each example, `[B]`, 0 for ignored ones. If all targets are
        ignored, the loss is 0.
        """
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"{type(self).__name__}.forward: reduction must be mean, sum or none; got {reduction!r}")
        if isinstance(y, Tensor) and y.dtype in INTEGERS:
            y = y.long()  # as uint8, an ignore_index of -100 would be word 156
        readable = isinstance(y, Tensor) and not y.is_meta
        if ignore_index is not None and readable and bool((ignored := y == ignore_index).any()):
            h, keep = self._check("forward", h, y.masked_fill(ignored, 0))[0], ~ignored
            if ignored.all():  # DDP needs gradients of 0 for h and all weights; no weight or noise is read
                rows, sparse = y.new_zeros(0), set(self.sparse_parameters())
                parts = (rows_of(w, rows, sparse=True) if w in sparse else w.reshape(-1)[:0] for w in self.parameters())
                zero = h[:0].sum() + sum(part.sum() for part in parts)
                return zero.repeat(len(y)) if reduction == "none" else zero
            found = self.forward(h[keep], y[keep], ignore_index=None, reduction=reduction)
            return found.new_zeros(len(y)).index_put((keep,), found) if reduction == "none" else found
        h, y = self._check("forward", h, y, empty=False)
        if not (self.training or self.loss_is_log_prob):
            return self.exact_loss(h, y, reduction)
        if reduction != "none":
            loss: Tensor = self.computed("loss", h, y)
            return loss * len(y) if reduction == "sum" else loss
        formulas = self.loss, getattr(self, "drawn_loss", self.loss)
        if all("reduction" in signature(formula).parameters for formula in formulas):
            return self.loss(h, y, reduction)
        return torch.stack([self.loss(h[k : k + 1], y[k : k + 1]) for k in range(len(y))])

    @public
    @torch.no_grad()
    def log_dist(self, h: Tensor) -> Tensor:
        """Return log p of all words, `[B, O]` in float64, after hidden states `[B, D]`; rows have log-sum-exp 0."""
        dist: Tensor = self.computed("log_probs", self._check_hidden("log_dist", h))
        return dist

    @public
    @torch.no_grad()
    def log_prob(self, h: Tensor, y: Tensor) -> Tensor:
        """Return log p(y|h), float64, of words y `[B]` or `[B, K]`, int64, after h `[B, D]`, in y's shape."""
        h, y = self._check("log_prob", h, y)
        log_p: Tensor = self.computed("log_probs_of", h, columns(y))
        return log_p.reshape(y.shape)

    @public
    @torch.no_grad()
    def probabilities(self, h: Tensor, width: int) -> Tensor:
        """Return p of all words after hidden states `[B, D]`, float64 `[B, width]`, 0 from column O on; width >= O."""
        p = self.log_dist(self._check_hidden("probabilities", h)).exp_()
        return F.pad(p, (0, width - p.shape[1]))

    @public
    @torch.no_grad()
    def sample(self, h: Tensor) -> Tensor:
        """Draw a word `[B]`, int64, after each h `[B, D]`, by torch's random state. Raises ValueError if p is NaN."""
        return self.draw(self._check_hidden("sample", h))

    @public
    @torch.no_grad()
    def top(self, h: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k most likely words, int64, and their log p, float64, both `[B, k]`, most likely first; k <= O."""
        k = require_size(f"{type(self).__name__}.top: k", k)
        best: tuple[Tensor, Tensor] = self.computed("best", self._check_hidden("top", h), k)
        return best

    @public
    def unnormalized_log_prob(self, h: Tensor, y: Tensor) -> Tensor:
        """Return scores of words y `[B]`, near log p but without the sum over all words, `[B]` in float64.

        Raises NotImplementedError unless the layer is self_normalized.
        """
        self._check("unnormalized_log_prob", h, y)
        raise NotImplementedError(f"{type(self).__name__} is not self-normalized")

    @public
    def log_partition(self, h: Tensor) -> Tensor:
        """Return log of the sum over all words of exp(unnormalized score), `[B]` in float64; 0 if scores are log p.

        Raises NotImplementedError unless the layer is self_normalized.
        """
        self._check_hidden("log_partition", h)
        raise NotImplementedError(f"{type(self).__name__} is not self-normalized")

    # Methods that a layer implements: the plain formulas. Their arguments have been checked.

    def loss(self, h: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Compute the mean loss of hidden states `[B, D]` and targets `[B]`, in plain torch with gradients.

        reduction: mean, or none for the loss of each example. A custom layer may leave it out: then the losses of
        single examples are computed one by one.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement loss(h, y)")

    def exact_loss(self, h: Tensor, y: Tensor, reduction: str) -> Tensor:
        """Compute -log p(y|h) in nats of h `[B, D]` and y `[B]`, if `loss` approximates it; gradients by log_probs."""
        if torch.is_grad_enabled():
            losses = -self.log_probs(h).gather(1, y[:, None])[:, 0]
        else:
            losses = -self.log_probs_of(h, y[:, None])[:, 0]  # may need less memory
        return (losses if reduction == "none" else getattr(losses, reduction)()).to(h.dtype)

    def log_probs(self, h: Tensor) -> Tensor:
        """Compute the result of log_dist, `[B, O]`, for hidden states `[B, D]`."""
        raise NotImplementedError(f"{type(self).__name__} must implement log_probs(h)")

    def log_probs_of(self, h: Tensor, y: Tensor) -> Tensor:
        """Compute the result of log_prob, `[B, K]`, for hidden states `[B, D]` and words `[B, K]`."""
        return self.log_dist(h).gather(1, y)

    def best(self, h: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Compute the results of top, `[B, k]` each, for hidden states `[B, D]`."""
        dist = self.log_dist(h)
        log_p, words = dist.topk(min(k, dist.shape[1]), 1)
        return words, log_p

    def draw(self, h: Tensor) -> Tensor:
        """Compute the result of sample, `[B]`, for hidden states `[B, D]`."""
        p = self.log_dist(h).exp()
        if p.isnan().any():
            raise ValueError(f"{type(self).__name__}.sample: the distribution after h is NaN")
        return torch.multinomial(p, 1)[:, 0] if len(p) else torch.empty(0, dtype=torch.int64, device=p.device)

    # Properties of a layer.

    def reference(self) -> Tensor | None:
        """Return a weight, whose dtype and device hidden states must have; None, the default, for any."""
        return None

    def structure(self) -> list[npt.NDArray[Any]]:
        """Return the arrays that map rows of the weights to words: the arrays of the tree, if any."""
        return [] if self.tree is None else [self.tree.children, self.tree.leaf_words]

    def sparse_parameters(self) -> list[nn.Parameter]:
        """Return the parameters with sparse gradients, for lmtool's row optimizers."""
        return [parameter for part in self._parts() for parameter in part.sparse_parameters()]

    def use_dense_gradients(self) -> None:
        """Give the parameters with sparse gradients dense ones from now on."""
        for part in self._parts():
            part.sparse = False

    def _parts(self) -> list[SparseRows]:
        return [part for part in self.children() if isinstance(part, SparseRows)]

    def use_precision(self, precision: Precision) -> None:
        """Set the precision of the large products of a training step, in layers that have some."""
        self.precision = precision

    def word_vectors(self) -> Tensor | None:
        """Return the output embeddings `[O, D]`, or None if the layer has none."""
        return None

    def _check_hidden(self, method: str, h: Tensor) -> Tensor:
        return require_hidden(self, f".{method}: h", h, self.input_dim, self.reference())

    def _check(self, method: str, h: Tensor, y: Tensor, *, empty: bool = True) -> tuple[Tensor, Tensor]:
        """Check hidden states `[B, D]` and words `[B]`, or `[B, K]` for SEVERAL_WORDS. empty: whether B may be 0."""
        h = self._check_hidden(method, h)
        size = h.shape[0]
        if not (size or empty):
            raise ValueError(f"{type(self).__name__}.{method}: h must have one example or more; got {list(h.shape)}")
        return h, require_ids(self, f".{method}: y", y, word_shapes(method, (size,)), self.word_count, h)

    def _fingerprint(self) -> Tensor | None:
        digest, arrays = hashlib.blake2b(digest_size=16), self.structure()
        for array in arrays:
            digest.update(np.ascontiguousarray(array, dtype="<i8").data)
        return torch.tensor(list(digest.digest()), dtype=torch.uint8) if arrays else None

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if (own := self._fingerprint()) is not None:
            destination[prefix + FINGERPRINT] = own

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        own = self._fingerprint()
        # The dictionary is a copy that torch made to be changed.
        if own is not None and not torch.equal(state_dict.pop(prefix + FINGERPRINT, own).cpu(), own):
            raise ValueError(
                f"{type(self).__name__}.load_state_dict: the state is of a layer over another tree or other classes; "
                "build the layer over those that it was trained with"
            )
        super()._load_from_state_dict(state_dict, prefix, *others)


def word_shapes(method: str, lead: tuple[int, ...]) -> tuple[Shape, ...]:
    """Return the shapes that words may have after hidden states `[*lead, D]`."""
    return (lead, (*lead, "K")) if method in SEVERAL_WORDS else (lead,)


def columns(y: Tensor) -> Tensor:
    """Return words `[B]` or `[B, K]` as `[B, K]`."""
    return y if y.dim() == 2 else y[:, None]
