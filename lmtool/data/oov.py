"""How much of a corpus is out of vocabulary, in words for the user.

A vocabulary that does not fit the text looks like success: nearly all tokens are `<unk>`, and perplexity is low.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lmtool.data.corpus import Corpus

SHARED_FROM = 0.2  # of the sentences of valid: 2 % of those of running text are in train, and 13 % of names
WARN_FROM = 0.1  # share of a split's tokens


def tell_oov(corpus: Corpus, say: Callable[[str], None], warn: Callable[[str], None]) -> None:
    """Say the share of OOVs in train and valid, and warn as `oov_warning` does."""
    listed = ", ".join(f"{100 * share:.2f} % of {split}" for split, share in _shares(corpus).items())
    say(f"out of vocabulary: {listed}")
    for warning in text_warnings(corpus):
        warn(warning)


def text_warnings(corpus: Corpus) -> list[str]:
    """What is likely to be a mistake in the text: many OOVs, and valid being in train."""
    warnings = [oov_warning(corpus), _shared_warning(corpus)]
    return [warning for warning in warnings if warning is not None]


def _shared_warning(corpus: Corpus) -> str | None:
    share = corpus.provenance.get("valid_in_train", 0.0)  # missing in stores of before 0.7
    what = "the sentences of valid are" if corpus.sentences else "valid is"
    remedy = "its perplexity says little of new text; give data.valid other text"
    return f"{100 * share:.1f} % of {what} in train, too: {remedy}" if share >= SHARED_FROM else None


def oov_warning(corpus: Corpus) -> str | None:
    """The share of OOVs and the setting to change, where train or valid has 10 % or more of them; else None."""
    high = {split: share for split, share in _shares(corpus).items() if share >= WARN_FROM}
    if not high:
        return None
    named = ", ".join(f"{100 * share:.1f} % of {split}" for split, share in high.items())
    remedy = _remedy(corpus.provenance["settings"]["vocabulary"], in_train="train" in high)
    return f"a high share is out of vocabulary and <unk> for the model ({named}): {remedy}"


def _shares(corpus: Corpus) -> dict[str, float]:
    return {split: corpus.oov_share(split) for split in ("train", "valid") if corpus.knows(split)}


def _remedy(vocabulary: dict[str, Any], *, in_train: bool) -> str:
    file, size, min_count = vocabulary["file"], vocabulary["size"], vocabulary["min_count"]
    if file is not None:
        return f"check that data.vocabulary.file={file} fits the text, or leave it out and train chooses the words"
    limits = [f"raise data.vocabulary.size={size}"] if size is not None else []
    limits += [f"lower data.vocabulary.min_count={min_count}"] if min_count > 1 else []
    if limits:
        return " or ".join(limits)
    return "check that the given words fit the text" if in_train else "train lacks its words; give it more text"
