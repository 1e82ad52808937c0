"""Shares of the machine's limit for ./scripts/measure: what algorithms need, how long that takes at best, and takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import measuring
import numpy as np
import torch
from measure_speed import FULL
from measure_texts import calls_of_ngrams
from measuring import head, parts, ptb_lines, row, store_of, turns, use_threads
from network_steps import engine, network
from numba import njit

import lmtool
from lmtool.data.corpus import Corpus
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.counting.sorting import MAX_DIGIT_BITS, sort_keys
from lmtool.runs.load import load
from lmtool.system import parallel
from lmtool.system.process import StopRequest

SECONDS = 0.2  # of one measurement in one turn
EXP, TANH = 24, 34  # operations of loops.exp_below; of tanh there, with its slope and the product with that
LINE, ENTRY = 64, 32  # bytes; of an n-gram in a hash table with slots of 16 bytes, half of them full
WORDS, SHAPES = 10_000, [(1024, 512), (1024, 100), (32, 512), (32, 100)]  # O; B and H of the products
SIZES = 1 << 22, 1 << 27, 1 << 30  # bytes: weights of 30/100, n-grams of the Penn Treebank, beyond any cache
BATCHES = [(name, 4096) for name in ("hierarchical", "nce", "sampled")] + [("hierarchical", 1024), ("nce", 1024)]


class Needs(NamedTuple):
    """What an algorithm needs at least, for one example: operations, a multiplication with its addition being two;
    bytes read or written in order; 64-byte lines read or written in random order. size: bytes of all arrays, which say
    in which cache they lie.
    """

    fp32: float = 0.0
    bf16: float = 0.0
    in_order: float = 0.0
    lines: float = 0.0
    size: float = 0.0


Row = tuple[str, int, Callable[[], object], list[Needs]]  # what is measured: a call, its examples, their needs


def _matrix(inputs: int, outputs: int, batch: int, each: int, *, bf16: bool = False) -> Needs:
    """W x + b: W x and the gradients of W and x, 2 operations per weight, and `each` per output. A step reads and
    writes each weight once.
    """
    products, weights = 6 * inputs * outputs, outputs * (inputs + 1)
    return Needs(each * outputs + (not bf16) * products, bf16 * products, 8 * weights / batch, 0, 4 * weights)


def _rows(ids: torch.Tensor, batch: int, width: int, count: int) -> Needs:
    """Vectors of a table, of which a step reads and changes each that it uses once: then they are in the cache."""
    return Needs(lines=2 * len(ids.unique()) / batch * 4 * width / LINE, size=4 * width * count)


def _scores(dim: int, count: float) -> Needs:
    """Dot products, the gradients of both vectors (2 operations per component each), an exponential of each."""
    return Needs((6 * dim + EXP) * count)


def _lookups(matched: Any, history: Any, order: int, ngrams: int) -> Needs:
    """Return a random line for each n-gram looked up: of orders 2 to one above the longest that ends in a word, `[N]`,
    as far as there are words before it, `[N]`. In order: an id and log p of 8 bytes.
    """
    return Needs(0, 0, 16, float(np.minimum(np.minimum(matched, history), order - 1).mean()), ENTRY * ngrams)


def _sorting(bits: int, keys: int) -> Needs:
    """Return what the passes of a radix sort read and write: a key of 8 bytes is read to count its digit, then read
    and written with its position of 4 bytes.
    """
    return Needs(in_order=math.ceil(bits / MAX_DIGIT_BITS) * (8 + 2 * 12), size=24 * keys)


def _limit(needs: Needs, threads: int) -> tuple[float, str]:
    """Return the seconds of the operations or of the memory, whichever takes longer, and which."""
    size, computing = 1 << max(20, math.ceil(math.log2(max(1, needs.size)))), 0.0
    for kind, number in (("float32", needs.fp32), ("bfloat16", needs.bf16)):
        computing += number / max(_product(kind, *shape, threads) for shape in SHAPES) if number else 0
    memory = needs.in_order / _bandwidth(size, threads) + (needs.lines and needs.lines / _lines(size, threads))
    return max((computing, "operations"), (memory, "memory"))


def roofline() -> None:
    """what the machine can do, and the share of it that training, counting, scoring and decoding reach (three minutes)

    PARTS=networks,ptb,big20 chooses.
    """
    counts = sorted({1, parallel.cores()})
    print(f"torch {torch.__version__}; best of {turns(3)} turns, with one thread of processor time\n")
    head("limit, in 10^9 per second", *(f"threads: {count}" for count in counts), numbers=len(counts))
    for kind in ("float32", "bfloat16"):
        for batch, hidden in SHAPES:
            rates = (_product(kind, batch, hidden, count) for count in counts)
            row(f"operations, {kind}, {batch:,} x {hidden} x {WORDS:,}", *(f"{rate / 1e9:,.0f}" for rate in rates))
    for size in SIZES:
        for name, limit in (("bytes in order", _bandwidth), ("random lines", _lines)):
            row(f"{name}, {size >> 20:,} MiB", *(f"{limit(size, count) / 1e9:,.3g}" for count in counts))
    found: dict[int, list[Any]] = {count: [] for count in counts}
    chosen = {"networks": _networks, "ptb": _ptb, "big20": lambda: _ngrams("big20", 5, measuring.big20())}
    works = (each for part in parts("PARTS", ",".join(chosen)) for each in chosen[part]())
    for name, examples, call, all_needs in works:
        needs = Needs(*map(sum, zip(*all_needs, strict=True)))
        for count in counts:
            (least, by), seconds = _limit(needs, count), _best(call, count) / examples
            numbers = needs.fp32 + needs.bf16, needs.in_order, needs.lines, 1e6 * least, 1e6 * seconds
            cells = (f"{number:,.0f}" if number >= 100 else f"{number:.3g}" for number in numbers)
            found[count].append((least / seconds, name, *cells, by))
    columns = "operations", "bytes in order", "random lines", "at the limit, us", "ours, us", "limited by", "share"
    for count, rows in found.items():
        print(f"\nPer example or token, threads: {count}, the lowest share first\n")
        head("work", *columns, numbers=len(columns))
        for share, *cells in sorted(rows):
            row(*cells, f"{share:.2f}")


def _best(call: Callable[[], object], threads: int) -> float:
    """Return the least seconds of a call, as other processes only add to it: with one thread, of processor time."""
    use_threads(threads)
    clock, found = time.process_time if threads == 1 else time.perf_counter, []
    for _ in range(turns(3) + 1):
        start, number = clock(), 0
        while not number or clock() - start < SECONDS:
            call()
            number += 1
        found.append((clock() - start) / number)
    return min(found[1:])


@cache
def _product(kind: str, batch: int, hidden: int, threads: int) -> float:
    """Return operations per second of the three products of a full softmax."""
    shapes = (batch, hidden), (WORDS, hidden), (batch, WORDS)
    h, u, d = (torch.randn(*shape).to(getattr(torch, kind)) for shape in shapes)
    return 6 * batch * hidden * WORDS / _best(lambda: (h @ u.T, d @ u, d.T @ h), threads)


@cache
def _bandwidth(size: int, threads: int) -> float:
    """Return bytes per second of reading an array, or of copying one half of it to the other."""
    array = torch.ones(size // 4)
    one, other = array.view(2, -1)
    return size / min(_best(array.sum, threads), _best(lambda: one.copy_(other), threads))


@cache
def _lines(size: int, threads: int) -> float:
    count = max(1 << 18, size // LINE)  # so many that all of the table is read
    places = np.random.default_rng(0).integers(size // LINE, size=count, dtype=np.uint32) * np.uint32(LINE // 4)
    arguments = np.ones(size // 4, np.float32), places
    return count / _best(lambda: parallel.run_pieces(_read, arguments, count, threads), threads)


@njit(cache=True, nogil=True, fastmath=True)
def _read(table: Any, places: Any, first: int, last: int) -> Any:
    total = np.float32(0)
    for i in range(first, last):
        total += table[places[i]]
    return total


def _networks() -> Iterator[Row]:
    """Yield training steps by precision=auto: those of `speed` and `layers`."""
    works = [(name, text, network("softmax", *sizes[:2], sizes[3], sizes[2])) for name, (text, *sizes) in FULL.items()]
    works += [(f"{each}, 30/100, batch {batch:,}", "ptb", network(each, 30, 100, batch)) for each, batch in BATCHES]
    for text in ("ptb", "names"):
        measuring.lmtool("preprocess", f"data={text}")
    stop = StopRequest()
    for name, text, words in works:
        training = engine(store_of(text), [*words, "training.precision=auto"])
        training.advance(stop)
        call, bf16 = lambda training=training: training.advance(stop), training.computed_by()["precision"] == "bf16"
        yield name, training.batches.size, call, _of_network(training.model, *next(training.examples), bf16)


def _of_network(model: Any, contexts: Any, y: Any, bf16: bool) -> list[Needs]:
    """Return what an example needs in each layer of a network. contexts, y: of one step. bf16: whether its larger
    products are in bfloat16.
    """
    encoder, layer, batch, outputs = model.encoder, model.output, y.numel(), model.output.word_count
    (words, embed), dim, context = encoder.embedding.weight.shape, layer.input_dim, encoder.context_size
    kind = type(layer).__name__
    bf16_below = model.encodes_in_bf16(batch)
    needs = [_rows(contexts, batch, embed, words), _matrix(context * embed, dim, batch, TANH, bf16=bf16_below)]
    if kind == "FullSoftmax":
        needs.append(_matrix(dim, outputs, batch, EXP, bf16=bf16))
    elif kind in ("NCELoss", "SampledSoftmax"):
        drawn = layer.noise if kind == "NCELoss" else layer.samples
        needs += [_rows(y, batch, dim + 1, outputs), _scores(dim, 1 + drawn)]
    else:
        nodes = layer.paths_to(torch.from_numpy(layer.tree.word_leaves)[y])[0].rows
        needs += [_rows(nodes, batch, dim + 1, layer.tree.nodes), _scores(dim, len(nodes) / batch)]
    return needs


def _ngrams(name: str, order: int, data: list[str]) -> Iterator[Row]:
    """Yield sorting and counting the n-grams of a text, scoring its valid split, and distributions."""
    run, of = f"{name}{order}", f"{name}, order {order}"
    measuring.train(run, "model=ngram", f"model.order={order}", *data)
    model = load(run).model
    with Corpus.open(store_of(name)) as corpus:
        text, valid, vocabulary = corpus.text("train"), corpus.split("valid"), corpus.vocabulary
        bits = sum((size - 1).bit_length() for size in (model.table.sizes[-2], len(vocabulary)))
        keys = np.random.default_rng(0).integers(1 << bits, size=len(text.ids), dtype=np.uint64)
        places, once = np.arange(len(keys), dtype=np.uint32), [_sorting(bits, len(keys))]
        yield f"sorting once, {of}", len(keys), lambda: sort_keys(keys.copy(), places.copy(), bits), once
        yield f"counting, {of}", len(keys), lambda: count_ngrams(text, vocabulary, order), once
        contexts, words = valid.windows(np.arange(valid.tokens), order - 1)
        written = Needs(in_order=8 * len(vocabulary), size=8 * len(vocabulary) * 256)
        yield f"a distribution, {of}", 256, lambda: model.log_dist(contexts[:256]), [written]
        history = (contexts != vocabulary.bos).sum(axis=1) + 1  # <s> is the first
        needs = _lookups(model.matched_lengths(contexts, words), history, order, sum(model.table.sizes))
        yield f"scoring, {of}", valid.tokens, lambda: model.score_text(valid), [needs]


def _ptb() -> Iterator[Row]:
    """Yield what is done with n-grams of the Penn Treebank: the above, filtering and decoding."""
    yield from _ngrams("ptb", 3, ["data=ptb"])
    for found in _ngrams("ptb", 5, ["data=ptb"]):
        yield found
    needs, lines = found[-1], ptb_lines("train") * 3
    measuring.write_lines("lines.txt", lines)
    tokens = sum(len(line.split()) + 1 for line in lines)
    read = Needs(in_order=Path("lines.txt").stat().st_size / tokens)
    settings = {"run": "ptb5", "text": "lines.txt", "to": "to.tsv"}

    def score() -> object:
        return lmtool.score(**settings, threads=parallel.threads(), progress=False)

    yield "lmtool score, lines", tokens, score, [*needs, read]
    for name, (call, words) in calls_of_ngrams("ptb5")[-1].items():
        yield name, words, call, needs
