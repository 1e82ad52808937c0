"""Models of random small corpora: each distribution sums to one, and every way to ask for a probability gives the same.

Ways: running text, context by context, candidates, the whole distribution, word by word with states, after saving and
loading, and, for n-grams, after writing ARPA and reading it.
"""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzzing.campaign import Fault
from fuzzing.child import forked

LIMIT = 40.0  # seconds
WORDS = ["a", "b", "c", "d", "e", "ünï", "<unk>", "f", "g", "h"]
ENCODERS = [
    {"kind": "nplm", "hidden_dim": 5},
    {"kind": "nplm", "hidden_dim": 4, "layers": 2, "direct": True, "gated": False},
    {"kind": "nplm", "hidden_dim": 4, "layers": 0},
    {"kind": "nplm", "hidden_dim": 4, "history": 5, "forgetting": [0.5, 1.0]},
    {"kind": "nplm", "hidden_dim": 4, "history": 4, "across_sentences": True},
    {"kind": "nplm", "hidden_dim": 4, "tied": True, "activation": "relu", "layer_norm": False},
    {"kind": "lbl"},
    {"kind": "lbl", "diagonal": True},
    {"kind": "cbow"},
]
OUTPUTS = [
    {"kind": "softmax"},
    {"kind": "hierarchical"},
    {"kind": "hierarchical", "nodes": "morin_bengio", "hidden_dim": 3, "node_dim": 3},
    {"kind": "nce", "noise": 1},
    {"kind": "sampled", "samples": 1},
    {"kind": "adaptive", "cutoffs": [1]},
    {"kind": "classes"},
    {"kind": "classes", "classes": 2},
]
TREES = [
    "balanced",
    "brown",
    "classes",
    "clusters",
    "frequency",
    "huffman",
    "random",
    "union",
    {"kind": "brown", "clusters": 2},
]
SMOOTHERS = [
    {"kind": "modified_kneser_ney"},
    {"kind": "modified_kneser_ney", "interpolate": False},
    {"kind": "modified_kneser_ney", "like_kenlm": True},
    {"kind": "modified_kneser_ney", "discounts": "tuned"},
    {"kind": "kneser_ney"},
    {"kind": "kneser_ney", "interpolate": False},
    {"kind": "absolute"},
    {"kind": "absolute", "interpolate": False},
    {"kind": "witten_bell"},
    {"kind": "witten_bell", "interpolate": False},
    {"kind": "good_turing"},
    {"kind": "good_turing", "largest": 1, "largest_unigram": 0},
    {"kind": "jelinek_mercer"},
    {"kind": "jelinek_mercer", "classes": 2},
    {"kind": "laplace", "alpha": 0.5},
    {"kind": "laplace", "alpha": "tuned"},
    {"kind": "mle"},
    {"kind": "stupid_backoff"},
]

sentence = st.lists(st.sampled_from(WORDS), min_size=1, max_size=7)
ORDERS = st.integers(1, 5)


@st.composite
def corpora(draw: st.DrawFn) -> dict[str, Any]:
    """Sentences of few words, and how they are cut."""
    train = draw(st.lists(sentence, min_size=1, max_size=12)) * draw(st.sampled_from([1, 1, 2, 5]))
    return {
        "train": train,
        "valid": draw(st.lists(sentence, min_size=1, max_size=4)),
        "sentences": draw(st.sampled_from([True, True, True, False])),
        "min_count": draw(st.sampled_from([1, 1, 2])),
        "unit": draw(st.sampled_from(["word"] * 4 + ["char"])),
    }


@st.composite
def ngrams(draw: st.DrawFn) -> dict[str, Any]:
    """A count-based model."""
    kind = draw(st.sampled_from(["ngram"] * 6 + ["class_ngram", "skip_ngram"]))
    settings: dict[str, Any] = {
        "model": {"kind": kind, "order": draw(ORDERS)},
        "smoother": draw(st.sampled_from(SMOOTHERS)),
    }
    if kind == "class_ngram":
        settings["model"]["classes"] = draw(st.integers(1, 4))
    match draw(st.integers(0, 6)):
        case 0:
            settings["prune"] = draw(st.sampled_from([[0, 1], [0, 0, 1], [0, 1, 2], [0, 0, 9]]))
        case 1:
            settings["prune_entropy"] = draw(st.sampled_from([1e-9, 1e-3, 0.1, 0.9]))
        case 2:
            settings["quantize"] = draw(st.sampled_from([4, 5, 8]))
    return settings


@st.composite
def networks(draw: st.DrawFn) -> dict[str, Any]:
    """A neural model, tiny."""
    output = draw(st.sampled_from(OUTPUTS))
    model = {"embedding_dim": 4, "context_size": draw(st.integers(1, 4))} | draw(st.sampled_from(ENCODERS))
    settings: dict[str, Any] = {"model": model, "output": output}
    if output["kind"] == "hierarchical":
        settings["tree"] = draw(st.sampled_from(TREES))
    return settings


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """A corpus, the settings of a model, and contexts and words to ask it for."""
    return {
        "corpus": draw(corpora()),
        "settings": draw(st.one_of(ngrams(), ngrams(), networks())),
        "asked": draw(st.lists(sentence, min_size=1, max_size=3)),
        "seed": draw(st.integers(0, 99)),
    }


CASES = cases()


def count(case: dict[str, Any]) -> int:
    """Each is one model."""
    return 1


def prepare() -> None:
    """Import and compile what the cases use."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    folder = Path("prepared")
    if folder.exists():
        return
    folder.mkdir()
    words = [["a", "b", "c"], ["b", "c", "a", "d"], ["c", "a"]] * 4
    corpus = {"train": words, "valid": words[:2], "sentences": True, "min_count": 1, "unit": "word"}
    asked = {"corpus": corpus, "asked": words[:2], "seed": 1}
    every: list[dict[str, Any]] = [{"model": {"kind": "ngram", "order": 3}, "smoother": SMOOTHERS[0]}]
    every += [{"model": {"kind": "class_ngram", "order": 2}, "smoother": {"kind": "jelinek_mercer"}}]
    size = {"embedding_dim": 4, "context_size": 2}
    every += [{"model": size | ENCODERS[0], "output": OUTPUTS[1], "tree": "huffman"}]
    for number, settings in enumerate(every):
        place = folder / str(number)
        place.mkdir()
        os.chdir(place)
        examined(asked | {"settings": settings})
        os.chdir("../..")
    import gc

    gc.collect()
    gc.freeze()


def check(case: dict[str, Any], place: Path) -> None:
    """Train and ask in a child. Raises Fault."""
    environment = {"HOME": str(place), "TMPDIR": str(place)}
    outcome = forked(lambda: examined(case), place, limit=LIMIT, environment=environment)
    said = outcome.err[-3000:]
    if outcome.code is None:
        raise Fault("it does not end", said)
    if outcome.code:
        last = said.strip().splitlines()[-1:] or [f"exit code {outcome.code}"]
        raise Fault(last[0][:100], said)


def examined(case: dict[str, Any]) -> int:
    """Train a model and compare its answers; 0. Raises AssertionError where two differ."""
    import logging

    import numpy as np

    import lmtool
    from lmtool.commands import train_neural

    train_neural.can_plot = lambda: False
    logging.disable(logging.CRITICAL)
    given = case["corpus"]
    settings = {key: value for key, value in case["settings"].items()}
    try:
        corpus = lmtool.Corpus.from_texts(
            given["train"] if given["unit"] == "word" else [" ".join(words) for words in given["train"]],
            given["valid"] if given["unit"] == "word" else [" ".join(words) for words in given["valid"]],
            sentences=given["sentences"],
            min_count=given["min_count"],
            unit=given["unit"],
        )
        trained(corpus, case["seed"], settings)
    except lmtool.UserError:
        return 0  # a setting that does not fit such a corpus; it says so
    model = lmtool.load("run")
    asked = [words if given["unit"] == "word" else " ".join(words) for words in case["asked"]]
    examine(model, asked, np.random.default_rng(case["seed"]), quantised="quantize" in settings)
    again = lmtool.load("run")
    same("loaded", again.score(asked), model.score(asked), 0)
    arpa(model, asked, settings)
    return 0


def examine(model: Any, asked: list[Any], random: Any, *, quantised: bool) -> None:
    """Compare all the ways to ask one model. Raises AssertionError."""
    import numpy as np

    tolerance = 1e-9 if model.model.__class__.__name__ != "NeuralModel" else 2e-5
    size, count = model.context_size, len(model.vocabulary)
    contexts = random.integers(0, count, size=(12, size))
    contexts[:4, : max(size - 1, 0)] = count - 1  # as at the beginning of a sentence
    dist = model.log_dist(contexts)
    assert dist.shape == (12, count), "shape of log_dist"
    assert not np.isnan(dist).any(), "nan in log_dist"
    if model.normalised and not quantised:  # docs/guides/small_models.md says by how much these miss it
        sums = np.exp(dist).sum(axis=1)
        off = 1e-6 if tolerance < 1e-6 else 1e-4
        assert np.allclose(sums, 1, atol=off), f"sums to one: {sums.min()} {sums.max()}"
    targets = random.integers(0, count - 1, size=12)
    same("log_prob and log_dist", model.log_prob(contexts, targets), dist[np.arange(12), targets], tolerance)
    candidates = random.integers(0, count - 1, size=(12, 3))
    found = model.log_prob_candidates(contexts, candidates)
    same("candidates and log_dist", found, np.take_along_axis(dist, candidates, 1), tolerance)
    text = model.split_of(asked)
    scores = model.score(asked)
    by_context = []
    states = []
    for sentence, known in zip(asked, scores, strict=True):
        ids = [int(i) for i in model.ids(sentence, "unk")]
        ids += [] if model.vocabulary.eos is None else [model.vocabulary.eos]
        assert len(ids) == len(known), "tokens of a sentence"
        windows = np.array([model.context(np.array(ids[:k], dtype=np.int64)) for k in range(len(ids))])
        by_context.append(model.log_prob(windows, np.array(ids)))
        state = model.begin()
        steps = []
        for word in ids:
            log_p, after = model.advance(__import__("lmtool").States.of([state]), np.array([word]))
            steps.append(log_p[0])
            state = after[0]
        states.append(np.array(steps))
    assert text.tokens == sum(map(len, scores)), "tokens of a text"
    if not model.across_sentences and model.vocabulary.eos is not None:
        same("text and contexts", np.concatenate(scores), np.concatenate(by_context), tolerance)
    same("states and contexts", np.concatenate(states), np.concatenate(by_context), tolerance)


@cache
def written(name: str) -> dict[str, Any]:
    """The values of a YAML file of conf, those that it starts from left out."""
    import yaml

    from lmtool.config.options import conf_dir

    values = yaml.safe_load((conf_dir() / f"{name}.yaml").read_text(encoding="utf-8"))
    return {key: value for key, value in values.items() if key not in ("defaults", "hydra")}


def trained(corpus: Any, seed: int, settings: dict[str, Any]) -> None:
    """Train a model into the folder `run`; without Hydra, which would take most of the time. Raises UserError."""
    from omegaconf import OmegaConf

    from lmtool.commands import train
    from lmtool.config.settings import plain_values, typed
    from lmtool.config.verbs import TrainConfig
    from lmtool.session import Session

    neural = "output" in settings
    groups = {"optim": "adamw", "schedule": "cosine"} if neural else {"counts": "sorted"}
    values = written("common") | written("train") | {"data": plain_values(corpus.settings), "seed": seed, "threads": 1}
    values["store_dir"] = str(corpus.path.parent)
    for group, chosen in (groups | settings).items():
        if group in ("prune", "prune_entropy", "quantize"):
            values[group] = chosen
            continue
        given = chosen if isinstance(chosen, dict) else {"kind": chosen}
        values[group] = written(f"{group}/{given['kind']}") | given
    if neural:
        budget = {"epochs": 1, "minutes": None, "batch_size": 8, "accuracy_on": 0}
        values["training"] = written("training/standard") | budget
    train.run(typed(OmegaConf.create(values), TrainConfig), Session(out=Path("run"), quiet=True))


def arpa(model: Any, asked: list[Any], settings: dict[str, Any]) -> None:
    """The same scores after ARPA there and back. Raises AssertionError."""
    import numpy as np

    import lmtool
    from lmtool.ngram.files.arpa_write import write_arpa

    if settings["model"]["kind"] != "ngram" or not model.normalised or model.vocabulary.eos is None:
        return
    if isinstance(asked[0], str):
        return  # letters, which the file has as words
    try:
        write_arpa(model.model.table, model.vocabulary, Path("model.arpa"))
        back = lmtool.load("model.arpa")
    except lmtool.UserError:
        return
    if set(back.words) == set(model.words):
        # The format has no probability below 10^-99 but 0.
        least = -99 * math.log(10)
        ours, theirs = ([np.maximum(each, least) for each in one.score(asked)] for one in (model, back))
        same("ARPA", theirs, ours, 2e-5)


def same(what: str, one: Any, other: Any, tolerance: float) -> None:
    """Raise AssertionError unless two answers are the same, -inf too. tolerance: relative and absolute; 0: bits."""
    import numpy as np

    one = np.concatenate(one) if isinstance(one, list) else one
    other = np.concatenate(other) if isinstance(other, list) else other
    assert one.shape == other.shape, f"{what}: shapes"
    close = np.array_equal(one, other) if tolerance == 0 else np.allclose(one, other, rtol=tolerance, atol=tolerance)
    if not close:
        import sys

        print(one, other, file=sys.stderr)
    assert close, f"{what}: they differ"
