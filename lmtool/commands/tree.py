"""`lmtool tree`: store -> a tree over its words, or run -> its tree: depths, codes, a picture."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lmtool.config.data import DataConfig
from lmtool.config.groups import TreeConfig
from lmtool.config.rules import MISSING, setting
from lmtool.config.verbs import VerbConfig
from lmtool.errors import UserError
from lmtool.plots import can_plot
from lmtool.session import Session
from lmtool.system.terminal import nearest

if TYPE_CHECKING:
    from lmtool.data.text_form import TextForm
    from lmtool.plots.word_trees import WordTree
    from lmtool.trees.tree import Tree


@dataclass(slots=True)
class Settings(VerbConfig):
    data: DataConfig = MISSING
    tree: TreeConfig = MISSING
    run: str | None = None
    words: list[str] | None = setting(prose=True)
    levels: int = setting(min=1, max=8)
    to: str | None = MISSING


def run(settings: Settings, session: Session) -> WordTree:
    """Build the configured tree, or read the tree of a run, and describe it."""
    from lmtool.data.corpus import Corpus
    from lmtool.data.preprocess import preprocess
    from lmtool.data.text_form import TextForm
    from lmtool.plots.style import save_png
    from lmtool.plots.word_pictures import tree_figure
    from lmtool.plots.word_trees import WordTree
    from lmtool.runs.load import tree_words
    from lmtool.trees.codes import write_tree

    out, kind, seconds = session.out, settings.tree.kind, 0.0
    if settings.run is not None:
        kind, form, tree = _of_run(settings, settings.run, session)
        shown = _shown(settings.words, form)
    else:
        prepared = preprocess(settings.data, settings.store_dir, progress=session.progress)
        with Corpus(prepared) as corpus:
            form = TextForm(corpus.vocabulary, subwords=corpus.subwords)
            shown = _shown(settings.words, form)
            start = time.perf_counter()
            tree = settings.tree.build(tree_words(corpus))
            seconds = time.perf_counter() - start
    words, counts = form.vocabulary.words[:-1], form.vocabulary.counts[:-1]
    built = WordTree(kind, tree, form.labels(words), counts, shown, settings.levels, seconds)
    if session.keeps_output and can_plot():
        save_png(tree_figure(built.top), out / "tree.png")
    if settings.to is not None:
        write_tree(Path(settings.to), tree, words)
    # All files are written before the first line is printed: `| head` may end the command there.
    session.finish(built, f"{built.heading()}\n\n{built.table_text()}")
    if session.keeps_output and can_plot():
        session.say(f"\ndrawn in {out / 'tree.png'}")
    if settings.to is not None:
        session.say(f"wrote the codes to {settings.to}: use them by tree=file tree.path={settings.to}")
    return built


def _of_run(settings: Settings, name: str, session: Session) -> tuple[str, TextForm, Tree]:
    """Return the option, rules of text and tree of a run."""
    from lmtool.runs.load import run_vocabulary, text_form
    from lmtool.runs.run import Run, run_folder
    from lmtool.runs.weights import TREE, load_tree

    if ignored := session.request.words_in_groups("data", "tree"):
        raise UserError(f"run={name}: the run has data and a tree already: leave out {', '.join(ignored)}")
    run = Run.open(run_folder(name))
    if not run.config.get("tree"):
        raise UserError(f"run={name} has no tree: choose a run with a hierarchical softmax")
    run.require_whole(TREE)
    form = text_form(run, run_vocabulary(run))
    return str(run.config["tree"]["kind"]), form, load_tree(run.folder / TREE)


def _shown(given: list[str] | None, form: TextForm) -> list[int]:
    """Return the ids of the words to show: the given words, or by default words of increasing rank."""
    labels = form.labels(form.vocabulary.words[:-1])
    if given is None:
        last = len(labels) - 1
        return sorted({rank for rank in (0, 1, 2, 3, 9, 99, 999, 9_999, 99_999, last) if rank <= last})
    ids = {label: index for index, label in enumerate(labels)}
    for word in map(str, given):
        if word not in ids:
            raise UserError(f"words={word}: not in the vocabulary{nearest(word, labels)}")
    return [ids[word] for word in given]
