"""Walks over layers, encoders and optimizers with arguments that fit and arguments that do not; test_shapes runs them.

They return what went wrong, a line each, instead of asserting it: one of them runs in a separate process, which an
out-of-bounds access would end with a signal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lmtool.neural import OutputLayer, RowAdagrad, RowAdam, RowSGD
from lmtool.neural.optimizers.base import RowOptimizer
from lmtool.trees import huffman_tree
from tests import options

O, D, B = 23, 6, 5  # noqa: E741
COUNTS = torch.arange(O, 0, -1) ** 2
TREE = huffman_tree(COUNTS)


def output_layer(name: str) -> OutputLayer:
    """Return a variant of an output layer over 23 words, or over 1,000 if it is large."""
    return options.output_layer(name.removesuffix(", large"), D, torch.ones(1000) if "large" in name else COUNTS)


# What is done to hidden [B, D] and words [B] that fit, and what the error says; None where the numbers stay the same.
WORDS: dict[str, tuple[Callable[[Tensor, int], Any], str | None]] = {
    "as they are": (lambda y, words: y, None),
    "one too high": (lambda y, words: torch.full_like(y, words), "y must be ids from 0 to .*; got a maximum of"),
    "-1": (lambda y, words: torch.full_like(y, -1), "got a minimum of -1"),
    "-101": (lambda y, words: torch.full_like(y, -101), "got a minimum of -101"),
    "far": (lambda y, words: torch.full_like(y, 1 << 62), "got a maximum of 4,611,686,018,427,387,904"),
    "int32": (lambda y, words: y.int(), None),
    "uint8": (lambda y, words: y.to(torch.uint8), None),
    "not contiguous": (lambda y, words: torch.stack([y, y], 1)[:, 0], None),
    "array": (lambda y, words: y.numpy(), None),
    "array, uint16": (lambda y, words: y.numpy().astype(np.uint16), None),
    "list": (lambda y, words: y.tolist(), None),
    "floats": (lambda y, words: y.float(), r"y must be int64 \[5\].*; got float32 \[5\]"),
    "bools": (lambda y, words: y > 0, r"got bool \[5\]"),
    "floats, array": (lambda y, words: y.numpy() + 0.0, r"got float64 \[5\]"),
    "fewer": (lambda y, words: y[:3], r"y must be int64 \[5\].*; got int64 \[3\]"),
    "none": (lambda y, words: y[:0], r"got int64 \[0\]"),
    "3-D": (lambda y, words: y[:, None, None], r"got int64 \[5, 1, 1\]"),
    "nothing": (lambda y, words: None, r"y must be int64 \[5\].*; got a NoneType"),
    "text": (lambda y, words: "words", "got a str"),
    "ragged": (lambda y, words: [[0], [0, 0]], "cannot be read as an array"),
    "another device": (lambda y, words: y.to("meta"), r"got int64 \[5\] on meta"),
}
HIDDEN: dict[str, tuple[Callable[[Tensor], Any], str | None]] = {
    "not contiguous": (lambda h: torch.cat([h, h], 1)[:, :D], None),
    "bf16": (lambda h: h.bfloat16(), None),  # h has no more digits than bf16
    "wider": (lambda h: torch.cat([h, h], 1), r"h must be a float32, .*\[B, 6\] or \[B, T, 6\]; got float32 \[5, 12\]"),
    "narrower": (lambda h: h[:, :1], r"got float32 \[5, 1\]"),
    "1-D": (lambda h: h[0], r"got float32 \[6\]"),
    "float64": (lambda h: h.double(), r"h must be a float32, .*\[B, 6\] or \[B, T, 6\]; got float64 \[5, 6\]"),
    "integers": (lambda h: h.long(), r"got int64 \[5, 6\]"),
    "array": (lambda h: h.numpy(), r"h must be a float32, .*\[B, 6\] or \[B, T, 6\]; got float32 \[5, 6\]"),
    "list": (lambda h: h.tolist(), "got a list"),
    "sparse": (lambda h: h.to_sparse(), "got float32 .* sparse_coo"),
    "another device": (lambda h: h.to("meta"), r"got float32 \[5, 6\] on meta"),
}


def hidden_and_words(layer: OutputLayer) -> tuple[Tensor, Tensor]:
    words = layer.word_count or 1
    return torch.linspace(-2, 2, B * D).reshape(B, D).bfloat16().float(), torch.tensor([0, 2, 1, 22, 2]) % min(words, O)


def outcome(call: Callable[..., Any], *arguments: Any) -> list[Tensor] | str:
    """Return the tensors of a call, or the message of its ValueError."""
    torch.manual_seed(3)  # the same noise each time
    try:
        returned = call(*arguments)
    except (ValueError, NotImplementedError) as error:
        return str(error) or "an empty message"
    return list(returned) if isinstance(returned, tuple) else [returned]


def compared(where: str, found: list[Tensor] | str, wanted: list[Tensor] | str | None, error: str | None) -> list[str]:
    """Return what is wrong with an outcome: it must be the wanted one, or match the error's pattern in one line."""
    if error is not None:
        fits = isinstance(found, str) and re.search(error, found) and "\n" not in found
        return [] if fits else [f"{where}: {found} instead of {error}"]
    if isinstance(found, str) or isinstance(wanted, str) or wanted is None:
        return [] if found == wanted else [f"{where}: {found} instead of {wanted}"]
    same = all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(found, wanted, strict=True))
    return [] if same else [f"{where}: {found} instead of {wanted}"]


def walk_layer(name: str) -> Iterator[str]:
    """Yield what is wrong with a layer, for each of its methods and each of the changed arguments."""
    torch.manual_seed(0)
    layer = output_layer(name)
    h, y = hidden_and_words(layer)
    words = layer.word_count or 1
    of_words = {"forward": layer, "log_prob": layer.log_prob, "unnormalized_log_prob": layer.unnormalized_log_prob}
    of_hidden: dict[str, Callable[..., Any]] = {
        "log_dist": layer.log_dist,
        "sample": layer.sample,
        "top": lambda h: layer.top(h, 2),
        "log_partition": layer.log_partition,
    }
    for method, call in of_words.items():
        wanted = outcome(call, h, y)
        if method != "unnormalized_log_prob" or layer.self_normalized:
            yield from compared(
                f"{name}.{method}", "a tensor" if isinstance(wanted, list) else wanted, "a tensor", None
            )
        for case, (change, error) in WORDS.items():
            yield from compared(f"{name}.{method}, y {case}", outcome(call, h, change(y, words)), wanted, error)
        for case, (change_h, error) in HIDDEN.items():
            yield from compared(f"{name}.{method}, h {case}", outcome(call, change_h(h), y), wanted, error)
        if error is None or method not in str(outcome(call, h.long(), y)):
            yield f"{name}.{method}: its name is not in the error"
    for method, call in of_hidden.items():
        wanted = outcome(call, h)
        for case, (change_h, error) in HIDDEN.items():
            yield from compared(f"{name}.{method}, h {case}", outcome(call, change_h(h)), wanted, error)
    # Several words at a time, none of them, and no examples.
    dist = layer.log_dist(h)
    several = torch.stack([y, y.flip(0)], 1)
    yield from compared(f"{name}, [B, K]", outcome(layer.log_prob, h, several), [dist.gather(1, several)], None)
    yield from compared(f"{name}, [B, 0]", outcome(layer.log_prob, h, several[:, :0]), [dist[:, :0]], None)
    yield from compared(f"{name}, [B + 1, K]", outcome(layer.log_prob, h, several[:4]), None, r"\[5\] or \[5, K\]; got")
    yield from compared(f"{name}, B = 0", outcome(layer.log_prob, h[:0], y[:0]), [dist[:0, 0]], None)
    yield from compared(f"{name}, B = 0", outcome(layer.log_dist, h[:0]), [dist[:0]], None)
    yield from compared(f"{name}, B = 0", outcome(layer.sample, h[:0]), [y[:0]], None)
    yield from compared(f"{name}, B = 0", outcome(layer, h[:0], y[:0]), None, "one example or more")
    for k in (0, -1, 1.5, True):
        yield from compared(f"{name}, k = {k}", outcome(layer.top, h, k), None, "top: k must be a whole number of 1")
    # NaN is a number, and no number of words.
    undefined = torch.full_like(h, math.nan)
    for method, call in (("forward", layer), ("log_prob", layer.log_prob)):
        found = outcome(call, undefined, y)
        if isinstance(found, str) or not (bool(found[0].isnan().all()) or words == 1):
            yield f"{name}.{method} of NaN: {found}"
    sampled = outcome(layer.sample, undefined)
    if not (isinstance(sampled, str) or bool(((sampled[0] >= 0) & (sampled[0] < words)).all())):
        yield f"{name}.sample of NaN: {sampled}"


def walk_encoder(name: str) -> Iterator[str]:
    torch.manual_seed(0)
    one = options.encoder(name).build(O, tied=False, sparse=False)
    size = one.context_size
    contexts = torch.arange(4 * size).reshape(4, size) % O
    wanted = outcome(one, contexts)
    cases: dict[str, tuple[Any, str | None]] = {
        "int32": (contexts.int(), None),
        "not contiguous": (contexts.T.contiguous().T, None),
        "list": (contexts.tolist(), None),
        "array": (contexts.numpy().astype(np.uint16), None),
        "V": (contexts + O, f"forward: contexts must be ids from 0 to {O - 1}; got a maximum of"),
        "negative": (contexts - 1, "got a minimum of -1"),
        "longer": (torch.cat([contexts, contexts], 1), rf"int64 \[B, {size}\]; got int64 \[4, {2 * size}\]"),
        "shorter": (contexts[:, 1:], "got int64"),
        "1-D": (contexts[0], "got int64"),
        "floats": (contexts.float(), "got float32"),
        "another device": (contexts.to("meta"), "on meta"),
        "nothing": (None, "got a NoneType"),
    }
    for case, (changed, error) in cases.items():
        yield from compared(f"{name}, {case}", outcome(one, changed), wanted, error)
    if isinstance(wanted, list):
        yield from compared(f"{name}, B = 0", outcome(one, contexts[:0]), [wanted[0][:0]], None)


OPTIMIZERS: dict[str, Callable[..., RowOptimizer]] = {
    "sgd": lambda p: RowSGD(p, lr=0.1),
    "momentum": lambda p: RowSGD(p, lr=0.1, momentum=0.9),
    "l2": lambda p: RowSGD(p, lr=0.1, l2=0.1),
    "adagrad": lambda p: RowAdagrad(p, lr=0.1),
    "adam": lambda p: RowAdam(p, lr=0.1),
    "adam that catches up": lambda p: RowAdam(p, lr=0.1, correct_skipped_steps=True),
}


def walk_optimizer(name: str) -> Iterator[str]:
    """Gradients that torch takes without a look, and states of another parameter."""
    gradients: dict[str, tuple[list[int], tuple[int, ...]]] = {
        "R": ([3], (1, 2)),
        "far": ([1 << 40], (1, 2)),
        "negative": ([-1], (1, 2)),
        "1-D": ([0, 1], (2,)),
    }
    for case, (rows, shape) in gradients.items():
        parameter = nn.Parameter(torch.zeros(3, 2))
        with torch.sparse.check_sparse_tensor_invariants(False):
            indices = torch.tensor([rows, rows]) if case == "1-D" else torch.tensor([rows])
            parameter.grad = torch.sparse_coo_tensor(indices, torch.ones(shape), (3, 2), is_coalesced=True)
            found = outcome(OPTIMIZERS[name]([parameter]).step)
        yield from compared(f"{name}, {case}", found, None, r"a gradient of rows .* does not fit a parameter \[3, 2\]")
    large, small = (nn.Parameter(torch.zeros(rows, 2)) for rows in (3, 2))
    both = [OPTIMIZERS[name]([parameter]) for parameter in (large, small)]
    for optimizer, parameter in zip(both, (large, small), strict=True):
        parameter.grad = torch.eye(len(parameter), 2).to_sparse(1)
        optimizer.step()
    both[0].load_state_dict(both[1].state_dict())
    if name in ("momentum", "adagrad", "adam"):
        error = r"the state of a parameter \[3, 2\] must be as long; got float32 \[2, 2\]"
        yield from compared(f"{name}, state", outcome(both[0].step), None, error)


def walk_layers_and_encoders() -> list[str]:
    """Return what is wrong with any layer or encoder."""
    layers = [*options.LAYERS, "softmax, large", "hierarchical, one word"]
    return [
        *(wrong for name in layers for wrong in walk_layer(name)),
        *(wrong for name in options.ENCODERS for wrong in walk_encoder(name)),
    ]
