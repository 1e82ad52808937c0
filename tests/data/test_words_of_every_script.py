"""Marks belong to their letters, words are cut alike in every script, and sentences end in their own marks."""

# ruff: noqa: RUF001 (letters and marks that resemble those of English)

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lmtool as python
from lmtool.config.data import WordRule
from lmtool.data.printed_words import cut_word, has_letters, known_form, sentence_ends, split_sentences
from lmtool.data.word_rows import WordRows, columns_of_sentences, rows_of_table
from tests.commands.test_surprisal import ARPA
from tests.languages import LANGUAGES

# By hand: a printed word, and what it is cut into, with | between. Letters of Latin, their tone marks decomposed (NFD).
CUT = {
    "Amharic": ("\u00abሰላም።\u00bb", "\u00ab|ሰላም|።|\u00bb"),
    "Arabic, with vowel signs": ("(كِتَابٌ)؟", "(|كِتَابٌ|)|؟"),
    "Arabic, with tatweel": ("كـــ،", "كـــ|،"),
    "Armenian": ("\u00abՈ՞վ։", "\u00ab|Ո՞վ|։"),
    "Armenian, stress at the end": ("արի՛,", "արի՛|,"),
    "Bengali": ("আমি।", "আমি|।"),
    "Bengali, with ZWJ at the end": ("সৎত্\u200d!", "সৎত্\u200d|!"),
    "Burmese": ("မြန်မား။", "မြန်မား|။"),
    "Chinese": ("「天气。」", "「|天气|。|」"),
    "Georgian": ("\u201eგამარჯობა!\u201c", "\u201e|გამარჯობა|!|\u201c"),
    "Greek, decomposed": ("\u00abα\u0314\u0301νθρω\u0342;", "\u00ab|α\u0314\u0301νθρω\u0342|;"),
    "Hebrew, with points": ("שָׁלוֹםַ,", "שָׁלוֹםַ|,"),
    "Hebrew, geresh at the end": ("(ר׳)", "(|ר׳|)"),
    "Hebrew, gershayim": ("צה״ל.", "צה״ל|."),
    "French": ("\u00ab\u00a0non\u202f!\u00a0\u00bb", "\u00ab|non|!|\u00bb"),
    "Hebrew, a mark of direction": ("\u202bדג!\u200f", "דג|!"),
    "Hindi": ("\"में।\"", "\"|में|।|\""),
    "Hindi, virama at the end": ("भगवान्\u2026", "भगवान्|\u2026"),
    "Japanese": ("『はい\u3099！』", "『|はい\u3099|！|』"),
    "Khmer": ("ខ្មែរ៕", "ខ្មែរ|៕"),
    "Khmer, a sign at the end": ("នេះ។", "នេះ|។"),
    "Korean, jamo": ("\u201c한.\u201d", "\u201c|한|.|\u201d"),
    "Persian, ZWNJ": ("می\u200cروم.", "می\u200cروم|."),
    "Persian, ZWNJ at the end": ("می\u200c!", "می\u200c|!"),
    "Russian, stress": ("\u2014да\u0301,", "\u2014|да\u0301|,"),
    "Tamil": ("தமிழ்.", "தமிழ்|."),
    "Thai": ("\"น้ำดื่มที่นี่\"", "\"|น้ำดื่มที่นี่|\""),
    "Tibetan": ("བོད་སྐད།", "བོད་སྐད|།"),
    "Turkish": ("İstanbul\u2019da,", "İstanbul\u2019da|,"),
    "Turkish, decomposed": ("\u201cdag\u0306\u201d", "\u201c|dag\u0306|\u201d"),
    "Vietnamese, decomposed": ("(ye\u0302\u0301)", "(|ye\u0302\u0301|)"),
    "Yoruba": ("E\u0323\u0300ko\u0323\u0301?", "E\u0323\u0300ko\u0323\u0301|?"),
    "emoji, a family": ("ok👨\u200d👩\u200d👧!", "ok|👨\u200d👩\u200d👧|!"),
    "emoji, a color of skin": ("👍\U0001f3fd❤\ufe0f", "👍\U0001f3fd|❤\ufe0f"),
    "emoji, a keycap": ("1\ufe0f\u20e3!", "1\ufe0f\u20e3|!"),
    "emoji, a variation selector after a mark": ("ja!\ufe0f", "ja|!\ufe0f"),
    "a mark without a letter": ("ाक!", "ाक|!"),
    "a mark behind a dash": ("a\u2014\u0301b--\u0301c", "a|\u2014\u0301|b--\u0301c"),
}  # fmt: skip
QUOTES = '"\u00ab\u00bb\u2018\u2019\u201c\u201d\u201e'  # which ptb writes in its own way


def begins_with_mark(token: str) -> bool:
    """Return whether a token begins with a combining mark, a variation selector, ZWJ or ZWNJ."""
    return unicodedata.category(token[0])[0] == "M" or token[0] in "\u200c\u200d"


@pytest.mark.parametrize("name", CUT)
def test_marks_belong_to_the_letter_before_them(name: str) -> None:
    word, cut = CUT[name]
    assert cut_word(word, WordRule.punctuation) == cut.split("|")
    assert any(mark in word for mark in QUOTES) or cut_word(word, WordRule.ptb) == cut.split("|")


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("rule", [WordRule.punctuation, WordRule.ptb])
@pytest.mark.parametrize("language", LANGUAGES)
def test_cutting_and_joining_is_the_identity(language: str, rule: WordRule, form: str) -> None:
    words = [word for line in LANGUAGES[language] for word in unicodedata.normalize(form, line).split(" ")]
    for word in words:
        tokens = cut_word(word, rule)
        assert "".join(tokens) == word or (rule is WordRule.ptb and any(mark in word for mark in QUOTES))
        assert not any(map(begins_with_mark, tokens))
        letters = [token for token in tokens if has_letters(token)]
        assert sum(map(str.isalnum, "".join(letters))) == sum(
            map(str.isalnum, word)
        )  # keep_punctuation=false drops none


ODD = "aB1.,!?-'()\u2014\u0301\u0947\u094d\u102c\u200c\u200d\u200f\ufe0f\u20e3\u2067\u0600\u05f3한中ก།॥❤👨"


def visible_part(text: str) -> str:
    """Return a text without invisible characters, such as marks of direction."""
    return re.sub("[\u200c\u200d\u200f\u2067\ufe0f]", "", text)


@given(st.text(ODD, min_size=1, max_size=8))
def test_no_order_of_marks_is_cut_before_one(word: str) -> None:
    tokens = cut_word(word, WordRule.punctuation)
    assert visible_part("".join(tokens)) == visible_part(word) and "".join(split_sentences(word)) == word
    for rule in (WordRule.punctuation, WordRule.ptb):
        assert not any(map(begins_with_mark, cut_word(word, rule)[1:]))


def test_ptb_cuts_within_words_and_not_before_a_mark() -> None:
    assert cut_word("cafe\u0301's", WordRule.ptb) == ["cafe\u0301", "'s"]
    assert cut_word("a;\u0301b;c", WordRule.ptb) == ["a;\u0301b", ";", "c"]
    assert cut_word("Mr.\u0301", WordRule.ptb) == ["Mr", ".\u0301"]
    assert cut_word("\u2039on\u203a", WordRule.ptb) == ["`", "on", "'"]


def test_what_has_letters() -> None:
    assert [has_letters(token) for token in ("में", "ा", "1\ufe0f\u20e3", "׳")] == [True] * 4
    assert [has_letters(token) for token in ("❤\ufe0f", "!\ufe0f", "।", "」")] == [False] * 4


def test_forms_that_a_vocabulary_has() -> None:
    known = {'"', "'", "n't", "--", ".", "!\ufe0f"}
    given = ["\u201e", "\uff02", "\u2039", "n\u2019t", "\u301c", "...", "!\ufe0f!\ufe0f", "「", "ाा"]
    assert known_form(given, known) == ['"', '"', "'", "n't", "--", *"...", *["!\ufe0f"] * 2, "「", "ाा"]


HINDI = "घर में पानी है ।\n"  # "there is water in the house"


def test_hindi_words_are_known(lmtool: Callable[..., str]) -> None:
    Path("train.txt").write_text(HINDI * 3)
    Path("text.txt").write_text(HINDI.replace(" ।", "।"))
    files = [f"data.{name}=train.txt" for name in ("train", "valid", "test")]
    lmtool("train", "model=ngram", "data=text", "data.name=hi", *files, "hydra.run.dir=run")
    for rule in ("punctuation", "ptb"):
        found = python.surprisal("run", Path("text.txt"), words=rule)
        assert found["tokens"].tolist() == [*HINDI.split()[:3], "है ।"] and not found["oov"].any()
        bare = python.surprisal("run", Path("text.txt"), words=rule, keep_punctuation=False)
        assert bare["tokens"].tolist() == HINDI.split()[:4]
        good, bad = Path("text.txt").read_text().strip(), "घर में है पानी।"
        Path("pairs.jsonl").write_text(json.dumps({"sentence_good": good, "sentence_bad": bad}) + "\n")
        said = lmtool("pairs", "run=run", "text=pairs.jsonl", f"words={rule}", f"hydra.run.dir={rule}")
        assert "0 pairs with an OOV" in said


# By hand: words with a space between, and | where a sentence ends.
SENTENCES = {
    "Amharic": "ሰላም። | ደህና ነህ፧ | አዎ፡፡",
    "Arabic": "كتاب؟\u200f | نعم. | لا",
    "Armenian": "Ո՞վ է։ | Այո։",
    "Bengali": "আমি।\u201d | সে",
    "Burmese": "မြန်၊ မား။ | မာ",
    "Chinese": "今天 很 好 。 」 | 我们 走 ！ ？ | 走",
    "Chinese, with a small letter": "我 有 iPhone 和 B 。 | iPhone 很 好",
    "Chinese, closed in its word": "好！）』 | 走． | 走\u2026\u2026",
    "Georgian": "რა?\u201c | კი. | არა",
    "German": "\u201eJa!\u201c | \u201aNein.\u2018 | \u00bbDoch.\u00ab | So sagt er. \u201d | Er",
    "Greek": "τί εἶπες; | Ναί\u037e | ΔΈν",
    "Greek, small letters": "Τι λες; | Δεν ξέρω; δεν ξέρω. | Ναι",
    "Greek word in English, where ; does not ask": "I know Σωκράτης; He is old. | Yes; No",
    "Georgian, with a Latin capital": "ყველა Windows კარგია. | მეორე აქ არის. | მესამე",
    "Hindi": "राम है। | हाँ॥ | नहीं",
    "Hindi, with a small letter": "वह गया। | windows आया। | OK",
    "Japanese": "はい。」 | 行く｡ | ね",
    "Khmer": "នេះ។ | ខ្មែរ៕ | នេះ",
    "Korean": "그가 간다. | 먹는 다. | 오",
    "Spanish": "¡Hola! | ¿Qué? | Sí",
    "Thai, which has no such marks": "น้ำ ดื่ม",
    "Tibetan": "བོད། | སྐད༎ | བོད",
    "Urdu": "ہے۔ | کیا؟ | ہاں",
    "emoji": "ja!\ufe0f | Na 👍 . | So\u203c\ufe0f | Ja",
    "English": "Mr. E. Fox (a fox.) said: Go ! \u201d he said ; (he did.) | I left . ) | So \u2026 he",
}


@pytest.mark.parametrize("name", SENTENCES)
def test_sentences_end_in_the_marks_of_their_script(name: str) -> None:
    sentences = [sentence.split() for sentence in SENTENCES[name].split(" | ")]
    words = [word for sentence in sentences for word in sentence]
    ends = sentence_ends(words)
    numbers = [1 + sum(map(bool, ends[:k])) for k in range(len(words))]
    assert numbers == [number for number, sentence in enumerate(sentences, 1) for _ in sentence]


def test_a_small_letter_goes_on_where_the_text_has_capitals() -> None:
    for letters, ends in {994: True, 993: False}.items():  # one capital in 1,000 characters, and in 999
        assert sentence_ends(["a" * letters, "B", "no!", "he"]) == ["", "", "!" * ends, ""]


def found(columns: dict[str, list[str]]) -> WordRows:
    """Return the rows of a table whose sentences are found by their marks."""
    return rows_of_table(columns, "t.tsv")


def test_twenty_chinese_items_of_two_sentences() -> None:
    item = ["今天", "天气", "很", "好", "。", "我们", "去", "公园", "！"]
    rows = found({"item": [str(k) for k in range(20) for _ in item], "word": item * 20})
    assert len(rows.starts) - 1 == 40 and rows.columns["position"][:9] == [1, 2, 3, 4, 5, 1, 2, 3, 4]
    assert rows.notes == ["t.tsv: 40 sentences by final marks (。 20, ！ 20)"] and rows.warnings == []
    rows = found({"word": ["那", "。"] * 2 + ["好"]})
    assert rows.notes == ["t.tsv: 3 sentences by final marks (。 2, without a mark 1)"]
    assert rows_of_table({"word": item}, "t.tsv", sentences="item").notes == []


def test_a_warning_of_few_sentences() -> None:
    few = found({"word": ["น้ำ"] * 990 + ["!", "น้ำ"] * 5 + ["น้ำ"]})  # 1,001 words, 6 sentences: enough
    assert few.warnings == [] and "6 sentences" in few.notes[0]
    few = found({"word": ["น้ำ"] * 992 + ["!", "น้ำ"] * 4 + ["น้ำ"]})
    (warning,) = few.warnings
    assert warning.startswith(
        "t.tsv: 5 sentences by final marks (! 4, without a mark 1) in 1,001 words, fewer than one"
    )
    assert found({"word": ["น้ำ"] * 1000}).warnings == []


# Words with several sentences, | where they are cut in a text: not in Latin script, which has spaces there.
SEVERAL = {
    "今天很好。我们走。": "今天很好。|我们走。",
    "「好！」他说。2020年（春）": "「好！」|他说。|2020年（春）",
    "である．また": "である．|また",
    "３．１４と": "３．１４と",
    "Ｕ．Ｓ．": "Ｕ．Ｓ．",
    "ខ្ញុំ។តើ៕": "ខ្ញុំ។|តើ៕",
    "www.a.org?b!c": "www.a.org?b!c",
    "好……不": "好……不",
    "不！！好": "不！！|好",
}


@pytest.mark.parametrize("word", SEVERAL)
def test_words_with_several_sentences(word: str) -> None:
    parts = SEVERAL[word].split("|")
    columns, spaces = columns_of_sentences([[f" {word} 好"]], "punctuation")
    assert columns["word"] == [*parts, "好"]
    assert spaces == [(" ", ""), *[("", "")] * (len(parts) - 1), (" ", "")]
    warnings = found({"word": ["好", word, f"{word} "]}).warnings  # each row of a table is kept
    message = (
        "t.tsv: 2 words have several sentences, the first in row 2, and count as in one: cut them, or give them by"
    )
    assert [warning.startswith(message) for warning in warnings] == [True] * (len(parts) > 1)
    assert columns_of_sentences([[word]], None)[0]["word"] == [word]  # whose lines are sentences


def test_the_sentences_found_are_printed(lmtool: Callable[..., str]) -> None:
    Path("de.arpa").write_text(ARPA)
    Path("text.txt").write_text("a bb. Mr. A!\n是。」是\n")
    said = lmtool("surprisal", "arpa=de.arpa", "text=text.txt", "sentences=punctuation")
    assert "note: text.txt: 4 sentences by final marks (. 1, ! 1, 。 1, without a mark 1)" in said
    assert "by final marks" not in lmtool("surprisal", "arpa=de.arpa", "text=text.txt")


# By hand. The names of the characters say what is a hyphen: HYPHEN, NON-BREAKING HYPHEN, HEBREW PUNCTUATION MAQAF.
DASHES = {
    "think\u2014well": "think \u2014 well",  # em dash
    "1914\u20131918": "1914 \u2013 1918",  # en dash
    "so\u2015he": "so \u2015 he",  # horizontal bar
    "so\u2e3ahe": "so \u2e3a he",  # two-em dash
    "think--well": "think -- well",
    "a---b": "a --- b",
    "a\u2014\u2014b": "a \u2014\u2014 b",
    "\u2014well": "\u2014 well",
    "well\u2014": "well \u2014",
    "\u2014": "\u2014",
    "--": "--",
    "well-known\u2014though": "well-known \u2014 though",
    "well-known": "well-known",
    "well\u2010known": "well\u2010known",  # hyphen
    "well\u2011known": "well\u2011known",  # non-breaking hyphen
    "\u05d0\u05be\u05d1": "\u05d0\u05be\u05d1",  # maqaf
    "\u056f\u058a\u056f": "\u056f\u058a\u056f",  # Armenian hyphen
}


@pytest.mark.parametrize("rule", [WordRule.punctuation, WordRule.ptb])
def test_words_are_cut_at_dashes_and_not_at_hyphens(rule: WordRule) -> None:
    assert {word: " ".join(cut_word(word, rule)) for word in DASHES} == DASHES
    assert [cut_word(word, WordRule.whitespace) for word in DASHES] == [[word] for word in DASHES]


def test_what_stands_beside_a_dash_is_cut_as_elsewhere() -> None:
    word = "\u201cYes,\u201d\u2014\u201cNo.\u201d"
    assert " ".join(cut_word(word, WordRule.punctuation)) == "\u201c Yes , \u201d \u2014 \u201c No . \u201d"
    assert " ".join(cut_word(word, WordRule.ptb)) == "`` Yes , '' \u2014 `` No . ''"
    assert " ".join(cut_word("Mr.\u2014don't", WordRule.ptb)) == "Mr. \u2014 do n't"


def test_a_dash_is_written_as_the_vocabulary_has_it() -> None:
    assert known_form(["\u2014", "\u2013", "-", "\u2010"], {"--"}) == ["--", "--", "-", "\u2010"]
    assert known_form(["\u2014"], {"--", "\u2014"}) == ["\u2014"]
    assert known_form(["\u2014\u2014"], {"\u2014"}) == ["\u2014", "\u2014"]


def test_a_quote_that_the_vocabulary_lacks_is_one_word() -> None:
    assert known_form(["``", "''", "`", "'"], {"'", "`"}) == ["``", "''", "`", "'"]
    assert known_form(["...", "''"], {"'", "."}) == [".", ".", ".", "''"]
    assert known_form(["``", "''"], {"'", '"'}) == ['"', '"']


def test_the_surprisal_of_a_closing_quote_is_that_of_one_oov(lmtool: Callable[..., str]) -> None:
    """After b, whose back-off weight is 1/2, an OOV has p = 1/20: 1/10 of <unk>; the two apostrophes are no tokens."""
    arpa = ARPA.replace("ngram 1=6", "ngram 1=7").replace("-1\t.\n", "-1\t.\n-2\t'\n")
    Path("de.arpa").write_text(arpa)
    Path("text.txt").write_text('a b"\n')
    lmtool("surprisal", "arpa=de.arpa", "text=text.txt", "words=ptb", "to=s.jsonl")
    _, row = map(json.loads, Path("s.jsonl").read_text().splitlines())
    assert row["tokens"] == "b ''" and row["oov"] == 1
    assert math.isclose(row["surprisal_bits"], 1 + math.log2(20), abs_tol=1e-4)  # p(b | a) is 1/2
