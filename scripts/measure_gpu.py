"""Examples of training a second on a GPU for ./scripts/measure: by the plain formulas, one operation at a time, and by
lmtool's own training, in fp32 and bf16.

GPU_DEVICE=cpu: a dry run at tiny sizes with the plain formulas, whose figures mean nothing. GPU_SECONDS: maximum
duration, 200 by default; cases that do not fit are listed.
"""

from __future__ import annotations

import os
import time
from itertools import product

import torch
from measuring import head, rates_in_turns, row, turns
from network_steps import OUTPUTS, lmtool_step, network, precisions, with_ratios

import lmtool
from lmtool.neural.forms import only_plain

DEVICE = os.environ.get("GPU_DEVICE", "cuda")
DRY = DEVICE == "cpu"
SECONDS = float(os.environ.get("GPU_SECONDS", "200"))
TURN = 0.15  # seconds of one case in one turn
WORDS = (6000,) if DRY else (10_000, 1_000_000)
BATCHES = (16,) if DRY else (1024, 8192)
SIZES = [(words, batch) for words in WORDS for batch in BATCHES]
SHAPES = ("30/100", "128/512")
MAX_SCORES = 1 << 33  # words x examples of a step of the full softmax


def gpu() -> None:
    """examples of training a second on a GPU, in fp32 and bf16 (see ./scripts/gpu)"""
    begin = time.perf_counter()
    if not (DRY or torch.cuda.is_available()):
        print("there is no GPU here: nothing was measured (GPU_DEVICE=cpu tries the script)")
        return
    print(f"torch {torch.__version__}, {'CPU: a dry run' if DRY else torch.cuda.get_device_name()}")
    with only_plain(DRY):
        stores = {}
        for words in WORDS:
            sizes = {"types": words, "tokens": 3 * max(WORDS), "valid_tokens": 1000, "test_tokens": 1000}
            text = lmtool.preprocess({"kind": "synthetic", "name": f"of{words}", **sizes}, progress=False)
            stores[words] = text.path
        head("shape", "layer", "words", "batch", "plain, examples/s", "fp32", "ratio", "bf16", "ratio", numbers=7)
        # The most important first; the shape of model=nplm is its own.
        left = [("nplm", "softmax", WORDS[0], batch) for batch in BATCHES]
        left += [
            case
            for case in ((shape, layer, *sizes) for sizes, (shape, layer) in product(SIZES, product(SHAPES, OUTPUTS)))
            if case[1] != "softmax" or case[2] * case[3] <= MAX_SCORES
        ]
        while left and time.perf_counter() - begin < SECONDS:
            shape, layer, words, batch = left.pop(0)
            line = ["model=nplm", f"training.batch_size={batch}"]
            if shape != "nplm":
                line = network(layer, *map(int, shape.split("/")), batch)
            try:
                plain = lmtool_step(stores[words], [*line, "training.forms=plain"], DEVICE)
                steps = {"plain": (plain, batch)} | precisions(stores[words], line, batch, ("fp32", "bf16"), DEVICE)
                found = with_ratios(rates_in_turns(steps, TURN, turns()), "plain", "fp32", "bf16")
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


if __name__ == "__main__":
    gpu()
