"""Members of `compare` and `ensemble`: runs, saved scores, files of other tools."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lmtool.config.verbs import MembersConfig
from lmtool.data.corpus import Corpus
from lmtool.data.derived_corpus import TextCorpus
from lmtool.data.readers import is_kenlm_binary, read_blocks
from lmtool.data.text_files import text_files
from lmtool.data.text_form import TextForm, split_of_text
from lmtool.errors import UserError
from lmtool.evaluation.metrics import scores_by
from lmtool.evaluation.other_tools import align, read_scores, tokens_of_file
from lmtool.evaluation.token_scores import SCORES_FILE, Tokens, TokenScores, quote_word, tokens_of
from lmtool.language_model import LanguageModel
from lmtool.mixtures.vocabularies import common_vocabulary, map_vocabulary, union_note
from lmtool.results.base import read_summary
from lmtool.runs.corpus import open_run_corpus, tokenizer_in
from lmtool.runs.load import load_member, load_model, run_vocabulary, text_form
from lmtool.runs.run import ARPA_NAMES, Run, fitted_on
from lmtool.session import Session
from lmtool.system.terminal import cell_text

PER_WORD = "compare the perplexity_per_word and bits_per_character that lmtool eval gives of the same text"


def scores_of(settings: MembersConfig, session: Session) -> tuple[list[TokenScores], Tokens]:
    """Return the scores of the same tokens by each member, and these tokens; runs are scored on text= or `split`."""
    names = settings.runs
    require_one_unit(names, settings.text)
    if settings.text is not None:
        with ExitStack() as opened:
            corpus, models = open_members(settings, set(), opened, session)
            text = corpus.split(settings.text)
            tokens = tokens_of(text, corpus.vocabulary)
            found = []
            for name, model in zip(names, models, strict=True):
                fitted = fitted_on(Path(name), None, tokens.fingerprint)
                found.append(scores_by(model, text, tokens, settings.text, fitted, session.progress))
            return found, tokens
    own = {name: _scores_of_lmtool(name, settings, session.progress) for name in names}
    scored = {name: scores for name, scores in own.items() if scores is not None}
    others = {name: read_scores(name) for name in names if name not in scored}
    if scored:
        first = next(iter(scored))
        tokens, read = scored[first].tokens, scored[first].split
        for name, scores in scored.items():
            _require_same(first, tokens, name, scores.tokens)
    else:
        tokens, read = tokens_of_file(next(iter(others.values()))), f"the text of {names[0]}"
    scored |= {
        name: TokenScores(align(scores, tokens), tokens, read, scores.normalized) for name, scores in others.items()
    }
    return [scored[name] for name in names], tokens


def open_members(
    settings: MembersConfig, used: set[str], stack: ExitStack, session: Session
) -> tuple[Corpus, list[LanguageModel]]:
    """Return the corpus that is fitted on and scored, and the models of runs and ARPA files over its vocabulary.

    The corpus is the first run's, open until `stack` closes. With text=, it has this text as its only split, over the
    words of the models or their union. used: the splits that are used for fitting and scoring.
    """
    names, union, corpus = settings.runs, settings.vocabulary is not None, None
    runs = [Run.open(Path(name)) for name in dict.fromkeys(names) if not Path(name).is_file()]
    if settings.text is None:
        corpus = stack.enter_context(open_run_corpus(runs[0], settings.store_dir, progress=session.progress))
    known = None if corpus is None else corpus.vocabulary
    loaded = {name: load_member(name, known, settings.device) for name in names}
    words = {name: own for name, (_, own) in loaded.items()}
    vocabulary = common_vocabulary(words, union)
    session.note(*union_note(words, vocabulary))
    if corpus is None:
        forms = [text_form(run, run_vocabulary(run)) for run in runs]
        if len({(form.unit, form.rules, form.tags, form.blank_lines) for form in forms}) > 1:
            raise UserError(
                f"runs={names}: their data has other rules for words (unit, case, form, spaces, tags, blank lines)"
            )
        form = replace(forms[0], vocabulary=vocabulary) if forms else TextForm(vocabulary)
        text, _ = split_of_text(read_blocks(*text_files(str(settings.text), "text")), str(settings.text), form)
        corpus = TextCorpus(text, str(settings.text), form)
    for run in runs if settings.text is None else []:
        if run.store_fingerprint != runs[0].store_fingerprint:
            with open_run_corpus(run, settings.store_dir, progress=session.progress) as theirs:
                for split in used & {*corpus.splits}:
                    ours, other = (tokens_of(c.split(split), c.vocabulary) for c in (corpus, theirs))
                    _require_same(str(runs[0].folder), ours, str(run.folder), other)
    return corpus, [map_vocabulary(*loaded[name], vocabulary, union=union) for name in names]


def require_one_unit(names: list[str], text: str | None) -> None:
    """Raise UserError for runs with tokens of different units, and for an ARPA file or KenLM binary without text=."""
    files = [name for name in names if name.endswith(ARPA_NAMES) or is_kenlm_binary(Path(name))]
    if text is None and files:
        raise UserError(f"{files[0]} comes without data: set text=FILE, on which models are scored and weights fitted")
    runs = {name: run for name in names if (run := _run_behind(Path(name))) is not None}
    units = {name: run.config["data"]["vocabulary"]["unit"] for name, run in runs.items() if run.config.get("data")}
    for name, unit in units.items():
        first = next(iter(units))
        if unit != units[first]:
            raise UserError(
                f"{first} and {name} have other tokens (data.vocabulary.unit={units[first]} and {unit}): {PER_WORD}"
            )
    if len({tokenizer_in(run.folder) for run in runs.values()} - {None}) > 1:
        raise UserError(f"{' and '.join(runs)} have tokenizers with other pieces of words: {PER_WORD}")


def shares(weights: list[float] | None, session: Session) -> list[float] | None:
    """Return weights divided by their sum, with a note unless it is one; None if they are to be fitted."""
    if weights is None or math.isclose(total := math.fsum(weights), 1, abs_tol=1e-6):
        return weights
    divided = [weight / total for weight in weights]
    session.note(f"weights={weights} sum to {total:g}, so each is divided by it: {', '.join(map(cell_text, divided))}")
    return divided


def is_run(name: str) -> bool:
    """Return whether a member is a run folder, whose model can be used, rather than only scores."""
    return Path(name).is_dir() and ((Path(name) / "run.json").exists() or not (Path(name) / SCORES_FILE).exists())


def _scores_of_lmtool(name: str, settings: MembersConfig, progress: bool) -> TokenScores | None:
    """Return the scores of a run folder or of a scores.h5; None for another tool's file."""
    path = Path(name)
    if path.is_dir():
        if (path / SCORES_FILE).is_file():
            scores = TokenScores.open(path / SCORES_FILE)
            if not is_run(name) or scores.split == settings.split:
                return scores
        run = Run.open(path)
        with open_run_corpus(run, settings.store_dir, progress=progress) as corpus:
            model = load_model(run, corpus.vocabulary, settings.device)
            text = corpus.split(settings.split)
            tokens = tokens_of(text, corpus.vocabulary)
            fitted = fitted_on(run.folder, settings.split, tokens.fingerprint)
            return scores_by(model, text, tokens, settings.split, fitted, progress)
    if not path.exists():
        raise UserError(f"no run folder and no file {name}: check the path")
    return TokenScores.open(path) if path.suffix == ".h5" else None


def evaluation_of(path: Path) -> dict[str, Any]:
    """Return the content of the result.json in a folder or beside a scores.h5; empty if the file is missing."""
    folder = path if path.is_dir() else path.parent
    return read_summary(folder, "evaluate the run again").result if (folder / "result.json").is_file() else {}


def model_behind(path: Path) -> str | None:
    """Return the run, mixture of scores or ARPA file that gave the scores of a folder or scores.h5; None if unknown."""
    if path.is_file() and path.suffix != ".h5":
        return None
    folder, known = path if path.is_dir() else path.parent, evaluation_of(path)
    if (folder / "run.json").is_file() or "models" in known:
        return str(folder.resolve())
    evaluated = known.get("run")
    return evaluated if evaluated is not None and Path(evaluated).exists() else None


def _run_behind(path: Path) -> Run | None:
    """Return the run of a run folder, of its evaluation, or of a scores.h5 in either; None for other files."""
    behind = model_behind(path)
    return Run.open(Path(behind)) if behind is not None and (Path(behind) / "run.json").is_file() else None


def _require_same(first: str, tokens: Tokens, name: str, others: Tokens) -> None:
    if tokens.fingerprint == others.fingerprint:
        return
    both = min(tokens.count, others.count)
    theirs = np.array([tokens.ids_of_words.get(word, -1) for word in others.words])[others.ids[:both]]
    differ = np.flatnonzero(theirs != tokens.ids[:both])
    if len(differ):
        at = int(differ[0])
        place = f"{tokens.place(at)} is {quote_word(tokens, at)} in one and {quote_word(others, at)} in the other"
    else:
        place = f"{tokens.count:,} and {others.count:,} of them, of which the first {both:,} agree"
    raise UserError(f"{first} and {name} scored different tokens: {place}; score the same text, over the same words")
