"""Settings that a verb shares with its helper modules."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from lmtool.config.data import BlankLines, DataConfig, Normalize
from lmtool.config.groups import CountsConfig, OptimConfig, OutputConfig, ScheduleConfig, SmootherConfig, TreeConfig
from lmtool.config.rules import MISSING, number_or_share, require, setting
from lmtool.config.training import TrainingConfig
from lmtool.config.verbs import (
    METRICS,
    PRUNE_METHODS,
    QUANTIZED_BITS,
    UNION,
    WEIGHTS,
    ModelUserConfig,
    VerbConfig,
    read_weights,
    require_device,
)
from lmtool.errors import UserError


@dataclass(slots=True)
class EvaluationConfig(ModelUserConfig):
    arpa: str | None = setting(needs=("text=<FILE>",), why="it comes without data")
    split: str = MISSING
    metric: str = setting(words=METRICS)
    text: str | None = MISSING
    flush: str | None = setting(words=("line",), needs=("text=-",))
    column: str | None = setting(needs=("text=<FILE>",), excludes=("text=-",))
    across_sentences: bool = setting(needs=("text=<FILE>",), why="a split is read as the model was trained")
    blank_lines: BlankLines | None = setting(needs=("text=<FILE>",))
    accuracy: bool = MISSING
    detail: bool = MISSING
    unnormalized: bool = MISSING
    dynamic: bool = setting(excludes=("accuracy=true", "unnormalized=true"))
    dynamic_rule: str = setting(words=("rms", "sgd"))
    dynamic_segment: int = setting(min=1)
    dynamic_lr: float = setting(min=0)
    dynamic_decay: float = setting(min=0, below=1)


@dataclass(slots=True)
class ScoreConfig(ModelUserConfig):
    """Settings of the texts that are scored one by one, and of the table and the file made of them."""

    tokenizer: str | None = setting(needs=("arpa=<FILE>",), why="a run has its own")
    normalize: Normalize | None = MISSING
    run_out: str | None = MISSING
    target: str | None = setting(
        excludes=(
            *("run=<FOLDER>", "arpa=<FILE>", "run_out=<FOLDER>", "across_sentences=true", "blank_lines=<X>", "text=-"),
            *("bucket_split=<SPLIT>", "bucket_percentiles=<FILE>", "max_oov=<X>"),
        ),
        why="hashed n-grams need no model, and text is read twice",
    )
    text: str = MISSING
    flush: str | None = setting(words=("line",), needs=("text=-",))
    column: str | None = MISSING
    columns: list[str] | None = setting(needs=("column=<NAME>",))
    on_error: str | None = setting(words=("stop", "skip"))
    across_sentences: bool = MISSING
    blank_lines: BlankLines | None = MISSING
    to: str | None = MISSING
    bom: bool = setting(needs=("to=<FILE>",))
    prefix: str = MISSING
    buckets: list[str] | None = setting(needs=("to=<FILE>",))  # a column of it
    bucket_quantiles: list[float] | None = setting(needs=("buckets=<A,B>",), excludes=("bucket_limits=<X>",))
    bucket_limits: list[float] | None = setting(needs=("buckets=<A,B>",))
    bucket_split: str | None = setting(
        needs=("buckets=<A,B>",), excludes=("bucket_limits=<X>", "run_out=<FOLDER>", "arpa=<FILE>")
    )
    bucket_percentiles: str | None = setting(
        needs=("buckets=<A,B>",), excludes=("bucket_limits=<X>", "bucket_split=<SPLIT>", "run_out=<FOLDER>")
    )
    bucket_language: str | None = setting(needs=("bucket_percentiles=<FILE>",))
    filter: str | None = MISSING
    filter_scores: bool = setting(needs=("filter=<FILE>",))
    max_perplexity: float | None = setting(needs=("filter=<FILE>",))
    min_perplexity: float | None = setting(needs=("filter=<FILE>",))
    share: float | None = setting(above=0, below=1, needs=("filter=<FILE>",), excludes=("max_perplexity=<X>",))
    selection: str = setting(words=("top", "sample"))
    seed: int = setting(min=0)
    max_oov: float | None = setting(min=0, below=1, needs=("filter=<FILE>", "buckets=<A,B>"))

    def __post_init__(self) -> None:
        ModelUserConfig.__post_init__(self)
        if self.to is None and self.filter is None:
            raise UserError("nothing is to be written: give to=FILE.tsv for the scores, or filter=FILE")
        if self.to is None and self.columns is not None:
            raise UserError(f"columns={self.columns}: needs to=FILE, which gets them before the scores")
        if self.text == "-" and self.filter is not None and (self.to, self.share) != (None, None):
            raise UserError(f"filter={self.filter}: text=- is read once: leave out to= and share=")
        limits = {"max_perplexity": self.max_perplexity, "min_perplexity": self.min_perplexity}
        if self.filter is not None and all(x is None for x in (*limits.values(), self.share, self.max_oov)):
            raise UserError(
                f"filter={self.filter}: say what passes, by max_perplexity=, min_perplexity=, share= or max_oov="
            )
        lowest, rule = 1.0, "a perplexity, 1 or more, or null"
        if weighs := self.run_out is not None or self.target is not None:
            lowest, rule = -sys.float_info.max, "a difference in nats, or null"
        if self.selection == "sample" and (self.share is None or not weighs):
            raise UserError("selection=sample: needs share=X, and weights by target=FILE or run_out=FOLDER")
        for name, value in limits.items():
            require(value is None or lowest <= value < math.inf, name, value, rule)
        if self.max_perplexity is not None and self.min_perplexity is not None:
            require(
                self.min_perplexity <= self.max_perplexity,
                "min_perplexity",
                self.min_perplexity,
                f"at most max_perplexity={self.max_perplexity}",
            )
        if self.buckets is not None:
            self._require_buckets(self.buckets, lowest)
        if self.bucket_percentiles is not None and self.bucket_language is None:
            raise UserError(f"bucket_percentiles={self.bucket_percentiles}: name its column, e.g. bucket_language=en")

    def _require_buckets(self, names: list[str], lowest: float) -> None:
        rule = "two names or more that differ, the lowest first, as head,middle,tail"
        differ = len(set(names)) == len(names) > 1 and all(name.split() == [name] for name in names)
        require(differ, "buckets", names, rule)
        cuts = len(names) - 1
        rule = f"{cuts} shares between 0 and 1, ascending, one less than buckets"
        shares = self.bucket_quantiles
        require(_ascend(shares, cuts, above=0, below=1), "bucket_quantiles", shares, rule)
        what = "perplexities of 1 or more" if lowest == 1 else "differences"
        rule = f"{cuts} {what}, ascending, one less than buckets"
        above = math.nextafter(lowest, -math.inf)
        require(_ascend(self.bucket_limits, cuts, above, math.inf), "bucket_limits", self.bucket_limits, rule)

    def ranks_texts(self) -> bool:
        """Return whether the limits of the buckets are quantiles of the texts, which need all scores."""
        given = (self.bucket_limits, self.bucket_split, self.bucket_percentiles)
        return self.buckets is not None and all(each is None for each in given)


def _ascend(values: list[float] | None, count: int, above: float, below: float) -> bool:
    """Return whether values are not given, or `count` ascending ones between two others."""
    return values is None or (len(values) == count and all(a < b for a, b in pairwise([above, *values, below])))


@dataclass
class CountTrainingConfig(VerbConfig):
    """Settings of the estimation of a count-based model; without slots, as NetworkTrainingConfig is inherited too."""

    data: DataConfig = MISSING
    metric: str = setting(words=METRICS)
    smoother: SmootherConfig | None = None
    counts: CountsConfig | None = None
    prune_counts: list[int] | None = MISSING
    prune_entropy: float | None = setting(above=0, below=1, excludes=("prune_to=<COUNT>",))
    prune_to: Any = setting(check=number_or_share)
    prune_method: str = setting(words=PRUNE_METHODS)
    limit_vocabulary: str | None = MISSING
    quantize: int | None = setting(min=QUANTIZED_BITS[0], max=QUANTIZED_BITS[1])


@dataclass
class NetworkTrainingConfig(VerbConfig):
    """Settings of the training of a network."""

    data: DataConfig = MISSING
    metric: str = setting(words=METRICS)
    output: OutputConfig | None = None
    tree: TreeConfig | None = None
    optim: OptimConfig | None = None
    schedule: ScheduleConfig | None = None
    training: TrainingConfig | None = None
    seed: int = setting(min=0)
    device: str = setting(check=require_device)
    resume: str | None = MISSING
    lr_range: bool = MISSING
    lr_range_limits: list[float] = setting(above=0)
    lr_range_steps: int = setting(min=10, max=1_000_000)


def require_bits(bits: int, key: str) -> None:
    """Raise UserError unless an n-gram model or a network can be written in this number of bits per value."""
    require(bits in (16, *range(QUANTIZED_BITS[0], QUANTIZED_BITS[1] + 1)), key, bits, "from 4 to 8, 16, or null")


@dataclass(slots=True)
class ConversionConfig(VerbConfig):
    """Settings of a model that is made from finished ones (mixed, pruned, quantized), and of its output file."""

    makes: ClassVar[str] = "run"

    run: str | None = setting(excludes=("arpa=<FILE>", "runs=<A,B>"))
    arpa: str | None = setting(excludes=("runs=<A,B>",))
    runs: list[str] | None = MISSING
    weights: Any = setting(needs=("runs=<A,B>",), said=WEIGHTS)
    vocabulary: str | None = setting(words=(UNION,), needs=("runs=<A,B>",))
    to: str | None = MISSING
    symbol_table: str | None = setting(needs=("to=<FILE>",))
    limit_vocabulary: str | None = setting(needs=("to=<FILE>",), why="a run has the words of its data")
    renormalize: bool = False
    prune_entropy: float | None = setting(above=0, below=1, excludes=("prune_to=<COUNT>",))
    prune_to: Any = setting(check=number_or_share)
    prune_method: str = MISSING
    quantize: int | None = setting(check=require_bits)
    data: DataConfig = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        if self.runs is not None:
            require(len(self.runs) > 0, "runs", self.runs, "one mixture, or two runs or more, as A,B")
            if self.weights is not None:
                self.weights = read_weights(self.weights, len(self.runs), f"{len(self.runs)} runs")
        rule = "entropy; gain needs the counts, which only lmtool train has"
        require(self.prune_method == PRUNE_METHODS[1], "prune_method", self.prune_method, rule)

    def changes(self) -> dict[str, Any]:
        """Return the settings that change a model, as far as they are set."""
        settings: dict[str, Any] = {"limit_vocabulary": self.limit_vocabulary, "renormalize": self.renormalize or None}
        settings |= {"prune_entropy": self.prune_entropy, "prune_to": self.prune_to, "quantize": self.quantize}
        settings["prune_method"] = None if self.prune_to is None else self.prune_method
        return {name: value for name, value in settings.items() if value is not None}
