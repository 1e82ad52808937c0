"""`lmtool neighbors`: run and words -> the nearest words; and the share of analogies that they answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lmtool.config.rules import MISSING, setting
from lmtool.config.verbs import SIMILARITIES, VECTORS, VerbConfig
from lmtool.errors import UserError
from lmtool.results import base
from lmtool.session import Session
from lmtool.system.terminal import Cell, text_table

if TYPE_CHECKING:
    from lmtool.text_model import TextModel


@dataclass(slots=True)
class Settings(VerbConfig):
    run: str | None = MISSING
    words: list[str] = setting(prose=True, bare=True)
    minus: list[str] = setting(list, prose=True)
    questions: str | None = None
    top: int = setting(min=1)
    by: str = setting(words=SIMILARITIES)
    of: str = setting(words=VECTORS)

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        if not self.words and self.questions is None:
            raise UserError("words=[]: name at least one word, as lmtool neighbors value, or questions=FILE")
        if self.questions is not None and (self.words or self.minus or self.by != "cosine"):
            raise UserError("questions=FILE has words of its own, by cosine: leave out words, minus and by")


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


@dataclass(frozen=True)
class Section:
    """Questions of a file that were answered. left_out: those with a word outside the vocabulary."""

    section: str
    questions: int
    correct: int
    accuracy: float | None
    left_out: int


@dataclass(repr=False)
class AnalogiesResult(base.Result):
    """The result of `neighbors` with questions: a row for each section of the file, then one for all."""

    title = "run {0.run}, the {0.of} of {0.file}: shares of a : b = c : d whose d is nearest to b - a + c"

    run: str
    of: str
    file: str
    sections: list[Section]

    def as_table(self) -> base.Table:
        return base.table_of(self.sections)


def run(settings: Settings, session: Session) -> NeighborsResult | AnalogiesResult:
    """Print the nearest neighbors of each word or, with `minus`, of their sum, by the vectors of a neural run.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> net = lmtool.train("nplm", corpus, training={"epochs": 1})
    >>> len(lmtool.neighbors(["cat", "dog"], net, top=3).rows)
    6
    """
    from lmtool.data.text_files import text_file
    from lmtool.runs.load import load
    from lmtool.runs.run import run_folder

    folder, by = run_folder(settings.run), settings.by
    loaded = load(folder, "cpu")
    if settings.questions is not None:
        file = text_file(settings.questions, "questions")
        answered = AnalogiesResult(str(folder), settings.of, file, _sections(loaded, file, settings.of))
        session.finish(answered, f"{answered.heading()}\n\n{answered.table_text()}")
        return answered
    found = {}
    for words in [settings.words] if settings.minus else [[word] for word in settings.words]:
        near = loaded.neighbors(words, settings.top, minus=settings.minus, by=by, of=settings.of)
        name = " - ".join([" + ".join(words), *settings.minus])
        found[name] = Near(name, [Neighbor(other, **{by: value}) for other, value in near])
    result = NeighborsResult(str(folder), settings.of, by, [*found.values()])
    session.finish(result, f"{result.heading()}\n\n{result.table_text()}")
    return result


def _sections(model: TextModel, file: str, of: str) -> list[Section]:
    """Answer the questions of a file in word2vec's format: lines a b c d, those of a section after `: NAME`."""
    import numpy as np

    from lmtool.data.readers import read_text
    from lmtool.neural.model import answers

    ids, names, lines = model.vocabulary.ids, ["all"], []
    for number, line in enumerate(read_text(file).splitlines(), 1):
        words = [model.form.rewrite_word(word) for word in line.split()]
        if words[:1] == [":"]:
            names.append(" ".join(line.split()[1:]))
        elif len(words) == 4:
            lines.append([len(names) - 1, *(ids.get(word, -1) for word in words)])
        elif words:
            raise UserError(f"{file}:{number}: must be four words, or : and the name of a section")
    if not lines:
        raise UserError(f"{file}: has no questions; a line is a b c d, as Athens Greece Oslo Norway")
    section, questions = np.split(np.array(lines), [1], 1)
    known: Any = (questions >= 0).all(1)
    right: Any = known.copy()
    right[known] = answers(model.network.word_vectors(of), questions[known, :3]) == questions[known, 3]
    found = []
    for number, name in [*enumerate(names[1:], 1), (0, "all")]:
        here = (section[:, 0] == number) | (number == 0)
        asked, correct = int(known[here].sum()), int(right[here].sum())
        found.append(Section(name, asked, correct, correct / asked if asked else None, int(here.sum()) - asked))
    return found
