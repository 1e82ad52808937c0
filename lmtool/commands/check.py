"""`lmtool check`: a text -> what it consists of, and the settings that fit it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmtool.config.rules import MISSING, setting
from lmtool.config.verbs import VerbConfig
from lmtool.results.base import Result, Table, table_of
from lmtool.session import Session
from lmtool.system.terminal import Cell

if TYPE_CHECKING:
    from lmtool.data.text_profile import TextProfile

NOTABLE = 0.05  # minimum share of words or lines for advice


@dataclass(slots=True)
class Settings(VerbConfig):
    text: str = setting(bare=True)
    column: str | None = MISSING


@dataclass(frozen=True)
class Property:
    """A property of the text."""

    property: str
    value: Cell


@dataclass(repr=False)
class CheckResult(Result):
    """The result of `check`: a row per property of the text. command: a command that trains on it, or, if
    more than a few records are not text, that checks it again. remarks: what to do about what was found.
    """

    title = "text {0.text}: {0.command}"

    text: str
    command: str
    remarks: list[str]
    properties: list[Property]

    def as_table(self) -> Table:
        return table_of(self.properties)


def run(settings: Settings, session: Session) -> CheckResult:
    """Read a text once, and print its properties, remarks on them, and a command with the settings that fit it.

    >>> from pathlib import Path
    >>> _ = Path("mine.txt").write_text("the cat sat\\nthe dog sat\\n" * 20)
    >>> found = lmtool.check("mine.txt")
    >>> found.command
    'lmtool train model=ngram data=text data.train=mine.txt data.split.valid=0.05'
    """
    from lmtool.data.faults import SKIP, Faults
    from lmtool.data.readers import read_blocks
    from lmtool.data.text_files import text_files
    from lmtool.data.text_profile import TextProfile

    faults, profile = Faults(SKIP), TextProfile()
    files = text_files(settings.text, "text")
    for block in read_blocks(*files, column=settings.column, setting="column", tables=True, faults=faults):
        profile.add(block)
    rows = [Property("files", len(files)), Property("records that are not text", faults.count)]
    rows += [Property(*each) for each in profile.rows()]
    remarks, fitting = _advice(profile)
    many = faults.count > NOTABLE * (faults.count + profile.lines)
    if faults.count:
        first = "; correct them first, all else here is of the rest" if many else ""
        remarks.insert(0, f"records that are not text: {faults.count:,}, e.g. {faults.first_messages[0]}{first}")
        fitting.append("data.on_error=skip")
    column = [f"data.column={settings.column}"] if settings.column else []
    words = ["data=text", f"data.train={settings.text}", *column, "data.split.valid=0.05", *fitting]
    command = f"lmtool train model=ngram {' '.join(dict.fromkeys(words))}"
    if many:
        command = " ".join(["lmtool check", settings.text, *(word.removeprefix("data.") for word in column)])
    result = CheckResult(settings.text, command, remarks, rows)
    session.finish(result, "\n".join([result.table_text(), *(f"- {remark}" for remark in remarks), f"\n{command}"]))
    return result


def _advice(profile: TextProfile) -> tuple[list[str], list[str]]:
    from lmtool.data.segmenters import UNSPACED_REMEDY, lacks_spaces
    from lmtool.data.text_rules import unusual_spaces

    remarks: list[str] = []
    settings: list[str] = []
    lines, words = max(profile.lines_with_words, 1), max(profile.words.total(), 1)
    if spaces := unusual_spaces(profile.words.items()):
        remarks.append(f"within words are {spaces}: data.spaces=unicode separates words there and leaves out the rest")
        settings.append("data.spaces=unicode")
    if lacks_spaces(profile.words):
        remarks.append(UNSPACED_REMEDY)
        settings.append("data.vocabulary.unit=bpe")
    elif profile.with_punctuation > NOTABLE * words:
        share = f"{profile.with_punctuation / words:.0%} of the words begin or end in punctuation"
        remarks.append(f"{share}, and `end.` is another word than `end`: cut marks off beforehand, or learn pieces")
        settings.append("data.vocabulary.unit=bpe")
    if profile.several_sentences > NOTABLE * lines:
        share = f"{profile.several_sentences / lines:.0%} of the lines hold several sentences"
        remarks.append(f"{share}: write one per line, or read the text as one stream with data.sentences=false")
    if profile.repeated > NOTABLE * lines:
        share = f"{profile.repeated / lines:.0%} of the lines repeat an earlier one"
        remarks.append(f"{share}: a model is then tested on what it was trained on; leave them out")
    if profile.decomposed:
        share = f"{profile.decomposed:,} words are not in Unicode's normal form NFC"
        remarks.append(f"{share}: they are written in it, unless data.normalize says otherwise")
    if profile.reserved:
        count = f"words <s> or </s>: {profile.reserved:,}"
        remarks.append(f"{count}; lmtool adds them itself and refuses them in training text: remove them")
        settings.append("data.on_error=skip")
    return remarks, settings
