"""How `lmtool ensemble` comes to its weights: each way to mix, fitted on held-out text or as given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lmtool.config import CacheKind, EnsembleConfig, FitOn, MixMethod
from lmtool.data.corpus import Corpus, Split
from lmtool.errors import UserError
from lmtool.evaluation.score import cloze_log_prob, score
from lmtool.language_model import FloatArray, IntArray, LanguageModel, reads_across
from lmtool.mixtures import fit_weights, longest_context, mix
from lmtool.mixtures.log_linear import CHUNK, Chunks, fit_log_linear, member_dists
from lmtool.runs.build import ends_of
from lmtool.system.tables import cell_text


@dataclass(frozen=True, slots=True)
class Way:
    """Weights `[M]`, or `[M + 1]` with a cache; kept: what run.json has of how to mix; result: of result.json."""

    weights: FloatArray
    kept: dict[str, Any]
    result: dict[str, Any] = field(default_factory=dict)


def way_to_mix(config: EnsembleConfig, models: list[LanguageModel], corpus: Corpus, scored: FloatArray | None) -> Way:
    """The weights of the settings, given or fitted.

    scored: the models' log-probabilities `[M, N]` of fit_split where they are known already. Raises UserError where a
    member that the method needs is not among the models, and where no weights give every token a probability.
    """
    dynamic = any(getattr(model, "dynamic", False) for model in models)
    if dynamic and (config.method is not MixMethod.linear or config.cache is not None):
        raise UserError("a run with a cache can be mixed linearly alone, without another cache")
    if config.method is MixMethod.log_linear:
        return _log_linear(config, models, corpus)
    if config.method is MixMethod.linear and config.cache is None and config.weights is not None:
        return Way(np.array(config.weights), {"method": "linear"})
    if config.cache is not None and config.weights is not None and not _theta_is_open(config):
        return Way(
            np.array(config.weights), {"method": "linear", "cache": _cache_kept(config, models, config.cache_theta)}
        )
    split = _fit_text(config, corpus)
    log_prob = np.stack([score(model, split).log_prob for model in models]) if scored is None else scored
    if config.method is MixMethod.classes:
        return _classes(config, models, split, log_prob)
    if config.cache is not None:
        return _cached(config, models, split, log_prob)
    fit = fit_weights(log_prob)
    print(f"EM on {config.fit_split}: {fit.iterations} steps, within {fit.gap:.1e} nats of the best")
    return Way(fit.weights, {"method": "linear"}, {"fit": _fit(config, fit.iterations, fit.gap)})


def _fit_text(config: EnsembleConfig, corpus: Corpus) -> Split:
    if config.fit_split not in corpus.splits:
        raise UserError(f"fit_split={config.fit_split}: {corpus.path} has only {', '.join(corpus.splits)}")
    return corpus.split(config.fit_split)


def _fit(config: EnsembleConfig, iterations: int, gap: float) -> dict[str, Any]:
    return {"split": config.fit_split, "iterations": iterations, "gap": gap}


def _classes(config: EnsembleConfig, models: list[LanguageModel], split: Split, log_prob: FloatArray) -> Way:
    from lmtool.mixtures.by_context_class import classes_of_split, fit_class_weights
    from lmtool.ngram.model import NgramModel

    place, classifier = next(((k, m) for k, m in enumerate(models) if isinstance(m, NgramModel)), (0, None))
    if classifier is None:
        raise UserError("method=classes needs an n-gram run among runs: its counts say which class a context is of")
    classes = classes_of_split(classifier, split)
    fit = fit_class_weights(log_prob, classes, classifier.context_size + 1)
    print(f"EM on {config.fit_split}, by class: {fit.iterations} steps at most, within {fit.gap:.1e} nats of the best")
    print("words of context seen  tokens  weights")
    for length, (tokens, weights) in enumerate(zip(fit.tokens.tolist(), fit.weights.tolist(), strict=True)):
        print(f"{length:>21}  {tokens:>6,}  {'  '.join(map(cell_text, weights))}")
    mean = fit.tokens @ fit.weights / fit.tokens.sum()
    table = fit.weights.tolist()
    kept = {"method": "classes", "classifier": place, "class_weights": table}
    return Way(mean, kept, {"fit": _fit(config, fit.iterations, fit.gap), "class_weights": table})


def _log_linear(config: EnsembleConfig, models: list[LanguageModel], corpus: Corpus) -> Way:
    kept = {"method": "log_linear"}
    if config.weights is not None:
        return Way(np.array(config.weights), kept)
    if config.fit_on is FitOn.cloze:
        chunks, asked, what = *_question_chunks(config, models, corpus), "questions"
    else:
        chunks, asked, what = *_text_chunks(config, models, corpus), "contexts"
    fit = fit_log_linear(chunks, len(models))
    print(
        f"Newton's method on {asked:,} {what} of {config.fit_split}: {fit.iterations} steps, about "
        f"{fit.decrement:.1e} nats from the best"
    )
    return Way(fit.weights, kept, {"fit": _fit(config, fit.iterations, fit.decrement) | {what: asked}})


def _text_chunks(config: EnsembleConfig, models: list[LanguageModel], corpus: Corpus) -> tuple[Chunks, int]:
    """The members' distributions of contexts of fit_split, evenly spread, and how many; made anew each time."""
    split = _fit_text(config, corpus)
    size, ends = longest_context(models), ends_of(corpus.vocabulary)
    split = split.seen(any(map(reads_across, models)))
    index = np.unique(np.linspace(0, split.tokens - 1, min(config.fit_contexts, split.tokens)).astype(np.int64))

    def chunks() -> Iterator[tuple[FloatArray, IntArray]]:
        for at in range(0, len(index), CHUNK):
            contexts, targets = split.windows(index[at : at + CHUNK], size)
            yield member_dists(models, contexts, ends), targets

    return chunks, len(index)


def _question_chunks(config: EnsembleConfig, models: list[LanguageModel], corpus: Corpus) -> tuple[Chunks, int]:
    """The members' log-probabilities of the candidates of fit_split's questions, and how many these are."""
    cloze = corpus.cloze(config.fit_split)
    if cloze is None or (cloze.answers < 0).any():
        raise UserError(f"fit_on=cloze: {corpus.name} has no questions with answers for fit_split={config.fit_split}")
    found = np.stack([cloze_log_prob(model, cloze, corpus.vocabulary.bos) for model in models])
    return lambda: iter([(found, cloze.answers)]), len(cloze.answers)


def _theta_is_open(config: EnsembleConfig) -> bool:
    return config.cache is CacheKind.neural and config.cache_theta is None


def _encoder(models: list[LanguageModel]) -> int:
    from lmtool.neural.model import NeuralModel

    place = next((k for k, model in enumerate(models) if isinstance(model, NeuralModel)), None)
    if place is None:
        raise UserError("cache=neural needs a neural run among runs: its hidden units say which contexts are alike")
    return place


def _cache_kept(config: EnsembleConfig, models: list[LanguageModel], theta: float | None) -> dict[str, Any]:
    assert config.cache is not None
    kept: dict[str, Any] = {"kind": config.cache.value, "size": config.cache_size}
    return kept if config.cache is CacheKind.unigram else kept | {"theta": theta, "encoder": _encoder(models)}


def _cached(config: EnsembleConfig, models: list[LanguageModel], split: Split, log_prob: FloatArray) -> Way:
    """Weights of the models and a cache, by EM over all tokens but the text's first, before which it is empty."""
    from lmtool.mixtures.cache import UnigramCache, hidden_units, neural_cache

    result: dict[str, Any] = {}

    def weighed(cached: FloatArray) -> tuple[float, FloatArray]:
        """The mean log-likelihood, and the weights, given or fitted, that have it."""
        both = np.concatenate([log_prob, cached[None]])[:, 1:]
        if config.weights is not None:
            return float(mix(both, np.array(config.weights)).mean()), np.array(config.weights)
        fit = fit_weights(both)
        result["fit"] = _fit(config, fit.iterations, fit.gap)
        return float(mix(both, fit.weights).mean()), fit.weights

    theta = config.cache_theta
    if config.cache is CacheKind.unigram:
        cached = UnigramCache(config.cache_size).log_prob(split)
    else:
        encoder: Any = models[_encoder(models)]
        hidden = hidden_units(encoder, split)
        if theta is None:
            theta = _best_theta(hidden, split, config.cache_size, lambda found: weighed(found)[0])
            result["theta"] = theta
            print(f"theta of the cache, by the likelihood of {config.fit_split}: {theta:.4g}")
        cached = neural_cache(hidden, split.ids, config.cache_size, [theta])[0]
    weights = weighed(cached)[1]
    if "fit" in result:
        fit = result["fit"]
        print(f"EM on {config.fit_split}: {fit['iterations']} steps, within {fit['gap']:.1e} nats of the best")
    return Way(weights, {"method": "linear", "cache": _cache_kept(config, models, theta)}, result)


def _best_theta(hidden: Any, split: Split, size: int, likelihood: Any) -> float:
    """The theta of highest likelihood: first among powers of two about 1 / |h|^2, then by halving the distance."""
    from lmtool.mixtures.cache import neural_cache

    scale = 1 / max(float((hidden.astype(np.float64) ** 2).sum(axis=1).mean()), 1e-30)
    found: dict[float, float] = {}

    def ask(exponents: list[float]) -> None:
        scores = neural_cache(hidden, split.ids, size, [scale * 2**k for k in exponents])
        found.update(zip(exponents, map(likelihood, scores), strict=True))

    ask([float(k) for k in range(-2, 9)])
    for step in (0.5, 0.25):
        best = max(found, key=lambda k: found[k])
        ask([best - step, best + step])
    return float(scale * 2 ** max(found, key=lambda k: found[k]))
