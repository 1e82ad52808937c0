"""Examples of training a second on a GPU for ./scripts/measure, by lmtool's own training, in fp32 and bf16.

GPU_DEVICE=cpu: a dry run at tiny sizes with the plain formulas, whose figures mean nothing. GPU_SECONDS: maximum
duration, 200 by default; cases that do not fit are listed.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import measure_speed
from measure_speed import cells
from measuring import head, measure, rates_in_turns, row, turns
from network_steps import lmtool_of

DEVICE = os.environ.get("GPU_DEVICE", "cuda")
DRY = DEVICE == "cpu"
SECONDS = float(os.environ.get("GPU_SECONDS", "200"))
CONTEXT = 5
WORDS = (6000,) if DRY else (10_000, 1_000_000)
BATCHES = (16,) if DRY else (1024, 8192)
SHAPES = {"30/100": (30, 100), "128/512": (128, 512)}
LAYERS = ("softmax", "hierarchical", "morin_bengio", "nce", "sampled", "classes", "adaptive")
MAX_SCORES = 1 << 33  # words x examples of a step of the full softmax


def _cases() -> Iterator[tuple[str, str, int, int]]:
    """Yield shape, layer, words and batch, the most important first."""
    for batch in BATCHES:
        yield "nplm", "softmax", WORDS[0], batch
    for shape in SHAPES:
        for words in WORDS:
            for layer in LAYERS:
                for batch in BATCHES:
                    if layer != "softmax" or words * batch <= MAX_SCORES:
                        yield shape, layer, words, batch


def _cells(store: Path, shape: str, layer: str, batch: int) -> list[str]:
    """Return examples per second in fp32 and in bf16, and their ratio."""
    embed, hidden = SHAPES.get(shape, (None, None))  # model=nplm has its own
    context = None if embed is None else CONTEXT
    steps = {
        precision: (lmtool_of(store, embed, hidden, batch, context, layer, precision, DEVICE), batch)
        for precision in ("fp32", "bf16")
    }
    return cells(rates_in_turns(steps, measure_speed.SECONDS, turns()), "fp32", ["bf16"])


@measure
def gpu() -> None:
    """examples of training a second on a GPU, in fp32 and bf16 (see ./scripts/gpu)"""
    import torch

    import lmtool
    from lmtool.neural.forms import only_plain

    begin = time.perf_counter()
    if not (DRY or torch.cuda.is_available()):
        print("there is no GPU here: nothing was measured (GPU_DEVICE=cpu tries the script)")
        return
    print(f"torch {torch.__version__}, {'CPU: a dry run' if DRY else torch.cuda.get_device_name()}")
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, only_plain(DRY):
        os.chdir(folder)
        stores = {}
        for words in WORDS:
            sizes = {"types": words, "tokens": 3 * max(WORDS), "valid_tokens": 1000, "test_tokens": 1000}
            text = lmtool.preprocess({"kind": "synthetic", "name": f"of{words}", **sizes}, progress=False)
            stores[words] = Path(text.path).resolve()
        head("shape", "layer", "words", "batch", "fp32 examples/s", "bf16", "ratio", numbers=5)
        left = list(_cases())
        while left and time.perf_counter() - begin < SECONDS:
            shape, layer, words, batch = left.pop(0)
            try:
                found = _cells(stores[words], shape, layer, batch)
            except RuntimeError as error:  # the others are still of use
                found = [f"{type(error).__name__}: {str(error).splitlines()[0]}"]
            row(shape, layer, f"{words:,}", f"{batch:,}", *found)
            if not DRY:
                torch.cuda.empty_cache()
        if left:
            print("no time was left for:", *(" ".join(map(str, each)) for each in left), sep="\n")
        # The second epoch is timed: the first one loads what is loaded once.
        settings = {"minutes": None, "batch_size": 1024, **({"steps": 5} if DRY else {"epochs": 1})}
        data = "toy" if DRY else "pydoc"
        for number in range(2):
            begin = time.perf_counter()
            run = lmtool.train("nplm", data, training=settings, device=DEVICE, out=f"run{number}", progress=False)
            print(f"train model=nplm data={data}: {time.perf_counter() - begin:.1f} s; {run}", flush=True)
        os.chdir(before)


if __name__ == "__main__":
    gpu()
