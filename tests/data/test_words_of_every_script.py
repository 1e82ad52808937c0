"""A mark belongs to its letter, words are cut the same way in every script, and sentences end in their own marks."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lmtool as python
from lmtool.config.data import WordRule
from lmtool.data.oov import text_warning
from lmtool.data.printed_words import cut_word, has_letters, known_form, sentence_ends
from lmtool.data.vocabulary import Vocabulary
from lmtool.data.word_rows import columns_of_sentences, rows_of_table

# By hand: a printed word, and what it is cut into, with | between. Letters of Latin, their tone marks decomposed (NFD).
CUT = {
    "Amharic": ("\u00abሰላም\u1362\u00bb", "\u00ab|ሰላም|\u1362|\u00bb"),
    "Arabic, with vowel signs": ("(\u0643\u0650\u062a\u064e\u0627\u0628\u064c)\u061f", "(|\u0643\u0650\u062a\u064e\u0627\u0628\u064c|)|\u061f"),
    "Arabic, with tatweel": ("\u0643\u0640\u0640\u0640\u060c", "\u0643\u0640\u0640\u0640|\u060c"),
    "Armenian": ("\u00abՈ\u055eվ\u0589", "\u00ab|Ո\u055eվ|\u0589"),
    "Armenian, stress at the end": ("արի\u055b,", "արի\u055b|,"),
    "Bengali": ("আম\u09bf\u0964", "আম\u09bf|\u0964"),
    "Bengali, with ZWJ at the end": ("সৎত\u09cd\u200d!", "সৎত\u09cd\u200d|!"),
    "Burmese": ("မ\u103cန\u103aမ\u102c\u1038\u104b", "မ\u103cန\u103aမ\u102c\u1038|\u104b"),
    "Chinese": ("\u300c天气\u3002\u300d", "\u300c|天气|\u3002|\u300d"),
    "Georgian": ("\u201eგამარჯობა!\u201c", "\u201e|გამარჯობა|!|\u201c"),
    "Greek, decomposed": ("\u00abα\u0314\u0301νθρω\u0342;", "\u00ab|α\u0314\u0301νθρω\u0342|;"),
    "Hebrew, with points": ("\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd\u05b7,", "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd\u05b7|,"),
    "Hebrew, geresh at the end": ("(\u05e8\u05f3)", "(|\u05e8\u05f3|)"),
    "Hebrew, gershayim": ("\u05e6\u05d4\u05f4\u05dc.", "\u05e6\u05d4\u05f4\u05dc|."),
    "Hebrew, a mark of direction": ("\u05d3\u05d2!\u200f", "\u05d3\u05d2|!|\u200f"),
    "Hindi": ("\"म\u0947\u0902\u0964\"", "\"|म\u0947\u0902|\u0964|\""),
    "Hindi, virama at the end": ("भगव\u093eन\u094d\u2026", "भगव\u093eन\u094d|\u2026"),
    "Japanese": ("\u300eはい\u3099\uff01\u300f", "\u300e|はい\u3099|\uff01|\u300f"),
    "Khmer": ("ខ\u17d2ម\u17c2រ\u17d5", "ខ\u17d2ម\u17c2រ|\u17d5"),
    "Khmer, a sign at the end": ("ន\u17c1\u17c7\u17d4", "ន\u17c1\u17c7|\u17d4"),
    "Korean, jamo": ("\u201c한.\u201d", "\u201c|한|.|\u201d"),
    "Persian, ZWNJ": ("\u0645\u06cc\u200c\u0631\u0648\u0645.", "\u0645\u06cc\u200c\u0631\u0648\u0645|."),
    "Persian, ZWNJ at the end": ("\u0645\u06cc\u200c!", "\u0645\u06cc\u200c|!"),
    "Russian, stress": ("\u2014да\u0301,", "\u2014|да\u0301|,"),
    "Tamil": ("தம\u0bbfழ\u0bcd.", "தம\u0bbfழ\u0bcd|."),
    "Thai": ("\"น\u0e49ำด\u0e37\u0e48มท\u0e35\u0e48น\u0e35\u0e48\"", "\"|น\u0e49ำด\u0e37\u0e48มท\u0e35\u0e48น\u0e35\u0e48|\""),
    "Tibetan": ("བ\u0f7cད\u0f0bས\u0f90ད\u0f0d", "བ\u0f7cད\u0f0bས\u0f90ད|\u0f0d"),
    "Turkish": ("İstanbul\u2019da,", "İstanbul\u2019da|,"),
    "Turkish, decomposed": ("\u201cdag\u0306\u201d", "\u201c|dag\u0306|\u201d"),
    "Vietnamese, decomposed": ("(ye\u0302\u0301)", "(|ye\u0302\u0301|)"),
    "Yoruba": ("E\u0323\u0300ko\u0323\u0301?", "E\u0323\u0300ko\u0323\u0301|?"),
    "emoji, a family": ("ok\U0001f468\u200d\U0001f469\u200d\U0001f467!", "ok|\U0001f468\u200d\U0001f469\u200d\U0001f467|!"),
    "emoji, a color of skin": ("\U0001f44d\U0001f3fd\u2764\ufe0f", "\U0001f44d\U0001f3fd|\u2764\ufe0f"),
    "emoji, a keycap": ("1\ufe0f\u20e3!", "1\ufe0f\u20e3|!"),
    "emoji, a variation selector after a mark": ("ja!\ufe0f", "ja|!\ufe0f"),
    "a mark without a letter": ("\u093eक!", "\u093eक|!"),
    "a mark behind a dash": ("a\u2014\u0301b--\u0301c", "a|\u2014\u0301|b--\u0301c"),
}  # fmt: skip
EXTENDS = "\u200c\u200d", ("M",)  # what no token begins with, unless the word does


@pytest.mark.parametrize("name", CUT)
def test_marks_belong_to_the_letter_before_them(name: str) -> None:
    word, cut = CUT[name]
    assert cut_word(word, WordRule.punctuation) == cut.split("|")
    tokens = cut_word(word, WordRule.ptb)
    assert not any(token[0] in EXTENDS[0] or unicodedata.category(token[0])[0] in EXTENDS[1] for token in tokens[1:])
    quoted = any(mark in word for mark in '"\u00ab\u00bb\u201c\u201d\u201e\u2019')  # which ptb writes in its own way
    assert quoted or tokens == cut.split("|")


def test_ptb_cuts_within_words_and_not_before_a_mark() -> None:
    assert cut_word("cafe\u0301's", WordRule.ptb) == ["cafe\u0301", "'s"]
    assert cut_word("a;\u0301b;c", WordRule.ptb) == ["a;\u0301b", ";", "c"]
    assert cut_word("Mr.\u0301", WordRule.ptb) == ["Mr", ".\u0301"]
    assert cut_word("\u2039on\u203a", WordRule.ptb) == ["`", "on", "'"]


def test_what_has_letters() -> None:
    assert [has_letters(token) for token in ("म\u0947\u0902", "\u093e", "1\ufe0f\u20e3", "\u05f3")] == [True] * 4
    assert [has_letters(token) for token in ("\u2764\ufe0f", "!\ufe0f", "\u0964", "\u300d")] == [False] * 4


def test_forms_that_a_vocabulary_has() -> None:
    known = {'"', "'", "n't", "--", ".", "!\ufe0f"}
    given = ["\u201e", "\uff02", "\u2039", "n\u2019t", "\u301c", "...", "!\ufe0f!\ufe0f", "\u300c", "\u093e\u093e"]
    assert known_form(given, known) == ['"', '"', "'", "n't", "--", *"...", *["!\ufe0f"] * 2, "\u300c", "\u093e\u093e"]


def test_vowel_signs_are_not_called_punctuation() -> None:
    vocabulary = Vocabulary(("</s>", "म", "<unk>", "<s>"), np.zeros(4, dtype=np.int64), 0, 2)
    (warning,) = text_warning("t", 5, 5, ["\u0947"] * 5, vocabulary, marks=True)
    assert "marks of punctuation" not in warning
    (warning,) = text_warning("t", 5, 5, ["\u300cम\u0964"] * 5, vocabulary, marks=True)
    assert "5 of 5 OOVs begin or end in punctuation, which the train text had cut off" in warning


HINDI = (
    "घर म\u0947\u0902 प\u093eन\u0940 ह\u0948 \u0964\n"  # "there is water in the house"
)


def test_hindi_words_are_known(lmtool: Callable[..., str]) -> None:
    Path("train.txt").write_text(HINDI * 3)
    Path("text.txt").write_text(HINDI.replace(" \u0964", "\u0964"))
    files = [f"data.{name}=train.txt" for name in ("train", "valid", "test")]
    lmtool("train", "model=ngram", "data=text", "data.name=hi", *files, "hydra.run.dir=run")
    for rule in ("punctuation", "ptb"):
        found = python.surprisal("run", Path("text.txt"), words=rule)
        assert found["tokens"].tolist() == [*HINDI.split()[:3], "ह\u0948 \u0964"] and not found["oov"].any()
        bare = python.surprisal("run", Path("text.txt"), words=rule, marks=False)
        assert bare["tokens"].tolist() == HINDI.split()[:4]


# By hand: words with a space between, and | where a sentence ends.
SENTENCES = {
    "Amharic": "ሰላም\u1362 | ደህና ነህ\u1367 | አዎ\u1361\u1361",
    "Arabic": "\u0643\u062a\u0627\u0628\u061f\u200f | \u0646\u0639\u0645. | \u0644\u0627",
    "Armenian": "Ո\u055eվ է\u0589 | Այո\u0589",
    "Bengali": "আম\u09bf\u0964\u201d | স\u09c7",
    "Burmese": "မ\u103cန\u103a\u104a မ\u102c\u1038\u104b | မ\u102c",
    "Chinese": "今天 很 好 \u3002 \u300d | 我们 走 \uff01 \uff1f | 走",
    "Chinese, closed in its word": "好\uff01\uff09\u300f | 走\uff0e | 走\u2026\u2026",
    "Georgian": "რა?\u201c | კი. | არა",
    "German": "\u201eJa!\u201c | \u201aNein.\u2018 | \u00bbDoch.\u00ab | So sagt er. \u201d | Er",
    "Greek": "τί εἶπες; | Ναί\u037e | ΔΈν",
    "Hindi": "ड\u0949. र\u093eम ह\u0948\u0964 | ह\u093e\u0901\u0965 | नह\u0940\u0902",
    "Japanese": "はい\u3002\u300d | 行く\uff61 | ね",
    "Khmer": "ន\u17c1\u17c7\u17d4 | ខ\u17d2ម\u17c2រ\u17d5 | ន\u17c1\u17c7",
    "Korean": "그가 간다. | 먹는 다. | 오",
    "Spanish": "\u00a1Hola! | \u00bfQué? | Sí",
    "Thai, which has no such marks": "น\u0e49ำ ด\u0e37\u0e48ม",
    "Tibetan": "བ\u0f7cད\u0f0d | ས\u0f90ད\u0f0e | བ\u0f7cད",
    "Urdu": "\u06c1\u06d2\u06d4 | \u06a9\u06cc\u0627\u061f | \u06c1\u0627\u06ba",
    "emoji": "ja!\ufe0f | Na \U0001f44d . | So\u203c\ufe0f | Ja",
    "English": "Mr. E. Fox (a fox.) said: Go ! \u201d he said ; (he did.) | I left . ) | So \u2026 he",
}


@pytest.mark.parametrize("name", SENTENCES)
def test_sentences_end_in_the_marks_of_their_script(name: str) -> None:
    sentences = [sentence.split() for sentence in SENTENCES[name].split(" | ")]
    words = [word for sentence in sentences for word in sentence]
    ends = sentence_ends(words)
    numbers = [1 + sum(map(bool, ends[:k])) for k in range(len(words))]
    assert numbers == [number for number, sentence in enumerate(sentences, 1) for _ in sentence]
