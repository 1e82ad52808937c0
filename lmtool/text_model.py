"""A language model that takes and returns text; what `lmtool.load` and `lmtool.train` return."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, overload

import numpy as np

from lmtool.config.rules import require, require_flags, require_whole
from lmtool.config.verbs import SIMILARITIES, VECTORS, Sampling
from lmtool.data.split import Split
from lmtool.data.tokenizer import split_words
from lmtool.data.vocabulary import EOS
from lmtool.errors import UserError
from lmtool.evaluation.metrics import perplexity, require_no_cache
from lmtool.sampling import continuations, in_whole_characters
from lmtool.states import State, States
from lmtool.system.arrays import FloatArray, IntArray
from lmtool.word_model import Sentences, WordModel, Words

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True, repr=False)
class TextModel(WordModel):
    """A language model with its vocabulary and the rules by which text becomes words.

    model: the LanguageModel itself, which has more methods. form: how text is split into words. name: the run folder or
    file that it was loaded from. In methods that take text, `oov` is the treatment of words outside the vocabulary:
    "error" raises a UserError that names the closest words, "unk" replaces them by `<unk>`. `sentence_start=False`: the
    text does not begin a sentence, and missing context is `<unk>` instead of `<s>`.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5)
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell", out="wb2")
    >>> lmtool.load("wb2")
    TextModel(wb2: NgramModel of 6 words, contexts of 1)
    >>> run.model.score("the cat sat").round(2).tolist()  # natural log p of each word and of </s>
    [-0.07, -0.82, -0.14, -0.07]
    >>> [(word, round(p, 2)) for word, p in run.model.predict("the", top=2)]
    [('cat', 0.44), ('dog', 0.44)]
    """

    @overload
    def score(self, sentences: str, *, across_sentences: bool = False) -> FloatArray: ...  # type: ignore[overload-overlap]

    @overload
    def score(self, sentences: Sentences, *, across_sentences: bool = False) -> list[FloatArray]: ...

    def score(self, sentences: str | Sentences, *, across_sentences: bool = False) -> FloatArray | list[FloatArray]:
        """Return the natural log-probability of each token: for each sentence a float64 array `[tokens]`, for a string
        one such array.

        A sentence is a string or a list of words. Its tokens are its words and, if the model's data have sentences,
        `</s>`. A word outside the vocabulary counts as `<unk>`, as in `lmtool eval`. across_sentences: whether the
        sentences are one text, in which contexts continue from each sentence to the next; if not, each is scored alone.
        Raises UserError for a sentence with a line end within it or with `<s>` or `</s>` as a word, and for
        across_sentences=True if the model reads single sentences.
        """
        if isinstance(sentences, str):
            return self.score([sentences], across_sentences=across_sentences)[0]
        text, sizes = self.encoded(self._words_in("sentences", sentences), across_sentences=across_sentences)
        if not text.tokens:
            return [np.empty(0) for _ in sizes]
        return np.split(self.model.score_text(text), np.cumsum(sizes)[:-1])

    def token_score(
        self, sentences: str | Sentences, *, surprisal: bool = False, bits: bool = False
    ) -> list[list[tuple[str, float]]]:
        """Return for each sentence its tokens, `</s>` last, each with its log p, like the `token_score` of minicons.

        surprisal: return -log p. bits: take log2 instead of the natural logarithm. Raises UserError as `score` does,
        and for a model with a cache.
        """
        require_no_cache(self.model, self.name)
        require_flags(surprisal=surprisal, bits=bits)
        given = list(self._words_in("sentences", sentences))
        scale = (-1 if surprisal else 1) / (math.log(2) if bits else 1)
        end = [] if self.vocabulary.eos is None else [EOS]
        tokens = [[*self.form.labels(self.form.tokens(words)), *end] for words in given]
        scores = [(scale * log_prob).tolist() for log_prob in self.score(given)]
        return [list(zip(*pair, strict=True)) for pair in zip(tokens, scores, strict=True)]

    def compare(self, good: str | Sentences, bad: str | Sentences) -> FloatArray:
        """Return log p(good) - log p(bad) of each pair of sentences, in nats, float64 `[N]`: above 0 where the model
        prefers the good one, 0 if both have probability 0. Raises UserError as `token_score` does.
        """
        require_no_cache(self.model, self.name)
        sums = []
        for key, given in (("good", good), ("bad", bad)):
            words = list(self._words_in(key, given))
            if [] in words:
                raise UserError(f"compare: {key}[{words.index([])}] has no words: leave out this pair")
            sums.append(np.array([log_prob.sum() for log_prob in self.score(words)]))
        if len(sums[0]) != len(sums[1]):
            raise UserError(f"compare: {len(sums[0]):,} good sentences and {len(sums[1]):,} bad ones: give pairs")
        with np.errstate(invalid="ignore"):  # both may be -inf
            return np.where(sums[0] == sums[1], 0.0, sums[0] - sums[1])

    def perplexity(self, text: str | Sentences, *, across_sentences: bool = False) -> float:
        """Return exp(-mean log p) over all tokens of sentences (see `split_of`), comparable if `normalized`."""
        return perplexity(self.model.score_text(self.split_of(text, across_sentences=across_sentences)))

    def split_of(self, sentences: str | Sentences, *, across_sentences: bool = False) -> Split:
        """Return sentences, each a string or a list of words, as text that can be scored, without those that have no
        words, as of a file; across_sentences: as in `score`. Raises UserError if the text is empty.
        """
        every, rules = self.form.blank_lines, self.form.rules
        if rules.segmenter is not None and isinstance(sentences, Iterable):  # it is read twice
            sentences = [sentences] if isinstance(sentences, str) else list(sentences)
        found = self._words_in("text", sentences)
        words = (words for words in found if every or any(map(split_words, words)))
        text, _ = self.encoded(words, across_sentences=across_sentences)
        if not text.tokens:
            raise UserError("text=[]: there is nothing to score; give one sentence or more")
        if rules.segmenter is None:
            return text
        lines = "\n".join(each for each in sentences if isinstance(each, str)).encode("utf-8", "surrogatepass")
        return replace(text, characters=text.characters - rules.count_inserted(lines, rules.encoded(lines)))

    def predict(
        self, text: str = "", top: int = 10, *, sentence_start: bool = True, oov: str = "error"
    ) -> list[tuple[str, float]]:
        """Return the most likely next words and their probabilities, at most `top`, none with probability 0. Pieces of
        words are returned as what they add to the text, e.g. ` the` or `ing`. sentence_start, oov: see the class.
        """
        require_whole("top", top)
        context = self.context(self.ids(text, oov), sentence_start=sentence_start)
        words, log_p = self.model.top(context[None], min(top, self.vocabulary.bos))
        pairs = zip(words[0].tolist(), np.exp(log_p[0]).tolist(), strict=True)
        return [(self.form.token_text(word), p) for word, p in pairs if p > 0]

    def generate(
        self,
        text: str = "",
        *,
        count: int = 5,
        length: int = 50,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        sentence_start: bool = True,
        oov: str = "error",
    ) -> list[str]:
        """Sample `count` texts that begin with `text` and end with the sentence, or after `length` more words.

        temperature: words are drawn from p^(1/temperature), but no piece after which the text could not be UTF-8; 0
        takes the most likely one.
        top_k: only from the k most likely (Fan et al. 2018).
        top_p: only from the most likely that together have this probability (Holtzman et al. 2020).
        seed: equal seeds give equal texts; None: a random seed.
        sentence_start, oov: see the class.
        """
        sampling = Sampling(temperature, top_k, top_p)
        require_whole("count", count)
        require_whole("length", length)
        require_whole("seed", seed, 0, null=True)
        ids = self.ids(text, oov)
        seed = secrets.randbelow(1 << 31) if seed is None else seed
        whole = replace(self, model=in_whole_characters(self.model, self.form))
        context = whole.context(ids, sentence_start=sentence_start)
        eos = self.vocabulary.eos
        sampled = continuations(whole.model, context, eos, sampling, count=count, length=length, seed=seed)
        return [self.form.join([*ids.tolist(), *continuation]) for continuation in sampled]

    def begin(self, *, sentence_start: bool = True) -> State:
        """Return the state before the first word. Raises UserError for a model with a cache."""
        require_flags(sentence_start=sentence_start)
        state = self.model.begin(self.vocabulary.special_tokens, sentence_start=sentence_start)
        return State(state.tobytes(), self.model)

    @overload
    def advance(self, state: State, words: str) -> tuple[float, State]: ...

    @overload
    def advance(
        self, state: States | Sequence[State], words: Sequence[str] | IntArray
    ) -> tuple[FloatArray, States]: ...

    def advance(
        self, state: State | States | Sequence[State], words: str | Sequence[str] | IntArray
    ) -> tuple[float, State] | tuple[FloatArray, States]:
        """Return natural log p(word | state) and the state after the word; for N words after N states, log p as float64
        `[N]` and N states.

        Words are strings, including `</s>`, or int64 ids `[N]`; in a model of pieces or letters, single ones. A word
        outside the vocabulary counts as `<unk>`; after `</s>` a new sentence begins. States are hashable, and equal if
        all further log-probabilities are, so that a decoder may recombine hypotheses. Raises ValueError for a state of
        another model, and unless there are as many words as states, and UserError for several pieces or letters.
        """
        if isinstance(state, State):
            log_prob, after = self.advance([state], [words])  # type: ignore[list-item]
            return float(log_prob[0]), after[0]
        states = state if isinstance(state, States) else States.of(state)
        if states.model is not self.model:
            raise ValueError(f"advance: these are states of another model than {self.name}")
        if not isinstance(words, np.ndarray):
            if not isinstance(words, Iterable) or not all([isinstance(word, str) for word in words]):
                raise UserError(f"advance: words={words!r:.40}: must be strings, or an array of ids")
            words = self.vocabulary.encode(self.form.single_tokens(words))
        log_probs, rows = self.model.advance(states.rows, words, self.vocabulary.special_tokens)
        return log_probs, States(rows, self.model)

    @property
    def embeddings(self) -> npt.NDArray[np.float32]:
        """The embeddings of `words`, `[V - 1, E]`. Raises UserError if the model is not neural."""
        return self.network.word_vectors("embeddings")[: len(self.words)]

    def __getitem__(self, word: str) -> npt.NDArray[np.float32]:
        """Return the embedding `[E]` of a word, as gensim's vectors do. Raises UserError as `neighbors` does."""
        return np.asarray(self.network.word_vectors("embeddings")[self.id_of(word)])

    def neighbors(
        self, word: Words, top: int = 10, *, minus: Words | None = None, by: str = "cosine", of: str = "embeddings"
    ) -> list[tuple[str, float]]:
        """Return the words with the most similar vectors and their similarity, at most `top`, without those given.

        word: one; with minus, also several, whose vectors are added. minus: one or several that are subtracted. by:
        cosine, for which vectors have length 1 (gensim's most_similar), or dot. of: embeddings, or output for the
        vectors of the output layer. For the neighbors of each of several words see lmtool.neighbors.
        Raises UserError for a word outside the vocabulary, and if the model is not neural.
        """
        from lmtool.neural.model import nearest

        require_whole("top", top)
        require(by in SIMILARITIES, "by", by, "cosine or dot")
        require(of in VECTORS, "of", of, "embeddings or output")
        vectors, signs = self.network.word_vectors(of), dict[int, int]()
        given = {"word": word} if minus is None else {"word": word, "minus": minus}
        for sign, (key, value) in zip((1, -1), given.items(), strict=False):
            each_word = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
            one = len(each_word) == 1 or minus is not None
            require(one, key, value, "one word, unless minus= is given; lmtool.neighbors(words, run) takes several")
            for each in each_word:
                index = self.id_of(each, predicted=of == "output")
                require(signs.setdefault(index, sign) == sign, key, each, "on one side alone")
        require(bool(signs), "word", word, "one word or more")
        ids, similarity = nearest(vectors, signs, top, by)
        return [(self.form.token_text(i), value) for i, value in zip(ids.tolist(), similarity.tolist(), strict=True)]
