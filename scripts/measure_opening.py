"""The measurement of checksums for ./scripts/measure: opening a large model and a store, verified and not."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from measure_spark import text_words

TURNS = 7


def opening(data: Path, lmtool: Callable[..., float]) -> None:
    """big20, order 5: seconds until the store and the model can be used, the first time in a process and again."""
    from lmtool.data.corpus import Corpus
    from lmtool.runs.load import load_model
    from lmtool.runs.run import Run
    from lmtool.system import checksummed_file as sealed
    from lmtool.system import parallel

    text = text_words("big20", data)
    lmtool("train", "model=ngram", "model.order=5", *text, "counts.keep=false", "hydra.run.dir=float32")
    lmtool("convert", "run=float32", "quantize=8", "hydra.run.dir=8")
    run = Run.open(Path("float32"))
    with Corpus.open(Path(run.store)) as corpus:
        vocabulary = corpus.vocabulary
    print(f"{'file':<12} {'MB':>7} {'threads':>8} {'verified':>9} {'again':>7}  seconds, median of {TURNS}")
    files: dict[str, tuple[Path, Callable[[], object]]] = {
        "store": (Path(run.store), lambda: Corpus.open(Path(run.store)).close()),
        "float32": (Path("float32/model.h5"), lambda: load_model(run, vocabulary)),
        "8 bits": (Path("8/model.h5"), lambda: load_model(Run.open(Path("8")), vocabulary)),
    }
    for name, (path, open_it) in files.items():
        for threads in (1, 2):
            parallel.use(threads)
            first, again = [], []
            for _ in range(TURNS):
                sealed._verified.clear()
                for times in (first, again):
                    start = time.perf_counter()
                    open_it()
                    times.append(time.perf_counter() - start)
            size = path.stat().st_size / 1e6
            seconds = f"{statistics.median(first):>9.3f} {statistics.median(again):>7.3f}"
            print(f"{name:<12} {size:>7.1f} {threads:>8} {seconds}", flush=True)
