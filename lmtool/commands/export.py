"""`lmtool export`: run -> a file for other programs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from lmtool.config.rules import MISSING, setting
from lmtool.config.verbs import Vectors, VerbConfig
from lmtool.errors import UserError
from lmtool.results.base import Written
from lmtool.session import Session


class What(Enum):
    """The part of a model to write; with `auto`, the file's suffix selects it."""

    auto = "auto"
    embeddings = "embeddings"
    output = "output"


class WeightType(Enum):
    """The data type of exported weight matrices; int8 has a float32 scale per row."""

    float32 = "float32"
    float16 = "float16"
    int8 = "int8"


BITS_OF = {WeightType.float32: None, WeightType.float16: 16, WeightType.int8: 8}


@dataclass(slots=True)
class Settings(VerbConfig):
    run: str | None = MISSING
    to: str = MISSING
    what: What = MISSING
    dtype: WeightType = MISSING
    license: str | None = setting(needs=("to=card",))
    language: str | None = setting(needs=("to=card",))


@dataclass(repr=False)
class Result(Written):
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


def run(settings: Settings, session: Session) -> Result:
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
        result = Result(card, "model card", folder, card, "card")
        session.finish(result, "", card)
        return result
    form = _formats.format_of(settings.to)
    if settings.what is not What.auto and form not in ("word2vec text", "word2vec binary"):
        raise UserError(f"what={settings.what.value}: {form} takes the whole model; remove what=, or set to=FILE.txt")
    if settings.dtype is not WeightType.float32 and form != "safetensors":
        raise UserError(f"dtype={settings.dtype.value} requires to=FILE.safetensors; {form} has a fixed format")
    if form in _formats.OF_MODELS + _formats.OF_COUNTS:
        about, sizes = _formats.write_count_based(Run.open(folder), settings.store_dir, to, form, session)
    else:
        from lmtool.runs.load import load

        loaded = load(folder, "cpu")
        if form == "safetensors":
            about, sizes = _formats.write_weights(loaded, folder, to, BITS_OF[settings.dtype])
        else:
            which = Vectors.output if settings.what is What.output else Vectors.embeddings
            about, sizes = _formats.write_word_vectors(loaded, to, which, session, binary=form == "word2vec binary")
    result = Result(to, about, folder, to, form, **sizes)
    session.finish(result, f"wrote {to}: {about}")
    return result
