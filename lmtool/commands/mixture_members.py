"""What `compare` and `ensemble` take as members: runs, scores that are kept, files of other tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lmtool.errors import UserError
from lmtool.evaluation.token_scores import SCORES_FILE, Tokens, TokenScores, shown
from lmtool.language_model import FloatArray
from lmtool.runs.run import Run
from lmtool.session import on_terminal


@dataclass(frozen=True, slots=True)
class Member:
    """The natural log-probabilities `[N]` of one model for tokens; split: what text they are."""

    name: str
    log_prob: FloatArray
    split: str
    normalised: bool


def scores_of(names: list[str], split: str, store_dir: str, device: str) -> tuple[list[Member], Tokens]:
    """The scores of all members for the same tokens, and these; runs are scored on `split`.

    Raises UserError where a member is not to be found, and, with the first place, where tokens differ.
    """
    from lmtool.evaluation.other_tools import aligned, read_scores, tokens_of_file

    kept = {name: found for name in names if (found := _own(name, split, store_dir, device)) is not None}
    others = {name: read_scores(name) for name in names if name not in kept}
    if kept:
        first = next(iter(kept))
        tokens = kept[first].tokens
        for name, found in kept.items():
            _require_same(first, tokens, name, found.tokens)
    else:
        tokens = tokens_of_file(next(iter(others.values())))
    members = [
        Member(name, kept[name].log_prob, kept[name].split, kept[name].normalised)
        if name in kept
        else Member(name, aligned(others[name], tokens), split, True)
        for name in names
    ]
    return members, tokens


def is_run(name: str) -> bool:
    """Whether a member is a model of lmtool's, not scores alone."""
    return Path(name).is_dir() and ((Path(name) / "run.json").exists() or not (Path(name) / SCORES_FILE).exists())


def _own(name: str, split: str, store_dir: str, device: str) -> TokenScores | None:
    """A member's scores where they are lmtool's; None for another tool's file."""
    path = Path(name)
    if path.is_dir():
        if (path / SCORES_FILE).is_file():
            found = TokenScores.open(path / SCORES_FILE)
            if not is_run(name) or found.split == split:
                return found
        return _scored(Run.open(path), split, store_dir, device)
    if not path.exists():
        raise UserError(f"no run folder and no file {name}: check the path")
    return TokenScores.open(path) if path.suffix == ".h5" else None


def _scored(run: Run, split: str, store_dir: str, device: str) -> TokenScores:
    from lmtool.evaluation.score import score
    from lmtool.evaluation.token_scores import tokens_of
    from lmtool.runs.load import load_model
    from lmtool.runs.store import corpus_of

    with corpus_of(run, store_dir, progress=on_terminal()) as corpus:
        model = load_model(run, corpus.vocabulary, device)
        text = corpus.split(split)
        scores = score(model, text, progress=on_terminal())
        return TokenScores(scores.log_prob, tokens_of(text, corpus.vocabulary), split, model.normalised)


def _require_same(first: str, tokens: Tokens, name: str, others: Tokens) -> None:
    if tokens.fingerprint == others.fingerprint:
        return
    both = min(tokens.count, others.count)
    theirs = np.array([tokens.ids_of_words.get(word, -1) for word in others.words])[others.ids[:both]]
    differ = np.flatnonzero(theirs != tokens.ids[:both])
    if len(differ):
        at = int(differ[0])
        place = f"{tokens.place(at)} is {shown(tokens, at)} in one and {shown(others, at)} in the other"
    else:
        place = f"{tokens.count:,} and {others.count:,} of them, of which the first {both:,} agree"
    raise UserError(f"{first} and {name} scored different tokens: {place}; score the same text, over the same words")
