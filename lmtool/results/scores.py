"""Results of `eval`, `compare` and `score`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmtool.errors import UserError
from lmtool.results.base import CONTEXTS, UNSAVED, Figures, figure, frame
from lmtool.system.terminal import Cell

if TYPE_CHECKING:
    import pandas

    from lmtool.evaluation.token_scores import TokenScores
    from lmtool.system.arrays import FloatArray, IntArray

MAX_NATS = 709.0  # exp of this is still finite in float64
OF_CLOZE = {  # printed below the number of questions
    **{"  perplexity": "perplexity", "  accuracy": "accuracy"},
    **{"  perplexity (local)": "local_perplexity", "  accuracy (local)": "local_accuracy"},
}


def perplexity_of(log_prob: float, count: int) -> float:
    """Return exp(-log_prob / count), or inf if no float holds it."""
    return math.exp(-log_prob / count) if -log_prob / count < MAX_NATS else math.inf


def _context_text(result: Evaluation | ScoredTexts) -> str | None:
    return CONTEXTS.get(result.across_sentences)


def _cloze_figures(result: Evaluation) -> list[tuple[str, Cell]]:
    if not result.cloze:
        return []
    known = [(name, result.cloze[key]) for name, key in OF_CLOZE.items() if key in result.cloze]
    return [("cloze questions", int(result.cloze["questions"])), *known]


def _log_z_text(result: Evaluation) -> str | None:
    return "{mean:.4f} +- {std:.4f} ({contexts:,} contexts)".format(**result.log_z) if result.log_z else None


def _bucket_figures(result: ScoredTexts) -> list[tuple[str, Cell]]:
    return [
        (f"bucket {name}", f"{count:,} texts{'' if limit is None else f', to {limit:.4f}'}, {100 * share:.2f} % OOVs")
        for name, limit, count, share in result.buckets
    ]


@dataclass(repr=False, eq=False)
class Evaluation(Figures):
    """The result of `eval`: a model's scores of one text, with counts and perplexities.

    run: the run folder or ARPA file.
    split: the name of the text.
    normalized: whether the scores sum to one, None if unknown.
    scores: log p with the tokens, as in scores.h5; None if the split has only cloze questions: all figures of tokens
    then raise UserError.
    tokens: N, the number of predicted tokens.
    oov: number of tokens that are `<unk>` for a word outside the vocabulary.
    perplexity: exp(-mean log p) over all predicted tokens.
    perplexity_without_oov: the same over the tokens in the vocabulary.
    bits_per_token: the base-2 logarithm of the perplexity.
    perplexity_per_word, bits_per_word: exp of -log_prob / words_and_ends, and its base-2 logarithm, to compare models
    with different tokens; words_and_ends is the number of words and sentence ends.
    bits_per_character: bits per character of the words, counting one character between two words and one per line.
    log_prob: sum of the log-probabilities, in nats.
    accuracy: share of tokens that are the most likely word.
    seconds, tokens_per_second: time and speed of scoring.
    cloze: results of the split's questions, named as in result.json.
    log_z: mean and standard deviation of the log of the scores' sum over the vocabulary.
    across_sentences: whether contexts crossed the sentences of the text; None for a model that reads single sentences.
    dynamic: whether the model learned from the text as it read it. Unknown figures are None.
    """

    title = "run {0.run} on {0.split}"
    metric_name = "perplexity"

    run: str = field(metadata=UNSAVED)
    split: str
    scores: TokenScores | None = field(metadata=UNSAVED, default=None)
    words_and_ends: int | None = field(metadata=UNSAVED, default=None)
    tokens: int = field(metadata=figure("tokens ({0.split})"), init=False)
    oov: int | None = field(
        metadata=figure("  out of vocabulary", show=lambda e: "unknown" if e.oov is None else e.oov),
        init=False,
    )
    perplexity: float = field(metadata=figure("{0._perplexity_heading}"), init=False)
    perplexity_without_oov: float | None = field(
        metadata=figure("  without OOVs", show=lambda e: e.perplexity_without_oov if e.oov else None),
        init=False,
    )
    bits_per_token: float = field(
        metadata=figure("bits per token", show=lambda e: None if e._by_word else e.bits_per_token),
        init=False,
    )
    perplexity_per_word: float | None = field(
        metadata=figure("perplexity per word", show=lambda e: None if e._by_word else e.perplexity_per_word),
        init=False,
    )
    bits_per_word: float | None = field(metadata=figure("bits per word"), init=False)
    bits_per_character: float | None = field(metadata=figure("bits per character"), init=False)
    log_prob: float = field(init=False)
    accuracy: float | None = field(metadata=figure("accuracy"), default=None)
    seconds: float = field(init=False)
    tokens_per_second: float = field(metadata=figure("tokens per second", digits=0), init=False)
    cloze: dict[str, float] | None = field(metadata=figure(show=_cloze_figures), default=None)
    log_z: dict[str, float] | None = field(metadata=figure("log Z of the scores", show=_log_z_text), default=None)
    across_sentences: bool | None = field(metadata=figure("contexts", show=_context_text), default=None)
    dynamic: bool = False
    normalized: bool | None = field(
        metadata=figure("sum over all words", show=lambda e: "unknown" if e.normalized is None else None),
        kw_only=True,
    )

    @classmethod
    def of(
        cls, run: str, scores: TokenScores, *, seconds: float = 0.0, characters: int | None = None, **known: Any
    ) -> Evaluation:
        """Return the evaluation of scores. characters: of the text; None: as in the scores. known: other fields."""
        import numpy as np

        from lmtool.evaluation.metrics import perplexity

        about = {"words_and_ends": scores.words, "dynamic": scores.dynamic, "normalized": scores.normalized}
        found = cls(run, scores.split, scores, **about | known)
        words, characters = found.words_and_ends, scores.characters if characters is None else characters
        outside, oov_known = scores.tokens.oov_positions, scores.tokens.oov_known
        in_vocabulary = np.delete(scores.log_prob, outside)
        found.tokens, found.oov = scores.tokens.count, len(outside) if oov_known else None
        found.log_prob = float(scores.log_prob.sum(dtype="float64"))
        found.perplexity = perplexity(scores.log_prob)
        found.perplexity_without_oov = perplexity(in_vocabulary) if len(in_vocabulary) and oov_known else None
        found.bits_per_token = -found.log_prob / found.tokens / math.log(2)
        found.perplexity_per_word = perplexity_of(found.log_prob, words) if words else None
        if words == found.tokens:
            found.perplexity_per_word = found.perplexity
        found.bits_per_word = -found.log_prob / words / math.log(2) if words else None
        found.bits_per_character = -found.log_prob / characters / math.log(2) if characters else None
        found.seconds, found.tokens_per_second = seconds, found.tokens / max(seconds, 1e-9)
        return found

    def __getattr__(self, name: str) -> Any:
        """Raise UserError for a figure of tokens if no tokens were scored, else AttributeError."""
        if name in type(self).__dataclass_fields__:
            raise UserError(f"{self.split} has cloze questions and no text: see .cloze")
        raise AttributeError(name)

    @property
    def log_probs(self) -> FloatArray:
        """Natural log-probability of each token, float64 `[N]`."""
        return self._scores.log_prob

    @property
    def words(self) -> list[str]:
        """The predicted tokens, N words of the vocabulary; `<unk>` for a word outside it."""
        words = self._scores.tokens.words
        return [words[index] for index in self._scores.tokens.ids.tolist()]

    @property
    def offsets(self) -> IntArray:
        """Start positions of the sentences, and N: int64 `[S + 1]`; `[0, N]` for text without sentences."""
        return self._scores.tokens.offsets

    @property
    def oov_positions(self) -> IntArray:
        """The positions of tokens outside the vocabulary, int64 `[oov]`."""
        return self._scores.tokens.oov_positions

    @property
    def _scores(self) -> TokenScores:
        return self.scores if self.scores is not None else self.__getattr__("tokens")

    def tokens_to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with a row per token: sentence (from 0), word, log_prob_nats, oov."""
        import numpy as np

        sentences = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets)).tolist()
        outside = set(self.oov_positions.tolist())
        lines = zip(sentences, self.words, self.log_probs.tolist(), strict=True)
        return frame(
            [{"sentence": s, "word": w, "log_prob_nats": p, "oov": k in outside} for k, (s, w, p) in enumerate(lines)]
        )

    def as_json(self) -> dict[str, Any]:
        """Return the content of result.json: for a split with only questions, its name, the run and their results."""
        run = {"run": str(Path(self.run).resolve())}
        return (super().as_json() if self.scores is not None else {"split": self.split, "cloze": self.cloze}) | run

    @property
    def _by_word(self) -> bool:
        """Whether the tokens are words."""
        return self.words_and_ends == self.tokens

    @property
    def _perplexity_heading(self) -> str:
        return "perplexity, dynamic" if self.dynamic else "perplexity"


@dataclass(frozen=True)
class Compared:
    """A row of `compare`: one model; the first row has no difference. from_, to: the 95 % confidence interval of the
    difference. block: mean number of units drawn together. fitted: the parameters that were fitted or chosen on the
    text.
    """

    run: str = field(metadata=figure("run", show=lambda row: row.label))
    perplexity: float = field(metadata=figure("perplexity"))
    difference: float | None = field(metadata=figure("difference"))
    from_: float | None = field(metadata=figure("95 % CI, lower"))
    to: float | None = field(metadata=figure("upper"))
    p_bootstrap: float | None = field(metadata=figure("p (bootstrap)"))
    p_randomization: float | None = field(metadata=figure("p (randomization)"))
    block: int | None = field(metadata=figure("block"))
    dynamic: bool
    split: str
    normalized: bool | None
    fitted_on_this_text: bool
    fitted: list[str]
    across_sentences: bool | None

    @property
    def label(self) -> str:
        """The model's name, and remarks on its scores."""
        return self.run + ", dynamic" * self.dynamic + ", sum unknown" * (self.normalized is None)


@dataclass(repr=False)
class ScoredTexts(Figures):
    """The result of `score`: totals of many texts.

    empty: number of texts without a token.
    faulty: number of faulty records, which were skipped.
    tokens, oov, log_prob: totals over all texts.
    run_out: the second run, if any.
    resumed: number of texts whose scores already existed.
    tokens_per_second: speed for all other texts; None if no other text was scored.
    buckets: name, limit (None for the last bucket), number of texts and share of OOVs of each bucket.
    kept: number of texts written by filter=.
    max_perplexity, min_perplexity, max_oov: the limits that the kept texts satisfy.
    across_sentences: as in Evaluation.
    target: the target text of hashed n-grams.
    to, filter: the written files.
    """

    metric_name = "perplexity"
    name_width = 24

    run: str
    run_out: str | None
    text: str
    texts: int = field(metadata=figure("texts"), default=0)
    empty: int = field(metadata=figure("  without tokens"), default=0)
    faulty: int = 0
    tokens: int = field(metadata=figure("{0._token_heading}"), default=0)
    oov: int = field(metadata=figure("  OOVs", show=lambda e: e.oov if e.target is None else None), default=0)
    perplexity: float | None = field(metadata=figure("perplexity"), default=None)
    log_prob: float = 0.0
    seconds: float = 0.0
    across_sentences: bool | None = field(metadata=figure("contexts", show=_context_text), default=None)
    tokens_per_second: float | None = field(metadata=figure("tokens per second", digits=0), default=None)
    resumed: int = 0
    buckets: list[tuple[str, float | None, int, float]] = field(
        metadata=figure(show=_bucket_figures), default_factory=list
    )
    kept: int | None = field(metadata=figure("kept"), default=None)
    max_perplexity: float | None = field(metadata=figure("  at most"), default=None)
    min_perplexity: float | None = field(metadata=figure("  at least"), default=None)
    max_oov: float | None = field(metadata=figure("OOVs at most", unit="%"), default=None)
    target: str | None = None
    to: Path | None = None
    filter: Path | None = None

    def heading(self) -> str:
        return f"run {self.run}{f', out {self.run_out}' if self.run_out else ''} on {self.text}"

    @property
    def _token_heading(self) -> str:
        return "tokens" if self.target is None else "n-grams"
