"""Results of `train`, `ensemble` and sweeps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lmtool.errors import UserError
from lmtool.plots import can_plot
from lmtool.results.base import MERGED, UNSAVED, Result, Table, TableResult, figure, table_of
from lmtool.results.scores import Evaluation
from lmtool.runs.run import METRICS_FILE, RangeTest, Run
from lmtool.system import schemas
from lmtool.system.files import read_json_lines
from lmtool.system.terminal import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lmtool.text_model import TextModel


@dataclass(repr=False, kw_only=True)
class RunResult(Result):
    """The result of a command that makes a run. folder: its run folder."""

    folder: Path = field(metadata=UNSAVED)
    store_dir: str | None = field(metadata=UNSAVED, default=None)

    @cached_property
    def model(self) -> TextModel:
        """The run's model, loaded on first use."""
        from lmtool.runs.load import load

        return load(self.folder)


@dataclass(repr=False, kw_only=True)
class TrainedRun(RunResult):
    """The result of `train` and `distill`; its fields are the keys of result.json.

    valid_perplexity: perplexity of the saved model on valid; nan without a valid split.
    split: `valid, full windows` if this is only of the tokens whose whole context is in their sentence.
    train_perplexity: the same on train; of a network, the mean while training up to the evaluation that chose it. nan
    if train has more than ten million tokens, or a network's loss is not -log p.
    cloze: results of the cloze questions of valid, if their answers are given.
    keep_best: cloze if these chose the weights of a network, else None.
    parameters: number of weights, or of n-grams of all orders.
    ngrams: number of n-grams by order; None for a neural model.
    distinct_windows: number of distinct n-grams of the highest order, `<s>` being all that is before a sentence.
    examples: number of predicted tokens of train used in all epochs.
    seconds: duration of the whole call.
    options: the option chosen in each group.
    normalized: whether the distributions sum to one.
    tuned_parameters: for each order, `order` and by name the parameters that tuning found.
    discounts: for each order, `order` and by name all parameters of the smoother, given, estimated or tuned.
    source_weights: of count merging.
    steps: number of optimizer steps.
    training_seconds: duration without evaluations.
    precision: bf16 or fp32, of the matrix products.
    forms: names of the fast kernels that were used.
    tied: whether the output vectors are the embeddings. Fields that apply only to networks, or only to count-based
    models, are None for other models.
    """

    metric_name = "valid_perplexity"

    valid_perplexity: float = field(metadata=figure("valid perplexity"), default=math.nan)
    train_perplexity: float = math.nan
    cloze: dict[str, float] | None = field(
        metadata=figure("cloze perplexity", show=lambda run: run.cloze["perplexity"] if run.cloze else None),
        default=None,
    )
    keep_best: str | None = None
    parameters: int = field(metadata=figure("{0._size_unit}"))
    ngrams: list[int] | None = None
    distinct_windows: int | None = None
    examples: int
    examples_per_second: float = field(metadata=figure("examples per second", digits=0))
    epochs: float = field(metadata=figure("epochs"))
    seconds: float = field(metadata=figure("seconds"))
    options: dict[str, str]
    normalized: bool = True
    counting_seconds: float | None = None
    estimation_seconds: float | None = None
    tuned_parameters: list[dict[str, float]] | None = None
    source_weights: dict[str, float] | None = None
    discounts: list[dict[str, float]] | None = None
    steps: int | None = None
    training_seconds: float | None = None
    precision: str | None = None
    forms: list[str] | None = None
    tied: bool | None = None
    across_sentences: bool | None = None
    split: str | None = None

    @property
    def history(self) -> list[dict[str, Any]]:
        """The evaluations of the training, as lines of metrics.jsonl; empty for a count-based model."""
        path = self.folder / METRICS_FILE
        lines = read_json_lines(path, "train it again", schemas.METRICS_LINE) if path.is_file() else []
        return [line for line in lines if "valid_perplexity" in line]

    def plot(self) -> Figure:
        """Draw perplexity, accuracy and learning rate over the epochs. Raises UserError for a count-based model."""
        if not can_plot():
            raise UserError('plot needs matplotlib: pip install "lmtool[plots]"; .history has the numbers')
        from lmtool.plots.curves import read_history, training_curves
        from lmtool.plots.style import as_png

        output: Any = Run.open(self.folder).settings("output") if self.ngrams is None else None
        by_likelihood = bool(output) and output.loss_is_log_prob
        history = read_history(self.folder / METRICS_FILE, by_likelihood, self.keep_best)
        title = [f"{group}={self.options[group]}" for group in ("data", "model", "output") if group in self.options]
        curves = training_curves(history, ", ".join(title))
        curves._repr_png_ = partial(as_png, curves)  # type: ignore[attr-defined]
        return curves

    @property
    def _size_unit(self) -> str:
        return "parameters" if self.ngrams is None else "n-grams"

    def line(self) -> str:
        """Return valid perplexity, size, seconds and run folder in one line, the last one that training prints."""
        best = "best " if self.ngrams is None and self.keep_best is None else ""
        of = " of full windows" if self.split else ""
        valid = "" if math.isnan(self.valid_perplexity) else f"{best}valid perplexity {self.valid_perplexity:.4f}{of}, "
        chose = "" if self.keep_best is None else "best "
        valid += f"{chose}cloze perplexity {self.cloze['perplexity']:.4f}, " if self.cloze else ""
        return f"{valid}{self.parameters:,} {self._size_unit}, {self.seconds:.1f} s; run={self.folder}"

    def heading(self) -> str:
        return f"run {self.folder} ({', '.join(f'{group}={name}' for group, name in self.options.items())})"

    def as_table(self) -> Table:
        header, [row] = table_of([self])
        known = [k for k, cell in enumerate(row) if cell is not None]
        return [header[k] for k in known], [[row[k] for k in known]]


@dataclass(repr=False)
class RateTest(RangeTest, Result):
    """The result of `train` with lr_range=true, a learning-rate range test (Smith 2017), as in lr_range.json."""

    title = "proposed: optim.lr={0.proposed:.2g}, a tenth of where the loss was lowest"
    shown: ClassVar[int] = 12  # number of rates in the table

    def as_table(self) -> Table:
        every = max(1, len(self.rates) // self.shown)
        rows = [[rate, loss] for rate, loss in zip(self.rates[::every], self.smoothed[::every], strict=True)]
        return ["optim.lr", "loss, smoothed"], rows


@dataclass(frozen=True)
class Member:
    """A member of a mixture. perplexity: on the scored split; None if it is unknown. sum_unknown: True if nobody
    checked that its scores sum to one.
    """

    run: str = field(metadata=figure("run", show=lambda member: member.run + ", sum unknown" * member.sum_unknown))
    weight: float = field(metadata=figure("weight"))
    perplexity: float | None = field(metadata=figure("perplexity"))
    sum_unknown: bool = field(metadata=UNSAVED, default=False)


@dataclass(repr=False)
class MixedRun(RunResult):
    """The result of `ensemble`: a mixture, which is a run unless a member has only scores.

    folder: the run folder.
    members: the last one may be a cache.
    weights: the weights of the members.
    evaluation: the mixture's scores of the split.
    method: linear, classes or log_linear; None for a mixture of scores.
    over: candidates if the members were renormalized over the candidates of questions before mixing.
    fit: the method and data by which the weights were fitted.
    class_weights: the weights by class of context.
    theta: the fitted parameter of a cache.
    vocabulary: the kind (union, if it is the union of the members' words) and number of words.
    models: for a mixture of scores, the run or ARPA file of each member.
    """

    title = "mixture {0.folder} on {0.evaluation.split}"

    members: list[Member]
    weights: list[float]
    evaluation: Evaluation = field(metadata=MERGED)
    method: str | None = None
    over: str | None = None
    fit: dict[str, Any] | None = None
    class_weights: list[list[float]] | None = None
    theta: float | None = None
    vocabulary: str | None = None
    words: int | None = None
    models: list[str | None] | None = None

    @property
    def perplexities(self) -> list[float | None]:
        """The perplexity of each member on the scored split; None if it is unknown."""
        return [member.perplexity for member in self.members]

    @property
    def metric(self) -> float | None:
        """The mixture's perplexity on the text, or on the cloze questions if no text was scored."""
        return self.evaluation.metric

    @property
    def perplexity(self) -> float:
        """The mixture's perplexity. Raises UserError if no text was scored."""
        return self.evaluation.perplexity

    def as_table(self) -> Table:
        header, rows = table_of(self.members)
        return header, [*rows, ["mixture", sum(self.weights), self.evaluation.metric]]


@dataclass(repr=False)
class SweepTable(TableResult):
    """The result of a sweep: one row per job, with the values of the settings that differ. folder: the sweep's folder,
    with one subfolder per job. ranked_by: the column by which jobs are ranked. seeds: if jobs differ only in the seed,
    the mean and standard deviation over seeds, one row per setting, best first; else None. typed: the table with
    settings as texts, as it is shown.
    """

    title = "sweep {0.folder}"

    folder: Path
    ranked_by: str
    seeds: SweepTable | None = None
    typed: list[list[Cell]] = field(metadata=UNSAVED, default_factory=list)

    def as_table(self) -> Table:
        return self.header, self.typed

    @property
    def rows(self) -> list[dict[str, Cell]]:
        """The table as one dictionary per row, with settings as values."""
        return [dict(zip(self.header, row, strict=True)) for row in self.table]

    def run(self, job: int | str) -> Path:
        """Return the run folder of a job, by its name in the table."""
        return self.folder / str(job)

    @property
    def best(self) -> dict[str, Cell]:
        """The row of the best job. Raises UserError if no job was done, and if none has a metric to be compared by."""
        done = [row for row in self.rows if row.get("status", "done") == "done"]
        if not done:
            reason = f": {self.rows[0]['status']}" if self.table else ""
            raise UserError(f"{self.folder}: no job was done{reason}")
        best = next((row for row in done if row[self.ranked_by] is not None), None)
        if best is None:
            raise UserError(f"{self.folder}: no job has a metric to be compared by, such as valid_perplexity")
        return best
