"""`lmtool neighbors`: run and words -> the nearest words."""

from __future__ import annotations

from dataclasses import dataclass

from lmtool.config.rules import MISSING, setting
from lmtool.config.verbs import Likeness, Vectors, VerbConfig
from lmtool.errors import UserError
from lmtool.results.base import TableResult
from lmtool.session import Session
from lmtool.system.files import write_json
from lmtool.system.terminal import Cell, text_table


@dataclass(slots=True)
class Settings(VerbConfig):
    """Settings of `lmtool neighbors`."""

    run: str | None = MISSING
    words: list[str] = setting(prose=True, bare=True)
    top: int = setting(min=1)
    by: Likeness = MISSING
    of: Vectors = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        if not self.words:
            raise UserError("words=[]: name at least one word, as lmtool neighbors value")


@dataclass(repr=False)
class Result(TableResult):
    """The result of `neighbors`: a row for each neighbor of each word, the nearest first. run: the run folder."""

    title = "run {0.run}"

    run: str


def run(settings: Settings, session: Session) -> Result:
    """Print the nearest neighbors of each word, by the vectors of a neural run."""
    from lmtool.data.text_form import visible
    from lmtool.runs.load import load
    from lmtool.runs.run import run_folder

    folder, by = run_folder(settings.run), settings.by.value
    loaded = load(folder, "cpu")
    found = {word: loaded.neighbors(word, settings.top, by=by, of=settings.of.value) for word in settings.words}
    table: list[list[Cell]] = [[word, k, *each] for word, near in found.items() for k, each in enumerate(near, 1)]
    result = Result(str(folder), header=["word", "rank", "neighbor", by], table=table, notes=session.notes)
    session.say(result.heading())
    for word, near in found.items():
        rows: list[list[Cell]] = [[k, visible(other), value] for k, (other, value) in enumerate(near, 1)]
        session.say(f"\n{visible(word)}\n{text_table(['rank', 'word', by], rows)}")
    answers = [{"word": word, "neighbors": [{"word": w, by: v} for w, v in near]} for word, near in found.items()]
    write_json(session.out / "result.json", {"run": str(folder), "of": settings.of.value, "words": answers})
    return result
