"""The fused losses of lmtool.neural.triton beside the plain forms, for ./scripts/measure triton.

On a GPU: the time of a loss with all its gradients by either, the floor of the device, and errors against float64.
Without one: the errors alone, of small sizes, in Triton's interpreter.
"""

from __future__ import annotations

import copy
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

REPEATS, WARM = 50, 10
MANY = 1 << 30  # bytes that are copied to see how fast memory is: more than any cache


def triton() -> None:
    """Both parts, in a process of their own: the interpreter has to be asked for before Triton is imported."""
    import torch

    if find_spec("triton") is None:
        print("triton is not installed: pip install triton, on Linux")
        return
    environment = dict(os.environ)
    environment.pop("TRITON_INTERPRET", None)
    environment["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # which deterministic products need
    if not torch.cuda.is_available():
        print("there is no GPU here: no times; errors in Triton's interpreter, of small sizes")
        environment["TRITON_INTERPRET"] = "1"
    subprocess.run([sys.executable, __file__], env=environment, check=True)


@dataclass
class Case:
    """A layer with a batch; rows: how many rows of its weights the batch reads for all its examples together, and
    operations: multiplications and additions that matrix units do for loss and gradients.
    """

    name: str
    layer: Any
    words: tuple[Any, ...]
    rows: float
    operations: float


def cases(batch: int, dim: int, outputs: int, k: int) -> Iterator[Case]:
    """Every layer over words whose counts fall as Zipf's law says, with targets drawn from them."""
    import torch

    from lmtool.neural import AdaptiveSoftmax, ClassSoftmax, FullSoftmax, HierarchicalSoftmax, NCELoss, SampledSoftmax
    from lmtool.trees import huffman_tree
    from lmtool.trees.frequency_classes import class_of_words

    counts = (1e8 / torch.arange(1, outputs + 1)).long()
    y, noise = (torch.multinomial(counts.double(), size, replacement=True) for size in (batch, k))
    tree = HierarchicalSoftmax(dim, huffman_tree(counts.numpy()), counts)
    lengths = tree._offsets.diff()[y]
    yield Case("tree", tree, (y,), float(lengths.sum()), 0)
    own = noise[torch.randint(k, (batch, 25))]
    yield Case("nce, 25 of its own", NCELoss(dim, counts, noise=25), (y, own), 26 * batch, 0)
    shared = 6 * batch * k * dim
    yield Case(f"nce, {k} shared", NCELoss(dim, counts, noise=k), (y, noise), batch + k, shared)
    yield Case(f"sampled, {k}", SampledSoftmax(dim, counts, samples=k), (y, noise), batch + k, shared)
    classes = torch.from_numpy(class_of_words(counts.numpy(), None))
    members = classes.bincount()
    of_head = 6 * batch * len(members) * dim
    yield Case("classes", ClassSoftmax(dim, counts, classes), (y,), float(members[classes[y]].sum()), of_head)
    adaptive = AdaptiveSoftmax(dim, counts)
    yield Case("adaptive", adaptive, (y,), outputs, 6 * batch * adaptive.layer.head.weight.numel())
    yield Case("full", FullSoftmax(dim, counts), (y,), outputs, 6 * batch * outputs * dim)


def step(case: Case, h: Any, fused: bool) -> list[Any]:
    """The loss and the gradients of h and of every parameter."""
    import torch

    os.environ["LMTOOL_TRITON"] = "1" if fused else "0"
    loss = (case.layer.loss_with if len(case.words) > 1 else case.layer)(h, *case.words)
    wanted = [h, *case.layer.parameters()]
    return [loss.detach(), *torch.autograd.grad(loss, wanted, allow_unused=True)]


def error(found: list[Any], expected: list[Any]) -> float:
    """The largest of the norms of differences over the norms of what is expected."""
    pairs = [(each.double(), want.double()) for each, want in zip(found, expected, strict=True) if want is not None]
    return max(float((each - want).norm() / want.norm().clamp(min=1e-30)) for each, want in pairs)


def placed(case: Case, device: Any, dtype: Any) -> Case:
    """The case on a device, with weights of a type."""
    layer = copy.deepcopy(case.layer).to(device, dtype)
    return Case(case.name, layer, tuple(word.to(device) for word in case.words), case.rows, case.operations)


def median(run: Callable[[], Any]) -> float:
    """Microseconds of a call on the device, the median of REPEATS."""
    import torch

    times = []
    for turn in range(WARM + REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        if turn >= WARM:
            times.append(1000 * start.elapsed_time(end))
    return statistics.median(times)


def ceilings() -> tuple[float, dict[Any, float]]:
    """Bytes that memory moves, and operations of matrix units by type, in a microsecond: measured here."""
    import torch

    source, target = (torch.empty(MANY, dtype=torch.uint8, device="cuda").random_() for _ in range(2))
    bandwidth = 2 * MANY / median(lambda: target.copy_(source))
    rates = {}
    for dtype in (torch.float32, torch.bfloat16):
        a, b = (torch.randn(8192, 8192, device="cuda", dtype=dtype) for _ in range(2))
        torch.backends.cuda.matmul.allow_tf32 = True
        rates[dtype] = 2 * 8192**3 / median(lambda a=a, b=b: a @ b)
        torch.backends.cuda.matmul.allow_tf32 = False
    rates[torch.float32] /= 3  # three products of tf32 for one of float32
    return bandwidth, rates


def times() -> None:
    """The tables of a GPU."""
    import torch

    from lmtool.neural import triton as kernels

    kernels.COLUMN_LIMITS = dict.fromkeys(kernels.COLUMN_LIMITS, kernels.WIDEST)  # wider than a layer would have them
    bandwidth, rates = ceilings()
    name, processors = torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).multi_processor_count
    print(f"{name}, {processors} multiprocessors: {bandwidth / 1e6:.2f} TB/s copied, matrix units", end=" ")
    print(", ".join(f"{rate / 1e6:,.0f} TFLOP/s in {str(dtype)[6:]}" for dtype, rate in rates.items()))
    print(f"a loss with its gradients in microseconds, medians of {REPEATS}; floor: bytes or operations, the longer\n")
    print("| layer | O | D | B | type | plain | fused | ratio | floor | error, plain | fused | bits repeat |")
    print("|---|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|---|")
    for outputs, dim, batch in ((10_000, 100, 1024), (10_000, 500, 8192), (200_000, 500, 8192)):
        for case in cases(batch, dim, outputs, 1000):
            for dtype in (torch.float32, torch.bfloat16):
                row(case, (batch, dim, outputs), dtype, bandwidth, rates[dtype])


def row(case: Case, sizes: tuple[int, int, int], dtype: Any, bandwidth: float, rate: float) -> None:
    import torch

    batch, dim, outputs = sizes
    ours = placed(case, "cuda", dtype)
    h = torch.randn(batch, dim, device="cuda").to(dtype).requires_grad_()
    plain, fused = (median(lambda form=form: step(ours, h, form)) for form in (False, True))
    errors = ["", ""]
    if outputs <= 10_000:  # in float64 the others take too long
        double = placed(ours, "cuda", torch.float64)
        want = step(double, h.detach().double().requires_grad_(), False)
        errors = [f"{error(step(ours, h, form), want):.0e}" for form in (False, True)]
    torch.use_deterministic_algorithms(True, warn_only=True)  # of the plain parts some have no such form
    first, second = (step(ours, h, True) for _ in range(2))
    torch.use_deterministic_algorithms(False)
    repeats = all(a is None or a.equal(b) for a, b in zip(first, second, strict=True))
    size = h.element_size()
    moved = 2 * batch * dim * size + min(case.rows, outputs) * dim * (
        size + 4
    )  # each row read and each sum written once
    floor = max(moved / bandwidth, case.operations / rate)
    print(
        f"| {case.name} | {outputs:,} | {dim} | {batch:,} | {str(dtype)[6:]} | {plain:,.0f} | {fused:,.0f} | "
        f"{plain / fused:.2f} | {floor:,.1f} | {errors[0]} | {errors[1]} | {'yes' if repeats else 'NO'} |",
        flush=True,
    )


def interpreted() -> None:
    """The errors of small sizes on a CPU."""
    import torch

    print("| layer | error of the loss and gradients, float32 | bf16, weights and h rounded first |\n|---|--:|--:|")
    for case in cases(37, 20, 60, 9):
        errors = []
        for dtype in (torch.float32, torch.bfloat16):
            ours = placed(case, "cpu", dtype)
            h = torch.randn(37, 20).to(dtype).requires_grad_()
            want = step(placed(ours, "cpu", torch.float64), h.detach().double().requires_grad_(), False)
            errors.append(error(step(ours, h, True), want))
        print(f"| {case.name} | {errors[0]:.0e} | {errors[1]:.0e} |", flush=True)


if __name__ == "__main__":
    import torch

    torch.manual_seed(0)
    if torch.cuda.is_available():
        times()
    else:
        interpreted()
