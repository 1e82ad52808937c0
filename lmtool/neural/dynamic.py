r"""Dynamic evaluation: a network that learns from the text that it scores. It scores a segment of a few words, then its
weights take one step down the gradient of the segment's loss L, which is the mean of -log p:

.. math::

    \theta \leftarrow \theta - \eta\,\frac{\nabla L}{s + \epsilon} + \min(\lambda s,\ 1)\,(\theta_0 - \theta) \qquad
    s = \frac{r}{\bar{r}} \qquad r = \sqrt{\overline{(\nabla L)^2}}

The last term pulls the weights back to the trained ones. r is the root mean square of each weight's gradient over
segments of train; s is r divided by its mean over all weights, so that eta has the scale that it has for stochastic
gradient descent, where s = 1 and epsilon = 0.

Source: Mikolov et al. (2010), "Recurrent neural network based language model", Interspeech; Krause, Kahembwe, Murray &
    Renals (2018), "Dynamic evaluation of neural sequence models", ICML, section 4.
Complexity: a forward and a backward pass per segment, and a few operations on every weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmtool.data.split import Split
from lmtool.neural.model import NeuralModel
from lmtool.neural.outputs.softmax import WordScores
from lmtool.system.arrays import FloatArray, IntArray, in_chunks
from lmtool.system.terminal import token_bar

EPSILON = 0.1  # added to s
TRAIN_ROWS = 100  # maximum number of segments of train whose mean loss has one gradient
TRAIN_STEPS = 400  # maximum number of these gradients


def score_dynamically(
    model: NeuralModel, text: Split, train: Split | None, *, segment: int, lr: float, decay: float, progress: bool
) -> FloatArray:
    """Return log p of each token of a text, `[N]`, by weights that have learned from the segments before it.

    Afterwards the model has its trained weights again. train: for s; None for stochastic gradient descent. segment:
    number of tokens that are scored before each step. lr: eta. decay: lambda.
    """
    weights, log_prob = [weight.detach() for weight in model.parameters()], np.empty(text.tokens)
    trained = [weight.clone() for weight in weights]
    rates, decays = ([trained[0].new_tensor(value)] * len(weights) for value in (lr, decay))
    if train is not None:
        scales = gradient_scales(model, train, segment)
        rates = [lr / (scale + EPSILON) for scale in scales]
        decays = [(decay * scale).clamp_(max=1) for scale in scales]
    index = (np.arange(part.start, part.stop)[None] for part in in_chunks(text.tokens, segment))
    try:
        with token_bar(text.tokens, shown=progress) as bar:
            for tokens, scores, gradients in _segments(model, text, index):
                log_prob[tokens] = scores
                each = zip(weights, trained, decays, gradients, rates, strict=True)
                for weight, start, share, gradient, rate in each:
                    weight.lerp_(start, share).addcmul_(gradient, rate, value=-1)
                bar.update(len(tokens))
    finally:
        for weight, start in zip(weights, trained, strict=True):
            weight.copy_(start)
    return log_prob


def gradient_scales(model: NeuralModel, train: Split, segment: int) -> list[Tensor]:
    """Return s of each parameter: over segments of train, read side by side from places that are spread over it."""
    segment = min(segment, train.tokens)
    rows = min(TRAIN_ROWS, train.tokens // segment)
    steps = min(TRAIN_STEPS, train.tokens // rows // segment)
    first = np.arange(rows)[:, None] * (train.tokens // rows) + np.arange(segment)  # [B, T]
    index = (first + step * segment for step in range(steps))
    squares = [torch.zeros_like(weight) for weight in model.parameters()]
    for _, __, gradients in _segments(model, train, index):
        for square, gradient in zip(squares, gradients, strict=True):
            square.addcmul_(gradient, gradient)
    mean = sum(float(square.sqrt_().sum()) for square in squares) / sum(square.numel() for square in squares)
    return [square / mean for square in squares]


def _segments(model: NeuralModel, text: Split, index: Iterator[IntArray]) -> Iterator[tuple[Any, ...]]:
    """Yield of each segment its tokens `[B T]`, given as `[B, T]`, their log p and the gradients of their mean loss."""
    weights, layer, state = list(model.parameters()), model.output, None
    with model._evaluating():
        for tokens in index:
            h, targets, state = model.read_tokens(text, tokens, state)
            if isinstance(layer, WordScores):  # the exact loss, also of layers that draw words in training
                log_prob = layer.log_probs(h).gather(1, targets[:, None])[:, 0]
                loss = -log_prob.mean()
            else:
                log_prob, loss = layer.log_prob(h.detach(), targets), model._loss(h, targets)
            gradients = torch.autograd.grad(loss, weights, materialize_grads=True)
            dense = [each.to_dense() if each.is_sparse else each for each in gradients]
            yield tokens.ravel(), log_prob.detach().cpu().numpy(), dense
