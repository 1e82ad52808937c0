"""`lmtool export`: run -> a file for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from lmtool.config.groups import CountModelConfig
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
        raise UserError(f"what={config.what.value}: {form} takes the whole model; leave what out, or name to=FILE.txt")
    if form == "ARPA":
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
    """The format of a file by its suffix. Raises UserError for an unknown suffix."""
    match to.suffixes[-2:]:
        case [*_, ".txt" | ".vec"]:
            return "word2vec text"
        case [*_, ".bin"]:
            return "word2vec binary"
        case [*_, ".arpa"] | [".arpa", ".gz"]:
            return "ARPA"
        case [*_, ".safetensors"]:
            return "safetensors"
    raise UserError(f"to={to}: the suffix decides what is written: .txt, .vec, .bin, .arpa, .arpa.gz or .safetensors")


def write_ngrams(run: Run, store_dir: str, to: Path) -> dict[str, Any]:
    """Write a run's n-gram model as ARPA; returns the number of its n-grams by order, for result.json.

    Raises UserError where the run's model has no ARPA form.
    """
    from lmtool.ngram.arpa.write import write_arpa
    from lmtool.ngram.model import NgramModel
    from lmtool.runs.load import load

    refusal = f"{run.folder} is not an n-gram model: only these have an ARPA form"
    if run.kind != "train" or not isinstance(run.settings("model"), CountModelConfig):
        raise UserError(refusal)
    loaded = load(run.folder, store_dir=store_dir)
    if not isinstance(loaded.model, NgramModel):
        raise UserError(refusal)
    table = loaded.model.table
    write_arpa(table, loaded.vocabulary, to)
    print(f"wrote {to}: {', '.join(f'{size:,}' for size in table.sizes)} n-grams of orders 1 to {table.order}")
    return {"ngrams": list(table.sizes)}


def _write_vectors(loaded: TextModel, folder: Path, to: Path, which: Vectors, *, binary: bool) -> dict[str, Any]:
    from lmtool.data.word2vec_file import writable, write_vectors
    from lmtool.neural.vectors import word_vectors
    from lmtool.runs.load import neural_network

    vectors = word_vectors(neural_network(loaded, folder), which)
    words = loaded.vocabulary.words[: len(vectors)]
    write_vectors(words, vectors, to, binary=binary)
    changed = [word for word in words if writable(word) != word]
    if changed:
        example = f"as in {writable(changed[0])}"
        print(f"note: {len(changed)} words hold white space, which the format does not allow: replaced, {example}")
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
