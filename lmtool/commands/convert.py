"""`lmtool convert`: ARPA file, run or several -> mixed, limited, renormalized, pruned, quantized -> file or run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmtool.config.data import DataConfig
from lmtool.config.rules import MISSING, number_or_share, require, setting
from lmtool.config.verbs import BITS, PRUNE_METHODS, UNION, WEIGHTS, VerbConfig, read_weights
from lmtool.errors import UserError
from lmtool.results import Written
from lmtool.session import Session


def _require_bits(bits: int, key: str) -> None:
    require(bits in (16, *range(BITS[0], BITS[1] + 1)), key, bits, "from 4 to 8, 16, or null")


@dataclass(slots=True)
class Settings(VerbConfig):
    """Settings of `lmtool convert`."""

    run: str | None = setting(excludes=("arpa=FILE", "runs=[A,B]"))
    arpa: str | None = setting(excludes=("runs=[A,B]",))
    runs: list[str] | None = MISSING
    weights: Any = setting(needs=("runs=[A,B]",), said=WEIGHTS)
    vocabulary: str | None = setting(words=(UNION,), needs=("runs=[A,B]",))
    to: str | None = MISSING
    symbol_table: str | None = setting(needs=("to=FILE",))
    limit_vocabulary: str | None = setting(needs=("to=FILE",), why="a run has the words of its data")
    renormalize: bool = False
    prune_entropy: float | None = setting(above=0, below=1, excludes=("prune_to=COUNT",))
    prune_to: Any = setting(check=number_or_share)
    prune_method: str = MISSING
    quantize: int | None = setting(check=_require_bits)
    data: DataConfig = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        if self.runs is not None:
            require(len(self.runs) > 0, "runs", self.runs, "one mixture, or two runs or more, as [A,B]")
            if self.weights is not None:
                self.weights = read_weights(self.weights, len(self.runs), f"{len(self.runs)} runs")
        rule = "entropy; gain needs the counts, which only lmtool train has"
        require(self.prune_method == PRUNE_METHODS[1], "prune_method", self.prune_method, rule)

    def changes(self) -> dict[str, Any]:
        """Return the settings that change a model, as far as they are set."""
        settings: dict[str, Any] = {"limit_vocabulary": self.limit_vocabulary, "renormalize": self.renormalize or None}
        settings |= {"prune_entropy": self.prune_entropy, "prune_to": self.prune_to, "quantize": self.quantize}
        settings["prune_method"] = None if self.prune_to is None else self.prune_method
        return {name: value for name, value in settings.items() if value is not None}


def run(settings: Settings, session: Session) -> Written:
    """Read, mix, prune, quantize and write n-gram models; make networks smaller; write the counts of a run."""
    from lmtool.commands._convert_models import mix_ngrams, read_into_run, smaller_run, write_smaller, written
    from lmtool.commands._formats import FST, OF_COUNTS, OF_MODELS, format_of, write_count_based
    from lmtool.commands._ngram_runs import load_ngram_model
    from lmtool.ngram.files.arpa_model import arpa_model
    from lmtool.runs.run import Run, run_folder

    to = settings.to
    form = None if to is None else format_of(to)
    if form not in (None, *OF_MODELS, *OF_COUNTS):
        raise UserError(f"to={settings.to}: use lmtool export for {form}; convert writes ARPA, G.fst.txt and counts")
    if form in OF_COUNTS and (settings.runs or settings.arpa or settings.changes()):
        raise UserError(f"to={settings.to}: counts are those of run=PATH, none of which is changed; use to=FILE.arpa")
    table = settings.symbol_table
    require(table is None or form == FST, "symbol_table", table, "null unless to=G.fst.txt")
    if form is None:
        session.require_new()
    if settings.runs is not None:
        return mix_ngrams(settings, settings.runs, session)
    if settings.arpa is not None:
        if form is None:
            return read_into_run(settings, settings.arpa, session)
        return write_smaller(settings, arpa_model(settings.arpa), session)
    if to is None and not settings.changes():
        raise UserError(
            "lmtool convert reads run=PATH, arpa=FILE or runs=[A,B] weights=[.6,.4]: say what to make of it, by "
            "to=FILE.arpa, G.fst.txt or FILE.tsv, or by prune_entropy=, prune_to=, quantize= or renormalize=true (into "
            "out=)"
        )
    source = Run.open(run_folder(settings.run))
    if to is None or form is None:
        return smaller_run(settings, source, session)
    if form != FST and not settings.changes():
        about, _ = write_count_based(source, settings.store_dir, Path(to), form, session)
        return written(to, about, session)
    refusal = f"{source.folder} is not an n-gram model: only these have an ARPA form"
    return write_smaller(settings, load_ngram_model(source, None, refusal), session)
