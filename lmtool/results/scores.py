"""Results of `eval` and `compare`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmtool.errors import UserError
from lmtool.results.base import Figures, TableResult, frame
from lmtool.system.terminal import Cell

if TYPE_CHECKING:
    import pandas

    from lmtool.evaluation.token_scores import TokenScores
    from lmtool.system.arrays import FloatArray, IntArray

CONTEXTS: dict[bool | None, str] = {True: "across sentences", False: "of one line"}  # if the model may cross sentences
MAX_NATS = 709.0  # exp of this is still finite in float64
FIGURES = (
    *("split", "tokens", "oov", "perplexity", "perplexity_without_oov", "bits_per_token", "perplexity_per_word"),
    *("bits_per_word", "bits_per_character", "log_prob", "seconds", "tokens_per_second"),
)  # keys of every result.json of eval


@dataclass(repr=False)
class Evaluation(Figures):
    """The result of `eval`: a model's scores of one text, with counts and perplexities.

    run: the run folder or ARPA file. split: the name of the text. normalized: whether the scores sum to one, None if
    unknown. scores: log p with the tokens, as in scores.h5; None if the split has only cloze questions: all figures of
    tokens then raise UserError. characters: number in the words, with one between two words and one per line, 0 if
    unknown; words_and_ends: number of words and sentence ends, whatever the tokens are. accuracy: share of tokens that
    are the most likely word. log_z: mean and standard deviation of the log of the scores' sum. cloze: results of the
    split's questions, named as in result.json. across_sentences: whether contexts crossed the sentences of the text;
    None for a model that reads single sentences. dynamic: whether the model learned from the text as it read it.
    Unknown figures are None.
    """

    run: str
    split: str
    normalized: bool | None
    scores: TokenScores | None = None
    characters: int = 0
    words_and_ends: int | None = None
    seconds: float = 0.0
    accuracy: float | None = None
    cloze: dict[str, float] | None = None
    log_z: dict[str, float] | None = None
    across_sentences: bool | None = None
    dynamic: bool = False

    @classmethod
    def of(cls, run: str, scores: TokenScores, **known: Any) -> Evaluation:
        """Return the evaluation of scores. known: other attributes."""
        of_scores = {"characters": scores.characters, "words_and_ends": scores.words, "dynamic": scores.dynamic}
        return cls(run, scores.split, scores.normalized, scores, **of_scores | known)

    @property
    def tokens(self) -> int:
        """N, the number of predicted tokens."""
        return self.token_scores.tokens.count

    @property
    def oov(self) -> int | None:
        """Number of tokens that are `<unk>` for a word outside the vocabulary; None if unknown."""
        return len(self.oov_positions) if self.token_scores.tokens.oov_known else None

    @cached_property
    def log_prob(self) -> float:
        """Sum of the log-probabilities, in nats."""
        return float(self.log_probs.sum(dtype="float64"))

    @cached_property
    def perplexity(self) -> float:
        """exp(-mean log p) over all predicted tokens."""
        from lmtool.evaluation.metrics import perplexity

        return perplexity(self.log_probs)

    @cached_property
    def perplexity_without_oov(self) -> float | None:
        """Perplexity of the tokens in the vocabulary; None if all are outside, or the vocabulary is unknown."""
        import numpy as np

        from lmtool.evaluation.metrics import perplexity

        known = np.delete(self.log_probs, self.oov_positions)
        return perplexity(known) if len(known) and self.oov is not None else None

    @property
    def perplexity_per_word(self) -> float | None:
        """exp(-log_prob / words_and_ends), to compare models with different tokens."""
        log_prob, words = self.log_prob, self.words_and_ends
        if not words or words == self.tokens:
            return self.perplexity if words else None
        return math.exp(-log_prob / words) if -log_prob / words < MAX_NATS else math.inf

    @property
    def bits_per_token(self) -> float:
        """Bits per predicted token: the base-2 logarithm of the perplexity."""
        return -self.log_prob / self.tokens / math.log(2)

    @property
    def bits_per_word(self) -> float | None:
        """Bits per word or sentence end, to compare models with different tokens."""
        words = self.words_and_ends
        return -self.log_prob / words / math.log(2) if words else None

    @property
    def bits_per_character(self) -> float | None:
        """Bits per character of the words, with one between two words and one per line."""
        log_prob = self.log_prob
        return -log_prob / self.characters / math.log(2) if self.characters else None

    @property
    def token_scores(self) -> TokenScores:
        """The scores with the tokens. Raises UserError if the split has no text, as all figures of tokens do."""
        if self.scores is None:
            raise UserError(f"{self.split} has cloze questions and no text: see .cloze")
        return self.scores

    @property
    def log_probs(self) -> FloatArray:
        """Natural log-probability of each token, float64 `[N]`."""
        return self.token_scores.log_prob

    @property
    def words(self) -> list[str]:
        """The predicted tokens, N words of the vocabulary; `<unk>` for a word outside it."""
        words = self.token_scores.tokens.words
        return [words[index] for index in self.token_scores.tokens.ids.tolist()]

    @property
    def offsets(self) -> IntArray:
        """Start positions of the sentences, and N: int64 `[S + 1]`; `[0, N]` for text without sentences."""
        return self.token_scores.tokens.offsets

    @property
    def oov_positions(self) -> IntArray:
        """The positions of tokens outside the vocabulary, int64 `[oov]`."""
        return self.token_scores.tokens.oov_positions

    @property
    def tokens_per_second(self) -> float:
        """Number of tokens scored per second."""
        return self.tokens / max(self.seconds, 1e-9)

    @property
    def metric(self) -> float | None:
        """Perplexity, or None if it has no text."""
        return None if self.scores is None else self.perplexity

    def tokens_to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with a row per token: sentence (from 0), word, log_prob_nats, oov.

        Raises UserError if pandas is not installed.
        """
        import numpy as np

        sentences = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets)).tolist()
        outside = set(self.oov_positions.tolist())
        lines = zip(sentences, self.words, self.log_probs.tolist(), strict=True)
        return frame(
            [{"sentence": s, "word": w, "log_prob_nats": p, "oov": k in outside} for k, (s, w, p) in enumerate(lines)]
        )

    def as_json(self) -> dict[str, Any]:
        """Return the content of result.json, without optional figures that are unknown."""
        if self.scores is None:
            return {"split": self.split, "cloze": self.cloze}
        last = {"accuracy": self.accuracy, "cloze": self.cloze, "log_z": self.log_z or None}
        last |= {"across_sentences": self.across_sentences, "dynamic": self.dynamic or None}
        known = {key: value for key, value in last.items() if value is not None}
        figures = {name: getattr(self, name) for name in FIGURES} | known
        return figures | {"normalized": self.normalized}

    def _figures(self) -> list[tuple[str, Cell]]:
        cloze, log_z = self.cloze or {}, self.log_z
        rows: list[tuple[str, Cell]] = []
        if self.scores is not None:
            differ = self.words_and_ends != self.tokens  # tokens are not words, or it is not known
            rows += [
                (f"tokens ({self.split})", self.tokens),
                ("  out of vocabulary", "unknown" if self.oov is None else self.oov),
                ("perplexity, dynamic" if self.dynamic else "perplexity", self.perplexity),
                ("  without OOVs", self.perplexity_without_oov if self.oov else None),
                ("bits per token", self.bits_per_token if differ else None),
                ("perplexity per word", self.perplexity_per_word if differ else None),
                ("bits per word", self.bits_per_word),
                ("bits per character", self.bits_per_character),
                ("accuracy", self.accuracy),
                ("tokens per second", round(self.tokens_per_second)),
            ]
        rows += [
            ("cloze questions", int(cloze["questions"]) if cloze else None),
            ("  perplexity", cloze.get("perplexity")),
            ("  accuracy", cloze.get("accuracy")),
            ("  perplexity (local)", cloze.get("local_perplexity")),
            ("  accuracy (local)", cloze.get("local_accuracy")),
        ]
        if log_z:
            spread = f"{log_z['mean']:.4f} +- {log_z['std']:.4f} ({log_z['contexts']:,} contexts)"
            rows.append(("log Z of the scores", spread))
        rows.append(("contexts", CONTEXTS.get(self.across_sentences)))
        rows.append(("sum over all words", "unknown" if self.normalized is None else None))
        return [(name, value) for name, value in rows if value is not None]

    def heading(self) -> str:
        """Return the run and the text."""
        return f"run {self.run} on {self.split}"


@dataclass(repr=False)
class Rescored(Figures):
    """The result of `eval nbest=`: reordered n-best lists.

    files: the written files. word_error_rate, also before reordering and of the best hypotheses (oracle): shares of the
    reference words; None without references. tuned: whether the weight or the penalty was fitted on these lists.
    word_penalty: subtracted per word; None without one.
    """

    name_width = 24

    run: str
    lists: int
    hypotheses: int
    weight: float
    tuned: bool
    files: list[Path]
    word_error_rate: float | None = None
    word_error_rate_before: float | None = None
    word_error_rate_oracle: float | None = None
    word_penalty: float | None = None

    @property
    def metric(self) -> float | None:
        """The word error rate."""
        return self.word_error_rate

    def _figures(self) -> list[tuple[str, Cell]]:
        rows: list[tuple[str, Cell]] = [
            ("lists", self.lists),
            ("hypotheses", self.hypotheses),
            ("weight", self.weight),
            ("word penalty", self.word_penalty),
            ("word error rate", self.word_error_rate),
            ("  before", self.word_error_rate_before),
            ("  oracle", self.word_error_rate_oracle),
        ]
        return [(name, value) for name, value in rows if value is not None]

    def heading(self) -> str:
        """Return the run."""
        return f"run {self.run}"


@dataclass(repr=False)
class Comparison(TableResult):
    """The result of `compare`: one row per model, the first one without tests.

    split, tokens: the scored text and its number of tokens. resampled: description of the resampling in one line.
    """

    split: str
    tokens: int
    resampled: str

    def heading(self) -> str:
        """Return the description of the resampling."""
        return self.resampled
