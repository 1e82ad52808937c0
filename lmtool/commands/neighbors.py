"""`lmtool neighbors`: run and words -> the nearest words."""

from __future__ import annotations

from dataclasses import dataclass, field

from lmtool.config.rules import MISSING, setting
from lmtool.config.verbs import SIMILARITIES, VECTORS, VerbConfig
from lmtool.errors import UserError
from lmtool.results import base
from lmtool.session import Session
from lmtool.system.terminal import Cell, text_table


@dataclass(slots=True)
class Settings(VerbConfig):
    run: str | None = MISSING
    words: list[str] = setting(prose=True, bare=True)
    top: int = setting(min=1)
    by: str = setting(words=SIMILARITIES)
    of: str = setting(words=VECTORS)

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        if not self.words:
            raise UserError("words=[]: name at least one word, as lmtool neighbors value")


@dataclass(frozen=True)
class Neighbor:
    """A word near another one, with one of two similarities."""

    word: str
    cosine: float | None = None
    dot: float | None = None


@dataclass(frozen=True)
class Near:
    """A word with its neighbors, the nearest first."""

    word: str
    neighbors: list[Neighbor]


@dataclass(repr=False)
class NeighborsResult(base.Result):
    """The result of `neighbors`: a row for each neighbor of each word, the nearest first. run: the run folder. of: the
    kind of vectors. by: the similarity, cosine or dot.
    """

    title = "run {0.run}"

    run: str
    of: str
    by: str = field(metadata=base.UNSAVED)
    words: list[Near]

    def as_table(self) -> base.Table:
        rows: list[list[Cell]] = [
            [near.word, k, each.word, getattr(each, self.by)]
            for near in self.words
            for k, each in enumerate(near.neighbors, 1)
        ]
        return ["word", "rank", "neighbor", self.by], rows

    def table_text(self) -> str:
        from lmtool.data.text_form import visible

        header, rows = self.as_table()
        return text_table(header, [[visible(str(word)), k, visible(str(near)), by] for word, k, near, by in rows])


def run(settings: Settings, session: Session) -> NeighborsResult:
    """Print the nearest neighbors of each word, by the vectors of a neural run.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> net = lmtool.train("nplm", corpus, training={"epochs": 1})
    >>> len(lmtool.neighbors(["cat", "dog"], net, top=3).rows)
    6
    """
    from lmtool.runs.load import load
    from lmtool.runs.run import run_folder

    folder, by = run_folder(settings.run), settings.by
    loaded = load(folder, "cpu")
    found = {}
    for word in settings.words:
        near = loaded.neighbors(word, settings.top, by=by, of=settings.of)
        found[word] = Near(word, [Neighbor(other, **{by: value}) for other, value in near])
    result = NeighborsResult(str(folder), settings.of, by, [*found.values()])
    session.finish(result, f"{result.heading()}\n\n{result.table_text()}")
    return result
