"""What `lmtool convert` makes of models: mixed, limited, renormalized, pruned and quantized ones."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from lmtool.commands._formats import format_of, write_model
from lmtool.commands._members import evaluation_of, shares
from lmtool.commands._ngram_runs import load_ngram_model, prune, run_over, save_ngram_run, store_with_words
from lmtool.commands._settings import ConversionConfig
from lmtool.config.groups import CountModelConfig, EncoderConfig
from lmtool.config.rules import require, require_whole
from lmtool.config.settings import settings_as_json
from lmtool.config.verbs import QUANTIZED_BITS, UNION
from lmtool.data.choose_vocabulary import read_limit_words
from lmtool.data.corpus import Corpus
from lmtool.data.vocabulary import EOS, Vocabulary
from lmtool.errors import UserError
from lmtool.evaluation.token_scores import SCORES_FILE, TokenScores
from lmtool.mixtures.static import mix_static
from lmtool.mixtures.vocabularies import union_note, union_vocabulary
from lmtool.ngram.files.arpa_model import NO_ENDS, arpa_model, arpa_table, unescape_words
from lmtool.ngram.files.arpa_read import read_arpa
from lmtool.ngram.models.ngram_model import NGRAM_FILE, NgramModel, quantized_notes
from lmtool.ngram.query.sums import check_sums, renormalize
from lmtool.results.base import MERGED, Written
from lmtool.runs.corpus import save_words, tokenizer_in, tokenizer_of
from lmtool.runs.load import load_model, run_vocabulary
from lmtool.runs.run import Run, text_key
from lmtool.session import Session
from lmtool.system.terminal import size_text

WEIGHT_BITS = (8, 16)  # bits per weight of a neural model
PRUNING = ("prune_entropy", "prune_to")  # at most one is set


@dataclass(repr=False)
class Converted(Written):
    """The result of `convert`.

    run: the run whose model was made smaller, to a size in bytes.
    arpa: the file that was read.
    members: the run and weight of each member of a mixture.
    changes: the settings that were applied.
    parameters: number of weights or n-grams.
    ngrams: number of n-grams by order.
    """

    run: Path | None = None
    arpa: str | None = None
    members: list[dict[str, Any]] | None = None
    changes: dict[str, Any] = field(metadata=MERGED, default_factory=dict)
    parameters: int | None = None
    ngrams: list[int] | None = None
    bytes: int | None = None


def read_into_run(settings: ConversionConfig, source: str, session: Session) -> Converted:
    arpa = read_arpa(source)
    if settings.data.vocabulary.unit.is_character:
        arpa = unescape_words(arpa)
    data, store = store_with_words(settings.data, arpa.words, settings.store_dir, session, source)
    with Corpus.open(store) as corpus:
        text, tokenizer = run_over(data, corpus), tokenizer_of(corpus)
        model = _smaller(settings, session, NgramModel(arpa_table(arpa, corpus.vocabulary), corpus.vocabulary))
    parameters, ngrams = sum(model.table.sizes), model.table.sizes
    about = f"a run with the {parameters:,} n-grams of {source}"
    result = Converted(session.out, about, arpa=source, parameters=parameters, ngrams=ngrams)
    save_ngram_run(session, settings_as_json(settings), text, tokenizer, model, result)
    return result


def _smaller(settings: ConversionConfig, session: Session, model: NgramModel) -> NgramModel:
    """Return the model, limited, renormalized, pruned and then quantized as the settings say."""
    if settings.limit_vocabulary is not None:
        model = model.limit(read_limit_words(settings.limit_vocabulary))
    table = renormalize(model.table) if settings.renormalize or settings.limit_vocabulary is not None else model.table
    table = prune(table, model.vocabulary, session, to=settings.prune_to, entropy=settings.prune_entropy)
    if settings.quantize is not None:
        require_whole("quantize", settings.quantize, *QUANTIZED_BITS)
        table = table.quantize(settings.quantize)
    small = NgramModel(table, model.vocabulary)
    session.note(*quantized_notes(small))
    if not small.normalized:
        _, low, high = check_sums(table, model.vocabulary.eos)
        session.note(f"scores whose sums are {low:.4g} to {high:.4g}, not 1: renormalize=true divides by these")
    return small


def write_smaller(settings: ConversionConfig, model: NgramModel, session: Session) -> Converted:
    to, small = str(settings.to), _smaller(settings, session, model)
    return written(to, write_model(small, Path(to), format_of(to), session, settings.symbol_table), session)


def written(to: str, about: str, session: Session) -> Converted:
    session.say(f"wrote {to}: {about}")
    return Converted(Path(to), about)


def smaller_run(settings: ConversionConfig, source: Run, session: Session) -> Converted:
    """Make a run with the source's model, pruned or in fewer bits: an n-gram model's values, or a network's weights."""
    from lmtool.neural.model import NeuralModel
    from lmtool.runs.weights import CHECKPOINT, TREE, read_tensors, save_tree, save_weights

    model = source.settings("model") if source.kind == "train" else None
    if model is None:
        raise UserError(
            f"{source.folder} is a mixture, which is not made smaller itself: prune or quantize its members"
        )
    vocabulary = run_vocabulary(source)
    changes = settings.changes()
    pruned = [f"{name}={value}" for name, value in changes.items() if name in (*PRUNING, "renormalize")]
    if isinstance(model, CountModelConfig):
        refusal = f"{source.folder} is not an n-gram model of words or a neural one: only these are made smaller"
        small = _smaller(settings, session, load_ngram_model(source, vocabulary, refusal))
        session.begin_writing()
        small.save(session.out / NGRAM_FILE)
        name, parameters = NGRAM_FILE, sum(small.table.sizes)
    else:
        assert isinstance(model, EncoderConfig)
        bits, rule = settings.quantize or 0, f"8 or 16 for the weights of model={model.kind}"
        if pruned:
            raise UserError(f"{pruned[0]}: model={model.kind} is not pruned or renormalized; use quantize=8 or 16")
        require(bits in WEIGHT_BITS, "quantize", settings.quantize, rule)
        if (before := source.config.get("quantize")) is not None:
            raise UserError(f"{source.folder} is quantized already, to {before} bits: quantize the run before")
        network = load_model(source, vocabulary)
        assert isinstance(network, NeuralModel)
        notes = read_tensors(source.folder / CHECKPOINT)[1]
        session.begin_writing()
        save_weights(network, session.out / CHECKPOINT, notes, bits)
        if network.output.tree is not None:
            save_tree(network.output.tree, session.out / TREE)
        name, parameters = CHECKPOINT, network.parameter_count
    size = (session.out / name).stat().st_size
    before = (source.folder / name).stat().st_size
    how = ", ".join(f"{name}={value}" for name, value in changes.items())
    about = f"the model of {source.folder} with {how}: {size_text(before)} -> {size_text(size)}"
    result = Converted(session.out, about, run=source.folder, parameters=parameters, bytes=size, changes=changes)
    session.save_result(result)
    save_words(session.out, vocabulary, tokenizer_in(source.folder))
    former = {name: None for name in PRUNING if pruned and name in source.config}
    replace(source, folder=session.out, config=source.config | former | changes).save()
    session.say(f"{about}\nrun={session.out}")
    return result


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of a static mixture with its weight. run: None for an ARPA file."""

    name: str
    model: NgramModel
    weight: float
    run: Run | None


def mix_ngrams(settings: ConversionConfig, runs: list[str], session: Session) -> Converted:
    """Mix the n-gram models of runs and ARPA files into one, made smaller as set, into a file or a run."""
    settings = replace(settings, weights=shares(settings.weights, session))
    alone = len(runs) == 1
    if settings.weights is None and not alone:
        raise UserError(
            "weights=null: set one for each run, e.g. weights=.6,.4, or fit them: lmtool ensemble "
            f"runs={','.join(runs)} text=FILE, then lmtool convert 'runs=[ITS FOLDER]'"
        )
    named = zip(runs, settings.weights or [1.0], strict=True)  # a single mixture already has weights
    members = [member for name, weight in named for member in _members_of(name, weight, alone)]
    for k, member in enumerate(members):
        if not member.model.normalized:
            if not settings.renormalize:
                raise UserError(
                    f"{member.name} gives scores that do not sum to one, and so would the mixture: set renormalize=true"
                )
            members[k] = replace(member, model=NgramModel(renormalize(member.model.table), member.model.vocabulary))
    weights = np.array([member.weight for member in members])
    session.say("\n".join(["weight  member", *(f"{m.weight:6.4f}  {m.name}" for m in members)]))
    vocabularies = [member.model.vocabulary for member in members]
    one_vocabulary = len({frozenset(vocabulary.words) for vocabulary in vocabularies}) == 1
    vocabulary = vocabularies[0] if one_vocabulary else union_vocabulary(vocabularies)
    made = [Run.open(Path(name)) for name in runs if (Path(name) / "run.json").is_file()]
    union = settings.vocabulary is not None or any(run.mixture.get("vocabulary") == UNION for run in made)
    if union:
        session.note(*union_note({member.name: member.model.vocabulary for member in members}, vocabulary))
    text, tokenizer = None, None
    if settings.to is None:
        text, tokenizer, vocabulary = _text(settings, members, vocabulary, session, one_vocabulary)
    table = mix_static([member.model for member in members], weights, vocabulary, union=union)
    model = NgramModel(table, vocabulary)
    if text is None:
        return write_smaller(settings, model, session)
    fits = [run.fitted_on for run in (*made, *(member.run for member in members)) if run is not None]
    for name in runs:
        if evaluation_of(Path(name)).get("models"):  # a mixture of scores, of a split or of another text
            scores = TokenScores.open(Path(name) / SCORES_FILE)
            fits += [{key: list(scores.fitted)} for key in (scores.split, text_key(scores.tokens.fingerprint))]
    small = _smaller(settings, session, model)
    parameters, ngrams = sum(small.table.sizes), small.table.sizes
    about = f"a run with {parameters:,} n-grams, mixed from {len(members)} models"
    mixed = [{"run": member.name, "weight": member.weight} for member in members]
    result = Converted(session.out, about, members=mixed, parameters=parameters, ngrams=ngrams)
    save_ngram_run(session, settings_as_json(settings), text, tokenizer, small, result, *fits)
    return result


def _members_of(name: str, weight: float, alone: bool = False) -> list[_Member]:
    """Return the n-gram models of a run, an ARPA file or a linear mixture, with their shares of a weight.

    alone: whether it is the only model that is mixed; a mixture over a union of words may not be inside another one, as
    its members' `<unk>` would be shared by the words of a larger union that they lack.
    """
    if Path(name).is_file():
        return [_Member(name, arpa_model(name), weight, None)]
    if not (Path(name) / "run.json").is_file() and (mixed := evaluation_of(Path(name))).get("models"):
        models, weights, named = mixed["models"], mixed["weights"], [member["run"] for member in mixed["members"]]
        if None in models:
            found = list(zip(named, models, strict=True))
            lost = ", ".join(member for member, model in found if model is None)
            inside = ",".join(model or f"MODEL_OF_{Path(member).name}" for member, model in found)
            raise UserError(
                f"{name} mixes scores without a model, {lost}: name the models, "
                f"lmtool convert runs={inside} weights={','.join(f'{share:.4g}' for share in weights)}"
            )
    else:
        run = Run.open(Path(name))
        if run.kind != "ensemble":
            refusal = f"{name} is not an n-gram model: lmtool distill run={name} ngrams_from=NGRAM_RUN makes one of it"
            return [_Member(name, load_ngram_model(run, None, refusal), weight, run)]
        if (method := run.mixture.get("method")) != "linear" or "cache" in run.mixture:
            how = f"method={method}" + (" with a cache" if "cache" in run.mixture else "")
            raise UserError(f"{name} mixes by {how}: only a linear mixture without a cache is an n-gram model")
        if run.mixture.get("vocabulary") == UNION and not alone:
            raise UserError(
                f"{name} mixes different vocabularies and is inside another mixture: make one model of it first, "
                f"lmtool convert 'runs=[{name}]' out=ONE, and mix that"
            )
        models, weights = run.members, run.weights
    return [member for each, share in zip(models, weights, strict=True) for member in _members_of(each, weight * share)]


def _text(
    settings: ConversionConfig, members: list[_Member], vocabulary: Vocabulary, session: Session, one_vocabulary: bool
) -> tuple[Run, str | None, Vocabulary]:
    """Return the run whose text the new model is evaluated on, its tokenizer and its vocabulary: those of data= if the
    command line names it, else those of the first run, with the words of all members.
    """
    chosen = bool(session.request.words_in_groups("data"))
    first = next((member.run for member in members if member.run is not None), None)
    if not chosen and first is None:
        raise UserError("runs= has only ARPA files: set data= to the text that the new run is evaluated on, or set to=")
    if not chosen and one_vocabulary and first is not None:
        return first, tokenizer_in(first.folder), vocabulary
    data = settings.data if chosen or first is None else first.settings("data")
    data, store = store_with_words(data, vocabulary.words, settings.store_dir, session, "the members")
    with Corpus.open(store) as corpus:
        if vocabulary.eos is not None and corpus.vocabulary.eos is None:
            raise UserError(f"data={data.name} has no {EOS}, but the members have: {NO_ENDS}")
        return run_over(data, corpus), tokenizer_of(corpus), corpus.vocabulary
