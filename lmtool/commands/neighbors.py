"""`lmtool neighbors`: neural run + words -> the words with the most similar vectors."""

from __future__ import annotations

from lmtool.config.model_verbs import NeighborsConfig
from lmtool.runs.run import run_folder
from lmtool.session import Session
from lmtool.system.files import write_json

SETTINGS = NeighborsConfig


def run(config: NeighborsConfig, session: Session) -> None:
    """Print the nearest neighbours of each word named, by the vectors of a neural run."""
    from lmtool.data.text_form import visible
    from lmtool.runs.load import load
    from lmtool.system.terminal import Cell, text_table

    session.use_threads(config.threads)
    folder = run_folder(config.run)
    loaded = load(folder, "cpu", store_dir=config.store_dir)
    by = config.by.value
    found = [(word, loaded.neighbors(word, config.top, by=by, of=config.of.value)) for word in config.words]
    session.say(f"run {folder}")
    for word, neighbours in found:
        rows: list[list[Cell]] = [[k, visible(other), value] for k, (other, value) in enumerate(neighbours, 1)]
        session.say(f"\n{visible(word)}\n{text_table(['rank', 'word', by], rows)}")
    answers = [
        {"word": word, "neighbors": [{"word": other, by: value} for other, value in neighbours]}
        for word, neighbours in found
    ]
    write_json(session.out / "result.json", {"run": str(folder), "of": config.of.value, "words": answers})
