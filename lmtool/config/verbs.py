"""Settings that several verbs have, and the choices that models and mixtures read; each verb's own are in its file of
lmtool.commands, their values in conf/VERB.yaml.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

from lmtool.config.data import LOWERCASE, WordRule, require_lowercase
from lmtool.config.rules import MISSING, Settings, are_numbers, require, require_block, setting
from lmtool.errors import UserError
from lmtool.system.process import MAX_THREADS

METRICS = ("perplexity", "cloze_perplexity")  # of which one ranks the jobs of a sweep
PRUNE_METHODS = ("gain", "entropy")
QUANTIZED_BITS = (4, 8)  # minimum and maximum bits per value of a quantized n-gram model
WEIGHTS = "null, or a number of 0 or more for each member, e.g. 2,1 or 2:1, divided by their sum"
UNION = "union"
CANDIDATES = "candidates"  # over which members are renormalized before they are mixed, with over=
SIMILARITIES, VECTORS = ("cosine", "dot"), ("embeddings", "output")  # of words
BITS_OF_DTYPE = {"float32": None, "float16": 16, "int8": 8}  # of a weight; int8 has a float32 scale per row
DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?|mps")


def require_device(device: str, key: str = "device") -> None:
    """Raise UserError unless `device` is the name of a device."""
    known = isinstance(device, str) and DEVICE.fullmatch(device) is not None
    require(known, key, device, "auto, cpu, cuda, cuda:NUMBER or mps")


def read_weights(value: Any, members: int, what: str) -> list[float]:
    """Return weights that are given as [2,1,1] or 2:1:1, unchanged.

    what: the members, in words. Raises UserError unless there is a weight of 0 or more for each, and not all are 0.
    """
    try:
        weights = [float(part) for part in value.split(":")] if isinstance(value, str) else value
    except ValueError:
        weights = None
    if not isinstance(weights, list) or len(weights) != members:
        raise UserError(f"weights={value}: must be one for each member, {what}, e.g. 2,1 or 2:1")
    if not are_numbers(weights, 0, sys.float_info.max / members) or not any(weights):
        raise UserError(f"weights={value}: must be numbers of 0 or more, and not all 0")
    return weights


@dataclass(slots=True)
class VerbConfig(Settings):
    """Settings of every verb. makes: what its output folder is, which is then kept in Python, too: "run" (which
    overwrite=True replaces), "files", or "" if the result is what the verb returns and prints.
    """

    makes: ClassVar[str] = ""

    options: str | None = MISSING
    store_dir: str = MISSING
    threads: int | None = setting(min=1, max=MAX_THREADS)


@dataclass(slots=True)
class ModelUserConfig(VerbConfig):
    """Settings of a verb that uses one model: a run or an ARPA file."""

    run: str | None = setting(excludes=("arpa=<FILE>",))
    arpa: str | None = MISSING
    device: str = setting(check=require_device)


@dataclass(slots=True)
class SeveralModelsConfig(ModelUserConfig):
    """Settings of a verb that uses one model or several, side by side, and cuts printed words for them."""

    runs: list[str] | None = setting(excludes=("run=<FOLDER>", "arpa=<FILE>"))
    words: WordRule = MISSING
    keep_punctuation: bool = MISSING
    lowercase: Any = setting(check=require_lowercase, said=LOWERCASE)
    on_error: str | None = setting(words=("stop", "skip"))
    prefix: str = MISSING

    def __post_init__(self) -> None:
        ModelUserConfig.__post_init__(self)
        if self.runs is not None and (not self.runs or len(set(self.runs)) < len(self.runs)):
            raise UserError(f"runs={self.runs}: name one or more that differ, e.g. runs=A,B")


@dataclass
class ResamplingConfig(VerbConfig):
    """Settings of a verb that resamples scores to find out whether models differ; without slots, as MembersConfig is
    inherited beside it.
    """

    resamples: int = setting(min=100, max=1_000_000)
    seed: int = setting(min=0)
    block: Any = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        require_block(self.block)


@dataclass(slots=True)
class MembersConfig(VerbConfig):
    """Settings of a verb that scores the same tokens by several members: runs, files of scores, ARPA files."""

    runs: list[str] = MISSING
    split: str = MISSING
    text: str | None = MISSING
    vocabulary: str | None = setting(words=(UNION,), needs=("text=<FILE>",))
    device: str = setting(check=require_device)


@dataclass(slots=True)
class MixtureConfig(MembersConfig):
    """Settings of how members are mixed."""

    metric: str = setting(words=METRICS)
    method: str = setting(words=("linear", "classes", "log_linear"))
    fit_split: str = MISSING
    fit_on: str = setting(words=("text", "cloze"))
    over: str | None = setting(words=(CANDIDATES,), needs=("method=linear",), excludes=("cache=<KIND>",))
    fit_contexts: int = setting(min=100)
    weights: Any = setting(excludes=("method=classes",), why="it fits weights for each class", said=WEIGHTS)
    cache: str | None = setting(words=("unigram", "neural"), needs=("method=linear",))
    cache_size: int = setting(min=1)
    cache_theta: float | None = setting(min=0, needs=("cache=neural",))


@dataclass
class Sampling(Settings):
    """Settings for drawing a word from a distribution.

    temperature: p^(1/temperature); 0 takes the most probable word. top_k: top-k sampling (Fan et al. 2018). top_p:
    nucleus sampling (Holtzman et al. 2020). Raises UserError for values out of range.
    """

    temperature: float = setting(min=0)
    top_k: int | None = setting(min=1)
    top_p: float | None = setting(above=0, max=1)
