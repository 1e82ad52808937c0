"""Clipping of gradients, sparse ones too."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from lmtool.neural.checks import described
from lmtool.neural.forms.groups import coalesced


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter] | nn.Parameter, max_norm: float) -> Tensor:
    """Scale the gradients, sparse and dense, down where their norm together is above max_norm; returns that norm, `[]`.

    parameters: of any number, or one. Raises ValueError for what are no parameters and for a max_norm that is not above
    0.
    """
    if not max_norm > 0:
        raise ValueError(f"clip_gradients: max_norm must be above 0; got {max_norm}")
    parameters = [parameters] if isinstance(parameters, nn.Parameter) else list(parameters)
    wrong = next((item for item in parameters if not isinstance(item, Tensor)), None)
    if wrong is not None:
        raise ValueError(f"clip_gradients: parameters must be tensors; got {described(wrong)}")
    values = []
    for parameter in dict.fromkeys(parameters):  # one that is given twice counts once
        if parameter.grad is not None:
            if parameter.grad.is_sparse:
                parameter.grad = coalesced(parameter.grad)
            values.append(parameter.grad.values() if parameter.grad.is_sparse else parameter.grad)
    norms = [torch.linalg.vector_norm(value).to(values[0].device) for value in values]
    norm = torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros(())
    factor = max_norm / (norm + 1e-6)
    if factor < 1:
        scale = factor.clamp(max=1)
        for value in values:
            value.mul_(scale)
    return norm
