"""`lmtool neighbors`: neural run + words -> the words with the most similar vectors."""

from __future__ import annotations

from omegaconf import DictConfig

from lmtool.config.model_verbs import NeighborsConfig
from lmtool.config.settings import typed
from lmtool.runs.run import run_folder
from lmtool.session import output_dir, use_threads
from lmtool.system.files import write_json


def run(composed: DictConfig) -> float | None:
    """Print the nearest neighbours of each word named, by the vectors of a neural run."""
    config = typed(composed, NeighborsConfig)
    from lmtool.data.text_form import visible
    from lmtool.neural.vectors import nearest, word_vectors
    from lmtool.runs.load import load, neural_network
    from lmtool.system.tables import text_table

    use_threads(config.threads)
    out = output_dir()
    folder = run_folder(config.run)
    loaded = load(folder, "cpu", store_dir=config.store_dir)
    vectors = word_vectors(neural_network(loaded, folder), config.of)
    queries = [word.lower() if loaded.form.lowercase else word for word in config.words]
    loaded.form.require_known(queries)
    words = loaded.vocabulary.words
    print(f"run {folder}")
    answers = []
    for word in queries:
        ids, likeness = nearest(vectors, loaded.vocabulary.ids[word], config.top, config.by)
        neighbours = [(words[index], value) for index, value in zip(ids.tolist(), likeness.tolist(), strict=True)]
        print(f"\n{visible(word)}")
        print(
            text_table(
                ["rank", "word", config.by.value], [[k, visible(w), v] for k, (w, v) in enumerate(neighbours, 1)]
            )
        )
        answers.append({"word": word, "neighbors": [{"word": w, config.by.value: v} for w, v in neighbours]})
    write_json(out / "result.json", {"run": str(folder), "of": config.of.value, "words": answers})
    return None
