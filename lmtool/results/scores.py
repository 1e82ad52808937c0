"""What `eval` and `compare` return."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmtool.errors import UserError
from lmtool.results.base import Result, Table, frame
from lmtool.system.terminal import Cell

if TYPE_CHECKING:
    import pandas

    from lmtool.evaluation.score import Report
    from lmtool.evaluation.token_scores import TokenScores
    from lmtool.system.arrays import FloatArray, IntArray


@dataclass(repr=False)
class Evaluation(Result):
    """What `eval` found: a model's scores of one text.

    run: the run folder or ARPA file. report: all figures; None where only cloze questions were scored. scores: of each
    token; None without text. normalised: whether the scores sum to one. log_z: mean and standard deviation of the
    log of their sum, where that is known. cloze: of the split's questions, by the names of result.json.
    across_sentences: whether contexts crossed the sentences of the text; None for a model that reads single sentences.
    """

    run: str
    split: str
    report: Report | None
    scores: TokenScores | None
    normalised: bool
    cloze: dict[str, float] | None = None
    log_z: dict[str, float] | None = None
    across_sentences: bool | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def _report(self) -> Report:
        if self.report is None:
            raise UserError(f"{self.split} has cloze questions and no text: see .cloze")
        return self.report

    @property
    def token_scores(self) -> TokenScores:
        """The scores beside the tokens, as scores.h5 holds them. Raises UserError without text."""
        if self.scores is None:
            raise UserError(f"{self.split} has cloze questions and no text: see .cloze")
        return self.scores

    @property
    def metric(self) -> float | None:
        """Perplexity; None without text."""
        return None if self.report is None else self.report.perplexity

    @property
    def perplexity(self) -> float:
        """exp(-mean log p) over all predicted tokens. Raises UserError without text, as the following do."""
        return self._report.perplexity

    @property
    def perplexity_without_oov(self) -> float | None:
        """Over the tokens in the vocabulary; None where there are none."""
        return self._report.perplexity_without_oov

    @property
    def perplexity_per_word(self) -> float | None:
        """exp(-sum log p / words and sentence ends), for models whose tokens differ; None where that is not known."""
        return self._report.perplexity_per_word

    @property
    def bits_per_character(self) -> float | None:
        """By the characters of the raw text, with spaces and newlines; None where these are not known."""
        return self._report.bits_per_character

    @property
    def tokens(self) -> int:
        """N, the number of predicted tokens."""
        return self._report.tokens

    @property
    def oov(self) -> int:
        """The number of tokens that are `<unk>` in place of a word outside the vocabulary."""
        return self._report.oov

    @property
    def log_probs(self) -> FloatArray:
        """log p of each token, natural, float64 `[N]`."""
        return self.token_scores.log_prob

    @property
    def words(self) -> list[str]:
        """The predicted tokens, N words of the vocabulary; `<unk>` for a word outside it."""
        words = self.token_scores.tokens.words
        return [words[index] for index in self.token_scores.tokens.ids.tolist()]

    @property
    def offsets(self) -> IntArray:
        """Where sentences begin, and N: int64 `[S + 1]`; `[0, N]` for text without sentences."""
        return self.token_scores.tokens.offsets

    @property
    def oov_positions(self) -> IntArray:
        """The positions of tokens outside the vocabulary, int64 `[oov]`."""
        return self.token_scores.tokens.oov_positions

    def tokens_to_pandas(self) -> pandas.DataFrame:
        """A DataFrame with a row per token: sentence (from 0), word, log_prob, oov. Raises UserError without pandas."""
        import numpy as np

        sentences = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets)).tolist()
        outside = set(self.oov_positions.tolist())
        lines = zip(sentences, self.words, self.log_probs.tolist(), strict=True)
        return frame(
            [{"sentence": s, "word": w, "log_prob": p, "oov": k in outside} for k, (s, w, p) in enumerate(lines)]
        )

    def as_json(self) -> dict[str, Any]:
        """For result.json."""
        if self.report is None:
            return {"split": self.split, "cloze": self.cloze}
        known = {"log_z": self.log_z or None, "across_sentences": self.across_sentences}
        known = {key: value for key, value in known.items() if value is not None}
        return self.report.as_json() | {"normalised": self.normalised} | known

    def _lines(self) -> list[tuple[str, Cell]]:
        from lmtool.evaluation.printing import CONTEXTS, cloze_rows, report_rows

        if self.report is None:
            return [*cloze_rows(self.cloze)]
        spread = self.log_z
        about = f"{spread['mean']:.4f} +- {spread['std']:.4f} ({spread['contexts']:,} contexts)" if spread else ""
        rows: list[tuple[str, Cell]] = [*report_rows(self.report)]
        rows += [("log Z of the scores", about)] if spread else []
        contexts = CONTEXTS.get(self.across_sentences)
        return rows if contexts is None else [*rows, ("contexts", contexts)]

    def lines(self) -> str:
        """The names and values of all figures, a line each."""
        from lmtool.evaluation.printing import rows_text

        return rows_text(self._lines())

    def heading(self) -> str:
        """The run and the text."""
        return f"run {self.run} on {self.split}"

    def _table(self) -> Table:
        return ["", "value"], [[name.strip(), value] for name, value in self._lines()]


@dataclass(repr=False)
class Rescored(Result):
    """What `eval nbest=` made: lists in a new order. files: what was written. word_error_rate and those before and of
    the best hypotheses (oracle): shares of the reference words; None without references. tuned: whether the weight was
    fitted on these lists.
    """

    run: str
    lists: int
    hypotheses: int
    weight: float
    word_error_rate: float | None
    word_error_rate_before: float | None
    word_error_rate_oracle: float | None
    tuned: bool
    files: list[Path]
    notes: list[str] = field(default_factory=list)

    @property
    def metric(self) -> float | None:
        """The word error rate."""
        return self.word_error_rate

    def _lines(self) -> list[tuple[str, Cell]]:
        rows: list[tuple[str, Cell]] = [
            ("lists", self.lists),
            ("hypotheses", self.hypotheses),
            ("weight", self.weight),
            ("word error rate", self.word_error_rate),
            ("  before", self.word_error_rate_before),
            ("  oracle", self.word_error_rate_oracle),
        ]
        return [(name, value) for name, value in rows if value is not None]

    def lines(self) -> str:
        """The names and values of all figures, a line each."""
        from lmtool.evaluation.printing import rows_text

        return rows_text(self._lines(), 24)

    def heading(self) -> str:
        """The run."""
        return f"run {self.run}"

    def _table(self) -> Table:
        return ["", "value"], [[name.strip(), value] for name, value in self._lines()]


@dataclass(repr=False)
class Comparison(Result):
    """What `compare` found. header: the names of the columns. table: a row per model, the first one without tests.
    split, tokens: what was scored, and its number of tokens. resampled: what was resampled, in one line.
    """

    header: list[str]
    table: list[list[Cell]]
    split: str
    tokens: int
    resampled: str
    notes: list[str] = field(default_factory=list)

    def heading(self) -> str:
        """What it is."""
        return self.resampled

    def _table(self) -> Table:
        return self.header, self.table
