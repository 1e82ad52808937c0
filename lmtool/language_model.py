"""The contract of every language model: n-gram models, networks, mixtures and caches subclass LanguageModel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.data.split import MAX_POSITION, Split
from lmtool.data.vocabulary import SpecialTokens
from lmtool.errors import UserError
from lmtool.system import parallel
from lmtool.system.arrays import Array, FloatArray, IntArray, in_chunks, rows_at_once, whole_numbers
from lmtool.system.terminal import token_bar

TOKENS_PER_CHUNK = 1 << 16  # tokens scored at once: bounds the memory of the contexts, not the result
ROWS_PER_CHUNK = 256  # whole distributions computed at once where only part of each is returned
SAMPLED_PER_CHUNK = 1 << 22  # probabilities computed at once when sampling
SENTENCES_PER_CHUNK = 1 << 10  # sentences whose states advance together


class LanguageModel(ABC):
    """A conditional distribution over the next word, given the words before it.

    A subclass defines `vocabulary_size`, `context_size` and `log_dist`, and overrides whatever it computes faster or
    better than the defaults here. Callers use the methods; they do not ask which class a model is of.

    Legend of shapes: N contexts, C words in each (`context_size`), V vocabulary entries, K candidates, W numbers in a
    state (`state_size`). Contexts are int64 ids `[N, C]`, oldest word first, left-padded with `<s>` where the sentence
    (or the text) begins. All log-probabilities are natural logarithms in float64. `<s>`, whose id is V-1, is never
    predicted: its entry in a distribution is the probability that a model reserves for types in no vocabulary, -inf for
    a model that reserves nothing. Ids may be of any integer type, also in lists; for other types, another shape and ids
    out of range, models raise ValueError. N may be 0.
    """

    full_windows = False  # whether a network was trained only on tokens whose whole context is in their sentence
    over_candidates = False  # whether a mixture renormalizes members over the candidates of a question, then mixes them

    @property
    @abstractmethod
    def vocabulary_size(self) -> int:
        """V, with `<s>`."""

    @property
    @abstractmethod
    def context_size(self) -> int | None:
        """C, the number of words before the predicted one that the model reads (for an n-gram model n-1).

        None: all of them, as in a recurrent network. C is then that of the longest context in a batch, at least 1, and
        the model ignores all leading `<s>` but the last. Such a model overrides `state_size`, `begin` and `advance`.
        """

    @property
    def across_sentences(self) -> bool:
        """Whether contexts reach into preceding sentences, with `</s>` among their words."""
        return False

    @property
    def normalized(self) -> bool:
        """Whether each distribution sums to one. If not, perplexities are not comparable with those of other models."""
        return True

    @property
    def self_normalized(self) -> bool:
        """Whether the model has scores that sum to one approximately, without a sum over all words."""
        return False

    @property
    def dynamic(self) -> bool:
        """Whether the distributions change with the text that the model has read, as with a cache."""
        return False

    @property
    def reads_near(self) -> bool:
        """Whether p is that of a word anywhere near the context, as of skip-gram, instead of the next word."""
        return False

    @property
    def in_order(self) -> bool:
        """Whether log_dist_text must read a text in order, as contexts are not enough or have no limit."""
        return self.dynamic or self.context_size is None

    @abstractmethod
    def log_dist(self, contexts: IntArray) -> FloatArray:
        """Return log p of all words after contexts `[N, C]`, as `[N, V]`; the log-sum-exp of each row is 0."""

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """Return log p(target | context), `[N]`, for contexts `[N, C]` and targets `[N]`."""
        contexts = self._checked_contexts("log_prob", contexts)
        targets = self._checked_words("log_prob: targets", targets, (len(contexts),))
        return self.log_prob_candidates(contexts, targets[:, None])[:, 0]

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """Return log p of candidates `[N, K]` after contexts `[N, C]`, not renormalized over them: `[N, K]`."""
        contexts = self._checked_contexts("log_prob_candidates", contexts)
        candidates = self._checked_words("log_prob_candidates: candidates", candidates, (len(contexts), "K"))
        chunks = [
            np.take_along_axis(self.log_dist(contexts[rows]), candidates[rows], axis=1)
            for rows in in_chunks(len(contexts), rows_at_once(self.vocabulary_size, ROWS_PER_CHUNK))
        ]
        return np.concatenate([np.empty((0, candidates.shape[1])), *chunks])

    def log_prob_choices(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """Return log p of the candidates of cloze questions up to a constant of each question, `[N, K]`."""
        return self.log_prob_candidates(contexts, candidates)

    def probabilities(self, contexts: IntArray) -> npt.NDArray[Any]:
        """Return p of all words after contexts `[N, C]`, `[N, V]`, in float32 or float64: exp(log_dist) up to rounding.

        Override it if the model has them faster than their logarithms.
        """
        log_dist = self.log_dist(contexts)
        return np.exp(log_dist, out=log_dist)

    def unnormalized_log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """Return scores `[N]` of targets `[N]` after contexts `[N, C]`, near log p, without a sum over all words.

        Raises UserError unless the model is self-normalized.
        """
        raise UserError("unnormalized=true: this model has no scores that sum to one without a sum over all words")

    def log_z(self, contexts: IntArray) -> FloatArray:
        """Return the log-sum-exp of `unnormalized_log_prob` over all words after contexts `[N, C]`, `[N]`.

        Raises UserError unless the model is self-normalized.
        """
        raise UserError("this model is not self-normalized: it has no log Z")

    def top(self, contexts: IntArray, k: int) -> tuple[IntArray, FloatArray]:
        """Return the k most likely words after contexts `[N, C]` and their log p, both `[N, k]`, most likely first.

        `<s>` is never among them: k is at most V-1. Of equally likely words the first by id comes first.
        """
        if not 1 <= k < self.vocabulary_size:
            raise ValueError(f"{self._name}.top: k must be from 1 to {self.vocabulary_size - 1:,}; got {k}")
        contexts = self._checked_contexts("top", contexts)
        words, log_probs = [np.empty((0, k), dtype=np.int64)], [np.empty((0, k))]
        for rows in in_chunks(len(contexts), rows_at_once(self.vocabulary_size, ROWS_PER_CHUNK)):
            log_dist = self.log_dist(contexts[rows])[:, :-1]
            words.append(np.argsort(-log_dist, axis=1, kind="stable")[:, :k])
            log_probs.append(np.take_along_axis(log_dist, words[-1], axis=1))
        return np.concatenate(words), np.concatenate(log_probs)

    def argmax(self, contexts: IntArray) -> IntArray:
        """Return the most likely word after each of the contexts `[N, C]`, never `<s>`: `[N]`; in a tie, the first."""
        contexts = self._checked_contexts("argmax", contexts)
        chunks = in_chunks(len(contexts), rows_at_once(self.vocabulary_size, ROWS_PER_CHUNK))
        words = [self.log_dist(contexts[rows])[:, :-1].argmax(axis=1) for rows in chunks]
        return np.concatenate([np.empty(0, dtype=np.int64), *words])

    def contexts_of(self, text: Split, index: IntArray) -> tuple[IntArray, IntArray]:
        """Return contexts `[B, C]`, as the model reads them, and targets `[B]` of the tokens at index `[B]`.

        A model that reads all words before gets the last 255: an approximation, for statistics of single tokens.
        """
        size = min(MAX_POSITION, int(index.max(initial=0)) + 1) if self.context_size is None else self.context_size
        return text.as_stream(self.across_sentences).windows(index, size)

    def map_text(self, function: Callable[..., Array], text: Split, first: int = 0, last: int | None = None) -> Array:
        """Return function(contexts, targets) of tokens `first` to `last` - 1 of a text: `[last - first, ...]`."""
        parts = in_chunks((text.tokens if last is None else last) - first, TOKENS_PER_CHUNK)
        indices = (np.arange(first + part.start, first + part.stop) for part in parts)
        return np.concatenate([function(*self.contexts_of(text, index)) for index in indices])

    def score_text(self, text: Split, *, progress: bool = False, memory_limit: int | None = None) -> FloatArray:
        """Return log p of each predicted token of a text, `[N]`.

        progress: show a bar. memory_limit: bytes above which parts of an n-gram model in a file leave the memory again.
        """
        if self.context_size is None:
            return self._score_by_states(text)
        return self.score_tokens(text, 0, text.tokens, progress=progress)

    def score_tokens(
        self, text: Split, first: int, last: int, *, unnormalized: bool = False, progress: bool = False
    ) -> FloatArray:
        """Return log p of the tokens `first` to `last` - 1 of a text, `[last - first]`, by their contexts.

        unnormalized: return unnormalized_log_prob instead.
        """
        if self.context_size is None and not unnormalized:
            return self.score_text(text, progress=progress)[first:last]
        score = self.unnormalized_log_prob if unnormalized else self.log_prob
        log_prob = np.empty(last - first)
        with token_bar(len(log_prob), shown=progress) as bar:
            for part in in_chunks(len(log_prob), TOKENS_PER_CHUNK):
                parallel.follow_load()
                log_prob[part] = score(*self.contexts_of(text, np.arange(first + part.start, first + part.stop)))
                bar.update(part.stop - part.start)
        return log_prob

    def log_dist_text(self, text: Split, first: int, last: int) -> FloatArray:
        """Return log p of all words before the tokens `first` to `last` - 1 of a text, `[last - first, V]`."""
        return self.log_dist(self.contexts_of(text, np.arange(first, last))[0])

    @property
    def state_size(self) -> int:
        """W, the size of a state. Raises UserError for a model of unbounded contexts that has none."""
        if self.context_size is None:
            raise UserError(f"a {self._name} of unbounded contexts, as of recurrent networks, has no states")
        return self.context_size

    def begin(self, special_tokens: SpecialTokens, *, sentence_start: bool = True) -> IntArray:
        """Return the state `[W]` before the first word, for `advance`. Raises UserError for a model with a cache.

        A state is a row of int64 that holds everything read so far that affects later words: if rows are equal, all
        further log-probabilities are, so that a decoder may recombine such hypotheses. By default it is the context; a
        recurrent network keeps the bits of its hidden units in it.
        sentence_start: whether a sentence begins; if not, nothing is known of the words before.
        """
        if self.dynamic:
            raise UserError("a model with a cache has no states: it depends on all that it has read; take its members")
        return np.full(self.state_size, special_tokens.bos if sentence_start else special_tokens.unk, dtype=np.int64)

    def advance(self, states: IntArray, words: IntArray, special_tokens: SpecialTokens) -> tuple[FloatArray, IntArray]:
        """Return log p(word | state) `[N]` of words `[N]` after states `[N, W]`, and the states after them, `[N, W]`.

        After `</s>` a new sentence begins. Raises ValueError for other shapes and types, and for words out of range.
        """
        words = self._checked_words("advance: words", words, (len(states),))
        contexts, place = np.unique(states, axis=0, return_inverse=True)
        if len(contexts) == len(states):
            log_prob = self.log_prob(states, words)
        else:
            log_prob = self._log_prob_of_shared(contexts, place.reshape(-1), words)
        after = np.concatenate([states, words[:, None]], axis=1)[:, 1:]
        if special_tokens.eos is not None and not self.across_sentences:
            after[words == special_tokens.eos] = self.begin(special_tokens)
        return log_prob, after

    @property
    def context_classes(self) -> int | None:
        """The number of values of `context_lengths`; None if the model has no n-grams."""
        return None

    def context_lengths(self, contexts: IntArray) -> IntArray:
        """Return how many of the last words of contexts `[N, C]` were seen together in training, `[N]`, from 0 to C."""
        raise NotImplementedError(f"{self._name} has no n-grams")

    def matched_lengths(self, contexts: IntArray, targets: IntArray) -> IntArray:
        """Return the length of the longest n-gram of the model that ends in each of the targets `[N]`, `[N]`."""
        raise NotImplementedError(f"{self._name} has no n-grams")

    def explain(self, contexts: IntArray, targets: IntArray) -> dict[str, Array]:
        """Return what p of targets `[N]` after contexts `[N, C]` comes from, as columns `[N]` by name; nan where one
        does not apply. By default the `rank` of the target among all words, from 1, and the id of the `most likely`.
        """
        contexts = self._checked_contexts("explain", contexts)
        targets = self._checked_words("explain: targets", targets, (len(contexts),))
        dists = (self.log_dist(context[None])[0] for context in contexts)  # one by one: they are large
        pairs = [(1 + (d[:-1] > d[target]).sum(), d[:-1].argmax()) for d, target in zip(dists, targets, strict=True)]
        rank, most_likely = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return {"rank": rank, "most likely": most_likely}

    @property
    def hidden_dim(self) -> int | None:
        """D, the number of hidden units that `hidden` returns; None if the model has none."""
        return None

    def hidden(self, contexts: IntArray) -> npt.NDArray[np.float32]:
        """Return the hidden units after contexts `[N, C]`, float32 `[N, D]`."""
        raise NotImplementedError(f"{self._name} has no hidden units")

    def hidden_text(self, text: Split, first: int, last: int) -> npt.NDArray[np.float32]:
        """Return the hidden units before the tokens `first` to `last` - 1 of a text, `[last - first, D]`."""
        return self.map_text(lambda contexts, _: self.hidden(contexts), text, first, last)

    def _score_by_states(self, text: Split) -> FloatArray:
        """Return log p of all tokens `[N]`, one word of each sentence (or stream) at a time."""
        offsets, ids = text.as_stream(self.across_sentences).offsets, text.ids.astype(np.int64)
        special_tokens = SpecialTokens(text.bos, None, text.bos)  # a sentence's last state is not used
        longest_first = np.argsort(-np.diff(offsets), kind="stable")
        log_prob = np.empty(text.tokens)
        for rows in in_chunks(len(longest_first), SENTENCES_PER_CHUNK):
            chunk = longest_first[rows]
            starts, sizes = offsets[chunk], np.diff(offsets)[chunk]
            states = np.repeat(self.begin(special_tokens)[None], len(chunk), axis=0)
            for position in range(int(sizes.max())):
                tokens = starts[: int((sizes > position).sum())] + position
                log_prob[tokens], states = self.advance(states[: len(tokens)], ids[tokens], special_tokens)
        return log_prob

    def _log_prob_of_shared(self, contexts: IntArray, place: IntArray, words: IntArray) -> FloatArray:
        """Return log p of words `[N]` after the contexts `[U, C]` at place `[N]`: each context is encoded once."""
        order = np.argsort(place, kind="stable")
        sizes = np.bincount(place, minlength=len(contexts))
        column = np.empty(len(words), dtype=np.int64)  # of each word among the candidates of its context
        column[order] = np.arange(len(words)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        candidates = np.zeros((len(contexts), int(sizes.max())), dtype=np.int64)
        candidates[place, column] = words
        log_prob: FloatArray = self.log_prob_candidates(contexts, candidates)[place, column]
        return log_prob

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _checked_contexts(self, method: str, contexts: IntArray) -> IntArray:
        size = self.context_size
        return self._checked_words(f"{method}: contexts", contexts, ("N", "C" if size is None else size))

    def _checked_words(self, argument: str, words: IntArray, shape: tuple[int | str, ...]) -> IntArray:
        return whole_numbers(f"{self._name}.{argument}", words, shape, below=self.vocabulary_size)
