"""Models of random small corpora: distributions sum to one, and every way to ask for a probability gives the same.

Ways: running text, context by context, candidates, whole distributions, word by word with states, and after saving and
loading.
"""

from __future__ import annotations

import gc
import logging
import os
import warnings
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import lmtool
from fuzzing.campaign import Generator, try_all
from fuzzing.child import draw_no_curves
from fuzzing.values import right
from lmtool import States
from lmtool.config.groups import CountModelConfig
from lmtool.config.options import kinds, settings_class
from lmtool.config.types import option_types
from lmtool.system import parallel

LIMIT = 40  # seconds
BUDGET = {"epochs": 1, "minutes": None, "batch_size": 8, "accuracy_tokens": 0}
WORDS = ["a", "b", "c", "d", "e", "ünï", "<unk>", "f", "g", "h"]
COUNT_MODELS = [name for name in kinds("model") if issubclass(settings_class("model", name), CountModelConfig)]
# Options that read files or several sources, and settings that do.
LEFT_OUT = {"file", "wordnet", "count_merging", "kind", "run", "path", "folder", "representation", "tune_on"}
LEFT_OUT |= {"init_std"}  # weights of 2 give logits near 850, whose sums float32 has to fewer digits than are compared
# Values of settings whose types do not say them.
VALUES = {"cutoffs": [[1]], "forgetting_factors": [[0.5], [0.5, 1.0]], "trees": [["huffman", "random"]]}
SENTENCE = st.lists(st.sampled_from(WORDS), min_size=1, max_size=7)


@st.composite
def option(draw: st.DrawFn, group: str, names: Sequence[str] = ()) -> dict[str, Any]:
    kind = draw(st.sampled_from(names or [name for name in kinds(group) if name not in LEFT_OUT]))
    types = option_types(group, kind)
    keys = draw(st.lists(st.sampled_from(sorted(types)), max_size=3, unique=True))
    values = {key: [*VALUES.get(key, []), *right(types[key])] for key in keys if key not in LEFT_OUT}
    return {"kind": kind} | {key: draw(st.sampled_from(some)) for key, some in values.items() if some}


@st.composite
def ngrams(draw: st.DrawFn) -> dict[str, Any]:
    model = {"order": draw(st.integers(1, 5))} | draw(option("model", COUNT_MODELS + ["ngram"] * 5))
    settings = {"model": model, "smoother": draw(option("smoother"))}
    cutoffs = draw(st.sampled_from([[0, 1, 1, 1, 1], [0, 0, 1, 2, 2], [0, 0, 9, 9, 9]]))[: model["order"]]
    smaller = [{"prune_counts": cutoffs}, *({"prune_entropy": limit} for limit in (1e-9, 1e-3, 0.1, 0.9))]
    return settings | draw(st.sampled_from([{}, *smaller]))


@st.composite
def networks(draw: st.DrawFn) -> dict[str, Any]:
    names = sorted(set(kinds("model")) - set(COUNT_MODELS))
    model, output = draw(option("model", names)), draw(option("output"))
    small = {"embedding_dim": 4, "context_size": draw(st.integers(1, 4))}
    small |= {"hidden_dim": 4} if "hidden_dim" in option_types("model", model["kind"]) else {}
    tree = {"tree": draw(option("tree"))} if output["kind"] == "hierarchical" else {}
    noise = {"nce": {"num_noise": 1}, "sampled": {"num_samples": 1}, "adaptive": {"cutoffs": [1]}}
    return {"model": small | model, "output": noise.get(output["kind"], {}) | output, **tree}


SENTENCES = st.lists(SENTENCE, min_size=1, max_size=12)
CASES = st.fixed_dictionaries(
    {
        "train": st.builds(lambda lines, times: lines * times, SENTENCES, st.sampled_from([1, 1, 2, 5])),
        "text": st.fixed_dictionaries({"sentences": st.booleans(), "min_count": st.sampled_from([1, 2])}),
        "settings": st.one_of(ngrams(), ngrams(), networks()),
        "asked": st.lists(SENTENCE, min_size=1, max_size=3),  # contexts and words; also valid
        "seed": st.integers(0, 99),
    }
)
NPLM = {"kind": "nplm", "embedding_dim": 4, "context_size": 2}
FIRST = [{"model": {"kind": "ngram", "order": 3}}, {"model": "class_ngram"}]
FIRST.append({"model": NPLM, "output": "hierarchical", "tree": "huffman"})


def prepare() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    words = [["a", "b", "c"], ["b", "c", "a", "d"], ["c", "a"]] * 4
    for number, settings in enumerate(FIRST):
        if not Path(f"prepared/{number}").exists():  # compiles what the cases use
            Path(f"prepared/{number}").mkdir(parents=True)
            with chdir(f"prepared/{number}"):
                examine_case({"train": words, "text": {}, "asked": words[:2], "seed": 1, "settings": settings})
    gc.collect()
    gc.freeze()


def check(case: dict[str, Any], place: Path) -> list[str]:
    return try_all([case], examine_case, place, seconds=LIMIT, name=lambda _: "a model")


def examine_case(case: dict[str, Any]) -> None:
    """Train a model and compare its answers. Raises AssertionError if two differ, UserError if a setting is wrong."""
    parallel.use(1)  # OpenMP's threads do not survive a fork
    draw_no_curves()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore", UserWarning)  # what training notes of such small texts
    corpus = lmtool.Corpus.from_texts(case["train"], case["asked"], **case["text"])
    budget = {"training": BUDGET} if "output" in case["settings"] else {}
    settings = case["settings"] | budget | {"seed": case["seed"], "threads": 1}
    lmtool.train(data=corpus, out="run", progress=False, **settings)
    model = lmtool.load("run")
    examine(model, case["asked"], np.random.default_rng(case["seed"]))
    require_same("loaded", lmtool.load("run").score(case["asked"]), model.score(case["asked"]), 0)


def examine(model: Any, asked: list[list[str]], random: Any) -> None:
    """Compare all the ways to ask one model. Raises AssertionError."""
    tolerance = 1e-9 if model.model.__class__.__name__ != "NeuralModel" else 2e-5
    size, count = model.context_size, len(model.vocabulary)
    contexts = random.integers(0, count, size=(12, size))
    contexts[:4, : max(size - 1, 0)] = count - 1  # as at the beginning of a sentence
    dist = model.log_dist(contexts)
    assert dist.shape == (12, count), "shape of log_dist"
    assert not np.isnan(dist).any(), "nan in log_dist"
    if model.normalized:
        sums = np.exp(dist).sum(axis=1)
        assert np.allclose(sums, 1, atol=max(1e-6, 5 * tolerance)), f"sums to one: {sums.min()} {sums.max()}"
    targets = random.integers(0, count - 1, size=12)
    require_same("log_prob and log_dist", model.log_prob(contexts, targets), dist[np.arange(12), targets], tolerance)
    candidates = random.integers(0, count - 1, size=(12, 3))
    found = model.log_prob_candidates(contexts, candidates)
    require_same("candidates and log_dist", found, np.take_along_axis(dist, candidates, 1), tolerance)
    scores = model.score(asked)
    by_context, by_state = [], []
    for sentence, known in zip(asked, scores, strict=True):
        ids = [int(i) for i in model.ids(sentence, "unk")]
        ids += [] if model.vocabulary.eos is None else [model.vocabulary.eos]
        assert len(ids) == len(known), "tokens of a sentence"
        windows = np.array([model.context(np.array(ids[:k], dtype=np.int64)) for k in range(len(ids))])
        by_context.append(model.log_prob(windows, np.array(ids)))
        state = model.begin()
        for word in ids:
            log_p, after = model.advance(States.of([state]), np.array([word]))
            state = after[0]
            by_state.append(log_p)
    assert model.split_of(asked).tokens == sum(map(len, scores)), "tokens of a text"
    if not model.across_sentences and model.vocabulary.eos is not None:
        require_same("text and contexts", scores, by_context, tolerance)
    require_same("states and contexts", by_state, by_context, tolerance)


def require_same(what: str, one: Any, other: Any, tolerance: float) -> None:
    """Raise AssertionError unless two answers are equal, -inf too. tolerance: relative and absolute; 0: bits."""
    one, other = (np.concatenate(each) if isinstance(each, list) else each for each in (one, other))
    assert one.shape == other.shape, f"{what}: shapes"
    assert np.allclose(one, other, rtol=tolerance, atol=tolerance), f"{what}: they differ: {one} {other}"


CAMPAIGNS = {"numbers": Generator(CASES, check, prepare)}
