"""Report how much of a text is out of vocabulary, and warn of text that does not fit.

A vocabulary that does not fit the text looks like success: nearly all tokens are `<unk>`, and the perplexity is low.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from lmtool.config.data import Unit
from lmtool.data.corpus import Corpus
from lmtool.data.segmenters import UNSPACED_REMEDY, lacks_spaces
from lmtool.data.text_form import TextForm, visible
from lmtool.data.vocabulary import Vocabulary

Say = Callable[[str], None]
SHARED_FROM = 0.2  # share of the sentences of valid; 2 % of those of running text are in train, 13 % of names
WARN_FROM = 0.1  # minimum share of a split's tokens
AT_LEAST = 5  # number of OOVs in a given text: one or two odd words in a sentence are not a mistake
EXAMPLES = 100_000  # maximum number of OOVs that are examined, in about a second
SHOWN = 5  # OOVs that a warning shows
PIECES = "a model of pieces (data.vocabulary.unit=bpe), which has no OOVs"
OOV_REMEDY = f"cut and write it as the train text was, or use {PIECES}"


def report_splits(corpus: Corpus, say: Say, note: Say, warn: Say) -> None:
    """Print the sizes of splits that were cut from one text and the OOV rates of train and valid, with warnings."""
    if corpus.provenance["cut"]:
        sizes = ((row["split"], row["sentences"] or row["tokens"]) for row in corpus.rows)
        listed = ", ".join(f"{split} {size:,}" for split, size in sizes)
        note(f"the text is cut into {listed} {'sentences' if corpus.sentences else 'tokens'}")
    for each in corpus.provenance["notes_on_words"]:
        note(each)
    listed = ", ".join(f"{100 * share:.2f} % of {split}" for split, share in _shares(corpus).items())
    say(f"out of vocabulary: {listed}")
    for warning in text_warnings(corpus):
        warn(warning)


def text_warnings(corpus: Corpus) -> list[str]:
    """Return warnings of likely mistakes in the text: a high OOV rate, and sentences of valid that are in train."""
    share = corpus.provenance["valid_in_train"]
    if share < SHARED_FROM:
        return oov_warning(corpus)
    what = "the sentences of valid are" if corpus.sentences else "valid is"
    remedy = "its perplexity says little of new text; give data.valid other text"
    return [*oov_warning(corpus), f"{100 * share:.1f} % of {what} in train, too: {remedy}"]


def oov_warning(corpus: Corpus, *splits: str) -> list[str]:
    """Return a warning if a split (train or valid) has 10 % OOVs or more, or the words of train are phrases."""
    shares = _shares(corpus, *splits)
    in_train = shares.get("train", 0) >= WARN_FROM
    remedy = _remedy(corpus.provenance["settings"]["vocabulary"], in_train=in_train)
    unspaced = corpus.provenance["unspaced"]
    if any(shares.get(split, 0) >= WARN_FROM for split in unspaced):
        remedy = UNSPACED_REMEDY
    phrases = "train" in unspaced and corpus.unit is Unit.word
    return _warning(shares, remedy) or [UNSPACED_REMEDY] * phrases


def text_warning(text: str, oov: int, tokens: int, words: Sequence[str], vocabulary: Vocabulary) -> list[str]:
    """Return a warning, with the most frequent OOVs (of `words`), if a text has 10 % or more, and at least 5."""
    if oov < AT_LEAST or oov < WARN_FROM * tokens:
        return []
    examples = words[:EXAMPLES]
    as_train = "" if lacks_spaces(vocabulary.words[:1000]) else "; or cut it as the train text was"
    remedy = UNSPACED_REMEDY + as_train if lacks_spaces(examples) else OOV_REMEDY
    shown = ", ".join(visible(word) for word, _ in Counter(examples).most_common(SHOWN))
    return _warning({text: oov / tokens}, f"e.g. {shown}; {remedy}" if shown else remedy)


def unknown_words(content: bytes, form: TextForm) -> list[str]:
    """Return the OOVs of a text, words or characters; none if words are tagged or cut into pieces."""
    if form.subwords is not None:
        return []
    lines = form.rules(content.decode("utf-8", "ignore")).split("\n")
    return [word for line in lines for word in form.split_rewritten(line) if word not in form.vocabulary.ids]


def _warning(shares: dict[str, float], remedy: str) -> list[str]:
    named = ", ".join(f"{100 * share:.1f} % of {text}" for text, share in shares.items() if share >= WARN_FROM)
    return [f"a high share is out of vocabulary and <unk> for the model ({named}): {remedy}"] if named else []


def _shares(corpus: Corpus, *splits: str) -> dict[str, float]:
    return {split: corpus.oov_share(split) for split in splits or ("train", "valid") if corpus.knows(split)}


def _remedy(vocabulary: dict[str, Any], *, in_train: bool) -> str:
    file, size, min_count = vocabulary["file"], vocabulary["size"], vocabulary["min_count"]
    if file is not None:
        return f"check that data.vocabulary.file={file} fits the text, or leave it out and train chooses the words"
    limits = [f"raise data.vocabulary.size={size}"] * (size is not None)
    limits += [f"lower data.vocabulary.min_count={min_count}"] * (min_count > 1)
    if limits:
        return " or ".join(limits)
    return "check that the given words fit the text" if in_train else "train lacks its words; give it more text"
