"""`lmtool convert runs=[A,B]`: n-gram models, or a linear mixture of them, as one back-off model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lmtool.config.options import origin
from lmtool.config.overrides import key_of
from lmtool.config.settings import plain_values
from lmtool.config.verbs import ConvertConfig
from lmtool.errors import UserError
from lmtool.results import Written
from lmtool.runs.run import Run
from lmtool.session import Session

if TYPE_CHECKING:
    from lmtool.commands.ngram_runs import Text
    from lmtool.data.vocabulary import Vocabulary
    from lmtool.ngram.models.ngram_model import NgramModel


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of a static mixture with its weight. run: None for an ARPA file."""

    name: str
    model: NgramModel
    weight: float
    run: Run | None


def mix_ngrams(config: ConvertConfig, runs: list[str], session: Session) -> Written:
    """Mix the n-gram models of runs and ARPA files into one, into an ARPA file or a run.

    Raises UserError for a member that is not an n-gram model, whose scores do not sum to one, or that mixes otherwise
    than linearly.
    """
    import numpy as np

    from lmtool.mixtures.static import mix_static, union_vocabulary
    from lmtool.ngram.files.arpa_write import write_arpa
    from lmtool.ngram.models.ngram_model import NgramModel

    if config.to is None:
        session.require_new()
    members = [member for name, weight in _weighted(config, runs) for member in _members_of(name, weight)]
    weights = np.array([member.weight for member in members])
    session.say("\n".join(["weight  member", *(f"{m.weight:6.4f}  {m.name}" for m in members)]))
    vocabularies = [member.model.vocabulary for member in members]
    one_vocabulary = len({frozenset(vocabulary.words) for vocabulary in vocabularies}) == 1
    vocabulary = vocabularies[0] if one_vocabulary else union_vocabulary(vocabularies)
    models = [member.model for member in members]
    if config.to is not None:
        to, table = Path(config.to), mix_static(models, weights, vocabulary)
        write_arpa(table, vocabulary, to)
        about = f"{', '.join(f'{size:,}' for size in table.sizes)} n-grams of orders 1 to {table.order}"
        session.say(f"wrote {to}: {about}")
        return Written(to, about, session.notes)
    from lmtool.commands.ngram_runs import save_ngram_run

    text, vocabulary = _text(config, members, vocabulary, session, one_vocabulary)
    model = NgramModel(mix_static(models, weights, vocabulary), vocabulary)
    sources = [Run.open(Path(name)) for name in runs if Path(name).is_dir()]
    mixed = {"members": [{"run": member.name, "weight": member.weight} for member in members]}
    about = save_ngram_run(session, plain_values(config), text, model, mixed, *sources)
    return Written(session.out, f"a run with {about}, mixed from {len(members)} models", session.notes)


def _weighted(config: ConvertConfig, runs: list[str]) -> list[tuple[str, float]]:
    """The names of runs= with their weights; a single mixture brings its own."""
    if config.weights is not None:
        return list(zip(runs, config.weights, strict=True))
    if len(runs) > 1:
        raise UserError(
            "weights=null: give one for each run, as weights=[.6,.4], or fit them: lmtool ensemble "
            f"runs=[{','.join(runs)}], then lmtool convert runs=[ITS FOLDER]"
        )
    return [(runs[0], 1.0)]


def _members_of(name: str, weight: float) -> list[_Member]:
    """The n-gram models of a run, an ARPA file or a linear mixture, with their shares of a weight."""
    from lmtool.config.groups import CountModelConfig
    from lmtool.ngram.models.ngram_model import NgramModel
    from lmtool.runs.load import load_model, run_vocabulary

    if Path(name).is_file():
        from lmtool.ngram.files.arpa_model import arpa_model

        return [_Member(name, _normalised(name, arpa_model(name)), weight, None)]
    run = Run.open(Path(name))
    if run.kind == "ensemble":
        if run.mixture.get("method", "linear") != "linear" or "cache" in run.mixture:
            how = f"method={run.mixture['method']}" + (" with a cache" if "cache" in run.mixture else "")
            raise UserError(f"{name} mixes by {how}: only a linear mixture without a cache is an n-gram model")
        shares = zip(run.members, run.weights, strict=True)
        return [member for each, share in shares for member in _members_of(each, weight * share)]
    settings = run.settings("model")
    model = load_model(run, run_vocabulary(run)) if isinstance(settings, CountModelConfig) else None
    if not isinstance(model, NgramModel):
        raise UserError(f"{name} is not an n-gram model: lmtool distil run={name} like=NGRAM_RUN makes one of it")
    return [_Member(name, _normalised(name, model), weight, run)]


def _normalised(name: str, model: NgramModel) -> NgramModel:
    if not model.normalised:
        raise UserError(f"{name} gives scores that do not sum to one: no mixture of them does; use another smoother")
    return model


def _text(
    config: ConvertConfig, members: list[_Member], vocabulary: Vocabulary, session: Session, one_vocabulary: bool
) -> tuple[Text, Vocabulary]:
    """The text that the new run is evaluated on, and its vocabulary: those of data= where the command line names it,
    else of the first run, with the words of all members.
    """
    from lmtool.commands.ngram_runs import Text, store_with_words
    from lmtool.data.corpus import Corpus

    chosen = any(key_of(word).split(".")[0].split("@")[0] == "data" for word in session.begun.overrides)
    first = next((member.run for member in members if member.run is not None), None)
    if not chosen and first is None:
        raise UserError(
            "runs= has ARPA files alone: name the text that the new run is evaluated on by data=, or give to="
        )
    if not chosen and one_vocabulary and first is not None:
        return Text.of_run(first), vocabulary
    data = config.data if chosen or first is None else first.settings("data")
    place = origin("data", data.kind)
    data, store = store_with_words(data, vocabulary.words, config.store_dir, session, "the members")
    with Corpus.open(store) as corpus:
        if vocabulary.eos is not None and corpus.vocabulary.eos is None:
            raise UserError(f"data={data.name} has no sentences, but the members have: use data.sentences=true")
        return Text.of_corpus(data, corpus, {} if place is None else {"data": place}), corpus.vocabulary
