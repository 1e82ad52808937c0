"""Smaller n-gram models for ./scripts/measure: pruned, quantized, of fewer words; size against perplexity."""

from __future__ import annotations

import math
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from measuring import big20, evaluate, head, in_turns, lmtool, parts, row, store_of, train, turns

from lmtool.api import calls
from lmtool.data.corpus import Corpus
from lmtool.evaluation.metrics import perplexity
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.pruning.entropy import prune_to_size_by_entropy
from lmtool.ngram.pruning.gain import prune_to_size_by_gain
from lmtool.ngram.smoothers.absolute_discounting import ModifiedKneserNey
from lmtool.runs.load import load_model
from lmtool.runs.run import Run
from lmtool.system import parallel

SHARES = (0.5, 0.3)  # sizes without cut-offs, of all n-grams
CUTOFFS = ([0, 0, 1], [0, 1, 1], [0, 1, 2], [0, 2, 2], [0, 3, 3], [0, 5, 5], [0, 9, 9], [0, 19, 19])
CONTEXTS, CHUNK = 1024, 32  # number of contexts whose distributions are summed, and how many at once


def pruning() -> None:
    """PTB and big20: size against perplexity, by cut-offs, entropy and expected gain (ten minutes)

    PARTS=ptb3,ptb5,big5 chooses.
    """
    for part in parts("PARTS", "ptb3,ptb5,big5"):
        lmtool("preprocess", *(["data=ptb"] if part.startswith("ptb") else big20()), f"store_dir=stores-{part}")
        with Corpus.open(store_of("*", f"stores-{part}")) as corpus:
            _Text(corpus, int(part[-1])).curve(part)


class _Text:
    """The counts of a store and the table of them, and the perplexity of tables on its valid split."""

    def __init__(self, corpus: Corpus, order: int) -> None:
        self.corpus, self.order = corpus, order
        self.counts = count_ngrams(corpus.text("train"), corpus.vocabulary, order)
        self.smoother = ModifiedKneserNey(order)  # its discounts are fitted with the table, and kept in pruning
        self.table = estimate(self.counts, self.smoother)

    def perplexity(self, table: Any) -> str:
        valid = self.corpus.split("valid")
        return f"{perplexity(NgramModel(table, self.corpus.vocabulary).score_text(valid)):.3f}"

    def pruned(self, size: int) -> list[str]:
        """Return the perplexities of the table pruned to a size by entropy and by expected gain."""
        by_entropy, _ = prune_to_size_by_entropy(self.table, size, self.corpus.vocabulary)
        by_gain, _ = prune_to_size_by_gain(self.counts, self.smoother, self.table, size)
        return [self.perplexity(by_entropy), self.perplexity(by_gain)]

    def curve(self, name: str) -> None:
        """Print perplexities at the sizes of cut-offs: of these, entropy pruning, and pruning by expected gain."""
        total = sum(self.table.sizes)
        print(f"{name}: {total:,} n-grams, perplexity {self.perplexity(self.table)}")
        head("cut-offs", "n-grams", "share", "cut-offs", "entropy", "gain", "seconds", numbers=6)
        for share in SHARES:
            row("", f"{int(share * total):,}", f"{share:.1%}", "", *self.pruned(int(share * total)), "")
        for cutoffs in CUTOFFS:
            every_order = cutoffs + cutoffs[-1:] * (self.order - len(cutoffs))
            cut = estimate(self.counts, ModifiedKneserNey(self.order), cutoffs=every_order)
            size, start = sum(cut.sizes), time.perf_counter()
            cells = [self.perplexity(cut), *self.pruned(size), f"{time.perf_counter() - start:.1f}"]
            row(",".join(map(str, cutoffs)), f"{size:,}", f"{size / total:.1%}", *cells)


def small() -> None:
    """big20, order 5, in 8 to 4 bits: size, perplexity, speed; pydoc: weights of model=nplm in 16 and 8 bits

    PARTS=ngrams or PARTS=weights: one of them.
    """
    if "ngrams" in parts("PARTS", "ngrams,weights"):
        train("float32", "model=ngram", "model.order=5", *big20(), "counts.keep=false")
        columns = ("MB", "perplexity", "change", "mean log of the sums", "perplexity, divided by the sums")
        head("bits", *columns, "time of scoring", numbers=6)
        first = math.nan
        for name in ("float32", "8", "7", "6", "5", "4"):
            if name != "float32":
                lmtool("convert", "run=float32", f"quantize={name}", f"hydra.run.dir={name}")
            found, log_sum, time_ratio = _scored(name)
            first = found if name == "float32" else first
            cells = [
                f"{Path(f'{name}/model.h5').stat().st_size / 1e6:.1f}",
                f"{found:.4f}",
                f"{found / first - 1:+.2%}",
            ]
            row(name, *cells, f"{log_sum:+.5f}", f"{found * math.exp(log_sum):.4f}", f"{time_ratio:.2f}")
    if "weights" in parts("PARTS", "ngrams,weights"):
        train("nplm", "model=nplm", "data=pydoc", "training.epochs=1")
        for name in ("nplm", "nplm16", "nplm8"):
            if name != "nplm":
                lmtool("convert", "run=nplm", f"quantize={name.removeprefix('nplm')}", f"hydra.run.dir={name}")
            found, size = evaluate(name)["perplexity"], Path(f"{name}/checkpoint.safetensors").stat().st_size
            print(f"{name:<8} {size / 1e6:.2f} MB, {found:.4f}", flush=True)


def _scored(name: str) -> tuple[float, float, float]:
    """Return the perplexity of valid, the mean over contexts of the log of the distribution's sum, and the time of
    scoring valid with one thread divided by that of float32, in turns.
    """
    runs = [Run.open(Path(folder)) for folder in (name, "float32")]
    with Corpus.open(Path(runs[0].store)) as corpus:
        valid = corpus.split("valid")
        models = {run.folder.name: load_model(run, corpus.vocabulary) for run in runs}
        model, log_sums = models[name], []
        for at in range(0, CONTEXTS, CHUNK):
            places = [i * (valid.tokens // CONTEXTS) for i in range(at, at + CHUNK)]
            contexts = [valid.contexts(place, place + 1, model.context_size)[0] for place in places]
            log_sums += np.logaddexp.reduce(model.log_dist(np.stack(contexts)), axis=1).tolist()
        parallel.use(1)
        scored = {key: lambda m=each: m.score_text(valid) for key, each in models.items()}
        seconds = in_turns(scored, turns(9))
        parallel.use(None)
        found = perplexity(model.score_text(valid))
    ratio = statistics.median(a / b for a, b in zip(seconds[name], seconds["float32"], strict=True))
    return found, float(np.mean(log_sums)), ratio


def sums() -> None:
    """pydoc, order 5, in 8, 6 and 4 bits: what distributions sum to"""
    train("float32", "model=ngram", "model.order=5")
    for bits in (8, 6, 4):
        lmtool("convert", "run=float32", f"quantize={bits}", f"hydra.run.dir={bits}")
        found = calls.evaluate(str(bits))
        print(f"{bits} bits: perplexity {found.perplexity:.2f}; {'; '.join(found.notes)}")
