"""Cut words as a reader sees them, with their punctuation, into tokens by a rule, and find the sentences of a text.

Three rules (`words=`): whitespace leaves a word as it is; punctuation cuts off each mark outside its letters; ptb cuts
as the Penn Treebank does, by the sed script of R. MacIntyre (1995): contractions, quotes, final periods. Both of these
cut at dashes, not at hyphens.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Container, Sequence
from functools import cache, partial
from itertools import groupby

from lmtool.config.data import WordRule
from lmtool.data.text_form import TextForm
from lmtool.data.tokenizer import split_words

PARTS = re.compile(r"([\W_]*)(.*?)([\W_]*)", re.DOTALL)  # marks, letters and what is between them, marks
MARKS = re.compile(r"(.)\1+|.", re.DOTALL)  # a mark, or a run of one, such as ... and --
APOSTROPHE = str.maketrans("\u2018\u2019", "''")
QUOTES = str.maketrans("\u201c\u201d\u201e\u00ab\u00bb", '"""""')
TITLES = ("mr", "mrs", "ms", "messrs", "mme", "mlle", "dr", "prof", "rev", "hon", "gen", "col", "capt", "lt", "sgt")
OFFICES = ("gov", "sen", "rep", "pres")
OTHERS = ("jr", "sr", "esq", "st", "mt", "ft", "inc", "ltd", "corp", "co", "bros", "vs", "etc")
MONTHS = ("jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec")
ABBREVIATIONS = frozenset((*TITLES, *OFFICES, *OTHERS, *MONTHS))
INITIALS = re.compile(r"[^\W\d_](\.[^\W\d_])*")  # J, U.S, a.m, before their last period
ELISIONS = frozenset(("em", "tis", "twas", "til", "cause", "n", "round"))  # after an apostrophe that is not a quote
CONTRACTION = re.compile(r"(?<=\w)(n't|'(?:s|m|d|ll|re|ve))$", re.IGNORECASE)
PAIRS = {"cannot": 3, "gonna": 3, "gotta": 3, "wanna": 3, "gimme": 3, "lemme": 3, "d'ye": 2, "'tis": 2, "'twas": 2}
INSIDE = re.compile(r"(--+|\.\.\.+|[;@?!]|[,:](?!\d))")  # marks that are cut out within a word
TEX = {"``": '"', "''": '"', "`": "'"}  # the quotes of ptb, and plain ones
# What else a vocabulary may have for a token.
WRITTEN = {**{tex: (plain,) for tex, plain in TEX.items()}, "(": ("-LRB-", "-lrb-"), ")": ("-RRB-", "-rrb-")}
FINAL = re.compile(r"[.!?\u2026][\"'\u201d\u2019\u00bb)\]}]*$")


def cut_word(word: str, rule: WordRule, *, is_last: bool = False) -> list[str]:
    """Return the tokens of a printed word; white space within it separates words. is_last: of its sentence."""
    if rule is WordRule.whitespace:
        return split_words(word)
    cut = _ptb if rule is WordRule.ptb else _marks_off
    *others, last = [part for piece in split_words(word) for part in _at_dashes(piece)] or [""]
    return [token for part in others for token in cut(part, False)] + cut(last, is_last)


def known_form(tokens: Sequence[str], known: Container[str]) -> list[str]:
    """Return tokens as a vocabulary writes them: plain quotes, brackets and apostrophes for those that it lacks, and
    single marks for a run of marks.
    """
    found: list[str] = []
    for token in tokens:
        dash = ["--"] * all(map(_is_dash, token))
        others = WRITTEN.get(token, (token.translate(APOSTROPHE), token.translate(QUOTES), *dash))
        best = next((form for form in (token, *others) if form in known), None)
        is_run = token not in TEX and len(token) > 1 and len(set(token)) == 1 and not token.isalnum()
        if best is None and is_run and token[0] in known:
            found += token
        else:
            found.append(best or token)
    return found


def words_of(word: str, form: TextForm, rule: WordRule, *, marks: bool, is_last: bool) -> list[str]:
    """Return the words of a model (or characters) that a printed word becomes. form: of the model. marks: whether marks
    of punctuation are kept. Raises UserError as TextForm.words does.
    """
    parts = [part for part in cut_word(word, rule, is_last=is_last) if marks or has_letters(part)]
    spaced = form.chars or form.subwords is not None
    if spaced and any(part in TEX for part in parts):
        tex = "`" if form.chars else "``"
        if not any(tex in token for token in form.vocabulary.words):
            parts = [TEX.get(part, part) for part in parts]
    parts = form.words(" ".join(parts))
    return parts if spaced or rule is WordRule.whitespace else known_form(parts, form.vocabulary.ids)


def sentence_cutter(form: TextForm, rule: WordRule, *, marks: bool = True) -> Callable[[str], str]:
    """Return a function from a sentence as printed to the text with the words of a model. Arguments: as in words_of."""
    space, words_of_word = "" if form.chars else " ", cache(partial(words_of, form=form, rule=rule, marks=marks))

    def cut(sentence: str) -> str:
        words = split_words(sentence)
        parts = (words_of_word(word, is_last=k == len(words)) for k, word in enumerate(words, start=1))
        return " ".join(space.join(part) for part in parts if part)

    return (lambda sentence: sentence) if rule is WordRule.whitespace and marks else cut


def has_letters(token: str) -> bool:
    """Return whether a token has a letter or a digit: is not a mark of punctuation."""
    return any(map(str.isalnum, token))


@cache
def _is_dash(character: str) -> bool:
    """Return whether a character is a dash, such as the en and em dash, and not a hyphen."""
    named_hyphen = re.search("HYPHEN|MAQAF", unicodedata.name(character, ""))
    return unicodedata.category(character) == "Pd" and not named_hyphen


def _at_dashes(word: str) -> list[str]:
    """Return a word cut at dashes and runs of hyphens, which are parts, too."""
    pieces = [piece for piece in re.split("(--+)", word) if piece]
    return ["".join(run) for piece in pieces for _, run in groupby(piece, _is_dash)]


def _split_marks(marks: str) -> list[str]:
    return [found[0] for found in MARKS.finditer(marks)]


def _marks_off(word: str, is_last: bool) -> list[str]:
    """Return the tokens by the rule `punctuation`."""
    found = PARTS.fullmatch(word)
    assert found is not None, "the pattern matches any text"
    before, core, after = found.groups()
    return [*_split_marks(before), *([core] if core else []), *_split_marks(after)]


def _ptb(word: str, is_last: bool) -> list[str]:
    """Return the tokens by the rule `ptb`."""
    found = PARTS.fullmatch(word.translate(APOSTROPHE).translate(QUOTES))
    assert found is not None, "the pattern matches any text"
    before, core, after = found.groups()
    if not core:
        before, after = "", before
    if before.endswith("'") and (core.lower() in ELISIONS or core[:1].isdigit() or core.lower() in ("s", "ll", "re")):
        before, core = before[:-1], f"'{core}"
    if after.startswith(".") and not after.startswith("..") and _is_abbreviation(core, is_last):
        core, after = f"{core}.", after[1:]
    opening = [{'"': "``", "'": "`"}.get(mark, mark) for mark in _split_marks(before)]
    closing = [{'"': "''"}.get(mark, mark) for mark in _split_marks(after)]
    parts = [part for part in INSIDE.split(core) if part] if len(core) > 1 else [core] * bool(core)
    return [*opening, *(token for part in parts for token in _contracted(part)), *closing]


def _is_abbreviation(core: str, is_last: bool) -> bool:
    if INITIALS.fullmatch(core):
        return len(core) > 1 or not (is_last or core == "I")
    return not is_last and core.lower() in ABBREVIATIONS


def _contracted(word: str) -> list[str]:
    at = PAIRS.get(word.lower())
    if at is None and (found := CONTRACTION.search(word)):
        at = found.start()
    return [word] if not at else [word[:at], word[at:]]


def sentence_numbers(words: Sequence[str]) -> list[int]:
    """Return the number of the sentence of each word of a text, from 1, by final punctuation.

    A word ends a sentence if it ends in . ! ? or an ellipsis, perhaps before closing quotes or brackets, unless it is
    an abbreviation such as Mr. or J., or the next word begins with a small letter (if the text has capital letters).
    """
    has_capitals = any(character.isupper() for word in words for character in word)
    numbers, number = [], 1
    for word, after in zip(words, [*words[1:], ""], strict=True):
        numbers.append(number)
        if FINAL.search(word):
            core = word.strip("\"'\u201c\u201d\u2018\u2019()[]")
            short = core.endswith(".") and not core.endswith("..") and _is_abbreviation(core[:-1], False)
            first = next((c for c in after if unicodedata.category(c)[0] in "LN"), "")
            number += not (short or (has_capitals and first.islower()))
    return numbers
