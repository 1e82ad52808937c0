"""`lmtool convert`: ARPA file, run or several -> mixed, limited, renormalized, pruned, quantized -> file or run."""

from __future__ import annotations

from pathlib import Path

from lmtool.commands._settings import ConversionConfig as Settings
from lmtool.config.rules import require
from lmtool.errors import UserError
from lmtool.results import Written
from lmtool.session import Session


def run(settings: Settings, session: Session) -> Written:
    """Read, mix, prune, quantize and write n-gram models; make networks smaller; write the counts of a run.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> written = lmtool.convert(run, to="small.arpa", prune_entropy=0.01)
    >>> lmtool.load("small.arpa").predict("the", 1)[0][0]
    'cat'
    """
    from lmtool.commands._convert_models import mix_ngrams, read_into_run, smaller_run, write_smaller, written
    from lmtool.commands._formats import FST, OF_COUNTS, OF_MODELS, format_of, write_count_based
    from lmtool.commands._ngram_runs import load_ngram_model
    from lmtool.ngram.files.arpa_model import arpa_model
    from lmtool.runs.run import Run, run_folder

    to = settings.to
    format_name = None if to is None else format_of(to)
    if format_name not in (None, *OF_MODELS, *OF_COUNTS):
        remedy = f"use lmtool export for {format_name}; convert writes ARPA, G.fst.txt and counts"
        raise UserError(f"to={settings.to}: {remedy}")
    if format_name in OF_COUNTS and (settings.runs or settings.arpa or settings.changes()):
        raise UserError(f"to={settings.to}: counts are those of run=PATH, none of which is changed; use to=FILE.arpa")
    table = settings.symbol_table
    require(table is None or format_name == FST, "symbol_table", table, "null unless to=G.fst.txt")
    if format_name is None:
        session.require_new()
    if settings.runs is not None:
        return mix_ngrams(settings, settings.runs, session)
    if settings.arpa is not None:
        if format_name is None:
            return read_into_run(settings, settings.arpa, session)
        return write_smaller(settings, arpa_model(settings.arpa), session)
    if to is None and not settings.changes():
        raise UserError(
            "lmtool convert reads run=PATH, arpa=FILE or runs=A,B weights=.6,.4: say what to make of it, by "
            "to=FILE.arpa, G.fst.txt or FILE.tsv, or by prune_entropy=, prune_to=, quantize= or renormalize=true (into "
            "out=)"
        )
    source = Run.open(run_folder(settings.run))
    if to is None or format_name is None:
        return smaller_run(settings, source, session)
    if format_name != FST and not settings.changes():
        about, _ = write_count_based(source, settings.store_dir, Path(to), format_name, session)
        return written(to, about, session)
    refusal = f"{source.folder} is not an n-gram model: only these have an ARPA form"
    return write_smaller(settings, load_ngram_model(source, None, refusal), session)
