"""The mixture that a run folder describes."""

from __future__ import annotations

from typing import Any

import numpy as np

from lmtool.data.vocabulary import Vocabulary
from lmtool.language_model import LanguageModel
from lmtool.mixtures.by_context_class import Classifier, ClassMixture
from lmtool.mixtures.cache import Cache, CachedMixture, Encoding, NeuralCache, UnigramCache
from lmtool.mixtures.linear import Ends, Mixture
from lmtool.mixtures.log_linear import LogLinear
from lmtool.system.arrays import FloatArray


def ends_of(vocabulary: Vocabulary) -> Ends | None:
    """The ids of `</s>` and `<s>`, None for text without sentences."""
    return None if vocabulary.eos is None else Ends(vocabulary.eos, vocabulary.bos)


def build_mixture(
    members: list[LanguageModel], weights: FloatArray, mixture: dict[str, Any], vocabulary: Vocabulary
) -> LanguageModel:
    """The mixture of M members with weights `[M]`, or `[M + 1]` with a cache.

    mixture: how they are mixed, as FittedMixture has it and run.json keeps it; an empty one, of a run made before
    version 0.3, mixes linearly. Raises KeyError, IndexError, TypeError or ValueError where it is damaged.
    """
    ends = ends_of(vocabulary)
    method = mixture["method"] if mixture else "linear"
    if method == "linear" and "cache" in mixture:
        return CachedMixture(members, weights, _cache(mixture["cache"], members), ends)
    if method == "linear":
        return Mixture(members, weights, ends)
    if method == "classes":
        classifier = members[int(mixture["classifier"])]
        if not isinstance(classifier, Classifier):
            raise ValueError(f"member {mixture['classifier']} has no n-grams")
        return ClassMixture(members, np.array(mixture["class_weights"], dtype=np.float64), classifier, ends)
    if method == "log_linear":
        return LogLinear(members, weights, ends)
    raise ValueError(f"method {method} is not known")


def _cache(saved: dict[str, Any], members: list[LanguageModel]) -> Cache:
    size = int(saved["size"])
    if saved["kind"] == "unigram":
        return UnigramCache(size)
    encoder = members[int(saved["encoder"])]
    if not isinstance(encoder, Encoding):
        raise ValueError(f"member {saved['encoder']} has no hidden units")
    return NeuralCache(size, float(saved["theta"]), encoder)
