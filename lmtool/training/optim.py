"""Options of the group `optim`: updates of the weights. torch and the row optimizers are imported on use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from lmtool import neural
from lmtool.config.groups import OptimConfig, OutputConfig
from lmtool.config.rules import setting

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from lmtool.neural.optimizers.base import ParameterGroups


def _torch(name: str) -> Callable[..., Optimizer]:
    import torch.optim

    from lmtool.neural.optimizers.base import without_compiler

    return cast("Callable[..., Optimizer]", without_compiler(getattr(torch.optim, name)))


@dataclass(slots=True)
class SgdOptim(OptimConfig):
    r"""Stochastic gradient descent, optionally with momentum.

    .. math::

        u &\leftarrow \text{momentum}\;u + g + \text{decay}\;w \\
        w &\leftarrow w - \text{lr}\;u

    g is the gradient of the weights w: the mean over the examples of a batch or, with `per_example`, the sum.

    Source: Robbins & Monro (1951), "A stochastic approximation method", Annals of Mathematical Statistics 22; momentum:
        Polyak (1964), USSR Computational Mathematics and Mathematical Physics 4.
    Complexity: one more number for each weight with momentum, none without; for sparse gradients a step works only on
        the rows with a gradient.
    """

    kind: str = "sgd"
    momentum: float = setting(min=0, below=1)

    def dense(self, groups: ParameterGroups) -> Optimizer:
        torch_groups = groups.torch_groups(self.decay)
        if self.momentum and not groups.on_cpu:
            return _torch("SGD")(torch_groups, lr=self.lr, momentum=self.momentum, foreach=True)
        if self.momentum:
            # torch's fused step fails on a group in which only some parameters have already had a gradient.
            torch_groups = [group | {"params": [parameter]} for group in torch_groups for parameter in group["params"]]
        return _torch("SGD")(torch_groups, lr=self.lr, momentum=self.momentum, fused=True)

    def sparse(self, groups: ParameterGroups) -> Optimizer:
        return neural.RowSGD(groups.torch_groups(self.decay, key="l2"), lr=self.lr, momentum=self.momentum)


@dataclass(slots=True)
class AsgdOptim(OptimConfig):
    r"""Averaged SGD, triggered when the loss on valid stops falling (NT-ASGD): the model is the mean of later weights.

    .. math::

        w_k &= w_{k-1} - \text{lr}\,(g + \text{decay}\;w_{k-1}) \\
        \bar w_k &= \frac{1}{k - T + 1} \sum_{i=T}^{k} w_i

    g is the gradient of the weights w. T is the step of the first evaluation whose loss on valid is above the lowest
    loss of the evaluations more than `patience` before it.

    Source: Polyak & Juditsky (1992), "Acceleration of stochastic approximation by averaging", SIAM Journal on Control
        and Optimization 30; Merity, Keskar & Socher (2018), "Regularizing and optimizing LSTM language models", ICLR,
        algorithm 1.
    Complexity: one more number for each weight from T on, when each step works on all weights, also with sparse
        gradients.
    """

    kind: str = "asgd"
    patience: int = setting(min=1)

    def averages_after(self, losses: list[float]) -> bool:
        before = losses[: -1 - self.patience]
        return bool(before) and losses[-1] > min(before)

    def dense(self, groups: ParameterGroups) -> Optimizer:
        return _torch("SGD")(groups.torch_groups(self.decay), lr=self.lr, fused=True)

    def sparse(self, groups: ParameterGroups) -> Optimizer:
        return neural.RowSGD(groups.torch_groups(self.decay, key="l2"), lr=self.lr)


@dataclass(slots=True)
class AdagradOptim(OptimConfig):
    r"""Adagrad: the rate of each weight falls with the gradients that it has had.

    .. math::

        g &\leftarrow g + \text{decay}\;w \\
        s &\leftarrow s + g^2 \\
        w &\leftarrow w - \text{lr}\,\frac{g}{\sqrt{s} + \epsilon}

    g is the gradient of the weights w.

    Source: Duchi, Hazan & Singer (2011), "Adaptive subgradient methods for online learning and stochastic
        optimization", JMLR 12.
    Complexity: one more number for each weight; for sparse gradients a step works only on the rows with a gradient.
    """

    kind: str = "adagrad"
    eps: float = setting(above=0)

    def dense(self, groups: ParameterGroups) -> Optimizer:
        fused = groups.on_cpu  # the only device for which torch has a fused step
        return _torch("Adagrad")(
            groups.torch_groups(self.decay), lr=self.lr, eps=self.eps, fused=fused, foreach=not fused
        )

    def sparse(self, groups: ParameterGroups) -> Optimizer:
        return neural.RowAdagrad(groups.torch_groups(self.decay, key="l2"), lr=self.lr, eps=self.eps)


@dataclass(slots=True)
class AdamOptim(OptimConfig):
    r"""Adam: the running mean of the gradient over the square root of its square's; weight decay is in both.

    .. math::

        g &\leftarrow g + \text{decay}\;w \\
        m &\leftarrow \beta_1 m + (1 - \beta_1)\,g \qquad v \leftarrow \beta_2 v + (1 - \beta_2)\,g^2 \\
        w &\leftarrow w - \text{lr}\,\frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}

    g is the gradient of the weights w in step t. With sparse gradients a row without one waits, and makes up for the
    skipped steps when it has one again: k steps after the last one its m and v are multiplied by :math:`\beta_1^k` and
    :math:`\beta_2^k`, and its step by :math:`(1 - \beta_1^k) / (1 - \beta_1)`, as dense Adam follows m until the next
    one.

    Source: Kingma & Ba (2015), "Adam: a method for stochastic optimization", ICLR, algorithm 1.
    Complexity: two more numbers for each weight; for sparse gradients a step works only on the rows with a gradient.
    """

    kind: str = "adam"
    beta1: float = setting(min=0, below=1)
    beta2: float = setting(min=0, below=1)
    eps: float = setting(above=0)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `torch.optim.Adam` and similar optimizers, without weight decay."""
        return {"lr": self.lr, "betas": (self.beta1, self.beta2), "eps": self.eps}

    def dense(self, groups: ParameterGroups) -> Optimizer:
        return _torch("Adam")(groups.torch_groups(self.decay), **self.arguments(), fused=True)

    def sparse(self, groups: ParameterGroups) -> Optimizer:
        return neural.RowAdam(groups.torch_groups(self.decay, key="l2"), **self.arguments(), correct_skipped_steps=True)


@dataclass(slots=True)
class AdamwOptim(AdamOptim):
    r"""Adam with decoupled weight decay: the decay is not divided by the size of the gradients.

    .. math::

        m &\leftarrow \beta_1 m + (1 - \beta_1)\,g \qquad v \leftarrow \beta_2 v + (1 - \beta_2)\,g^2 \\
        w &\leftarrow w - \text{lr} \left( \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon} +
            \text{decay}\;w \right)

    g is the gradient of the weights w in step t; without a setting, the decay is the output layer's default. With
    sparse gradients a row without one waits, and makes up for the skipped steps when it has one again: k steps after
    the last one its m and v are multiplied by :math:`\beta_1^k` and :math:`\beta_2^k`, w by :math:`(1 -
    \text{lr}\,\text{decay})^k`, and its step by :math:`(1 - \beta_1^k) / (1 - \beta_1)`, as dense Adam follows m until
    the next one.

    Source: Loshchilov & Hutter (2019), "Decoupled weight decay regularization", ICLR, algorithm 2.
    Complexity: two more numbers for each weight; for sparse gradients a step works only on the rows with a gradient.
    """

    kind: str = "adamw"

    def fill_in(self, output: OutputConfig) -> None:
        self.weight_decay = output.weight_decay if self.weight_decay is None else self.weight_decay

    def dense(self, groups: ParameterGroups) -> Optimizer:
        return _torch("AdamW")(groups.torch_groups(self.decay), **self.arguments(), fused=True)

    def sparse(self, groups: ParameterGroups) -> Optimizer:
        return neural.RowAdam(groups.torch_groups(self.decay), **self.arguments(), correct_skipped_steps=True)
