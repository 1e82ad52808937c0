"""Classes of words, each word in one, and the probability of a word within its class: Brown et al. (1992), eq. 2.

    p(w|c(w)) = n(w) / sum of n over the words of c(w)

n(w) is the count of w in train; a word that does not occur there counts as half an occurrence, so that its probability
is not 0. A file of classes has lines `class p(w|c) word`, SRILM's format; white space and backslashes in a word are
escaped as in the vocabulary's file (lmtool.runs.corpus).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lmtool.data.readers import read_blocks
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError, prefix_user_errors
from lmtool.system.arrays import Array, FloatArray, IntArray
from lmtool.system.files import atomic_write

WRITTEN = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", " ": "\\s"}
_LETTERS = str.maketrans(WRITTEN)
_MEANT = {written: letter for letter, written in WRITTEN.items()}


@dataclass(frozen=True, slots=True)
class WordClasses:
    """The classes of the words of a vocabulary.

    class_of: int64 `[V]`, the class of each word. log_within: float64 `[V]`, log p(w|c(w)), 0 for `<s>`. classes: the
    classes as a vocabulary, most frequent first; `<s>` and `</s>` are separate classes; unk is the class of `<unk>`.
    words: `[V]`.
    """

    class_of: IntArray
    log_within: FloatArray
    classes: Vocabulary
    words: tuple[str, ...]

    @classmethod
    def of(cls, class_of: Sequence[int] | IntArray, names: Sequence[str], vocabulary: Vocabulary) -> WordClasses:
        """Return the classes that have words, given each word's class `[V]` among distinct names `[C]`."""
        old = np.asarray(class_of, dtype=np.int64)
        halves = np.maximum(2 * vocabulary.counts, 1)  # in halves of an occurrence
        halves[vocabulary.bos] = 0  # it is never predicted
        total = np.bincount(old, halves, len(names))
        counts = np.bincount(old, vocabulary.counts, len(names)).astype(np.int64)
        used = np.flatnonzero(np.bincount(old, minlength=len(names)))
        order = used[np.argsort(-counts[used], kind="stable")]
        order = np.append(order[order != old[vocabulary.bos]], old[vocabulary.bos])
        new = np.zeros(len(names), dtype=np.int64)
        new[order] = np.arange(len(order))
        log_within = np.zeros(len(vocabulary))
        predicted = halves > 0
        log_within[predicted] = np.log(halves[predicted] / total[old[predicted]])
        eos = None if vocabulary.eos is None else int(new[old[vocabulary.eos]])
        classes = Vocabulary(tuple(names[c] for c in order), counts[order], eos, int(new[old[vocabulary.unk]]))
        return cls(new[old], log_within, classes, vocabulary.words)

    def save(self, path: Path) -> None:
        """Write the classes, whole or not at all, most frequent first; `<s>`, which no class predicts, has p = 1."""
        order = np.argsort(self.class_of, kind="stable").tolist()
        names = [name.translate(_LETTERS) for name in self.classes.words]
        class_of, within = self.class_of.tolist(), np.exp(self.log_within).tolist()
        lines = (f"{names[class_of[w]]}\t{within[w]!r}\t{self.words[w].translate(_LETTERS)}\n" for w in order)
        with atomic_write(path) as temporary:
            temporary.write_bytes("".join(lines).encode())

    @classmethod
    def open(cls, path: Path, vocabulary: Vocabulary) -> WordClasses:
        """Read a file that `save` has written."""
        remedy = "train the model again"
        try:
            rows = [line.split("\t") for line in path.read_bytes().decode().split("\n")[:-1]]
            class_of_word = {_unescape(word): (_unescape(name), math.log(float(p))) for name, p, word in rows}
            rows_of_words = [class_of_word[word] for word in vocabulary.words]
        except FileNotFoundError:
            raise UserError(f"the classes {path} are missing: {remedy}") from None
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"{path} is damaged, or of other words ({error}): {remedy}") from error
        names = list(dict.fromkeys(_unescape(row[0]) for row in rows))
        number = {name: c for c, name in enumerate(names)}
        found = cls.of([number[name] for name, _ in rows_of_words], names, vocabulary)
        if not np.allclose(found.log_within, [log_p for _, log_p in rows_of_words]):
            raise UserError(f"{path} was edited: its probabilities are not those of train; {remedy}")
        return found


def _unescape(text: str) -> str:
    return re.sub(r"\\[\\tnrs]", lambda match: _MEANT[match[0]], text) if "\\" in text else text


def read_classes(path: Path, vocabulary: Vocabulary, *, key: str) -> tuple[WordClasses, list[str]]:
    """Read classes from a user's file; also return lines that say which words are missing on either side.

    The file has lines `word class`, or SRILM's `class probability word`, whose probability is ignored. A word of the
    vocabulary that the file lacks becomes a separate class, as in SRILM. key: the setting that names the file. Raises
    UserError, with the line, for any other line, for a word in two classes, and if `<s>` or `</s>` shares a class.
    """
    name_of: dict[str, str] = {}
    with prefix_user_errors(f"{key}={path}"):
        content = b"".join(read_blocks(str(path), tables=True))
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            where = f"{key}={path}, line {number}"
            word, name = _entry([field.decode() for field in line.split()], where)
            if name_of.setdefault(word, name) != name:
                raise UserError(f"{where}: {word} is in two classes, {name_of[word]} and {name}")
    unknown = len(name_of.keys() - set(vocabulary.words))
    alone = [word for word in vocabulary.words if word not in name_of]
    names = set(name_of.values())
    for word in alone:  # a name that no class of the file has
        name = word
        while name in names:
            name += " alone"
        name_of[word] = name
    names_of_words = [name_of[word] for word in vocabulary.words]
    number_of = {name: c for c, name in enumerate(dict.fromkeys(names_of_words))}
    for i in (vocabulary.bos, vocabulary.eos):
        if i is not None and names_of_words.count(names_of_words[i]) > 1:
            raise UserError(f"{key}={path}: {vocabulary.words[i]} must be alone in its class: remove it from the file")
    found = WordClasses.of([number_of[name] for name in names_of_words], list(number_of), vocabulary)
    about = [f"{len(found.classes):,} classes, of which {len(alone):,} are words that {path} does not have"]
    if unknown:
        about.append(f"{unknown:,} words of {path} are not in the vocabulary")
    return found, about


def _entry(fields: list[str], where: str) -> tuple[str, str]:
    """Return the word and the class of a line."""
    if len(fields) == 2:
        return _unescape(fields[0]), fields[1]
    try:
        if len(fields) == 3 and 0 <= float(fields[1]) <= 1:
            return _unescape(fields[2]), fields[0]
    except ValueError:
        pass
    shown = " ".join(fields)[:60]
    raise UserError(f"{where}: {shown!r} must be 'word class', or 'class probability word' as in SRILM")


def learned_classes(
    ids: Array, offsets: IntArray, vocabulary: Vocabulary, number: int, passes: int, *, merging: bool
) -> tuple[WordClasses, list[str]]:
    """Learn classes of words by merging (Brown et al. 1992), then exchange (Martin, Liermann & Ney 1998).

    Both maximize the average mutual information of the classes of neighbors in a text; exchange continues where merging
    ends. Returns the classes and lines on how they were found.

    ids: `[N]`, at least one, without `<s>`; `</s>` is also the neighbor of the word after it. offsets: where sentences
    begin; without `</s>`, words have no neighbors beyond their sentence. number: number of classes; in addition, `<s>`,
    `</s>`, `<unk>` and the words that are not in the text have one class each. passes: maximum passes of exchange.
    merging: start exchange from merged clusters, which take O(V number^2) time, else from the most frequent words as
    classes, with all other words in the last.
    """
    from lmtool.trees.brown import bigrams, cluster_words  # here, as each n-gram model imports this file
    from lmtool.trees.exchange import exchange

    words = len(vocabulary) - 1
    counts = np.bincount(ids, minlength=words)
    own = [i for i in (vocabulary.eos, vocabulary.unk) if i is not None and i < words and counts[i] > 0]
    order = np.argsort(-counts, kind="stable")
    order = order[(counts[order] > 0) & ~np.isin(order, own)]
    classes = min(number, len(order))
    names = [*(vocabulary.words[i] for i in own), "unseen"]
    class_of = np.full(words, classes + len(own), dtype=np.int64)
    class_of[own] = classes + np.arange(len(own))
    pairs = bigrams(ids, offsets if vocabulary.eos is None else offsets[:1], words)
    if merging and classes:
        clusters, _, _ = cluster_words(pairs, counts, classes)
        class_of[order] = np.unique(clusters[order], return_inverse=True)[1]
    else:
        class_of[order] = np.minimum(np.arange(len(order)), classes - 1)
    closed = np.arange(classes + len(names)) >= classes
    result = exchange(pairs, class_of, len(closed), order, closed, passes)
    bits = result.information / math.log(2)
    about = [f"{classes:,} classes, {result.passes} passes of exchange: average mutual information {bits:.4f} bits"]
    if classes < number:
        about.append(
            f"model.classes={number}: only {classes:,} words can be put into classes; each word is a separate class"
        )
    classes_of_words = np.append(result.class_of, len(closed))  # and of <s>
    return WordClasses.of(classes_of_words, _names(result.class_of, counts, classes, names), vocabulary), about


def _names(class_of: IntArray, counts: IntArray, classes: int, others: list[str]) -> list[str]:
    """Return c1, c2, ... for the first `classes`, most frequent first, then the other names, and `<s>`."""
    class_counts = np.bincount(class_of, counts, classes)[:classes]
    rank = np.empty(classes, dtype=np.int64)
    rank[np.argsort(-class_counts, kind="stable")] = np.arange(classes)
    return [*(f"c{r + 1}" for r in rank.tolist()), *others, "<s>"]
