"""`lmtool predict`: run and text -> the most probable next words."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from lmtool.config.data import Oov
from lmtool.config.rules import MISSING, setting
from lmtool.config.verbs import ModelUserConfig
from lmtool.errors import UserError, prefix_user_errors
from lmtool.plots import can_plot
from lmtool.results import base
from lmtool.session import Session
from lmtool.system.terminal import Cell, text_table

if TYPE_CHECKING:
    from lmtool.trees.analysis import DrawnNode

WordPath = tuple[str, list[tuple[int, int, float]]]  # a word and its decisions: node, bit, probability


@dataclass(slots=True)
class Settings(ModelUserConfig):
    text: str | None = setting(prose=True, bare=True)
    flush: str | None = setting(words=("line",), excludes=("text=<TEXT>",))
    top: int = setting(min=1)
    paths: bool = False
    sentence_start: bool = MISSING
    oov: Oov = MISSING


@dataclass(frozen=True)
class PredictedWord:
    """A word that may follow a text. rank: from 1."""

    rank: int = field(metadata=base.UNSAVED | base.figure("rank"))
    word: str = field(metadata=base.figure("word"))
    probability: float = field(metadata=base.figure("probability"))
    log10: float = field(metadata=base.figure("log10 p"))


@dataclass(frozen=True)
class Context:
    """A text and its most probable next words, with their codes."""

    text: str
    words: list[PredictedWord]
    codes: list[WordPath] = field(metadata=base.UNSAVED, default_factory=list)


@dataclass(repr=False)
class PredictResult(base.Result):
    """The result of `predict`: a row for each word, the most probable first, after each of several texts."""

    title = "run {0.run}"

    run: str
    contexts: list[Context]

    @property
    def words(self) -> list[PredictedWord]:
        """The words after all texts."""
        return [word for context in self.contexts for word in context.words]

    @property
    def codes(self) -> list[WordPath]:
        """With paths=true, each code of these words with its decisions."""
        return [code for context in self.contexts for code in context.codes]

    def as_table(self) -> base.Table:
        return base.table_of(self.words)

    def table_text(self) -> str:
        from lmtool.data.text_form import visible

        words = text_table(*base.table_of([replace(each, word=visible(each.word)) for each in self.words]))
        return f"{words}\n\n{_paths_text(self.codes)}" if self.codes else words


def run(settings: Settings, session: Session) -> PredictResult:
    """Print the most probable words after a text, or after each line of standard input.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> [row["word"] for row in lmtool.predict("the", run, top=2).rows]
    ['cat', 'dog']
    """
    from lmtool.data.text_form import visible
    from lmtool.evaluation.metrics import NEAR
    from lmtool.plots.style import save_png
    from lmtool.plots.word_pictures import tree_figure
    from lmtool.runs.load import load_named

    texts: Iterable[str] = [str(settings.text)]
    if settings.text is None and session.quiet:
        raise UserError("text has no value: give the text whose next word is predicted")
    if settings.text is None:
        texts = _input_lines('lmtool predict "the cat sat on"', by_line=settings.flush == "line")
    model = load_named(settings.run, settings.arpa, settings.device)
    session.say(f"run {model.name}")
    result = PredictResult(model.name, [])
    for number, text in enumerate(texts, start=1):
        try:
            start, oov = settings.sentence_start, settings.oov.value
            predicted = model.predict(text, settings.top, sentence_start=start, oov=oov)
        except UserError as error:
            raise UserError(f"line {number}: {error}" if settings.text is None else str(error)) from None
        if settings.text is None:
            session.say(f"\n{text}")
        codes = []
        if settings.paths:
            context = model.context(model.ids(text, oov), sentence_start=start)
            words = model.model.top(context[None], len(predicted))[0][0].tolist()
            with prefix_user_errors("paths=true"):
                named = zip(predicted, model.decisions(context, words), strict=True)
            codes = [(visible(word), code) for (word, _), of_word in named for code in of_word]
        found = Context(
            text, [PredictedWord(k, word, p, math.log10(p)) for k, (word, p) in enumerate(predicted, 1)], codes
        )
        session.say(PredictResult(model.name, [found]).table_text())
        if codes and session.keeps_output and can_plot():
            picture = session.out / ("paths.png" if settings.text is not None else f"paths-{number}.png")
            title = "probability of reaching each node: the product of the decisions before it"
            save_png(tree_figure(_drawn(codes), title), picture)
            session.say(f"\ndrawn in {picture}")
        result.contexts.append(found)
    if not model.model.normalized:
        session.note("these scores do not sum to one")
    if model.model.reads_near:
        session.note(NEAR)
    session.save_result(result)
    return result


def _paths_text(paths: list[WordPath]) -> str:
    """Return a line for each path: the word, p, and its decisions as bit and probability."""
    rows: list[list[Cell]] = []
    for word, code in paths:
        decisions = " · ".join(f"{bit}: {p:.3f}" for _, bit, p in code)
        rows.append([word, math.prod(p for *_, p in code), decisions])
    return text_table(["word", "p of the code", "decisions from the root (bit: probability)"], rows)


def _drawn(paths: list[WordPath], code: str = "", share: float = 1.0) -> DrawnNode:
    """Return the part of the tree that the paths pass through, from the node with a code down, as a drawing: the share
    of a node is its probability, and a subtree without one of the words is a leaf.
    """
    from lmtool.trees.analysis import DrawnNode

    depth, ended = len(code), [word for word, decisions in paths if len(decisions) == len(code)]
    if ended or not paths:
        return DrawnNode(-1, code, share, ended[0] if ended else "…", ())
    _, bit, p = paths[0][1][depth]
    below = [[path for path in paths if path[1][depth][1] == side] for side in (0, 1)]
    shares = [share * (p if side == bit else 1 - p) for side in (0, 1)]
    children = tuple(_drawn(below[side], f"{code}{side}", shares[side]) for side in (0, 1))
    return DrawnNode(0, code, share, "", children)


def _input_lines(example: str, *, by_line: bool) -> Iterator[str]:
    """Return the lines of standard input as they arrive. example: a command line for the error message."""
    from lmtool.data.readers import stream_blocks
    from lmtool.data.standard_input import INPUT, standard_input

    blocks = stream_blocks(standard_input(by_line=by_line), INPUT)
    first = next(blocks, None) if sys.stdin is not None and not sys.stdin.isatty() else None
    if first is None:
        raise UserError(f"text has no value: give one, e.g. {example}, or one a line on standard input")
    lines = (line for block in chain([first], blocks) for line in block.decode().split("\n")[:-1])
    return (line.rstrip("\r") for line in lines)
