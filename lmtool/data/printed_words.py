"""Cut words as a reader sees them, with their punctuation, into tokens by a rule, and find the sentences of a text.

Three rules (`words=`): whitespace leaves a word as it is; punctuation cuts off each mark outside its letters; ptb cuts
as the Penn Treebank does, by the sed script of R. MacIntyre (1995): contractions, quotes, final periods. Both of these
cut at dashes, not at hyphens, and between grapheme clusters only: a combining mark, ZWJ, ZWNJ or variation selector
belongs to the character before it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Container, Sequence
from functools import cache, partial
from itertools import groupby, pairwise

import regex

from lmtool.config.data import WordRule
from lmtool.data.text_form import TextForm
from lmtool.data.tokenizer import split_words

EXTENDS = r"[\p{M}\p{Join_Control}]"
CHARACTER = regex.compile(rf"\X{EXTENDS}*")  # \X splits off some Burmese marks and all after control characters
# What is not punctuation. ALetter: also characters within words, such as geresh and the marks of Armenian vowels.
LETTER = regex.compile(rf"[\p{{L}}\p{{N}}\p{{WB=ALetter}}]|^{EXTENDS}")
PLAIN = {  # apostrophes and quotes, without those of Chinese and Japanese, which are brackets
    ord(quote): "'" if regex.search("SINGLE|APOSTROPHE", unicodedata.name(quote)) else '"'
    for quote in regex.findall(r"(?V1)[\p{QMark}--[\p{EA=W}\p{EA=H}]]", "".join(map(chr, range(1 << 16))))
}
TITLES = ("mr", "mrs", "ms", "messrs", "mme", "mlle", "dr", "prof", "rev", "hon", "gen", "col", "capt", "lt", "sgt")
OFFICES = ("gov", "sen", "rep", "pres")
OTHERS = ("jr", "sr", "esq", "st", "mt", "ft", "inc", "ltd", "corp", "co", "bros", "vs", "etc")
MONTHS = ("jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec")
ABBREVIATIONS = frozenset((*TITLES, *OFFICES, *OTHERS, *MONTHS))
INITIAL = r"(?:[\p{Lu}\p{Ll}\p{Lt}]\p{M}*|[\p{L}--\p{EA=W}])"  # not a Korean syllable, which is wide
INITIALS = regex.compile(rf"(?V1){INITIAL}(\.{INITIAL})*")  # J, U.S, a.m, before their last period
ELISIONS = frozenset(("em", "tis", "twas", "til", "cause", "n", "round"))  # after an apostrophe that is not a quote
CONTRACTION = regex.compile(r"(?<=\w)(n't|'(?:s|m|d|ll|re|ve))$", regex.IGNORECASE)
PAIRS = {"cannot": 3, "gonna": 3, "gotta": 3, "wanna": 3, "gimme": 3, "lemme": 3, "d'ye": 2, "'tis": 2, "'twas": 2}
INSIDE = regex.compile(rf"((?:--+|\.\.\.+|[;@?!]|[,:](?!\d))(?!{EXTENDS}))")  # marks that are cut out within a word
TEX = {"``": '"', "''": '"', "`": "'"}  # the quotes of ptb, and plain ones
# Alternative tokens that a vocabulary may have.
WRITTEN = {**{tex: (plain,) for tex, plain in TEX.items()}, "(": ("-LRB-", "-lrb-"), ")": ("-RRB-", "-rrb-")}
INVISIBLE = regex.compile(r"[\s\p{DI}]+")  # e.g. a no-break space beside a mark, as in French; marks of direction
DASHES = regex.compile(r"\p{Pd}+")
# Unicode's marks, except the comma of Burmese, and other marks that end sentences in Tibetan, Greek and Ethiopic.
MARKS = r"[[\p{STerm}\u2026\u037e[\p{Term}&&\p{Tibetan}]]--\u104a]"
CLOSES = r"\p{Pe}\p{Pf}\p{M}\p{Cf}"  # brackets, quotes, marks and invisible characters
FINAL = regex.compile(rf"(?V1)({MARKS}|\u1361(?=\u1361))\u1361?[{CLOSES}\p{{QMark}}]*$")
ENDING = regex.compile(rf"(?V1)(?:{MARKS}|\u1361\u1361|[{CLOSES}]|'')+")  # a word of the preceding sentence
# A mark of a script without spaces between sentences, and closing characters, before the beginning of another sentence.
BETWEEN = regex.compile(
    rf"(?V1)(?!\uff0e[\p{{Latin}}\p{{N}}])[{MARKS}--[\p{{ASCII}}\u2024\u2026]][{CLOSES}]*+(?=\s*[[\P{{P}}--\s]\p{{Ps}}\p{{Pi}}])"
)


def cut_word(word: str, rule: WordRule, *, is_last: bool = False) -> list[str]:
    """Return the tokens of a printed word, which may have white space. is_last: whether it ends its sentence."""
    if rule is WordRule.whitespace:
        return split_words(word)
    cut = _cut_ptb if rule is WordRule.ptb else _cut_marks
    *others, last = [part for piece in split_words(word) for part in _cut_dashes(piece)] or [""]
    tokens = [token for part in others for token in cut(part, False)] + cut(last, is_last)
    return [token for token in tokens if not INVISIBLE.fullmatch(token)]


def known_form(tokens: Sequence[str], vocabulary: Container[str]) -> list[str]:
    """Return tokens in the forms that a vocabulary has: plain quotes, brackets, apostrophes; single marks for runs."""
    words: list[str] = []
    for token in tokens:
        dash = ["--"] * all(map(_is_dash, token))
        others = WRITTEN.get(token, (token.translate(PLAIN), *dash))
        best = next((form for form in (token, *others) if form in vocabulary), None)
        marks = [] if token in TEX or has_letters(token) else CHARACTER.findall(token)
        if best is None and len(set(marks)) == 1 and marks[0] in vocabulary:
            words += marks
        else:
            words.append(best or token)
    return words


def words_of(word: str, form: TextForm, rule: WordRule, *, keep_punctuation: bool, is_last: bool) -> list[str]:
    """Return the words (or characters) of a model with this form for a printed word, perhaps without punctuation."""
    parts = [part for part in cut_word(word, rule, is_last=is_last) if keep_punctuation or has_letters(part)]
    spaced = form.chars or form.subwords is not None
    if spaced and any(part in TEX for part in parts):
        tex = "`" if form.chars else "``"
        if not any(tex in token for token in form.vocabulary.words):
            parts = [TEX.get(part, part) for part in parts]
    parts = form.words(" ".join(parts))
    return parts if spaced or rule is WordRule.whitespace else known_form(parts, form.vocabulary.ids)


def sentence_cutter(form: TextForm, rule: WordRule, *, keep_punctuation: bool = True) -> Callable[[str], str]:
    """Return a function from a sentence as printed to the text with the words of a model. Arguments: as in words_of."""
    space = "" if form.chars else " "
    words_of_word = cache(partial(words_of, form=form, rule=rule, keep_punctuation=keep_punctuation))

    def cut(sentence: str) -> str:
        words = split_words(sentence)
        parts = (words_of_word(word, is_last=k == len(words)) for k, word in enumerate(words, start=1))
        return " ".join(space.join(part) for part in parts if part)

    return (lambda sentence: sentence) if rule is WordRule.whitespace and keep_punctuation else cut


def has_letters(token: str) -> bool:
    """Return whether a token has a letter or a digit, i.e. is not a punctuation mark."""
    return LETTER.search(token) is not None


def without_marks(word: str) -> str:
    """Return a word without the marks of punctuation before its first letter and after its last."""
    return _parts(word)[1]


def split_sentences(word: str) -> list[str]:
    """Return a word cut after each final mark within it, for scripts without spaces between sentences."""
    ends = [0, *(found.end() for found in BETWEEN.finditer(word)), len(word)]
    return [word[start:end] for start, end in pairwise(ends)]


@cache
def _is_dash(character: str) -> bool:  # e.g. the en and em dash, not a hyphen
    named_hyphen = regex.search("HYPHEN|MAQAF", unicodedata.name(character[0], ""))
    return unicodedata.category(character[0]) == "Pd" and not named_hyphen


def _cut_dashes(word: str) -> list[str]:
    """Return a word cut at dashes and runs of hyphens, which are also parts."""
    pieces = [piece for piece in regex.split(f"(--+(?!{EXTENDS}))", word) if piece]
    return ["".join(run) for piece in pieces for _, run in groupby(CHARACTER.findall(piece), _is_dash)]


def _parts(word: str) -> tuple[list[str], str, list[str]]:
    """Return the marks before the first letter of a word, the part up to the last letter, and the marks after it."""
    characters = [word] if word.isalnum() else CHARACTER.findall(word)
    letters = [k for k, character in enumerate(characters) if has_letters(character)]
    first, last = (letters[0], letters[-1] + 1) if letters else (len(characters),) * 2
    return characters[:first], "".join(characters[first:last]), characters[last:]


def _runs(marks: list[str]) -> list[str]:
    """Return single marks and runs of one mark, e.g. ... and --."""
    return ["".join(run) for _, run in groupby(marks)]


def _cut_marks(word: str, is_last: bool) -> list[str]:
    before, core, after = _parts(word)
    return [*_runs(before), *[core] * bool(core), *_runs(after)]


def _cut_ptb(word: str, is_last: bool) -> list[str]:
    before, core, after = _parts(word.translate(PLAIN))
    if not core:
        before, after = [], before
    if before[-1:] == ["'"] and (core.lower() in ELISIONS or core[:1].isdigit() or core.lower() in ("s", "ll", "re")):
        before, core = before[:-1], f"'{core}"
    if after[:1] == ["."] != after[1:2] and _is_abbreviation(core, is_last):
        core, after = f"{core}.", after[1:]
    opening = [{'"': "``", "'": "`"}.get(mark, mark) for mark in _runs(before)]
    closing = [{'"': "''"}.get(mark, mark) for mark in _runs(after)]
    parts = [part for part in INSIDE.split(core) if part] if len(core) > 1 else [core] * bool(core)
    return [*opening, *(token for part in parts for token in _cut_contraction(part)), *closing]


def _is_abbreviation(core: str, is_last: bool) -> bool:
    if INITIALS.fullmatch(core):
        return len(core) > 1 or not (is_last or core == "I")
    return not is_last and core.lower() in ABBREVIATIONS


def _cut_contraction(word: str) -> list[str]:
    at = PAIRS.get(word.lower())
    if at is None and (found := CONTRACTION.search(word)):
        at = found.start()
    return [word] if not at else [word[:at], word[at:]]


def sentence_ends(words: Sequence[str]) -> list[str]:
    """Return for each word of a text the mark that ends a sentence after it; empty if no sentence ends there.

    A word ends a sentence if it ends in a final mark of any script, optionally before closing quotes or brackets,
    unless it is an abbreviation such as Mr. or J., or the mark is of Latin script and the next word begins with a small
    letter (if more than one character in 1,000 is a capital). In Greek, `;` is a final mark. Subsequent words that
    consist only of such marks, quotes and brackets belong to the sentence.
    """
    text = "".join(words)
    if 2 * len(regex.findall(r"\p{Greek}", text)) > len(regex.findall(r"\p{L}", text)):
        words = [word.replace(";", "\u037e") for word in words]
    has_capitals = 1000 * sum(map(str.isupper, text)) > len(text)
    marks = {word: _final_mark(word) for word in set(words)}
    firsts = {word: without_marks(word)[:1] for word in marks if not ENDING.fullmatch(word)}
    is_small = [False]  # whether the next word, except dashes, begins with a small letter; from the last word
    for word in reversed(words):
        small = has_capitals and _has_capital(firsts.get(word, ""))
        is_small.append(small if word in firsts and not DASHES.fullmatch(word) else is_small[-1])
    ends: list[str] = []
    for word, small in zip(words, is_small[-2::-1], strict=True):
        mark = "" if small and marks[word] in ".!?;\u2026" else marks[word]
        if word not in firsts and ends and ends[-1]:
            mark, ends[-1] = mark or ends[-1], ""
        ends.append(mark)
    return ends


def _has_capital(letter: str) -> bool:
    """Return whether a letter is small and has a capital that begins sentences; Georgian capitals do not."""
    return letter.islower() and letter.title() != letter


def _final_mark(word: str) -> str:
    """Return the mark of a word that may end a sentence, composed (a Greek question mark is a semicolon)."""
    found, core = FINAL.search(word), without_marks(word)
    if found is None or (found[1] == "." and word[: found.start()].endswith(core) and _is_abbreviation(core, False)):
        return ""
    return unicodedata.normalize("NFC", found[1])
