"""`lmtool preprocess`: text -> HDF5 store."""

from __future__ import annotations

from lmtool.config.verbs import PreprocessConfig
from lmtool.data.corpus import Corpus
from lmtool.data.oov import text_warnings
from lmtool.data.preprocess import preprocess
from lmtool.session import Session
from lmtool.system.files import write_json
from lmtool.system.terminal import text_table


def run(config: PreprocessConfig, session: Session) -> Corpus:
    """Write the store of `data` unless it is up to date, and print its contents."""
    prepared = preprocess(config.data, config.store_dir, progress=session.progress)
    header = list(prepared.rows[0])
    session.say(text_table(header, [list(row.values()) for row in prepared.rows]))
    session.note(*prepared.notes)
    corpus = Corpus(prepared)
    session.warn(*text_warnings(corpus))
    session.say(f"{'wrote' if prepared.created else 'nothing to do: up to date is'} {prepared.path}")
    result = {"store": str(prepared.path), "created": prepared.created, "splits": prepared.rows}
    write_json(session.out / "result.json", result)
    return corpus
