"""Results of `eval`, `compare` and `score`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmtool.errors import UserError
from lmtool.results.base import Figures, TableResult, finite_or_null, frame
from lmtool.system.terminal import Cell, text_table

if TYPE_CHECKING:
    import pandas

    from lmtool.evaluation.token_scores import TokenScores
    from lmtool.system.arrays import FloatArray, IntArray

CONTEXTS: dict[bool | None, str] = {True: "across sentences", False: "of one line"}  # if the model may cross sentences
MAX_NATS = 709.0  # exp of this is still finite in float64
FIGURES = (
    *("split", "tokens", "oov", "perplexity", "perplexity_without_oov", "perplexity_per_word", "bits_per_word"),
    *("bits_per_character", "log_prob", "seconds", "tokens_per_second"),
)  # keys of every result.json of eval


@dataclass(repr=False)
class Evaluation(Figures):
    """The result of `eval`: a model's scores of one text, with counts and perplexities.

    run: the run folder or ARPA file. split: the name of the text. normalised: whether the scores sum to one. scores:
    log p with the tokens, as in scores.h5; None if the split has only cloze questions: all figures of tokens then raise
    UserError. characters: their number in the raw text, with spaces and newlines, 0 if unknown; words_and_ends: number
    of words and sentence ends. accuracy: share of tokens that are the most likely word. log_z: mean and standard
    deviation of the log of the scores' sum. cloze: results of the split's questions, named as in result.json.
    across_sentences: whether contexts crossed the sentences of the text; None for a model that reads single sentences.
    Unknown figures are None.
    """

    run: str
    split: str
    normalised: bool
    scores: TokenScores | None = None
    characters: int = 0
    words_and_ends: int | None = None
    seconds: float = 0.0
    accuracy: float | None = None
    cloze: dict[str, float] | None = None
    log_z: dict[str, float] | None = None
    across_sentences: bool | None = None

    @classmethod
    def of(cls, run: str, scores: TokenScores, **known: Any) -> Evaluation:
        """Return the evaluation of scores. known: other attributes."""
        return cls(run, scores.split, scores.normalised, scores, **known)

    @property
    def tokens(self) -> int:
        """N, the number of predicted tokens."""
        return self.token_scores.tokens.count

    @property
    def oov(self) -> int:
        """Number of tokens that are `<unk>` for a word outside the vocabulary."""
        return len(self.oov_positions)

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
        """Perplexity of the tokens in the vocabulary; None if all are outside."""
        import numpy as np

        from lmtool.evaluation.metrics import perplexity

        known = np.delete(self.log_probs, self.oov_positions)
        return perplexity(known) if len(known) else None

    @property
    def perplexity_per_word(self) -> float | None:
        """exp(-log_prob / words_and_ends), to compare models with different tokens."""
        log_prob, words = self.log_prob, self.words_and_ends
        if words is None or words == self.tokens:
            return None if words is None else self.perplexity
        return math.exp(-log_prob / words) if -log_prob / words < MAX_NATS else math.inf

    @property
    def bits_per_word(self) -> float:
        """Bits per token."""
        return -self.log_prob / self.tokens / math.log(2)

    @property
    def bits_per_character(self) -> float | None:
        """Bits per character of the raw text."""
        log_prob = self.log_prob
        return -log_prob / self.characters / math.log(2) if self.characters else None

    @property
    def report(self) -> Evaluation | None:
        """The evaluation itself, whose attributes have been the figures since 0.7; None if it has no text."""
        return None if self.scores is None else self

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
        """Return a DataFrame with a row per token: sentence (from 0), word, log_prob, oov.

        Raises UserError if pandas is not installed.
        """
        import numpy as np

        sentences = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets)).tolist()
        outside = set(self.oov_positions.tolist())
        lines = zip(sentences, self.words, self.log_probs.tolist(), strict=True)
        return frame(
            [{"sentence": s, "word": w, "log_prob": p, "oov": k in outside} for k, (s, w, p) in enumerate(lines)]
        )

    def as_json(self) -> dict[str, Any]:
        """Return the content of result.json, with null for inf and without optional figures that are unknown."""
        if self.scores is None:
            return {"split": self.split, "cloze": self.cloze}
        cloze = None if self.cloze is None else finite_or_null(self.cloze)
        last = {"accuracy": self.accuracy, "cloze": cloze, "normalised": self.normalised, "log_z": self.log_z or None}
        last |= {"across_sentences": self.across_sentences}
        known = {key: value for key, value in last.items() if value is not None}
        return finite_or_null({name: getattr(self, name) for name in FIGURES} | known)

    def _figures(self) -> list[tuple[str, Cell]]:
        cloze, log_z = self.cloze or {}, self.log_z
        rows: list[tuple[str, Cell]] = []
        if self.scores is not None:
            rows += [
                (f"tokens ({self.split})", self.tokens),
                ("  out of vocabulary", self.oov),
                ("perplexity", self.perplexity),
                ("  without OOVs", self.perplexity_without_oov if self.oov else None),
                ("perplexity per word", self.perplexity_per_word),
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


@dataclass(repr=False)
class MinimalPairs(TableResult):
    """The result of `pairs`: a row per group of pairs, the first one overall.

    pairs: their number. runs: for each run the mean over paradigms of the accuracy, its interval, the number of ties
    and of pairs with OOVs, named as in the table of one run.
    """

    text: str
    criterion: str
    pairs: int
    runs: dict[str, dict[str, Cell]]

    @property
    def metric(self) -> float:
        """The error rate of the first run."""
        return 1 - float(next(iter(self.runs.values()))["accuracy"] or 0)

    def as_json(self) -> dict[str, Any]:
        """Return the content of result.json."""
        runs = [{"run": run, **figures} for run, figures in self.runs.items()]
        return {"text": self.text, "criterion": self.criterion, "pairs": self.pairs, "runs": runs}

    def heading(self) -> str:
        """Return the text, the number of pairs and the criterion."""
        what = "sums of log p" if self.criterion == "sum" else "means of log p per token"
        return f"{self.text}: {self.pairs:,} pairs, by {what}; intervals of 95 %"

    def table_text(self) -> str:
        """Return the table in plain text: of several runs the accuracies and half the widths of their intervals."""
        if len(self.runs) == 1:
            return super().table_text()
        shown = []
        for row in self.table:
            figures = [[float(value or 0) for value in row[k : k + 3]] for k in range(3, len(row), 5)]
            shown.append([*row[:3], *(value for x, low, high in figures for value in (x, (high - low) / 2))])
        return text_table([*self.header[:3], *(name for run in self.runs for name in (run, "+-"))], shown)


@dataclass(repr=False)
class ScoredTexts(Figures):
    """The result of `score`: totals of many texts.

    empty: number of texts without a token. tokens, oov, log_prob: totals of all texts. run_out: the second run, if any.
    resumed: number of texts whose scores already existed; tokens_per_second: speed for all other texts, None if there
    were none. buckets: name, limit (None for the last), number of texts and share of OOVs of each. kept: number of
    texts written by filter=. most, least, most_oov: the limits that they passed. across_sentences: as in Evaluation.
    to, filter: the written files.
    """

    name_width = 24

    run: str
    run_out: str | None
    text: str
    texts: int = 0
    empty: int = 0
    tokens: int = 0
    oov: int = 0
    log_prob: float = 0.0
    seconds: float = 0.0
    tokens_per_second: float | None = None
    resumed: int = 0
    buckets: list[tuple[str, float | None, int, float]] = field(default_factory=list)
    kept: int | None = None
    most: float | None = None
    least: float | None = None
    most_oov: float | None = None
    across_sentences: bool | None = None
    to: Path | None = None
    filter: Path | None = None

    @property
    def perplexity(self) -> float | None:
        """exp(-log_prob / tokens), or None without tokens."""
        if not self.tokens:
            return None
        return math.exp(min(-self.log_prob / self.tokens, MAX_NATS)) if self.log_prob > -math.inf else math.inf

    @property
    def metric(self) -> float | None:
        """Perplexity."""
        return self.perplexity

    def as_json(self) -> dict[str, Any]:
        """Return the content of result.json."""
        values = asdict(self) | {"perplexity": self.perplexity}
        values |= {"to": self.to and str(self.to), "filter": self.filter and str(self.filter)}
        del values["notes"]
        return finite_or_null(values)

    def heading(self) -> str:
        """Return the runs and the text."""
        return f"run {self.run}{f', out {self.run_out}' if self.run_out else ''} on {self.text}"

    def _figures(self) -> Sequence[tuple[str, Cell]]:
        speed = round(self.tokens_per_second) if self.tokens_per_second else None
        oov_limit = None if self.most_oov is None else f"{100 * self.most_oov:.4g} %"
        first: list[tuple[str, Cell]] = [("texts", self.texts), ("  without tokens", self.empty)]
        first += [("tokens", self.tokens), ("  OOVs", self.oov), ("perplexity", self.perplexity)]
        last: list[tuple[str, Cell]] = [("contexts", CONTEXTS.get(self.across_sentences)), ("tokens per second", speed)]
        for name, limit, count, share in self.buckets:
            to = "" if limit is None else f", to {limit:.4f}"
            last.append((f"bucket {name}", f"{count:,} texts{to}, {100 * share:.2f} % OOVs"))
        last += [("kept", self.kept), ("  at most", self.most), ("  at least", self.least), ("OOVs at most", oov_limit)]
        return [*first, *((name, value) for name, value in last if value is not None)]


@dataclass(repr=False)
class Surprisals(TableResult):
    """The result of `surprisal`: a row per word.

    text: what was scored, in `items` items and `sentences` sentences. unit: bits, nats or log10. models: for each
    `run`, its name in the columns, `mean_surprisal`, over the words that have tokens, and `oov`, the number of tokens
    outside its vocabulary. to: the written file.
    """

    text: str
    sentences: int
    items: int
    unit: str
    models: list[dict[str, Any]]
    to: str | None

    @property
    def metric(self) -> float:
        """The mean surprisal by the first model."""
        return float(self.models[0]["mean_surprisal"])

    def heading(self) -> str:
        """Return the text, its size and the mean surprisals."""
        means = ", ".join(f"{model['run']} {model['mean_surprisal']:.4f} {self.unit}" for model in self.models)
        sizes = {"word": len(self.table), "sentence": self.sentences, "item": self.items}
        size = ", ".join(f"{number:,} {what}{'s' * (number != 1)}" for what, number in sizes.items())
        return f"{self.text}: {size}\nmean surprisal: {means}"

    def table_text(self) -> str:
        """Return the first rows in plain text."""
        return text_table(self.header, self.table[:10])

    def as_json(self) -> dict[str, Any]:
        """Return the content of result.json."""
        size = {"text": self.text, "words": len(self.table), "sentences": self.sentences, "items": self.items}
        return size | {"unit": self.unit, "models": list(map(finite_or_null, self.models)), "to": self.to}
