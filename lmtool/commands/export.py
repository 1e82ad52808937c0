"""`lmtool export`: run -> a file for other programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lmtool.config.rules import MISSING, setting
from lmtool.config.verbs import BITS_OF_DTYPE, VECTORS, VerbConfig
from lmtool.errors import UserError
from lmtool.results.base import Written
from lmtool.session import Session


@dataclass(slots=True)
class Settings(VerbConfig):
    run: str | None = MISSING
    to: str = MISSING
    what: str = setting(words=("auto", *VECTORS))  # auto: by the suffix of the file
    dtype: str | None = setting(words=tuple(BITS_OF_DTYPE))
    license: str | None = setting(needs=("to=card",))
    language: str | None = setting(needs=("to=card",))


@dataclass(repr=False)
class ExportResult(Written):
    """The result of `export`. words, dimensions: number of word vectors and of their dimensions. ngrams: number of
    n-grams of an ARPA file or of counts, by order. parameters: number of weights.
    """

    run: Path
    to: Path
    format: str
    ngrams: list[int] | None = None
    words: int | None = None
    dimensions: int | None = None
    parameters: int | None = None


def run(settings: Settings, session: Session) -> ExportResult:
    """Write a run's model in the format that the file's suffix names.

    >>> from pathlib import Path
    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> net = lmtool.train({"kind": "nplm", "embedding_dim": 4}, corpus, training={"epochs": 1})
    >>> written = lmtool.export(net, to="vectors.txt")
    >>> Path("vectors.txt").read_text().split("\\n")[0]  # number of words, and of dimensions
    '7 4'
    """
    from lmtool.commands import _formats
    from lmtool.runs.run import Run, run_folder

    to, folder = Path(settings.to), run_folder(settings.run)
    if settings.to == "card":
        from lmtool.commands._card import write_card

        card = write_card(Run.open(folder), "hub:OWNER/NAME", settings.license, settings.language)
        result = ExportResult(card, "model card", folder, card, "card")
        session.finish(result, "", card)
        return result
    format_name = _formats.format_of(settings.to)
    if settings.what != "auto" and format_name not in ("word2vec text", "word2vec binary"):
        raise UserError(f"what={settings.what}: {format_name} takes the whole model; remove what=, or set to=FILE.txt")
    if settings.dtype is not None and format_name not in ("safetensors", _formats.PAGE):
        raise UserError(
            f"dtype={settings.dtype} requires to=FILE.safetensors or to=FILE.html; {format_name} has a fixed format"
        )
    if format_name in _formats.OF_MODELS + _formats.OF_COUNTS:
        about, sizes = _formats.write_count_based(Run.open(folder), settings.store_dir, to, format_name, session)
    else:
        from lmtool.runs.load import load

        loaded = load(folder, "cpu")
        if format_name == "safetensors":
            about, sizes = _formats.write_weights(loaded, folder, to, BITS_OF_DTYPE[settings.dtype or "float32"])
        elif format_name == _formats.PAGE:
            from lmtool.commands._play import write_page

            about, sizes = write_page(loaded, Run.open(folder), to, settings.dtype, session)
        else:
            which = "embeddings" if settings.what == "auto" else settings.what
            binary = format_name == "word2vec binary"
            about, sizes = _formats.write_word_vectors(loaded, to, which, session, binary=binary)
    result = ExportResult(to, about, folder, to, format_name, **sizes)
    session.finish(result, f"wrote {to}: {about}")
    return result
