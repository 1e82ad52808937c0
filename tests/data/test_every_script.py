"""Compare lmtool with plain programs written from the Unicode standard alone, in each language of tests/languages.py.

`cut`, `sentences`, `lower`, `and `merges` were written by someone who had not read lmtool's code.
"""

# ruff: noqa: RUF001 (letters that resemble those of English)

from __future__ import annotations

import re
from pathlib import Path
from unicodedata import category, normalize

import pandas
import pytest
import regex

import lmtool
from tests.languages import LANGUAGES

# Counted by hand. Thai marks no end but that of a question; in Greek `;` asks; the Amharic year is an abbreviation; a
# small letter after a closing quote continues its sentence, which a letter of a script without capitals cannot show.
SENTENCES = {
    **{name: 3 for name in LANGUAGES},
    **{
        name: 4
        for name in ("Amharic", "Arabic", "Chinese", "Emoji", "Greek", "Hindi", "Japanese", "Tibetan", "Turkish")
    },
    **{"Korean": 4, "Korean in jamo": 4, "Russian": 4, "Thai": 2},
}
BY_HAND = {  # a printed word: its tokens, and how many characters a reader counts
    "में": ("में", 1),
    "«हिन्दी»।": ("« हिन्दी » ।", 5),
    "קָרָאתָ,": ("קָרָאתָ ,", 5),
    "ג׳ירפה": ("ג׳ירפה", 6),
    "น้ำแข็ง": ("น้ำแข็ง", 4),
    "‘கொடு’": ("‘ கொடு ’", 4),
    "ဂုဏ်။": ("ဂုဏ် ။", 3),
    "kọ́!": ("kọ́ !", 3),
    "Бар\u0301.": ("Бар\u0301 .", 4),
    "می\u200cآید؟": ("می\u200cآید ؟", 6),
    normalize("NFD", "한국어."): ("한국어 .", 4),
    "\U0001f468\u200d\U0001f469\u200d\U0001f467!": ("\U0001f468\u200d\U0001f469\u200d\U0001f467 !", 2),
    "\U0001f1eb\U0001f1f7\U0001f1ef\U0001f1f5.": ("\U0001f1eb\U0001f1f7 \U0001f1ef\U0001f1f5 .", 3),
    "1\ufe0f\u20e3": ("1\ufe0f\u20e3", 1),
    "\u2764\ufe0f\u2026": ("\u2764\ufe0f \u2026", 2),
}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # notes on so small a text
ARMENIAN_TONES = "\u055b\u055c\u055e"  # on a letter of a word (WordBreak=ALetter)


def cut(word: str) -> list[str]:
    """Cut punctuation and symbols off the ends of a word, each a token with all that belongs to it."""
    clusters = regex.findall(r"\X", normalize("NFC", word))
    inner = [category(c[0])[0] not in "PS" or c[0] in ARMENIAN_TONES for c in clusters]
    if not any(inner):
        return clusters
    first, last = inner.index(True), len(inner) - inner[::-1].index(True)
    return [*clusters[:first], "".join(clusters[first:last]), *clusters[last:]]


def lower(word: str, language: str) -> str:
    """Return Unicode's lower case (SpecialCasing.txt) of a word in a language."""
    word = normalize("NFC", word)
    if language in ("tr", "az"):
        word = word.replace("\u0130", "i").replace("I", "\u0131")
    if language == "lt":  # the dot stays below an accent
        decomposed = normalize("NFD", word)
        word = re.sub("([IJ]\u0328?)(?=[\u0300\u0301\u0303])", "\\1\u0307", decomposed)
    return normalize("NFC", word.lower())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a model of the words of all languages, cut by the plain program."""
    folder = tmp_path_factory.mktemp("all")
    lines = [" ".join(t for word in line.split() for t in cut(word)) for text in LANGUAGES.values() for line in text]
    corpus = lmtool.Corpus.from_texts(train=lines * 2, store_dir=folder / "stores")
    return Path(lmtool.train({"kind": "ngram", "order": 1}, corpus, out=folder / "run", smoother="witten_bell").folder)


def words_of(name: str) -> list[str]:
    """Return the printed words of a language's sentences."""
    return [word for line in LANGUAGES[name] for word in line.split()]


@pytest.fixture(scope="module")
def tables(run: Path) -> dict[str, pandas.DataFrame]:
    """Return the surprisal table of each language."""
    words = {name: pandas.DataFrame({"word": words_of(name)}) for name in LANGUAGES}
    return {name: lmtool.surprisal(run, table, words="punctuation") for name, table in words.items()}


@pytest.mark.parametrize("name", LANGUAGES)
def test_printed_words(tables: dict[str, pandas.DataFrame], name: str) -> None:
    table = tables[name]
    assert list(table.tokens) == [" ".join(cut(word)) for word in words_of(name)]
    assert [tokens.replace(" ", "") for tokens in table.tokens] == [normalize("NFC", w) for w in words_of(name)]
    assert not any(category(token[0])[0] == "M" for tokens in table.tokens for token in tokens.split())
    assert list(table.length) == [
        sum(not regex.fullmatch(r"[\s\p{DI}]+", cluster) for cluster in regex.findall(r"\X", word))
        for word in words_of(name)
    ]
    assert table.oov.sum() == 0
    assert table.sentence.max() == SENTENCES[name]


def test_words_by_hand(run: Path) -> None:
    table = lmtool.surprisal(run, pandas.DataFrame({"word": list(BY_HAND)}), words="punctuation", sentences="item")
    assert dict(zip(BY_HAND, zip(table.tokens, table.length, strict=True), strict=True)) == BY_HAND
    letters = lmtool.surprisal(
        run, pandas.DataFrame({"word": list(BY_HAND)}), words="punctuation", keep_punctuation=False, sentences="item"
    )
    assert list(letters.tokens) == [
        " ".join(t for t in tokens.split() if regex.search(r"[\p{L}\p{N}]", t)) for tokens, _ in BY_HAND.values()
    ]


def vocabulary(folder: Path, text: list[str], **settings: object) -> set[str]:
    """Return the words of a store of a text."""
    words = lmtool.Corpus.from_texts(train=text, store_dir=folder, **settings).vocabulary.words  # type: ignore[arg-type]
    return set(words) - {"<s>", "</s>", "<unk>"}


def test_tokens_of_every_unit_form_and_case(tmp_path: Path) -> None:
    lines = [line for text in LANGUAGES.values() for line in text]
    words = {word for line in lines for word in line.split(" ")}
    nfc = normalize("NFC", "\n".join(lines)).split("\n")
    assert vocabulary(tmp_path, lines) == {normalize("NFC", word) for word in words}
    assert vocabulary(tmp_path, lines, normalize="none") == words
    assert vocabulary(tmp_path, lines, normalize="nfd") == {normalize("NFD", word) for word in words}
    assert vocabulary(tmp_path, lines, normalize="nfkc") == set(normalize("NFKC", " ".join(lines)).split(" "))
    assert vocabulary(tmp_path, lines, unit="char") == {letter for line in nfc for letter in line}
    assert vocabulary(tmp_path, lines, unit="grapheme") == {c for line in nfc for c in regex.findall(r"\X", line)}
    text = ["İSTANBUL I\u0307zmir ISPARTA ıIiİ ŞIK", "Ì Í Ĩ J\u0303 Į\u0303 JĮ ĄČĘ", "ΣΊΣΥΦΟΣ STRASSE"]
    for language in ("tr", "az", "lt"):
        lines = text[language == "lt" :]
        lowered = {lower(word, language) for line in lines for word in line.split()}
        assert vocabulary(tmp_path, lines, lowercase=language) == lowered
    turkish = {"istanbul", "izmir", "ısparta", "ııii", "şık"}
    assert vocabulary(tmp_path, text[:1], lowercase="tr") == turkish
    assert vocabulary(tmp_path, text[:1], lowercase=True) == {
        "i\u0307stanbul",
        "i\u0307zmir",
        "isparta",
        "ıiii\u0307",
        "şik",
    }
