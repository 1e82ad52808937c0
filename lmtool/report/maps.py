"""Maps of the words of neural runs, their projections to two dimensions, and trees over words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lmtool.data.text_form import visible
from lmtool.errors import UserError
from lmtool.plots.word_pictures import map_figure
from lmtool.report.page import Picture, Section
from lmtool.report.reading import Entry
from lmtool.system.arrays import FloatArray
from lmtool.trees.analysis import DrawnNode, top_of

MIN_WORDS = 3  # minimum number of words of a map


def word_maps(entries: Sequence[Entry], kind: str, words: int | list[str], seed: int) -> Section:
    """Return a map of the embeddings of each neural run. words: number of most frequent words, or a list of words."""
    from lmtool.neural.model import NeuralModel
    from lmtool.runs.load import load

    section = Section("Maps of words")
    unknown = set(words) if isinstance(words, list) else set()
    form = None
    for entry in entries:
        loaded = load(entry.source.folder, "cpu")
        assert isinstance(loaded.model, NeuralModel), "a run with an output layer is neural"
        vocabulary, form = loaded.vocabulary, loaded.form
        if isinstance(words, list):
            known = {word: vocabulary.ids.get(form.rewrite_word(word)) for word in words}
            unknown -= {word for word, index in known.items() if index is not None}
            ids = list(dict.fromkeys(index for index in known.values() if index is not None))
        else:  # learned words: not </s>, which is never an input, <s>, or <unk> if it is not in train
            seen = np.flatnonzero(vocabulary.counts[: vocabulary.bos]).tolist()
            ids = [index for index in seen if index != vocabulary.eos][:words]
        if len(ids) < MIN_WORDS:
            section.parts.append(f"{entry.name}: too few of the words are in its vocabulary for a map, {len(ids)}.")
            continue
        vectors = loaded.model.word_vectors("embeddings")[np.array(ids)]
        labels = list(map(visible, form.labels(vocabulary.words[k] for k in ids)))
        section.parts.append(_map(entry, labels, vectors, kind, seed))
    if unknown and form is not None and isinstance(words, list):
        form.require_known([word for word in words if word in unknown])
    return section


def _map(entry: Entry, shown: list[str], vectors: np.ndarray, kind: str, seed: int) -> Picture:
    if not np.isfinite(vectors).all():
        raise UserError(f"{entry.source.folder} has embeddings that are not finite: train it again, or set map=none")
    if kind == "tsne" and len(shown) > MIN_WORDS:
        points, labels = tsne(vectors, seed), None
        how = "t-SNE: words close to each other are similar; distances between groups mean little."
    else:
        points, shares = pca(vectors)
        labels = f"first principal component ({shares[0]:.0%} of the variance)", f"second ({shares[1]:.0%})"
        how = f"The first two principal components hold {sum(shares):.0%} of the variance."
    caption = f"{entry.name}: the embeddings of {len(shown):,} words. {how} Labels that would overlap are left out."
    return Picture(f"map-{entry.name}", map_figure(points, shown, labels), caption)


def tree_tops(entries: Sequence[Entry], levels: int) -> list[tuple[str, DrawnNode]]:
    """Return the top levels of the tree of each run that has one, with the name of the run."""
    from lmtool.runs.load import run_vocabulary, text_form
    from lmtool.runs.weights import TREE, load_tree

    tops = []
    for entry in entries:
        if entry.run is None or not (entry.run.folder / TREE).exists():
            continue
        vocabulary = run_vocabulary(entry.run)
        tree = load_tree(entry.run.folder / TREE)
        if tree.words != len(vocabulary) - 1:
            raise UserError(f"{entry.run.folder / TREE} is damaged: its words are not those of its run; train it again")
        labels = text_form(entry.run, vocabulary).labels(vocabulary.words[:-1])
        tops.append((entry.name, top_of(tree, labels, vocabulary.counts[:-1], levels)))
    return tops


MAX_PERPLEXITY = 30.0  # t-SNE's effective number of neighbors; van der Maaten & Hinton (2008): 5 to 50


def pca(vectors: FloatArray) -> tuple[FloatArray, tuple[float, float]]:
    """Return coordinates `[n, 2]` of vectors `[n, D]` along their first two principal components, and the components'
    shares of the variance. The entry with the largest absolute value of each component is positive.
    """
    centered = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, sizes, directions = np.linalg.svd(centered, full_matrices=False)
    directions = directions[:2]
    largest = np.abs(directions).argmax(axis=1)
    directions *= np.where(directions[np.arange(len(directions)), largest] < 0, -1, 1)[:, None]
    points = np.zeros((len(vectors), 2))
    points[:, : len(directions)] = centered @ directions.T
    total = float((sizes**2).sum()) or 1.0
    shares = [*(float(size**2) / total for size in sizes[:2]), 0.0, 0.0]
    return points, (shares[0], shares[1])


def tsne(vectors: FloatArray, seed: int) -> FloatArray:
    """Return t-SNE coordinates `[n, 2]` (van der Maaten & Hinton 2008) of vectors `[n, D]`, initialized by PCA."""
    try:
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise UserError('map=tsne needs scikit-learn: pip install "lmtool[plots]"') from None
    initial, _ = pca(vectors)
    initial = initial / (initial[:, 0].std() or 1.0) * 1e-4
    perplexity = min(MAX_PERPLEXITY, (len(vectors) - 1) / 3)
    method = TSNE(
        2, perplexity=perplexity, init=initial.astype(np.float32), random_state=seed % (1 << 32), learning_rate="auto"
    )
    with threadpool_limits(limits=1):  # several threads sum in varying order: the map would not be repeatable
        points: FloatArray = method.fit_transform(vectors.astype(np.float32)).astype(np.float64)
    return points
