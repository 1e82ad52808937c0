"""What every output layer is: hidden vectors -> log-probabilities of the words that can be predicted.

Shapes: B examples, D dimension of the hidden, O words that can be predicted (ids 0 to O-1), K words asked for.
"""

from __future__ import annotations

import functools
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.config.training import Precision
from lmtool.errors import UserError
from lmtool.neural.checks import require_hidden, require_ids, require_size
from lmtool.trees.tree import Tree

Method = TypeVar("Method", bound=Callable[..., Any])
FINGERPRINT = "fingerprint"  # name in the state_dict


def takes_hidden(method: Method) -> Method:
    """Have a method of a layer get its hidden `[B, D]` checked."""
    argument = f".{method.__name__}: h"

    @functools.wraps(method)
    def checked(self: OutputLayer, h: Tensor, *others: Any, **named: Any) -> Any:
        return method(self, require_hidden(self, argument, h, self.input_dim, self.reference()), *others, **named)

    return cast(Method, checked)


def takes_number(method: Method) -> Method:
    """Have a method of a layer get its hidden `[B, D]` and a number of words checked."""
    argument, of_hidden = f".{method.__name__}: k", takes_hidden(method)

    @functools.wraps(method)
    def checked(self: OutputLayer, h: Tensor, k: int, *others: Any, **named: Any) -> Any:
        return of_hidden(self, h, require_size(f"{type(self).__name__}{argument}", k), *others, **named)

    return cast(Method, checked)


def takes_words(*, several: bool = False, empty: bool = True) -> Callable[[Method], Method]:
    """Have a method of a layer get its hidden `[B, D]` and words `[B]` checked.

    several: they may be `[B, K]`, too. empty: B may be 0.
    """

    def check(method: Method) -> Method:
        hidden, words = f".{method.__name__}: h", f".{method.__name__}: y"

        @functools.wraps(method)
        def checked(self: OutputLayer, h: Tensor, y: Tensor, *others: Any, **named: Any) -> Any:
            h = require_hidden(self, hidden, h, self.input_dim, self.reference())
            size = h.shape[0]
            if not (size or empty):
                raise ValueError(f"{type(self).__name__}{hidden} must have one example or more; got {list(h.shape)}")
            shapes = ((size,), (size, "K")) if several else ((size,),)
            return method(self, h, require_ids(self, words, y, shapes, self.word_count, h), *others, **named)

        return cast(Method, checked)

    return check


CHECKS: dict[str, Callable[[Any], Any]] = {
    "forward": takes_words(empty=False),
    "log_dist": takes_hidden,
    "log_prob": takes_words(several=True),
    "probabilities": takes_hidden,
    "sample": takes_hidden,
    "top": takes_number,
    "trained_log_z": takes_hidden,
    "unnormalised": takes_words(),
}


class OutputLayer(nn.Module, ABC):
    """Hidden `[B, D]` -> log p of O words; the contract of the group `output`, usable with any PyTorch model.

    A layer of one's own implements forward, the training loss, and log_dist, the exact distribution; the others have a
    default that asks log_dist. Log-probabilities are natural, in float64 and without gradients.

    tree: the tree that the layer is built over, None for a layer without one. uses_all_parameters: whether each batch
    reaches every parameter with a dense gradient. self_normalised: whether training brings the sum of exp(score) over
    all words near 1, so that the layer has unnormalised and trained_log_z.

    What these methods are given is checked before they are called, in a layer of one's own as in lmtool's: ValueError,
    with the method, its argument, what it must be and what it is, for a hidden that is not a floating-point tensor
    `[B, D]`, and for words that are not integers `[B]` of the same device; words may also be an array or a list.
    input_dim: D, and word_count: O, which the constructor sets: from then on D and, on a CPU, the range of words are
    checked, too. reference: a weight, whose type and device hidden must have.

    The state_dict of a layer over a tree or classes has their `fingerprint`, uint8 `[16]`; load_state_dict raises
    ValueError for a state of another tree or other classes. A state without it, as 0.6.0 saved, is loaded unchecked.
    """

    tree: Tree | None = None
    uses_all_parameters: bool = True
    self_normalised: bool = False
    input_dim: int | None = None
    word_count: int | None = None

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        for name, check in CHECKS.items():
            if name in vars(cls):
                setattr(cls, name, check(vars(cls)[name]))

    def reference(self) -> Tensor | None:
        """A weight, whose type and device hidden must have; None, the default, where any will do."""
        return None

    def structure(self) -> list[npt.NDArray[Any]]:
        """Return the arrays that say which words a row of the weights stands for: those of the tree, if any."""
        return [] if self.tree is None else [self.tree.children, self.tree.leaf_words]

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

    @abstractmethod
    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """The loss that training lowers, a number: the mean over hidden `[B, D]` and targets `[B]`, int64.

        -log p(y|h) in nats, or the layer's approximation of it; in the type of h, with gradients.
        """

    @abstractmethod
    def log_dist(self, h: Tensor) -> Tensor:
        """log p of all words, `[B, O]` in float64, after hidden `[B, D]`; rows have log-sum-exp 0."""

    @takes_words(several=True)
    def log_prob(self, h: Tensor, y: Tensor) -> Tensor:
        """log p(y|h) in float64 of words y `[B]` or `[B, K]`, int64, after hidden `[B, D]`; in the shape of y."""
        return self.log_dist(h).gather(1, columns(y)).reshape(y.shape)

    @takes_hidden
    @torch.no_grad()
    def probabilities(self, h: Tensor, width: int) -> Tensor:
        """p of all words after hidden `[B, D]`, floating-point `[B, width]`: exp of log_dist but for rounding.

        width: O or more; columns from O on are 0.
        """
        p = self.log_dist(h)
        return F.pad(p.exp(), (0, width - p.shape[1]))

    @takes_hidden
    @torch.no_grad()
    def sample(self, h: Tensor) -> Tensor:
        """A word `[B]`, int64, drawn from p(.|h) after each hidden `[B, D]`; from torch's random state.

        Raises ValueError where p is NaN.
        """
        p = self.log_dist(h).exp()
        if p.isnan().any():
            raise ValueError(f"{type(self).__name__}.sample: the distribution after h is NaN")
        return torch.multinomial(p, 1)[:, 0] if len(p) else torch.empty(0, dtype=torch.int64, device=p.device)

    @takes_number
    @torch.no_grad()
    def top(self, h: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k most likely words `[B, k]`, int64, and their log p `[B, k]` in float64, the most likely first.

        k: O where it is more.
        """
        dist = self.log_dist(h)
        log_p, words = dist.topk(min(k, dist.shape[1]), 1)
        return words, log_p

    def row_parameters(self) -> list[nn.Parameter]:
        """The parameters with sparse gradients, for the optimisers of lmtool.neural.sparse_optim; none by default."""
        return []

    def use_dense_gradients(self) -> None:
        """Give the parameters with sparse gradients dense ones from now on; nothing by default."""

    def use_precision(self, precision: Precision) -> None:
        """Do the large products of a training step in this precision; nothing by default."""

    def plain_softmax(self, examples: int) -> tuple[nn.Parameter, nn.Parameter] | None:
        """u `[O, D]` and b `[O]` where a step of so many examples is a full softmax of b + u . h and no more, in their
        own type or as in_bf16 says: for kernels.plain_step. None, the default, for any other layer.
        """
        return None

    def in_bf16(self, examples: int) -> bool:
        """Whether a training step of so many examples does products in bf16, as use_precision lets it."""
        return False

    def word_vectors(self) -> Tensor | None:
        """The output vector of each word, `[O, D]`; None for a layer that has none."""
        return None

    @takes_words()
    def unnormalised(self, h: Tensor, y: Tensor) -> Tensor:
        """Scores of words y `[B]` after hidden `[B, D]` without the sum over all words, `[B]` in float64, near log p.

        Raises NotImplementedError unless the layer is self_normalised.
        """
        raise NotImplementedError(f"{type(self).__name__} is not self-normalised")

    @takes_hidden
    def trained_log_z(self, h: Tensor) -> Tensor:
        """log of the sum over all words of exp(unnormalised score), `[B]` in float64; 0 where the scores are log p.

        Raises NotImplementedError unless the layer is self_normalised.
        """
        raise NotImplementedError(f"{type(self).__name__} is not self-normalised")


def columns(y: Tensor) -> Tensor:
    """Words `[B]` or `[B, K]` as `[B, K]`."""
    return y if y.dim() == 2 else y[:, None]


def require_at_most_words(setting: str, value: int, words: int) -> None:
    """Raise UserError, naming the setting of the group output, where its value is more than the words there are."""
    if value > words:
        raise UserError(f"output.{setting}={value}: at most {words} with this vocabulary")
