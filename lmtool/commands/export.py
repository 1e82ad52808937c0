"""`lmtool export`: run -> a file for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from lmtool.config.model_verbs import ExportConfig, Vectors, What
from lmtool.config.settings import typed
from lmtool.errors import UserError
from lmtool.runs.run import Run, run_folder
from lmtool.session import output_dir, use_threads
from lmtool.system.files import write_json

if TYPE_CHECKING:
    from lmtool.text_model import TextModel


def run(composed: DictConfig) -> float | None:
    """Write a run's model in the format that the file's suffix names."""
    config = typed(composed, ExportConfig)
    use_threads(config.threads)
    out = output_dir()
    to, folder = Path(config.to), run_folder(config.run)
    form = _format(to)
    if config.what is not What.auto and form not in ("word2vec text", "word2vec binary"):
        raise UserError(f"what={config.what.value}: {form} has the whole model; leave what out, or take to=FILE.txt")
    if form == "ARPA":
        from lmtool.commands.convert import write_ngrams

        result = write_ngrams(Run.open(folder), config.store_dir, to)
    else:
        from lmtool.runs.load import load

        loaded = load(folder, "cpu", store_dir=config.store_dir)
        if form == "safetensors":
            result = _write_weights(loaded, folder, to)
        else:
            which = Vectors.output if config.what is What.output else Vectors.embeddings
            result = _write_vectors(loaded, folder, to, which, binary=form == "word2vec binary")
    write_json(out / "result.json", {"run": str(folder), "to": str(to), "format": form} | result)
    return None


def _format(to: Path) -> str:
    match to.suffixes[-2:]:
        case [*_, ".txt" | ".vec"]:
            return "word2vec text"
        case [*_, ".bin"]:
            return "word2vec binary"
        case [*_, ".arpa"] | [".arpa", ".gz"]:
            return "ARPA"
        case [*_, ".safetensors"]:
            return "safetensors"
    raise UserError(f"to={to}: the suffix says what is written: .txt, .vec, .bin, .arpa, .arpa.gz or .safetensors")


def _write_vectors(loaded: TextModel, folder: Path, to: Path, which: Vectors, *, binary: bool) -> dict[str, Any]:
    from lmtool.data.word2vec_file import writable, write_vectors
    from lmtool.neural.vectors import word_vectors
    from lmtool.runs.load import neural_network

    vectors = word_vectors(neural_network(loaded, folder), which)
    words = loaded.vocabulary.words[: len(vectors)]
    write_vectors(words, vectors, to, binary=binary)
    changed = [word for word in words if writable(word) != word]
    if changed:
        said = f"written as {writable(changed[0])} and so on"
        print(f"note: {len(changed)} words have white space, which the format cannot have; it is {said}")
    print(f"wrote {to}: {len(words):,} words of dimension {vectors.shape[1]}")
    return {"words": len(words), "dimensions": vectors.shape[1]}


def _write_weights(loaded: TextModel, folder: Path, to: Path) -> dict[str, Any]:
    from lmtool.runs.load import neural_network
    from lmtool.runs.weights import export_weights

    model = neural_network(loaded, folder)
    settings = Run.open(folder).config
    about = {name: value for name, value in settings.items() if name in ("model", "output", "tree", "data")}
    export_weights(model, model.output.tree, about, loaded.vocabulary.words, to)
    print(
        f"wrote {to}: {model.parameter_count:,} weights of {settings['model']['kind']} + {settings['output']['kind']}"
    )
    return {"parameters": model.parameter_count}
