"""The measurements of training for ./scripts/measure: cost per step, memory."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import measure_neural

TURNS = measure_neural.TURNS


def engine(lmtool: Callable[..., float]) -> None:
    """The engine's time per step and that of a bare loop of the same model, optimizer and clipping, alternating."""
    import torch

    from lmtool.system import parallel
    from lmtool.system.process import keep_freed_memory

    torch.set_num_threads(parallel.use(None))
    keep_freed_memory()
    lmtool("preprocess", "data=ptb", "data.name=ptb")
    for name, embed, hidden in (("softmax", 30, 100), ("hierarchical", 30, 100), ("nce", 30, 100)):
        for batch in (1024, 32):
            ours, bare = _engine_turns(measure_neural.prepare_store("ptb"), name, embed, hidden, batch)
            print(
                f"{name} {embed}/{hidden}, batch {batch}: bare loop {bare:.2f} ms a step, engine {ours:.2f}: "
                f"{100 * (ours / bare - 1):+.1f} %",
                flush=True,
            )


def _engine_turns(store: Path, name: str, embed: int, hidden: int, batch: int) -> tuple[float, float]:
    """Milliseconds a step of the engine, and of a bare loop: medians over alternating turns."""
    import tempfile

    import numpy as np
    import torch

    from lmtool.config.training import Precision, TrainingConfig
    from lmtool.data.corpus import Corpus
    from lmtool.neural.optimizers.base import clip_gradients
    from lmtool.training.interruption import StopRequest
    from lmtool.training.loop import Plan, _Training
    from lmtool.training.optim import SgdOptim
    from lmtool.training.processes import Processes
    from lmtool.training.schedules import ConstantSchedule

    optim = SgdOptim("sgd", 0.1, 0.0, 0.0)
    steps = max(8, 12_000 // batch)
    settings = dict(epochs=None, steps=1 << 40, minutes=None, patience=None, batch_size=batch, evaluate_every=1e9)
    settings |= dict(accuracy_on=0, clip_norm=1.0, max_norm=None, precision=Precision.fp32, compile=False)
    training = TrainingConfig(**settings, memory=None, save_every=1e9, tensorboard=False)
    plan = Plan(training, optim, ConstantSchedule("constant", 0.0), 1, {})
    with Corpus.open(store) as corpus, tempfile.TemporaryDirectory() as folder:
        split = corpus.split("train")
        contexts, targets = (torch.from_numpy(array) for array in split.windows(np.arange(400_000), 5))
        model = measure_neural.model_of(corpus, name, embed, hidden)
        engine = _Training(model, split, corpus.split("valid"), plan, Path(folder), Processes(), bar=False)
        optimizers = engine.optimizers
        order = torch.randperm(400_000)
        stop = StopRequest()

        def bare() -> None:
            for number in range(steps):
                index = order[number * batch % 390_000 :][:batch]
                loss = model(contexts[index], targets[index])
                for optimizer in optimizers:
                    optimizer.zero_grad()
                loss.backward()
                clip_gradients(model.parameters(), 1.0)
                for optimizer in optimizers:
                    optimizer.step()
                loss.item()

        def whole() -> None:
            for _ in range(steps):
                engine.advance(stop)

        found: dict[Callable[[], None], list[float]] = {bare: [], whole: []}
        for turn in range(2 * TURNS + 1):
            for form, times in found.items():
                start = time.perf_counter()
                form()
                if turn:
                    times.append(1000 * (time.perf_counter() - start) / steps)
        return statistics.median(found[whole]), statistics.median(found[bare])


def memory(lmtool: Callable[..., float]) -> None:
    """Peak memory of training on a store of 500 million tokens, which is larger than training.memory."""
    data = ["data=synthetic", "data.name=large", "data.tokens=500000000", "data.valid_tokens=50000"]
    seconds = lmtool("preprocess", *data)
    size = next(Path("stores").glob("large-*.h5")).stat().st_size
    print(f"store of {size / 2**30:.2f} GiB, made in {seconds:.0f} s")
    for model in ("hsoftmax", "nce"):
        words = [
            "train",
            f"model={model}",
            *data,
            "training.epochs=null",
            "training.minutes=1",
            f"hydra.run.dir={model}",
        ]
        start = time.perf_counter()
        process = subprocess.Popen(
            [*measure_neural.LMTOOL, *words, f"hydra.run.dir={model}"], stdout=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"failed: {' '.join(words)}")
        print(
            f"model={model}: at most {used.ru_maxrss / 2**20:.2f} GiB, {time.perf_counter() - start:.0f} s", flush=True
        )
