"""A language model over words instead of ids: the base of TextModel, with what a model has learned, as tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lmtool.config.data import BlankLines, Oov
from lmtool.config.rules import require, require_flags, require_whole
from lmtool.data.corpus import Corpus
from lmtool.data.split import Split
from lmtool.data.text_form import TextForm, visible
from lmtool.data.vocabulary import BOS, EOS, MARKS, Vocabulary
from lmtool.errors import UserError
from lmtool.evaluation.metrics import require_across, require_no_cache, with_unk_as_oov
from lmtool.language_model import LanguageModel
from lmtool.results.base import TableResult
from lmtool.system.arrays import Array, FloatArray, IntArray
from lmtool.system.files import read_json
from lmtool.system.schemas import RESULT

if TYPE_CHECKING:
    from lmtool.neural.model import NeuralModel
    from lmtool.neural.outputs.hierarchical import HierarchicalSoftmax
    from lmtool.plots.word_trees import Code, WordTree

Words = str | Sequence[str]
Sentences = Iterable[Words]  # each a string or a list of words


@dataclass(frozen=True, slots=True, repr=False)
class WordModel:
    """A language model with its vocabulary and the rules of its text; see TextModel.

    open_corpus: opens the corpus of the run that the model was loaded from; None for a model in a file.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5)
    >>> model = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell").model
    >>> model.counts("the cat"), model.continuations("the").rows[1]["word"], "cat" in model.vocabulary
    (5, 'dog', True)
    >>> round(model.explain("the cat").rows[2]["weight 2"], 4)  # no </s> after cat: 1 / (1 type + 5 times)
    0.1667
    """

    model: LanguageModel
    form: TextForm
    name: str = ""
    open_corpus: Callable[[], Corpus] | None = None

    def __repr__(self) -> str:
        unit = "characters" if self.form.chars else "words" if self.form.subwords is None else "pieces of words"
        size = "all words before" if self.context_size is None else self.context_size
        kind = f"{type(self.model).__name__} of {len(self.vocabulary) - 1:,} {unit}"
        return f"{type(self).__name__}({self.name}: {kind}, contexts of {size})"

    def reading(self, blank_lines: BlankLines | None) -> Self:
        """Return the model with this treatment of blank lines in files; None: that of its run's data."""
        if blank_lines is None:
            return self
        return replace(self, form=replace(self.form, blank_lines=blank_lines is BlankLines.sentence))

    def __contains__(self, word: object) -> bool:
        return word in self.vocabulary

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the vocabulary by id, most frequent first, without `<s>`."""
        return self.vocabulary.words[:-1]

    @property
    def vocabulary(self) -> Vocabulary:
        """The words by id, most frequent first, `<s>` last, and their counts `[V]` in train."""
        return self.form.vocabulary

    @property
    def context_size(self) -> int | None:
        """C, the number of words before the predicted one that the model reads; None: all of them."""
        return self.model.context_size

    @property
    def normalized(self) -> bool:
        """Whether each distribution sums to one."""
        return self.model.normalized

    @property
    def dynamic(self) -> bool:
        """Whether the model changes as it reads, e.g. with a cache."""
        return self.model.dynamic

    @property
    def across_sentences(self) -> bool:
        """Whether contexts reach into preceding sentences."""
        return self.model.across_sentences

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """Return log p(target | context), natural, float64 `[N]`.

        contexts: int64 ids `[N, C]`, oldest word first, left-padded with `<s>`. targets: int64 ids `[N]`.
        """
        return self.model.log_prob(contexts, targets)

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """Return log p of all words after contexts int64 `[N, C]`, natural, float64 `[N, V]`.

        The log-sum-exp of each row is 0. The entry of `<s>`, the last one, is the probability that the model reserves
        for types in no vocabulary.
        """
        return self.model.log_dist(contexts)

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """Return log p(candidate | context), natural, float64 `[N, K]`, not renormalized over the candidates.

        contexts: as in `log_prob`. candidates: int64 ids `[N, K]`.
        """
        return self.model.log_prob_candidates(contexts, candidates)

    def encoded(self, sentences: Iterable[list[str]], *, across_sentences: bool = False) -> tuple[Split, list[int]]:
        """Return sentences as text that can be scored, without those that have no tokens, and the number of tokens of
        each, `</s>` included.

        sentences: the words of each (see `form.words`).
        """
        require_flags(across_sentences=across_sentences)
        if across_sentences:
            require_across(self.model, self.vocabulary, self.name)
        text, sizes = self.form.as_split(sentences, one_text=across_sentences)
        return with_unk_as_oov(text, self.model, self.vocabulary), sizes

    def _words_in(self, key: str, given: str | Sentences) -> Iterator[list[str]]:
        """Return the words of each sentence. Raises UserError, naming the argument, without sentences."""
        require(isinstance(given, Iterable), key, f"{given!r:.40}", "a sentence or a list of sentences")
        return map(self.form.words_of, [given] if isinstance(given, str) else given)

    def ids(self, text: str | Sequence[str], oov: str = "error") -> IntArray:
        """Return the ids int64 `[tokens]` of a text or of a list of words. oov: see the class."""
        require(oov in list(Oov.__members__), "oov", oov, "error or unk")
        return self.form.encode(self.form.tokens(self.form.words_of(text)), allow_oov=Oov(oov) is Oov.unk)

    def context(self, ids: IntArray, *, sentence_start: bool = True) -> IntArray:
        """Return the context int64 `[C]` after ids `[words]`: the last C of them, left-padded with `<s>` or `<unk>`."""
        require_flags(sentence_start=sentence_start)
        size = len(ids) + 1 if self.context_size is None else self.context_size
        before = np.full(size, self.vocabulary.bos if sentence_start else self.vocabulary.unk, dtype=np.int64)
        return np.concatenate([before, ids])[len(ids) :]

    @property
    def network(self) -> NeuralModel:
        """The neural model. Raises UserError if the model is not one."""
        from lmtool.neural.model import NeuralModel

        if not isinstance(self.model, NeuralModel):
            raise UserError(f"{self.name} is not a neural model: its words have no vectors; load another")
        return self.model

    def id_of(self, word: str, *, predicted: bool = False) -> int:
        """Return the id of a word, or of `</s>`. Raises UserError if it is not one token of the vocabulary; predicted:
        and for `<s>`.
        """
        require(isinstance(word, str), "word", repr(word), "text")
        require(not predicted or word != BOS, "word", word, f"a word that is predicted, which {BOS} never is")
        tokens = [word] if word in self.vocabulary else self.form.tokens([self.form.rewrite_word(word)])
        if len(tokens) > 1:
            raise UserError(f"{word!r} is {len(tokens)} pieces of words: name a word of one piece")
        return int(self.form.encode(tokens, allow_oov=False)[0])

    def explain(self, sentence: str | Sequence[str]) -> TableResult:
        """Return a table of the tokens of a sentence: what the probability of each comes from, log p and bits.

        N-gram models: `order`, the words of the longest n-gram in the model. If the smoother interpolates, p of order k
        is the discounted `share k` plus the context's `weight k` times p of order k-1, up from `p 1`; if not, p is the
        `stored p` of the n-gram times the weight `back-off k` of each context of k words from which the model backs
        off. An empty cell: not in the model. Linear mixtures: `p k` and `weight k` of each member k. Other models: the
        `rank` of the word, and the most likely one. `log p` is that of `score`. Raises UserError for a cache.
        """
        require_no_cache(self.model, self.name)
        words, end = self.form.words_of(sentence), [EOS] * (self.vocabulary.eos is not None)
        text, _ = self.encoded([words])
        contexts, targets = self.model.contexts_of(text, np.arange(text.tokens))
        log_p = self.model.score_text(text) if text.tokens else np.empty(0)
        columns: dict[str, Any] = {"word": map(visible, self.form.labels([*self.form.tokens(words), *end]))}
        columns |= self.model.explain(contexts, targets)
        if "most likely" in columns:
            columns["most likely"] = self._labels(columns["most likely"])
        columns |= {"p": np.exp(log_p), "log p": log_p, "bits": -log_p / math.log(2)}
        size = f"{len(log_p)} token{'s' * (len(log_p) != 1)}, {columns['bits'].sum():.4f} bits"
        found = _table(columns, f"{self.name}: {size}")
        if text.oov_words:
            found.notes.append(f"with p of <unk>: {', '.join(map(visible, self.form.labels(text.oov_words)))}")
        if not self.normalized:
            found.notes.append("these scores do not sum to one")
        if "share 2" in columns:
            found.notes.append("p of order k = share k + weight k * p of order k-1; empty: not in the model")
        if "stored p" in columns:
            mixed = "with an interpolating smoother, stored p already includes the shorter contexts"
            found.notes.append(f"p = stored p x back-off weights; {mixed}")
        if "p in class" in columns:
            found.notes.append("these are n-grams of classes: p = p of the word's class * p in class")
        return found

    def paths(self, text: str, word: str, *, sentence_start: bool = True, oov: str = "error") -> TableResult:
        """Return the decisions on the path to a word after a text as a table: each node, its p and the words below it.

        The product of p is p(word | text); a word with several codes has a path for each, and p is the sum of their
        products. Raises UserError if the model has no tree. sentence_start, oov: as in TextModel.
        """
        context = self.context(self.ids(text, oov), sentence_start=sentence_start)
        index = self.id_of(word, predicted=True)
        codes = self.decisions(context, [index])[0]
        return self.tree.path(self.form.labels([self.vocabulary.words[index]])[0], codes)

    def decisions(self, context: IntArray, words: Sequence[int]) -> list[list[Code]]:
        """Return for each word id the decisions of its codes after a context int64 `[C]`: node, bit and probability."""
        require(isinstance(context, np.ndarray), "context", f"{context!r:.40}", "an array of ids; paths() takes text")
        layer = self._tree_layer()
        hidden = layer.reference().new_tensor(self.network.hidden(context[None])[0])
        return [layer.decisions(hidden, word) for word in words]

    def _tree_layer(self) -> HierarchicalSoftmax:
        from lmtool.neural.outputs.hierarchical import HierarchicalSoftmax

        layer = getattr(self.model, "output", None)
        if not isinstance(layer, HierarchicalSoftmax):
            raise UserError(f"{self.name} has no tree; choose a run with a hierarchical softmax")
        return layer

    @property
    def tree(self) -> WordTree:
        """The tree of a hierarchical softmax: shows itself as a drawing; has `path("cat")`, `codes` and
        `expected_length`. Raises UserError if the model has no tree.
        """
        from lmtool.plots.word_trees import WordTree

        return WordTree("", self._tree_layer().tree, self.form.labels(self.words), self.vocabulary.counts[:-1])

    def counts(self, text: str | Sequence[str] = "") -> int:
        """Return how often these words follow each other in train; `<s>` may be the first and `</s>` the last one.

        Raises UserError for words outside the vocabulary, and for a model in a file, which has no corpus.
        """
        return self._occurrences(text)[1]

    def continuations(self, text: str | Sequence[str] = "", top: int = 10) -> TableResult:
        """Return the words that follow these words most often in train as a table: count, share of all, and the
        model's p, which depends on these words alone. Raises UserError as `counts` does.
        """
        require_whole("top", top)
        ngram, total, after = self._occurrences(text)
        special, counts = self.vocabulary.special_tokens, np.bincount(after, minlength=len(self.vocabulary))
        words = np.argsort(-counts, kind="stable")[: min(top, np.count_nonzero(counts))]
        at_start = special.bos in ngram[:1]
        state = self.model.begin(special, sentence_start=at_start)[None]
        for word in ngram[at_start:]:
            _, state = self.model.advance(state, word[None], special)
        p = np.exp(self.model.advance(np.repeat(state, len(words), axis=0), words, special)[0])
        columns = {"word": self._labels(words), "count": counts[words], "share": counts[words] / max(total, 1), "p": p}
        times = "once" if total == 1 else f"{total:,} times"
        found = _table(columns, f"{' '.join(self._labels(ngram)) or 'any word'}: {times} in train")
        if "kneser_ney" in (smoother := self._saved()[1]):
            counted = "the number of distinct words before an n-gram, not its count"
            found.notes.append(f"smoother={smoother}: below the highest order, p is from {counted}")
        if not at_start:
            found.notes.append("p: wherever these words stand in a sentence, as of sentence_start=False in predict")
        return found

    @property
    def discounts(self) -> TableResult:
        """The smoother's parameters by order, whether given, estimated or tuned, e.g. D1, D2 and D3+. Raises UserError
        if it has none, as in Witten-Bell smoothing.
        """
        rows, smoother = self._saved()
        if not rows:
            only = "an n-gram run has them if its smoother has parameters"
            raise UserError(f"{self.name} (smoother={smoother}) has no discounts: {only}")
        found = _table({name: [row[name] for row in rows] for name in rows[0]}, f"smoother={smoother}")
        table: Any = getattr(getattr(self.model, "ngrams", self.model), "table", None)
        found.notes += [note for note in table.notes if note.startswith("order")]  # on values, e.g. a fallback
        return found

    def _saved(self) -> tuple[list[dict[str, Any]], str]:
        """Return the smoother's parameters by order, and its name, from the run's result.json; empty if unknown."""
        path = Path(self.name) / "result.json"
        saved = read_json(path, "train it again", RESULT) if path.is_file() else {}
        return saved.get("discounts") or [], str(saved.get("options", {}).get("smoother"))

    def _occurrences(self, text: str | Sequence[str]) -> tuple[IntArray, int, Array]:
        """Return the ids of an n-gram, among them those of `<s>` and `</s>`, and Split.occurrences of it in train."""
        if self.open_corpus is None:
            raise UserError(f"{self.name} has no corpus: take a run folder, or see predict and explain")
        marks = {written: mark for mark, written in MARKS.items()}
        tokens = [marks.get(token, token) for token in self.form.tokens(self.form.words_of(text))]
        ngram = self.form.encode(tokens, allow_oov=False)
        with self.open_corpus() as corpus:
            return ngram, *corpus.split("train").occurrences(ngram)

    def _labels(self, ids: IntArray) -> list[str]:
        return [visible(label) for label in self.form.labels(self.vocabulary.words[word] for word in ids)]


def _table(columns: Mapping[str, Any], about: str) -> TableResult:
    """Return columns, arrays or other iterables, as a table; nan becomes an empty cell."""
    rows = zip(*(np.array(list(column)).tolist() for column in columns.values()), strict=True)
    table = [[None if cell != cell else cell for cell in row] for row in rows]
    return TableResult(header=list(columns), table=table, about=about)
