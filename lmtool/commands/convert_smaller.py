"""`lmtool convert run= quantize=`: run -> a run like any other, with the same model in fewer bits."""

from __future__ import annotations

from dataclasses import replace

from lmtool.config.groups import CountModelConfig, EncoderConfig
from lmtool.config.rules import require, require_whole
from lmtool.config.verbs import BITS
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.results import Written
from lmtool.runs.run import VOCABULARY, Run
from lmtool.session import Session
from lmtool.system.files import write_json

WEIGHTS = (8, 16)  # the bits of the weights of neural models


def smaller_run(source: Run, bits: int, store_dir: str, session: Session) -> Written:
    """Make a run with the source's model in `bits` bits: an n-gram model's values, or a network's weights.

    Raises UserError for a mixture, for a model that is quantised already, and for bits that the model does not have.
    """
    from lmtool.runs.corpus import save_tokeniser, save_vocabulary, tokeniser_in
    from lmtool.runs.load import run_vocabulary

    settings = source.settings("model") if source.kind == "train" else None
    if settings is None:
        raise UserError(f"{source.folder} is a mixture, which has no numbers of its own: quantise its members")
    vocabulary = run_vocabulary(source, store_dir)
    if isinstance(settings, CountModelConfig):
        require_whole("quantize", bits, *BITS)
        name, parameters = _quantise_table(source, settings, vocabulary, bits, session)
    else:
        assert isinstance(settings, EncoderConfig)
        require(bits in WEIGHTS, "quantize", bits, f"8 or 16 for the weights of model={settings.kind}")
        name, parameters = _quantise_weights(source, settings, vocabulary, bits, session)
    size = (session.out / name).stat().st_size
    result = {"run": str(source.folder), "quantize": bits, "parameters": parameters, "bytes": size}
    write_json(session.out / "result.json", result)
    save_vocabulary(vocabulary, session.out / VOCABULARY)
    tokeniser = tokeniser_in(source.folder)
    if tokeniser is not None:
        save_tokeniser(tokeniser, session.out)
    replace(source, folder=session.out, config=source.config | {"quantize": bits}).save()
    before = (source.folder / name).stat().st_size
    about = f"the model of {source.folder} in {bits} bits: {before / 1e6:,.1f} -> {size / 1e6:,.1f} MB"
    session.say(f"{about}\nrun={session.out}")
    return Written(session.out, about, session.notes)


def _quantise_table(
    source: Run, settings: CountModelConfig, vocabulary: Vocabulary, bits: int, session: Session
) -> tuple[str, int]:
    """Write the quantised n-gram model; returns its file's name and the number of n-grams."""
    from lmtool.ngram.models.ngram_model import NGRAM_FILE, NgramModel, quantised_notes

    model = settings.load(source.folder, vocabulary)
    if not isinstance(model, NgramModel):
        raise UserError(f"{source.folder} is not an n-gram model or a neural one: only these are quantised")
    small = NgramModel(model.table.quantised(bits), vocabulary)
    small.save(session.out / NGRAM_FILE)
    for note in quantised_notes(small):
        session.note(note)
    return NGRAM_FILE, sum(model.table.sizes)


def _quantise_weights(
    source: Run, settings: EncoderConfig, vocabulary: Vocabulary, bits: int, session: Session
) -> tuple[str, int]:
    """Write the quantised weights, and the tree; returns the weights' file's name and their number."""
    from lmtool.runs.load import load_neural
    from lmtool.runs.weights import CHECKPOINT, QUANTISED, TREE, read_notes, save_quantised, save_tree

    notes = read_notes(source.folder / CHECKPOINT)
    if QUANTISED in notes:
        raise UserError(f"{source.folder} is quantised already, to {notes[QUANTISED]} bits: quantise the run before")
    model = load_neural(source, settings, vocabulary)
    save_quantised(model, session.out / CHECKPOINT, notes, bits)
    if model.output.tree is not None:
        save_tree(model.output.tree, session.out / TREE)
    return CHECKPOINT, model.parameter_count
