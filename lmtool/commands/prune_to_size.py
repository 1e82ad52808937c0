"""Pruning to the size that `prune_to=` names: chosen, done and said in one place, for the verbs that have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lmtool.config.rules import ngrams_to_keep
from lmtool.session import Session

if TYPE_CHECKING:
    from lmtool.ngram.tables.backoff import BackoffTable


def prune_to_size(
    wanted: object,
    table: BackoffTable,
    eos: int | None,
    session: Session,
    by_gain: Callable[[int], tuple[BackoffTable, float]] | None = None,
) -> BackoffTable:
    """The table of as many n-grams as are wanted, a number or a share; the same table where it has no more.

    eos: the id of `</s>`. by_gain: prunes to a number of n-grams by expected gain, and returns the threshold too; None
    for pruning by entropy. Raises UserError where less is wanted than the 1-grams.
    """
    from lmtool.ngram.pruning.entropy import prune_to_size_by_entropy

    total, size = sum(table.sizes), ngrams_to_keep(wanted, "prune_to", table.sizes)
    if size >= total:
        session.say(f"prune_to={wanted}: all {total:,} n-grams stay")
        return table
    if by_gain is None:
        pruned, threshold = prune_to_size_by_entropy(table, size, eos)
        found = f"prune_entropy={threshold:.4g}"
    else:
        pruned, threshold = by_gain(size)
        found = f"expected gains of {threshold:.4g} nats per token and more"
    session.say(f"pruned from {total:,} n-grams to {sum(pruned.sizes):,}: {found}")
    return pruned
