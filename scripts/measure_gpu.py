"""Examples of training a second on a GPU for ./scripts/measure gpu, by lmtool's own training, in fp32 and bf16.

GPU_DEVICE=cpu: a dry run at tiny sizes by the plain formulas, whose figures mean nothing. GPU_SECONDS: for all of it,
200 by default; what does not fit is named.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import measure_speed

DEVICE = os.environ.get("GPU_DEVICE", "cuda")
DRY = DEVICE == "cpu"
SECONDS = float(os.environ.get("GPU_SECONDS", "200"))
CONTEXT = 5
WORDS = (6000,) if DRY else (10_000, 1_000_000)
BATCHES = (16,) if DRY else (1024, 8192)
SHAPES = {"30/100": (30, 100), "128/512": (128, 512)}
LAYERS = ("softmax", "hierarchical", "morin_bengio", "nce", "sampled", "classes", "adaptive")
MOST_SCORES = 1 << 33  # words x examples of a step with the full softmax


def cases() -> Iterator[tuple[str, str, int, int]]:
    """Shape, layer, words and batch, what matters most first."""
    for batch in BATCHES:
        yield "nplm", "softmax", WORDS[0], batch
    for shape in SHAPES:
        for words in WORDS:
            for layer in LAYERS:
                for batch in BATCHES:
                    if layer != "softmax" or words * batch <= MOST_SCORES:
                        yield shape, layer, words, batch


def row(store: Path, shape: str, layer: str, batch: int) -> str:
    """Examples a second in fp32 and in bf16, and their ratio."""
    embed, hidden = SHAPES.get(shape, (None, None))  # of model=nplm its own
    rates = measure_speed.rates_in_turns(
        {
            precision: (measure_speed.steps_of(store, embed, hidden, batch, CONTEXT, layer, precision, DEVICE), batch)
            for precision in ("fp32", "bf16")
        }
    )
    return " | ".join(measure_speed.cells(rates, "fp32", ["bf16"]))


def gpu() -> None:
    """The table, and the time of a whole training."""
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
        print("| shape | layer | words | batch | fp32 examples/s | bf16 | ratio |\n|---|---|--:|--:|--:|--:|--:|")
        left = list(cases())
        while left and time.perf_counter() - begin < SECONDS:
            shape, layer, words, batch = left.pop(0)
            try:
                found = row(stores[words], shape, layer, batch)
            except RuntimeError as error:  # the others are still of use
                found = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            print(f"| {shape} | {layer} | {words:,} | {batch:,} | {found} |", flush=True)
            if not DRY:
                torch.cuda.empty_cache()
        if left:
            print("no time was left for:", *(" ".join(map(str, each)) for each in left), sep="\n")
        # An epoch after one that loads what is loaded once.
        settings = {"minutes": None, "batch_size": 1024, **({"steps": 5} if DRY else {"epochs": 1})}
        data = "toy" if DRY else "pydoc"
        for number in range(2):
            begin = time.perf_counter()
            run = lmtool.train("nplm", data, training=settings, device=DEVICE, out=f"run{number}", progress=False)
            print(f"train model=nplm data={data}: {time.perf_counter() - begin:.1f} s; {run}", flush=True)
        os.chdir(before)


if __name__ == "__main__":
    gpu()
