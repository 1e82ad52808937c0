"""Examples of training a second on a GPU for ./scripts/measure gpu, beside the floor: what memory and arithmetic allow.

A step reads and writes each weight, its gradient and the two numbers that AdamW keeps for it, eight times four bytes,
and does 6 operations for each example and weight that it is multiplied by: forth, and back for both factors. The floor
is the longer of both at the bandwidth and the rate of an H200 (BANDWIDTH, RATE; GPU_BANDWIDTH and GPU_RATE replace
them). Launches are those of a step made one operation at a time, as torch's profiler sees them.

GPU_DEVICE=cpu: a dry run at tiny sizes, whose figures mean nothing. GPU_SECONDS: for all of it, 200 by default; what
does not fit is named.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import measure_launches
import torch
from torch import Tensor, nn

DEVICE = os.environ.get("GPU_DEVICE", "cuda")
DRY = DEVICE == "cpu"
BANDWIDTH = float(os.environ.get("GPU_BANDWIDTH", "4.3e12"))  # bytes a second
RATE = float(os.environ.get("GPU_RATE", "790e12"))  # operations a second in bf16
SECONDS = float(os.environ.get("GPU_SECONDS", "200"))
CONTEXT = 5
WORDS = (1200, 1500) if DRY else (10_000, 1_000_000)
BATCHES = (16,) if DRY else (1024, 8192, 65_536)
SHAPES: dict[str, dict[str, Any]] = {
    "30/100": {"embedding_dim": 30, "hidden_dim": 100, "layer_norm": False, "gated": False, "activation": "tanh"},
    "128/512": {"embedding_dim": 128, "hidden_dim": 512, "layer_norm": False, "gated": False, "activation": "tanh"},
    "nplm": {"embedding_dim": 128, "hidden_dim": 512, "layer_norm": True, "gated": True, "activation": "gelu"},
}
AS_IT_COMES: dict[str, Any] = {"dropout": 0.4, "input_dropout": 0.15, "history": 100, "projection_dim": 128}
STEPS, MOST_STEPS = 3, 200  # of a measurement


@dataclass
class Case:
    """A network on the device, its optimiser, and what its steps need."""

    encoder: nn.Module
    output: nn.Module
    optimiser: torch.optim.Optimizer
    contexts: Tensor
    targets: Tensor
    bf16: bool

    def step(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """A step as lmtool's loop makes it, clipping included."""
        from lmtool.neural.sparse_optim import clip_gradients

        with torch.autocast(DEVICE, dtype=torch.bfloat16) if self.bf16 else nullcontext():
            hidden = self.encoder(contexts)
        loss: Tensor = self.output(hidden.float(), targets)
        parameters = [parameter for group in self.optimiser.param_groups for parameter in group["params"]]
        for parameter in parameters:
            parameter.grad = None
        loss.backward()
        clip_gradients(parameters, 1.0)
        self.optimiser.step()
        return loss.detach()


def case(shape: str, layer: str, words: int, batch: int, *, bf16: bool) -> Case:
    """A network of a shape over so many words."""
    from lmtool.config.training import Precision

    torch.manual_seed(0)
    settings = {"kind": "nplm", "direct": False, "dropout": 0.0, "context_size": CONTEXT, **SHAPES[shape]}
    settings |= AS_IT_COMES if shape == "nplm" else {}
    encoder = measure_launches.encoder(settings, words).to(DEVICE)
    output = measure_launches.layers(words, encoder.output_dim)[layer]().to(DEVICE)
    output.use_precision(Precision.bf16 if bf16 else Precision.fp32)
    parameters = [*encoder.parameters(), *output.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    # Words as a text has them: the frequent ones in most places.
    ids = (words ** torch.rand(batch, encoder.context_size + 1, device=DEVICE)).long().clamp(max=words - 1)
    return Case(encoder, output, optimiser, ids[:, :-1].contiguous(), ids[:, -1].contiguous(), bf16)


def floor_seconds(made: Case, layer: str) -> float:
    """What a step takes at least, by the bytes of the weights and the operations on them."""
    batch = len(made.targets)
    weights = sum(parameter.numel() for parameter in [*made.encoder.parameters(), *made.output.parameters()])
    tables = made.encoder.embedding.weight.numel()
    multiplied = sum(parameter.numel() for parameter in made.encoder.parameters() if parameter.dim() > 1) - tables
    dim, words = made.encoder.output_dim, made.output.word_count
    rows = {"nce": 101, "nce, own noise": 26, "sampled": 1001, "softmax": words}
    if layer in rows:
        multiplied += rows[layer] * dim
    elif layer in ("hierarchical", "morin_bengio"):
        multiplied += int(made.output.tree.depths.mean()) * dim
    else:  # a class or tail beside the classes or the head, each about the square root of all words
        multiplied += int(2 * words**0.5) * dim
    return max(8 * 4 * weights / BANDWIDTH, 6 * batch * multiplied / RATE)


def seconds_of(step: Callable[[], object]) -> float:
    """The seconds of a call, the median of several rounds of some."""
    rounds = []
    begin = time.perf_counter()
    step()
    wait()
    count = 1 if DRY else max(1, min(MOST_STEPS, int(0.1 / max(time.perf_counter() - begin, 1e-5))))
    for _ in range(STEPS):
        begin = time.perf_counter()
        for _ in range(count):
            step()
        wait()
        rounds.append((time.perf_counter() - begin) / count)
    return sorted(rounds)[STEPS // 2]


def wait() -> None:
    """Until the GPU has done what it was given."""
    if not DRY:
        torch.cuda.synchronize()


def launches_of(step: Callable[[], object]) -> int:
    """The kernels and copies of a step on a GPU; on a CPU its operations, as ./scripts/measure launches counts them."""
    if DRY:
        with measure_launches.Operations() as operations:
            step()
        return operations.launches
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        step()
        wait()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profiler.events())


def cases() -> Iterator[tuple[str, str, int, int, bool]]:
    """Shape, layer, words, batch and whether in bf16: what matters most first."""
    names = list(measure_launches.layers(WORDS[0], 8))
    for layer in names:
        yield "30/100", layer, WORDS[0], BATCHES[0], False
    for batch in BATCHES:
        yield "nplm", "softmax", WORDS[0], batch, True
    for shape in ("30/100", "128/512"):
        for words in WORDS:
            for layer in names:
                for batch in BATCHES[:2]:
                    if layer != "softmax" or words * batch <= 1 << 33:
                        yield shape, layer, words, batch, shape != "30/100"


def row(shape: str, layer: str, words: int, batch: int, bf16: bool) -> str:
    """A line of the table."""
    from lmtool.training.captured_step import CapturedStep

    made = case(shape, layer, words, batch, bf16=bf16)
    given = made.contexts, made.targets
    made.step(*given)
    plain = seconds_of(lambda: made.step(*given))
    launches = launches_of(lambda: made.step(*given))
    replayed = plain
    note = ""
    if not DRY:
        captured = CapturedStep(made.step, [made.optimiser])
        for _ in range(4):
            captured(*given)
        replayed = seconds_of(lambda: captured(*given))
        note = "" if captured.captured else "  not captured"
    floor = floor_seconds(made, layer)
    loss = made.step(*given).item()
    product, best, rate = "bf16" if bf16 else "fp32", 1e3 * floor, batch / replayed
    return (
        f"{shape:<8} {layer:<15} {words:>9,} {batch:>7,} {product:<5} {launches:>8} {1e3 * plain:>9.3f} "
        f"{1e3 * replayed:>9.3f} {best:>8.3f} {1e3 * replayed / best:>7.1f} {rate:>13,.0f} {loss:>7.3f}{note}"
    )


def gpu() -> None:
    """The table, and the time of a whole training."""
    from lmtool.neural.devices import device_path

    begin = time.perf_counter()
    if not (DRY or torch.cuda.is_available()):
        print("there is no GPU here: nothing was measured (GPU_DEVICE=cpu tries the script)")
        return
    print(f"torch {torch.__version__}, {'CPU: a dry run' if DRY else torch.cuda.get_device_name()}")
    print(
        "ms of a step: one operation at a time, and as one graph; the floor of its bytes and operations; graph / floor"
    )
    print(
        f"{'shape':<8} {'layer':<15} {'words':>9} {'batch':>7} {'':<5} {'launches':>8} {'ms':>9} {'graph ms':>9} "
        f"{'floor':>8} {'factor':>7} {'examples/s':>13} {'loss':>7}"
    )
    for arguments in cases():
        if time.perf_counter() - begin > SECONDS:
            print("no time was left for:", *arguments)
            continue
        try:
            with device_path() if DRY else nullcontext():
                print(row(*arguments), flush=True)
        except (RuntimeError, ValueError) as error:  # the others are still of use
            print(*arguments, type(error).__name__, str(error).splitlines()[0], flush=True)
        if not DRY:
            torch.cuda.empty_cache()
    training()


def training() -> None:
    """model=nplm as it comes on the docstrings of Python: an epoch after one that loads what is loaded once."""
    import lmtool

    settings = {"minutes": None, "batch_size": 1024, **({"steps": 5} if DRY else {"epochs": 1})}
    before, data = os.getcwd(), "toy" if DRY else "pydoc"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for number in range(2):
            begin = time.perf_counter()
            run = lmtool.train("nplm", data, training=settings, device=DEVICE, out=f"run{number}", progress=False)
            print(f"train model=nplm data={data}: {time.perf_counter() - begin:.1f} s; {run}", flush=True)
        os.chdir(before)


if __name__ == "__main__":
    gpu()
