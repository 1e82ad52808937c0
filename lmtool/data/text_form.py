"""Turn text into ids and ids into text by the rules of a data set: short strings, one text, many texts in parallel."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
import regex

from lmtool.config.data import Normalize, Unit
from lmtool.data.choose_vocabulary import pieces_of_types
from lmtool.data.split import Split
from lmtool.data.subwords import SPACE, Subwords
from lmtool.data.text_rules import FORMS, UNCHANGED, TextRules, ccnet, count_characters, graphemes
from lmtool.data.text_size import text_size
from lmtool.data.tokenizer import (
    BOS_ID,
    EOS_ID,
    OOV,
    RESERVED,
    TAG,
    UNK_ID,
    Ids,
    TextBlock,
    Tokenizer,
    line_ends,
    split_words,
    tokenizer_by,
)
from lmtool.data.vocabulary import EOS, MARKS, Vocabulary
from lmtool.errors import UserError
from lmtool.system.arrays import Array, IntArray
from lmtool.system.terminal import close_words, note_once


@dataclass(frozen=True, slots=True)
class TextForm:
    """The rules that turn a data set's text into words.

    unit: the unit of the tokens.
    rules: by which text is written before it is cut.
    tags: whether words are word/tag, and the tag is dropped.
    subwords: cuts words into the pieces of the vocabulary; None if it has words or characters.
    blank_lines: whether a line of a file without words is a sentence.
    """

    vocabulary: Vocabulary
    unit: Unit = Unit.word
    rules: TextRules = UNCHANGED
    tags: bool = False
    subwords: Subwords | None = None
    blank_lines: bool = False

    @property
    def chars(self) -> bool:
        """Whether tokens are characters."""
        return self.unit.is_character

    def tokenizer(self, vocabulary: Vocabulary | None = None) -> Tokenizer:
        """Return a new tokenizer of files by these rules. vocabulary: determines the ids; None for provisional ids."""
        sentences, blank = self.vocabulary.sentences, self.blank_lines
        rules = {"sentences": sentences, "rules": self.rules, "tags": self.tags, "blank_lines": blank, "marks": OOV}
        return tokenizer_by(self.unit, vocabulary=vocabulary, **rules)

    def rewrite_word(self, word: str) -> str:
        """Return one word, like `words`: rewritten by the rules, and without a tag if tags are dropped."""
        written = self.rules.word_rules(word)
        written = TAG.sub("", written) if self.tags else written
        return MARKS.get(written, written)

    def split_rewritten(self, text: str) -> list[str]:
        """Return the words or characters of a text that the rules have rewritten. No other function cuts strings."""
        text = TAG.sub("", text) if self.tags else text
        if self.chars:
            return graphemes(text) if self.unit is Unit.grapheme else list(text)
        return split_words(text)

    def split(self, text: str) -> list[str]:
        """Return the tokens of a text: its words, characters or pieces of words."""
        return self.tokens(self.words(text))

    def tokens(self, words: list[str]) -> list[str]:
        """Return the tokens of words: the words, or the names of their pieces."""
        return words if self.subwords is None else self.subwords.pieces(words)

    def words(self, text: str) -> list[str]:
        """Return the words (or characters) of a text, at most one sentence; `<s>` and `</s>` are MARKS, thus OOV."""
        if self.vocabulary.sentences:
            text = text.removesuffix("\n").removesuffix("\r")
            if "\n" in text:
                several = "the run's data has one sentence per line, and this is several"
                raise UserError(f"{text[:40]!r}: {several}: give one at a time")
        return [MARKS.get(word, word) for word in self.split_rewritten(self.rules(text))]

    def words_of(self, sentence: str | Sequence[str]) -> list[str]:
        """Return the words of a sentence that is a string or a list of words."""
        if isinstance(sentence, str):
            return self.words(sentence)
        if not isinstance(sentence, Iterable):
            raise UserError(f"{sentence!r:.40} is not a sentence: give a string or a list of words")
        words, form = list(sentence), replace(self, rules=self.rules.word_rules)
        for word in words:
            if not isinstance(word, str):
                raise UserError(f"{word!r} is not a word: a sentence is a string or a list of strings")
            if form.words(word) != [form.rewrite_word(word)]:
                raise UserError(f"{word!r} is not one word of this model's text: give the sentence as one string")
        return [form.rewrite_word(word) for word in words]

    def encode(self, words: list[str], *, allow_oov: bool) -> IntArray:
        """Return the ids of words, int64 `[N]`."""
        if not allow_oov:
            self.require_known(words)
        return self.vocabulary.encode(words)

    def single_tokens(self, words: Sequence[str]) -> Sequence[str]:
        """Return words, each one token, rewritten by the rules, to advance many states at once."""
        known = self.vocabulary.ids
        if self.rules.changes or self.tags:
            words = [word if word in known else self.rewrite_word(word) for word in words]
        for word in words if self.chars or self.subwords is not None else ():
            if word not in known and (not self.chars or len(self.split_rewritten(word)) != 1):
                what = "one letter" if self.chars else "a piece"
                raise UserError(f"{word!r} is not {what} of this model: cut words by form.split, and give each")
        return words

    def require_known(self, words: list[str]) -> None:
        """Raise UserError for words out of the vocabulary, naming the most similar ones."""
        unknown = [word for word in dict.fromkeys(words) if word not in self.vocabulary.ids]
        more = [f"and {len(unknown) - 3} more"] if len(unknown) > 3 else []
        if unknown:
            raise UserError("; ".join([*map(self._describe_unknown, unknown[:3]), *more]))

    def as_split(self, sentences: Iterable[list[str]], *, one_text: bool) -> tuple[Split, list[int]]:
        """Return sentences as text that can be scored, without sentences that have no tokens, and the number of tokens
        of each, including `</s>`.

        sentences: the words of each (see `words`). one_text: whether each sentence continues the one before.
        """
        words, eos = list(sentences), [] if self.vocabulary.eos is None else [EOS]
        tokens = [[*self.tokens(sentence), *eos] for sentence in words]
        sizes = list(map(len, tokens))
        every = list(chain.from_iterable(tokens))
        unknown = [k for k, token in enumerate(every) if token not in self.vocabulary.ids]
        cut = [split_words("".join(sentence)) if self.chars else sentence for sentence in words]
        one_stream = one_text and not self.vocabulary.sentences
        text = Split(
            self.vocabulary.encode(every),
            np.cumsum([0, *([sum(sizes)] if one_stream else [size for size in sizes if size])]),
            np.array(unknown, dtype=np.int64),
            sum(
                count_characters(" ".join(sentence)) + 1 for sentence in cut if len(sentence) or eos
            ),  # an empty array has no truth
            self.vocabulary.bos,
            independent_sentences=not one_text,
            oov_words=[every[k] for k in unknown],
            words=sum(len(sentence) + len(eos) for sentence in cut),
        )
        return text, sizes

    def _describe_unknown(self, word: str) -> str:
        if word in MARKS.values():
            return f"{word[1:]} is in the text: lmtool adds sentence boundaries itself; remove it"
        if (same := same_in_other_form(word, self.vocabulary)) is not None:
            return f"{word!a} is not in the vocabulary: it differs from {same!a} in its normal form alone"
        near = [visible(other) for other in close_words(word, self.vocabulary.words[:-1])]  # without <s>
        hint = f"similar: {', '.join(near)}" if near else "it has no similar word"
        return f"{visible(word)} is not in the vocabulary ({hint})"

    def join(self, ids: Iterable[int]) -> str:
        """Return the text of ids without `</s>` at their end."""
        tokens = [self.vocabulary.words[index] for index in ids]
        if self.subwords is None:
            return ("" if self.chars else " ").join(tokens)
        numbers = self.subwords.numbers  # <unk> has no number: it is not in the text
        return self.subwords.text(numbers[token] for token in tokens if token in numbers)

    def token_text(self, index: int) -> str:
        """Return a token as text: the word, or the text of the piece, with the space that begins a word."""
        token = self.vocabulary.words[index]
        return token if self.subwords is None else self.subwords.additions.get(token, token)

    def labels(self, tokens: Iterable[str]) -> list[str]:
        """Return tokens for a table or a picture: the words, or the text of the pieces, with U+2581 for a space."""
        if self.subwords is None:
            return [token.removeprefix(" ") if token in MARKS.values() else token for token in tokens]
        return [self.subwords.additions.get(token, token).replace(" ", SPACE) for token in tokens]


def same_in_other_form(word: str, vocabulary: Vocabulary) -> str | None:
    """Return the word of a vocabulary that equals another word except for its normal form; None if no word does."""
    return next((w for form in FORMS.values() if (w := unicodedata.normalize(form, word)) in vocabulary.ids), None)


def visible(word: str) -> str:
    """Return a word for a table: in quotes if it has white space or cannot be shown unchanged."""
    return word if word and is_drawn(word) and " " not in word else repr(word)


def is_drawn(word: str) -> bool:
    """Return whether a word can be shown unchanged: all is printable, except inner joiners and direction marks."""
    drawn: str = regex.sub(r"(?<=.)\p{Join_Control}(?=.)|[\u061c\u200e\u200f]", "", word)
    return drawn.isprintable()


class EncodedTexts(NamedTuple):
    """D texts as ids. split: their tokens, whose contexts do not cross texts. documents: int64 `[D + 1]`, the first
    token of each text, and N.
    """

    split: Split
    documents: IntArray


class TextEncoder:
    """Encode texts by the rules of a run's data, in parallel, in memory that does not grow with them; marks are OOV."""

    def __init__(self, form: TextForm) -> None:
        self._form = form
        self._tokenizer = None if form.subwords is not None else form.tokenizer(form.vocabulary)

    def __call__(self, block: TextBlock) -> EncodedTexts:
        vocabulary, subwords = self._form.vocabulary, self._form.subwords
        ids: Array
        if subwords is None:
            assert self._tokenizer is not None
            ids, documents = self._tokenizer.texts(block, "text")
        else:  # JSON may have a lone surrogate, which UTF-8 lacks
            content, tokenizer = block.content.decode("utf-8", "replace").encode(), self._form.tokenizer()
            words, ends = tokenizer.texts(block.rewrite(content), "text")
            ids, documents = _in_pieces(words, ends, tokenizer.types(), subwords, vocabulary)
        ids, offsets, documents = vocabulary.cut_sentences(ids, documents)
        unknown = np.flatnonzero(ids == OOV)
        vocabulary.require_no_oov(["a word of the text"] * len(unknown))
        ids[unknown] = vocabulary.unk
        starts = np.unique(documents)
        offsets = offsets if vocabulary.sentences else starts
        return EncodedTexts(Split(ids, offsets, unknown, 0, vocabulary.bos, documents=starts), documents)


def _in_pieces(
    words: Ids, ends: IntArray, types: list[str], subwords: Subwords, vocabulary: Vocabulary
) -> tuple[IntArray, IntArray]:
    """Return the ids of the pieces of provisional words, OOV for unknown characters and marks, and the ends of texts
    among them, given their ends among words.
    """
    table = pieces_of_types(subwords, types)
    ids = vocabulary.encode([*RESERVED, *subwords.names])
    ids[UNK_ID], ids[EOS_ID] = OOV, vocabulary.end_mark
    return ids[table.of(words)], np.append(0, np.cumsum(table.lengths[words]))[ends]


def normalize_texts(block: TextBlock, normalize: Normalize) -> TextBlock:
    """Return texts in a normal form; CCNet's drops the line ends within each text."""
    if normalize is not Normalize.ccnet:
        return block.rewrite(TextRules(normalize=normalize).encoded(block.content))
    parts = (block.content[first:last] for first, last in pairwise([0, *block.ends.tolist()]))
    content = "".join(f"{ccnet(part.decode('utf-8', 'replace'))}\n" for part in parts).encode()
    return TextBlock(content, line_ends(content))


def split_of_text(
    blocks: Iterable[bytes], name: str, form: TextForm, *, across_sentences: bool = False, documents: bool = False
) -> tuple[Split, int]:
    """Return the tokens of blocks of whole lines as ids of a run's vocabulary, and the number of skipped empty lines.

    across_sentences: whether the sentences are running text, for models whose contexts cross sentences; if not, they
    are independent. documents: whether each block is a document, whose limits no context crosses. `<s>` and `</s>` in
    the text are OOV, with a note.
    """
    vocabulary = form.vocabulary
    tokenizer = form.tokenizer()
    parts = [tokenizer(block, name) for block in blocks]
    provisional, ends = np.concatenate(parts), np.cumsum([0, *map(len, parts)])
    types = tokenizer.types()
    if form.subwords is not None:
        ids, ends = _in_pieces(provisional, ends, types, form.subwords, vocabulary)
        searched = enumerate(types[1:] if OOV in ids else [], 1)
        words_of = ((k, form.tokens([MARKS.get(word, word)])) for k, word in searched)
        unknown = {k: [token.strip() for token in found if token not in vocabulary.ids] for k, found in words_of}
        oov_words = [token for k in provisional.tolist() for token in unknown.get(k, ())]
    else:
        known = [vocabulary.ids.get(word, OOV) for word in types]
        known[BOS_ID] = OOV
        known[EOS_ID] = vocabulary.end_mark
        ids = np.array(known)[provisional]
        oov_words = [types[k] for k in provisional[ids == OOV].tolist()]
    if marks := int((provisional == BOS_ID).sum()):
        note_once(f"{name}: {marks:,} words <s> or </s> count as OOV: lmtool adds sentence boundaries itself")
    vocabulary.require_no_oov(oov_words)
    ids, offsets, ends = vocabulary.cut_sentences(ids, ends)
    oov = np.flatnonzero(ids == OOV)
    ids[oov] = vocabulary.unk
    characters, words = text_size(provisional, types, chars=form.chars)
    split = Split(
        ids,
        np.unique(ends) if documents and not vocabulary.sentences else offsets,
        oov,
        characters - tokenizer.inserted_spaces,
        vocabulary.bos,
        independent_sentences=vocabulary.sentences and not across_sentences,
        documents=np.unique(ends) if documents else None,
        words=words if vocabulary.eos is not None else words - int((provisional == EOS_ID).sum()),
        oov_words=oov_words,
    )
    return split, tokenizer.empty_lines
