"""Load the model of a run folder: over ids for the commands, over words for `lmtool.load`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lmtool.config.groups import CountModelConfig, EncoderConfig, unknown_model_kind
from lmtool.config.options import folder_in_use
from lmtool.config.rules import require_path
from lmtool.config.verbs import UNION, SeveralModelsConfig, require_device
from lmtool.data.corpus import Corpus
from lmtool.data.readers import is_kenlm_binary
from lmtool.data.subwords import Subwords
from lmtool.data.text_files import text_file
from lmtool.data.text_form import TextForm
from lmtool.data.text_rules import TextRules
from lmtool.data.vocabulary import BOS, EOS, UNK, Vocabulary
from lmtool.errors import UserError, translate_path_errors
from lmtool.language_model import LanguageModel
from lmtool.mixtures.fit import build_mixture
from lmtool.mixtures.vocabularies import map_vocabulary
from lmtool.runs.corpus import load_vocabulary, open_run_corpus
from lmtool.runs.hub import local_run
from lmtool.runs.run import ARPA_NAMES, REMEDY, TOKENIZER, VOCABULARY, Run, run_folder
from lmtool.system import parallel
from lmtool.text_model import TextModel
from lmtool.trees.tree import TreeWords


class InFolder(Protocol):
    """The result of a run."""

    folder: Path


def load(path: str | PathLike[str] | InFolder, device: str = "auto", *, options: str | Path | None = None) -> TextModel:
    """Load the model of a run folder of `lmtool train` or `lmtool ensemble` (n-gram, neural or mixture), or of their
    result, of a run on the Hugging Face Hub ("hub:OWNER/NAME"), of an ARPA file, or of a binary file of KenLM.

    device: for neural models, auto (cuda if available, else cpu), cpu, cuda, cuda:NUMBER or mps. options: a folder with
    custom options that the run uses; its Python files are executed. Raises UserError if the run is missing, unfinished
    or damaged, or uses a custom option that is not loaded.

    >>> run = lmtool.train({"kind": "ngram", "order": 2}, "toy", out="kn2")
    >>> lmtool.load("kn2").perplexity("the cat sat on the mat") < 100
    True
    """
    path = getattr(path, "folder", path)
    require_path("path", path, null=False)
    require_device(device)
    with translate_path_errors(), folder_in_use(options):
        path = local_run(str(path))
        if Path(path).is_file():
            return load_arpa(str(path))
        run = Run.open(Path(path))
        vocabulary = run_vocabulary(run)
        model = load_model(run, vocabulary, device)
        open_corpus = partial(open_run_corpus, run, "stores", progress=False)
        return TextModel(model, text_form(run, vocabulary), str(run.folder), open_corpus)


def load_arpa(path: str) -> TextModel:
    """Load the n-gram model of an ARPA file or a binary file of KenLM over its own words, separated by white space."""
    from lmtool.ngram.files.arpa_model import arpa_model
    from lmtool.ngram.models.kenlm_binary import KenlmBinary

    model = KenlmBinary(path) if is_kenlm_binary(Path(path)) else arpa_model(path)
    return TextModel(model, TextForm(model.vocabulary), path)


def load_named(run: str | None, arpa: str | None, device: str) -> TextModel:
    """Load the model that a command line names: from the run folder run=, the ARPA file arpa=, or the newest run."""
    if arpa is None:
        return load(run_folder(run), device)
    return load_arpa(text_file(arpa, "arpa"))


def load_each(config: SeveralModelsConfig) -> Iterator[tuple[str, TextModel]]:
    """Load the models of run=, arpa= or runs= one by one, each with a name: the last part of its path, or the path if
    last parts are equal. The words of all models are in lower case if the settings require it.
    """
    short = [_short_name(path) for path in config.runs or ()]
    names = dict(zip(config.runs or (), short if len(set(short)) == len(short) else config.runs or (), strict=True))
    for path in [None] if config.runs is None else config.runs:
        model = load_named(config.run, config.arpa, config.device) if path is None else load(path, config.device)
        own = model.form.rules
        if config.lowercase and not (config.lowercase is True and own.lowercase):  # which may follow a language
            rules = replace(own, lowercase=config.lowercase)
            model = replace(model, form=replace(model.form, rules=rules))
        yield _short_name(model.name) if path is None else names[path], model


def _short_name(path: str) -> str:
    name = Path(path).name
    return next((name.removesuffix(end) for end in ARPA_NAMES if name.endswith(end)), name.removesuffix(".gz"))


def text_form(run: Run, vocabulary: Vocabulary) -> TextForm:
    """Return the rules that split the run's data into words."""
    if not run.config.get("data"):  # the run is a mixture of ARPA files
        return TextForm(vocabulary)
    data = run.settings("data")
    rules, subwords = data.vocabulary, None
    if rules.unit.is_subword:
        path = run.folder / TOKENIZER
        run.require_whole(TOKENIZER)
        try:
            subwords = Subwords.parse(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path} is damaged ({error}): {REMEDY}") from error
        if set(subwords.names) != set(vocabulary.words) - {BOS, EOS, UNK}:
            raise UserError(f"{path} has pieces that differ from those of its run: {REMEDY}")
    text_rules, blank_lines = TextRules.of(data), data.takes_blank_lines()
    return TextForm(vocabulary, rules.unit, text_rules, data.drops_tags(), subwords, blank_lines)


def run_vocabulary(run: Run) -> Vocabulary:
    """Read the vocabulary of a run."""
    path = run.folder / VOCABULARY
    run.require_whole(VOCABULARY)
    union = run.mixture.get("vocabulary") is not None  # has <unk> if a member has
    closed = None if union else bool(run.config.get("data")) and run.settings("data").vocabulary.closed
    vocabulary = load_vocabulary(path, closed=closed)
    if vocabulary.fingerprint() != run.vocabulary_fingerprint:
        raise UserError(f"{path} has words that differ from those of its run: {REMEDY}")
    return vocabulary


def load_model(
    run: Run, vocabulary: Vocabulary, device: str = "cpu", *, inside: tuple[Path, ...] = ()
) -> LanguageModel:
    """Load the language model of a finished run over its vocabulary.

    device: for neural models, as in `load`. inside: the folders of the mixtures that the run is a member of.
    """
    inside = (*inside, run.folder.resolve())
    if inside[-1] in inside[:-1]:
        raise UserError(f"{run.folder} is a member of itself: mix the runs again")
    if vocabulary.fingerprint() != run.vocabulary_fingerprint:
        raise UserError(f"{run.folder} was trained on another vocabulary than its store has now: {REMEDY}")
    if run.kind == "ensemble":
        loaded = [load_member(member, vocabulary, device, inside=inside) for member in run.members]
        try:
            union = run.mixture.get("vocabulary") == UNION
            members = [map_vocabulary(model, own, vocabulary, union=union) for model, own in loaded]
            return build_mixture(members, np.array(run.weights), run.mixture, vocabulary)
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise UserError(f"{run.folder / 'run.json'} is damaged ({error}): mix the runs again") from error
    settings = run.settings("model")
    run.require_whole()
    if isinstance(settings, CountModelConfig):
        return settings.load(run.folder, vocabulary)
    if not isinstance(settings, EncoderConfig):
        raise unknown_model_kind(settings)
    from lmtool.neural.build import build_neural
    from lmtool.neural.devices import choose_device
    from lmtool.runs.weights import CHECKPOINT, TREE, load_tree, load_weights

    parallel.set_torch_threads()
    output = run.settings("output")
    tree = load_tree(run.folder / TREE) if output.needs_tree else None
    model = build_neural(settings, output, vocabulary, tree)
    load_weights(model, run.folder / CHECKPOINT)
    return model.eval().to(choose_device(device))


def load_member(
    name: str, vocabulary: Vocabulary | None, device: str, *, inside: tuple[Path, ...] = ()
) -> tuple[LanguageModel, Vocabulary]:
    """Load the model of a run folder or an ARPA file with its words. vocabulary: a vocabulary that may be the run's."""
    if Path(name).is_file():
        arpa = load_arpa(name)
        return arpa.model, arpa.vocabulary
    run = Run.open(Path(name))
    shared = vocabulary is not None and vocabulary.fingerprint() == run.vocabulary_fingerprint
    own = vocabulary if vocabulary is not None and shared else run_vocabulary(run)
    return load_model(run, own, device, inside=inside), own


def tree_words(corpus: Corpus) -> TreeWords:
    """Return the inputs for building a tree over the words of a store: words, counts, text and vectors."""
    vocabulary = corpus.vocabulary

    def run_vectors(path: str, of_contexts: bool) -> npt.NDArray[np.float32]:
        from lmtool.neural.model import NeuralModel, word_representations

        run = Run.open(Path(local_run(path)))
        if run.vocabulary_fingerprint != vocabulary.fingerprint():
            raise UserError(f"tree.run={path} was trained on another vocabulary: take a run on this data set")
        model = load_model(run, vocabulary)
        if not isinstance(model, NeuralModel):
            raise UserError(f"tree.run={path} is not a neural model: its words have no vectors; name a neural run")
        return word_representations(model, corpus.split("train") if of_contexts else None)

    return TreeWords(
        words=vocabulary.words[:-1],
        counts=np.asarray(vocabulary.counts[:-1]),
        train=lambda: corpus.split("train"),
        run_vectors=run_vectors,
    )
