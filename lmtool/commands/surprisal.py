"""`lmtool surprisal`: models + text or a table of words -> a row per word with its surprisal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmtool.config.rules import MISSING, setting
from lmtool.config.verbs import SeveralModelsConfig
from lmtool.data.faults import NULL, Faults
from lmtool.data.readers import read_stream
from lmtool.data.standard_input import INPUT, standard_input
from lmtool.data.text_files import text_files
from lmtool.results import Surprisals
from lmtool.session import Session

if TYPE_CHECKING:
    from lmtool.data.word_rows import WordRows


@dataclass(slots=True)
class Settings(SeveralModelsConfig):
    """Settings of `lmtool surprisal`."""

    text: str = MISSING
    flush: str | None = setting(words=("line",), needs=("text=-",))
    word_column: str | None = setting(excludes=("text=-",))
    item_column: list[str] | None = setting(excludes=("text=-",))
    sentence_column: str | None = setting(excludes=("text=-",))
    sentences: str | None = setting(words=("punctuation", "item"), excludes=("sentence_column=NAME",))
    unit: str = setting(words=("bits", "nats", "log10"))
    entropy: bool = MISSING
    spillover: int = setting(min=0, max=100)
    end_of_sentence: str = setting(words=("drop", "add_to_last"))
    across_sentences: bool = MISSING
    to: str | None = MISSING
    bom: bool = setting(needs=("to=FILE",))


def run(settings: Settings, session: Session) -> Surprisals:
    """Score the words of a text by each model, and write the table."""
    from lmtool.commands._surprisal_rows import score_rows
    from lmtool.data.text_records import STANDARD, require_separate
    from lmtool.data.word_rows import read_word_rows, rows_of_lines
    from lmtool.runs.load import load_each

    faults = Faults(settings.on_error or NULL)
    if settings.text == STANDARD:
        blocks: Iterable[bytes] = read_stream(standard_input(by_line=settings.flush == "line"), INPUT, faults)
        models = list(load_each(settings))
        alone = all(model.vocabulary.eos is not None and not model.dynamic for _, model in models)
        together = settings.sentences or settings.across_sentences or settings.spillover or not settings.marks
        if together or not alone or settings.to != STANDARD:
            blocks = [b"".join(blocks)]

        def parts() -> Iterator[WordRows]:
            yield from rows_of_lines(blocks, INPUT, settings.sentences)
            session.note(*faults.notes())

        return score_rows(settings, session, parts(), models)
    columns = settings.word_column, settings.item_column, settings.sentence_column
    files = text_files(settings.text, "text")
    require_separate(settings.text, files, to=settings.to)
    rows = read_word_rows(files, *columns, settings.sentences, faults)
    session.note(*faults.notes())
    return score_rows(settings, session, [rows])
