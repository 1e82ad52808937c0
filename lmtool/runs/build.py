"""From settings and run folders to objects: the one `match` per family."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lmtool import config as schema
from lmtool.config.rules import size_in_bytes
from lmtool.data.corpus import Corpus
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.language_model import FloatArray, IntArray, LanguageModel
from lmtool.mixtures import Ends, Mixture
from lmtool.runs.run import REMEDY, Run
from lmtool.system.memory import memory_available

if TYPE_CHECKING:
    from lmtool.neural.model import NeuralModel
    from lmtool.ngram.counts import Counts
    from lmtool.ngram.estimate import Smoother
    from lmtool.ngram.storage import Storage
    from lmtool.trees.tree import Tree

NGRAM_FILE = "model.h5"


def storage_of(counts: schema.CountsConfig, corpus: Corpus) -> Storage:
    """What memory counting may use; its temporary files lie beside the store."""
    from lmtool.ngram.storage import Storage

    free = memory_available()
    memory = size_in_bytes(counts.memory, "counts.memory") if counts.memory is not None else free and free * 3 // 4
    return Storage(memory, corpus.path.parent).unless_enough_for(corpus.tokens("train"))


def counts_of(corpus: Corpus, order: int, settings: schema.CountsConfig, storage: Storage) -> Counts:
    """The counts of the train split, as they are kept beside the store or counted now.

    Raises UserError for a text that cannot be counted and where the disk fills.
    """
    from lmtool.ngram.count_cache import counts_path, open_counts, save_counts
    from lmtool.ngram.counts import count_ngrams

    path = counts_path(corpus.path)
    kept = open_counts(path, corpus.fingerprint, order)
    if kept is not None:
        return kept
    counts = count_ngrams(corpus.split("train"), corpus.vocabulary, order, storage=storage)
    if settings.keep:
        save_counts(path, counts, corpus.fingerprint)
    return counts


def build_smoother(settings: schema.SmootherConfig, order: int, vocabulary: Vocabulary) -> Smoother:
    """The smoother of the settings; its parameters are still to be fitted, or tuned where `tuned_on` names a split."""
    match settings:
        case schema.MleConfig():
            from lmtool.ngram.smoothers.mle import MaximumLikelihood

            return MaximumLikelihood(order)
        case schema.LaplaceConfig():
            from lmtool.ngram.smoothers.laplace import Laplace

            alpha = 1.0 if settings.alpha == schema.TUNED else float(settings.alpha)
            return Laplace(order, alpha=alpha, types=len(vocabulary) - 1)
        case schema.JelinekMercerConfig():
            from lmtool.ngram.smoothers.jelinek_mercer import JelinekMercer

            lambdas = None if settings.lambdas == schema.TUNED else settings.lambdas
            return JelinekMercer(order, classes=settings.classes, lambdas=lambdas)
        case schema.WittenBellConfig():
            from lmtool.ngram.smoothers.witten_bell import WittenBell

            return WittenBell(order, interpolate=settings.interpolate)
        case schema.GoodTuringConfig():
            from lmtool.ngram.smoothers.good_turing import GoodTuring

            return GoodTuring(order, largest=settings.largest, largest_unigram=settings.largest_unigram)
        case schema.AbsoluteConfig():
            from lmtool.ngram.smoothers.absolute import Absolute

            return Absolute(order, discounts=_discounts(settings.discounts, order), interpolate=settings.interpolate)
        case schema.KneserNeyConfig():
            from lmtool.ngram.smoothers.kneser_ney import KneserNey

            return KneserNey(order, discounts=_discounts(settings.discounts, order), interpolate=settings.interpolate)
        case schema.ModifiedKneserNeyConfig():
            from lmtool.ngram.smoothers.modified_kneser_ney import ModifiedKneserNey

            return ModifiedKneserNey(
                order,
                discounts=None if settings.discounts == schema.TUNED else settings.discounts,
                interpolate=settings.interpolate,
                like_kenlm=settings.like_kenlm,
            )
        case schema.StupidBackoffConfig():
            from lmtool.ngram.smoothers.stupid_backoff import StupidBackoff

            return StupidBackoff(order, alpha=settings.alpha)
    raise UserError(f"smoother={settings.kind} is not known to this version of lmtool")


def _discounts(given: object, order: int) -> list[float] | None:
    if given is None or given == schema.TUNED:
        return None
    return given if isinstance(given, list) else [float(str(given))] * order


def tuned_on(settings: schema.SmootherConfig) -> str | None:
    """The split that the smoother's parameters are to be tuned on; None where they are given or estimated."""
    match settings:
        case schema.LaplaceConfig(alpha=schema.TUNED):
            return settings.tune_on
        case schema.JelinekMercerConfig(lambdas=schema.TUNED):
            return settings.tune_on
        case (
            schema.AbsoluteConfig(discounts=schema.TUNED)
            | schema.KneserNeyConfig(discounts=schema.TUNED)
            | schema.ModifiedKneserNeyConfig(discounts=schema.TUNED)
        ):
            return settings.tune_on
    return None


def load_neural(run: Run, encoder: schema.EncoderModel, vocabulary: Vocabulary) -> NeuralModel:
    """The neural model of a finished run, with the tree that it was trained on."""
    from lmtool.neural.model import build_neural
    from lmtool.runs.weights import CHECKPOINT, TREE, load_tree, load_weights

    saved = run.config.get("output")
    if saved is None:
        raise UserError(f"{run.folder} was trained by an older version of lmtool: {REMEDY}")
    output = schema.from_saved(saved, "output")
    tree = load_tree(run.folder / TREE) if isinstance(output, schema.HierarchicalOutput) else None
    model = build_neural(encoder, output, vocabulary, tree)
    load_weights(model, run.folder / CHECKPOINT)
    return model


def build_tree(settings: schema.TreeConfig, corpus: Corpus) -> Tree:
    """The tree of the settings over the words that can be predicted.

    Raises UserError for a file that does not fit the vocabulary, an earlier run of another one, and a WordNet that is
    missing.
    """
    vocabulary = corpus.vocabulary
    words, counts = vocabulary.words[:-1], np.asarray(vocabulary.counts[:-1])
    match settings:
        case schema.BalancedTree():
            from lmtool.trees.halves import balanced

            return balanced(np.array(sorted(range(len(words)), key=words.__getitem__), dtype=np.int64))
        case schema.RandomTree():
            from lmtool.trees.halves import random

            return random(len(words), settings.seed)
        case schema.FrequencyTree():
            from lmtool.trees.halves import frequency

            return frequency(counts)
        case schema.HuffmanTree():
            from lmtool.trees.huffman import huffman

            return huffman(counts)
        case schema.ClassesTree():
            from lmtool.trees.classes import classes

            if settings.classes is not None and settings.classes > len(words):
                raise UserError(f"tree.classes={settings.classes}: at most {len(words)} with this vocabulary")
            return classes(counts, settings.classes)
        case schema.BrownTree():
            from lmtool.trees.brown import brown

            train = corpus.split("train")
            return brown(train.ids, train.offsets, counts, settings.clusters)
        case schema.ClustersTree():
            return _clusters_tree(settings, corpus, counts)
        case schema.WordnetTree():
            from lmtool.trees.wordnet import wordnet

            return wordnet(words, counts, Path(settings.folder) if settings.folder else None)
        case schema.FileTree():
            from lmtool.trees.file import read_tree

            return read_tree(Path(settings.path), words)
    raise UserError(f"tree={settings.kind} is not known to this version of lmtool")


def _clusters_tree(settings: schema.ClustersTree, corpus: Corpus, counts: IntArray) -> Tree:
    from lmtool.neural.model import NeuralModel
    from lmtool.neural.representations import word_representations
    from lmtool.trees.clusters import clusters

    run = Run.open(Path(settings.run))
    if run.vocabulary_fingerprint != corpus.vocabulary.fingerprint():
        raise UserError(f"tree.run={settings.run} was trained on another vocabulary: take a run on this data set")
    earlier = load_model(run, corpus.vocabulary)
    if not isinstance(earlier, NeuralModel):
        raise UserError(f"tree.run={settings.run} is no neural model: words have no representations in it")
    of_contexts = settings.representation is schema.Representation.contexts
    vectors = word_representations(earlier, corpus.split("train") if of_contexts else None)
    return clusters(
        vectors,
        counts,
        split=settings.split.value,
        method=settings.method.value,
        epsilon=settings.epsilon,
        seed=settings.seed,
    )


def load_model(run: Run, vocabulary: Vocabulary, device: str = "cpu") -> LanguageModel:
    """The language model of a finished run; device: of neural ones, as the setting names it.

    Raises UserError where a part of it is missing or damaged, and for a device that is not there.
    """
    if vocabulary.fingerprint() != run.vocabulary_fingerprint:
        raise UserError(f"{run.folder} was trained on another vocabulary than its store has now: {REMEDY}")
    if run.kind == "ensemble":
        members = [load_model(Run.open(Path(member)), vocabulary, device) for member in run.members]
        try:
            return build_mixture(members, np.array(run.weights), run.mixture, vocabulary)
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise UserError(f"{run.folder / 'run.json'} is damaged ({error}): mix the runs again") from error
    match schema.from_saved(run.config["model"], "model"):
        case schema.NgramModelConfig():
            from lmtool.ngram.model import NgramModel

            return NgramModel.load(run.folder / NGRAM_FILE, vocabulary)
        case schema.EncoderModel() as encoder:
            from lmtool.neural.devices import choose_device

            return load_neural(run, encoder, vocabulary).to(choose_device(device))
    raise UserError(f"{run.folder} holds a model that this version of lmtool does not know: {REMEDY}")


def ends_of(vocabulary: Vocabulary) -> Ends | None:
    """`</s>` and `<s>`, None for text without sentences."""
    return None if vocabulary.eos is None else Ends(vocabulary.eos, vocabulary.bos)


def build_mixture(
    members: list[LanguageModel], weights: FloatArray, mixture: dict[str, Any], vocabulary: Vocabulary
) -> LanguageModel:
    """The mixture of members with weights; mixture: what lmtool.mixtures.fit keeps of how they are mixed."""
    cache: dict[str, Any] = mixture.get("cache") or {}
    ends = ends_of(vocabulary)
    match mixture.get("method", "linear"):
        case "linear" if not cache:
            return Mixture(members, weights, ends)
        case "linear":
            from lmtool.mixtures.cache import Cache, CachedMixture, NeuralCache, UnigramCache

            size = int(cache["size"])
            held: Cache
            if cache["kind"] == "unigram":
                held = UnigramCache(size)
            else:
                held = NeuralCache(size, float(cache["theta"]), cast(Any, members[int(cache["encoder"])]))
            return CachedMixture(members, weights, held, ends)
        case "classes":
            from lmtool.mixtures.by_context_class import ClassMixture

            classifier = cast(Any, members[int(mixture["classifier"])])
            return ClassMixture(members, np.array(mixture["class_weights"], dtype=np.float64), classifier, ends)
        case "log_linear":
            from lmtool.mixtures.log_linear import LogLinear

            return LogLinear(members, weights, ends)
    raise ValueError(f"method {mixture['method']} is not known")
