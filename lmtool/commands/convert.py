"""`lmtool convert`: ARPA file -> run; run -> smaller run; and run -> ARPA file, as `lmtool export` does it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from lmtool.config.rules import require_whole
from lmtool.config.settings import plain_values
from lmtool.config.verbs import BITS, ConvertConfig
from lmtool.errors import UserError
from lmtool.results import Written
from lmtool.runs.run import Run, run_folder
from lmtool.session import Session
from lmtool.system.files import write_json, written_whole

SETTINGS = ConvertConfig


def run(config: ConvertConfig, session: Session) -> Written:
    """Make a run of an ARPA file, or a smaller one of a run, or write a run's n-gram model as ARPA."""
    session.use_threads(config.threads)
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
        "lmtool convert takes run=PATH to=FILE.arpa or FILE.tsv.gz, run=PATH quantize=BITS, or arpa=FILE data=NAME"
    )


def _read(config: ConvertConfig, source: str, session: Session) -> Written:
    """Make a run of an ARPA file over the words of a data set, or over the file's own.

    Raises UserError for a damaged file, and where the words differ and the data set cannot change its own.
    """
    from lmtool.data.corpus import Corpus
    from lmtool.data.preprocess import preprocess
    from lmtool.data.remote import absolute
    from lmtool.evaluation.printing import sizes_text
    from lmtool.ngram.arpa.read import arpa_table, read_arpa, words_of_file
    from lmtool.ngram.model import NGRAM_FILE, NgramModel
    from lmtool.runs.vocabulary_file import VOCABULARY, save_vocabulary

    if config.quantize is not None:
        require_whole("quantize", config.quantize, *BITS)
    out, arpa = session.out, read_arpa(source)
    data = config.data
    prepared = preprocess(data, config.store_dir, progress=session.progress)
    with Corpus.open(prepared.path) as corpus:
        reserved = {corpus.vocabulary.words[i] for i in (corpus.vocabulary.unk, corpus.vocabulary.bos)}
        known = set(corpus.vocabulary.words) - reserved - {"</s>"}
    if known != words_of_file(arpa):
        if not data.takes_word_list:
            raise UserError(
                f"{source} has other words than data={data.name}, which cannot change its own: use data=text"
            )
        with written_whole(out / "words.txt") as temporary:
            temporary.write_text("".join(f"{word}\n" for word in arpa.words), encoding="utf-8")
        data = replace(data, vocabulary=replace(data.vocabulary, file=str((out / "words.txt").resolve()), size=None))
        prepared = preprocess(data, config.store_dir, progress=session.progress)
        session.say(f"data={data.name} has other words: its store was written with those of {source}")
    with Corpus.open(prepared.path) as corpus:
        table = arpa_table(arpa, corpus.vocabulary)
        if config.quantize is not None:
            table = table.quantised(config.quantize)
        model = NgramModel(table, corpus.vocabulary)
        model.save(out / NGRAM_FILE)
        save_vocabulary(corpus.vocabulary, out / VOCABULARY)
        fingerprints = corpus.fingerprint, corpus.vocabulary.fingerprint()
    settings: dict[str, Any] = plain_values(config)
    settings["data"]["vocabulary"] = plain_values(data.vocabulary)
    settings["model"] = {"kind": "ngram", "order": model.table.order}
    write_json(out / "result.json", {"arpa": source, "parameters": sum(model.table.sizes)})
    Run(
        folder=out,
        kind="train",
        config=settings,
        store=absolute(prepared.path),
        store_fingerprint=fingerprints[0],
        vocabulary_fingerprint=fingerprints[1],
    ).save()
    session.say(f"{sizes_text(model.table.sizes)}\nrun={out}")
    return Written(out, f"a run with the {sum(model.table.sizes):,} n-grams of {source}", session.notes)
