"""`lmtool convert`: ARPA file -> run; run -> ARPA file or smaller run; several runs -> one model."""

from __future__ import annotations

from pathlib import Path

from lmtool.config.rules import require_whole
from lmtool.config.settings import plain_values
from lmtool.config.verbs import BITS, ConvertConfig
from lmtool.errors import UserError
from lmtool.results import Written
from lmtool.runs.run import Run, run_folder
from lmtool.session import Session

SETTINGS = ConvertConfig


def run(config: ConvertConfig, session: Session) -> Written:
    """Make a run of an ARPA file, write a run's n-gram model as ARPA, make a run smaller, or mix runs into one."""
    session.use_threads(config.threads)
    if config.runs is not None:
        from lmtool.commands.mix_ngrams import mix_ngrams

        return mix_ngrams(config, config.runs, session)
    if config.arpa is not None and config.to is None and config.run is None:
        session.require_new()
        return _read(config, config.arpa, session)
    if config.quantize is not None and config.arpa is None and config.to is None:
        from lmtool.commands.convert_smaller import smaller_run

        session.require_new()
        return smaller_run(Run.open(run_folder(config.run)), config.quantize, config.store_dir, session)
    if config.to is not None and config.arpa is None and config.quantize is None:
        from lmtool.commands.export import COUNT_BASED, format_of, write_count_based

        to, form, source = Path(config.to), format_of(config.to), Run.open(run_folder(config.run))
        if form not in COUNT_BASED:
            raise UserError(f"to={config.to}: lmtool export writes {form}; convert ARPA and counts")
        about, _ = write_count_based(source, config.store_dir, to, form, session)
        session.say(f"wrote {to}: {about}")
        return Written(to, about, session.notes)
    raise UserError(
        "lmtool convert takes run=PATH to=FILE.arpa or FILE.tsv.gz, run=PATH quantize=BITS, arpa=FILE data=NAME, or "
        "runs=[A,B] weights=[.6,.4]"
    )


def _read(config: ConvertConfig, source: str, session: Session) -> Written:
    """Make a run of an ARPA file over the words of a data set, or over the file's own.

    Raises UserError for a damaged file, and where the words differ and the data set cannot change its own.
    """
    from lmtool.commands.ngram_runs import Text, save_ngram_run, store_with_words
    from lmtool.data.corpus import Corpus
    from lmtool.ngram.files.arpa_read import arpa_table, read_arpa
    from lmtool.ngram.models.ngram_model import NgramModel, quantised_notes

    if config.quantize is not None:
        require_whole("quantize", config.quantize, *BITS)
    arpa = read_arpa(source)
    data, store = store_with_words(config.data, arpa.words, config.store_dir, session, source)
    with Corpus.open(store) as corpus:
        text = Text.of_corpus(data, corpus, {})
        table = arpa_table(arpa, corpus.vocabulary)
        model = NgramModel(table if config.quantize is None else table.quantised(config.quantize), corpus.vocabulary)
    for note in quantised_notes(model):
        session.note(note)
    about = save_ngram_run(session, plain_values(config), text, model, {"arpa": source})
    return Written(session.out, f"a run with the {about} of {source}", session.notes)
