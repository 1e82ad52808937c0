"""Build the mixture that a run folder describes, with weights given by the user or fitted on held-out text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lmtool.config.verbs import CANDIDATES, MixtureConfig
from lmtool.data.corpus import Corpus
from lmtool.data.split import MAX_POSITION, Split
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.evaluation.metrics import cloze_log_prob, log_softmax, require_questions, with_one_unk
from lmtool.language_model import LanguageModel
from lmtool.mixtures.cache import Cache, CachedMixture, Hidden, NeuralCache, UnigramCache, neural_cache
from lmtool.mixtures.linear import (
    TOLERANCE,
    ClassMixture,
    Fit,
    MixedModel,
    Mixture,
    classes_of_text,
    fit_class_weights,
    fit_weights,
    longest_context,
    member_dists,
    mix,
)
from lmtool.mixtures.log_linear import CONTEXTS_PER_CHUNK, Chunks, LogLinear, fit_log_linear, without_lone_reserves
from lmtool.system.arrays import FloatArray, IntArray, in_chunks
from lmtool.system.terminal import cell_text, token_bar

Models = list[LanguageModel]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class FittedMixture:
    """The weights of a mixture, `[M]`, or `[M + 1]` with a cache. mixture: how to mix, as in run.json. result: entries
    of result.json.
    """

    weights: FloatArray
    mixture: dict[str, Any]
    result: dict[str, Any] = field(default_factory=dict)


def build_mixture(members: Models, weights: FloatArray, mixture: dict[str, Any], vocabulary: Vocabulary) -> MixedModel:
    """Return the mixture of M members with weights `[M]`, or `[M + 1]` with a cache. mixture: as in FittedMixture.

    Raises KeyError, IndexError, TypeError or ValueError if it is damaged.
    """
    tokens = vocabulary.special_tokens
    method = mixture["method"]
    if method == "linear" and "cache" in mixture:
        return CachedMixture(members, weights, _cache(mixture["cache"], members), tokens)
    if method == "linear":
        mixed = Mixture(members, weights, tokens)
        mixed.over_candidates = mixture.get("over") == CANDIDATES
        return mixed
    if method == "classes":
        classifier = members[int(mixture["classifier"])]
        if classifier.context_classes is None:
            raise ValueError(f"member {mixture['classifier']} has no n-grams")
        return ClassMixture(members, np.array(mixture["class_weights"], dtype=np.float64), classifier, tokens)
    if method == "log_linear":
        return LogLinear(members, weights, tokens)
    raise ValueError(f"method {method} is not known")


def _cache(saved: dict[str, Any], members: Models) -> Cache:
    size = int(saved["size"])
    if saved["kind"] == "unigram":
        return UnigramCache(size)
    encoder = members[int(saved["encoder"])]
    if encoder.hidden_dim is None:
        raise ValueError(f"member {saved['encoder']} has no hidden units")
    return NeuralCache(size, float(saved["theta"]), encoder)


def fit_mixture(
    config: MixtureConfig,
    models: Models,
    corpus: Corpus,
    log_prob: FloatArray | None,
    say: Say,
    *,
    progress: bool = False,
) -> FittedMixture:
    """Return the weights of the settings, given or fitted.

    log_prob: log-probabilities of the models on fit_split, `[M, N]`, if they are already known. say: prints how the
    weights were fitted. progress: whether to show bars.
    """
    if any(model.dynamic for model in models) and (config.method != "linear" or config.cache is not None):
        raise UserError("a run with a cache can only be mixed linearly, and without another cache")
    if config.method == "log_linear":
        return _log_linear(config, models, corpus, say, progress)
    mixture: dict[str, Any] = {"method": "linear"} | ({} if config.over is None else {"over": config.over})
    if config.cache is not None:
        mixture["cache"] = {"kind": config.cache, "size": config.cache_size}
    if config.cache == "neural":
        mixture["cache"] |= {"theta": config.cache_theta, "encoder": _encoder(models)}
    fits_theta = config.cache == "neural" and config.cache_theta is None
    if config.weights is not None and not fits_theta:
        return FittedMixture(np.array(config.weights), mixture)
    if config.fit_on == "cloze":
        return _on_questions(config, models, corpus, mixture, say)
    split = _fit_text(config, corpus)
    if log_prob is None:
        log_prob = np.stack([model.score_text(split, progress=progress) for model in models])
    if config.method == "classes":
        return _classes(config, models, split, log_prob, say)
    return _linear(config, models, split, log_prob, mixture, say)


def _fit_text(config: MixtureConfig, corpus: Corpus) -> Split:
    corpus.require_split(config.fit_split, "fit_split")
    return corpus.split(config.fit_split)


def fit_record(config: MixtureConfig, fit: Fit) -> dict[str, Any]:
    """Return how weights were fitted, for result.json."""
    about = {"split": config.fit_split, "iterations": fit.iterations, "gap": fit.gap}
    return about | {"converged": bool(fit.gap <= TOLERANCE)}


def _classes(config: MixtureConfig, models: Models, split: Split, log_prob: FloatArray, say: Say) -> FittedMixture:
    place = next((k for k, model in enumerate(models) if model.context_classes is not None), None)
    if place is None:
        raise UserError("method=classes needs an n-gram run among runs: its counts say which class a context is of")
    classes, count = classes_of_text(models[place], split), models[place].context_classes or 0
    fit, tokens = fit_class_weights(log_prob, classes, count), np.bincount(classes, minlength=count)
    say(f"EM on {config.fit_split}, by class: at most {fit.iterations} steps, within {fit.gap:.1e} nats of the optimum")
    say("words of context seen  tokens  weights")
    table = fit.weights.tolist()
    for length, (seen, weights) in enumerate(zip(tokens.tolist(), table, strict=True)):
        say(f"{length:>21}  {seen:>6,}  {'  '.join(map(cell_text, weights))}")
    mean = tokens @ fit.weights / tokens.sum()
    mixture = {"method": "classes", "classifier": place, "class_weights": table}
    return FittedMixture(mean, mixture, {"fit": fit_record(config, fit), "class_weights": table})


def _log_linear(config: MixtureConfig, models: Models, corpus: Corpus, say: Say, progress: bool) -> FittedMixture:
    mixture = {"method": "log_linear"}
    if config.weights is not None:
        return FittedMixture(np.array(config.weights), mixture)
    if config.fit_on == "cloze":
        log_probs, answers = _questions(config, models, corpus)
        chunks, count, unit = lambda: iter([(log_probs, answers)]), len(answers), "questions"
    else:
        chunks, count, unit = *_text_chunks(config, models, corpus, progress), "contexts"
    fit = fit_log_linear(chunks, len(models))
    steps = f"{fit.iterations} steps, about {fit.gap:.1e} nats from the optimum"
    say(f"Newton's method on {count:,} {unit} of {config.fit_split}: {steps}")
    return FittedMixture(fit.weights, mixture, {"fit": fit_record(config, fit) | {unit: count}})


def _text_chunks(config: MixtureConfig, models: Models, corpus: Corpus, progress: bool) -> tuple[Chunks, int]:
    """Return the members' distributions for evenly spread contexts, computed again in each pass, and their number."""
    split = _fit_text(config, corpus)
    size, tokens = longest_context(models) or MAX_POSITION, corpus.vocabulary.special_tokens
    split = split.as_stream(any(model.across_sentences for model in models))
    index = np.unique(np.linspace(0, split.tokens - 1, min(config.fit_contexts, split.tokens)).astype(np.int64))

    def chunks() -> Iterator[tuple[FloatArray, IntArray]]:
        with token_bar(len(index), shown=progress) as bar:
            for part in in_chunks(len(index), CONTEXTS_PER_CHUNK):
                contexts, targets = split.windows(index[part], size)
                yield without_lone_reserves(member_dists(models, contexts, tokens)), targets
                bar.update(len(targets))

    return chunks, len(index)


def _questions(config: MixtureConfig, models: Models, corpus: Corpus) -> tuple[FloatArray, IntArray]:
    """Return the members' log p of the candidates of fit_split's questions `[M, Q, K]`, and the answers `[Q]`."""
    cloze = require_questions(corpus, config.fit_split, "fit_on=cloze")
    model_log_probs = np.stack([cloze_log_prob(model, cloze, corpus.vocabulary.bos) for model in models])
    return with_one_unk(model_log_probs, cloze, corpus.vocabulary.unk)


def _on_questions(
    config: MixtureConfig, models: Models, corpus: Corpus, mixture: dict[str, Any], say: Say
) -> FittedMixture:
    """Fit the weights of a linear mixture, of distributions over all words or over the candidates, on questions."""
    log_probs, answers = _questions(config, models, corpus)
    totals = None if config.over == CANDIDATES else np.logaddexp.reduce(log_probs, axis=2)
    if totals is None:
        log_probs = np.stack([log_softmax(each) for each in log_probs])
    fit = fit_weights(log_probs[:, np.arange(len(answers)), answers], totals)
    optimum = f"within {fit.gap:.1e} nats of {'a stationary point' if config.over is None else 'the optimum'}"
    say(f"EM on {len(answers):,} questions of {config.fit_split}: {fit.iterations} steps, {optimum}")
    return FittedMixture(fit.weights, mixture, {"fit": fit_record(config, fit) | {"questions": len(answers)}})


def _encoder(models: Models) -> int:
    """Return the index of the first model with hidden units."""
    for place, model in enumerate(models):
        if model.hidden_dim is not None:
            return place
    raise UserError("cache=neural requires a neural run in runs: context similarity is computed from its hidden states")


def _linear(
    config: MixtureConfig, models: Models, split: Split, log_prob: FloatArray, mixture: dict[str, Any], say: Say
) -> FittedMixture:
    """Fit weights by EM, with a cache over all tokens except the first, before which it is empty."""
    result: dict[str, Any] = {}

    def with_cache(cached: FloatArray) -> FloatArray:
        return np.concatenate([log_prob, cached[None]])[:, 1:]

    def likelihood(cached: FloatArray) -> float:
        both = with_cache(cached)
        weights = fit_weights(both).weights if config.weights is None else np.array(config.weights)
        return float(mix(both, weights).mean())

    if config.cache == "neural":
        hidden = models[mixture["cache"]["encoder"]].hidden_text(split, 0, split.tokens)
        if config.cache_theta is None:
            theta = result["theta"] = _best_theta(hidden, split, config.cache_size, likelihood)
            mixture["cache"]["theta"] = theta
            say(f"theta of the cache with the highest likelihood of {config.fit_split}: {theta:.4g}")
        log_prob = with_cache(neural_cache(hidden, split.ids, config.cache_size, [mixture["cache"]["theta"]])[0])
    elif config.cache == "unigram":
        log_prob = with_cache(UnigramCache(config.cache_size).log_prob(split))
    if config.weights is not None:
        return FittedMixture(np.array(config.weights), mixture, result)
    fit = fit_weights(log_prob)
    say(f"EM on {config.fit_split}: {fit.iterations} steps, within {fit.gap:.1e} nats of the optimum")
    return FittedMixture(fit.weights, mixture, result | {"fit": fit_record(config, fit)})


def _best_theta(hidden: Hidden, split: Split, size: int, likelihood: Callable[[FloatArray], float]) -> float:
    """Return the theta with the highest likelihood among powers of two times 1 / |h|^2, then in steps of half these."""
    scale = 1 / max(float((hidden.astype(np.float64) ** 2).sum(axis=1).mean()), 1e-30)
    likelihoods: dict[float, float] = {}  # likelihoods by exponent

    def try_exponents(exponents: list[float]) -> None:
        log_probs = neural_cache(hidden, split.ids, size, [scale * 2**k for k in exponents])
        likelihoods.update(zip(exponents, map(likelihood, log_probs), strict=True))

    try_exponents([float(k) for k in range(-2, 9)])
    for step in (0.5, 0.25):
        best = max(likelihoods, key=lambda k: likelihoods[k])
        try_exponents([best - step, best + step])
    return float(scale * 2 ** max(likelihoods, key=lambda k: likelihoods[k]))
