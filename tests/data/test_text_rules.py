"""Text is written by one set of rules before it is cut: white space, lower case, normal form; the same in all faces."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import lmtool
from lmtool import kenlm
from lmtool.config.data import Normalize, Spaces, Unit
from lmtool.data.corpus import Corpus
from lmtool.data.oov import report_splits
from lmtool.data.text_form import TextForm, normalize_texts
from lmtool.data.text_rules import INVISIBLE, UNCHANGED, TextRules, ccnet, graphemes, lower
from lmtool.data.text_size import text_size
from lmtool.data.tokenizer import CharTokenizer, TextBlock, WordTokenizer
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError

LETTERS = "aI\u0130\u0131\u0307\u0301e\u00e9\uac00\u1100\u1161\u11a8\u0928\u093f\u00a0\u200b\u00ad\u200d\U0001f469"
LETTERS += "i\ufb01 \n\tK\u03a3"
TEXTS = st.text(st.sampled_from(LETTERS), max_size=12)
ALL_RULES = [
    TextRules(lowercase, normalize, spaces)
    for lowercase in (False, True, "tr", "lt")
    for normalize in Normalize
    for spaces in Spaces
]


@pytest.mark.parametrize(
    ("language", "text", "wanted"),
    [
        (True, "\u0130I\u0131", "i\u0307i\u0131"),  # as str.lower has it
        ("tr", "DI\u015eI \u0130\u015e I\u0307", "d\u0131\u015f\u0131 i\u015f i"),  # also with a separate dot
        ("az", "I\u0130", "\u0131i"),
        ("tr", "\u00ce", "\u00ee"),  # a circumflex stays
        # SpecialCasing.txt: a dot below another accent above, in Lithuanian
        ("lt", "\u00cc\u00cd\u0128J\u0301", "i\u0307\u0300i\u0307\u0301i\u0307\u0303j\u0307\u0301"),
        ("lt", "\u0130 I\u0307", "i\u0307 i\u0307"),  # which have their dot
        ("lt", "\u012e\u0301 I", "\u012f\u0307\u0301 i"),
        ("lt", "I\u0328\u0331", "\u012f\u0331"),  # marks below alone: no dot
        (False, "I", "I"),
        (True, "\u03a3\u039f\u03a3", "\u03c3\u03bf\u03c2"),  # a sigma at the end of a word
    ],
)
def test_lower_case_follows_the_language(language: bool | str, text: str, wanted: str) -> None:
    assert unicodedata.normalize("NFC", lower(text, language)) == unicodedata.normalize("NFC", wanted)


def test_white_space_of_unicode() -> None:
    rules = TextRules(spaces=Spaces.unicode)
    for space in "\u0085\u00a0\u1680\u2000\u2009\u200b\u2028\u2029\u202f\u205f\u3000":
        assert rules(f"a{space}b\n") == "a b\n", hex(ord(space))
    for invisible in INVISIBLE:
        assert rules(f"a{invisible}b") == "ab"
    for kept in "\u200c\u200d\u200e\u200f\u061c\u180e\ufe0f":  # joiners, marks of direction, variation selectors
        assert rules(f"a{kept}b") == f"a{kept}b"


@pytest.mark.parametrize("rules", ALL_RULES, ids=str)
@given(text=TEXTS)
@settings(max_examples=60, deadline=None)
def test_bytes_are_written_as_text_is(rules: TextRules, text: str) -> None:
    written = rules(text)
    assert rules.encoded(text.encode()).decode() == written
    assert written.count("\n") == text.count("\n"), "lines stay"
    assert rules.normalize is Normalize.ccnet or rules(written) == written
    if rules.normalize in (Normalize.nfc, Normalize.nfkc, Normalize.nfd):
        assert unicodedata.is_normalized(rules.normalize.name.upper(), written)


def test_graphemes_by_hand() -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    text = f"e\u0301\u0e01\u0e33\u0928\u093f{family}\U0001f1e9\U0001f1ea1\ufe0f\u20e3\u1100\u1161"
    wanted = [
        "e\u0301",
        "\u0e01\u0e33",
        "\u0928\u093f",
        family,
        "\U0001f1e9\U0001f1ea",
        "1\ufe0f\u20e3",
        "\u1100\u1161",
    ]
    assert graphemes(text) == wanted


@given(lines=st.lists(TEXTS.map(lambda text: text.replace("\n", " ")), min_size=1, max_size=4), cut=st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_grapheme_clusters_are_tokens(lines: list[str], cut: int) -> None:
    kept = [line for line in lines if any(c not in " \t" for c in line)]
    wanted = [[*graphemes(line), "</s>"] for line in kept]
    tokenizer = CharTokenizer(sentences=True, graphemes=True)
    blocks = ["".join(f"{line}\n" for line in part).encode() for part in (lines[:cut], lines[cut:])]
    ids = np.concatenate([tokenizer(block, "x") for block in blocks])
    types = tokenizer.types()
    assert [types[k] for k in ids] == [token for line in wanted for token in line] and len(set(types)) == len(types)
    words = tuple(dict.fromkeys([*types[:2], *types[3:6], "<s>"]))
    vocabulary = Vocabulary(words, np.ones(len(words), dtype=np.int64), 0, 1)
    form = TextForm(vocabulary, Unit.grapheme)
    found = np.concatenate([form.tokenizer(vocabulary)(block, "x") for block in blocks])
    assert found.tolist() == [vocabulary.ids.get(token, -1) for line in wanted for token in line]
    assert [form.split(line) for line in kept] == [line[:-1] for line in wanted]


@pytest.mark.parametrize("unit", ["char", "grapheme"])
@given(lines=st.lists(TEXTS.map(lambda text: text.replace("\n", " ")), min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_characters_are_those_of_nfc(unit: str, lines: list[str]) -> None:
    """Whatever the form in which the store has them."""
    assume(not any(len(cluster) > 1 and cluster[0] in " \t" for line in lines for cluster in graphemes(line)))
    kept = [words for line in lines if (words := [w for w in line.replace("\t", " ").split(" ") if w])]
    wanted = sum(len(unicodedata.normalize("NFC", " ".join(words))) + 1 for words in kept)
    for form in ("NFC", "NFD"):
        tokenizer = CharTokenizer(sentences=True, graphemes=unit == "grapheme")
        ids = tokenizer(unicodedata.normalize(form, "".join(f"{line}\n" for line in lines)).encode(), "x")
        # White space of Unicode that is a separate token is not a character of a word.
        spaces = sum(word.isspace() and word not in " \t" for words in kept for word in " ".join(words))
        if not spaces:
            assert text_size(ids, tokenizer.types(), chars=True)[0] == wanted


VIETNAMESE = ["ti\u1ebfng Vi\u1ec7t r\u1ea5t hay", "t\u00f4i \u0111\u1ecdc ti\u1ebfng Vi\u1ec7t", "\u0111\u1ecdc hay"]


def in_nfd(text: str) -> str:
    return unicodedata.normalize("NFD", text)


@pytest.mark.parametrize("unit", ["word", "char", "grapheme"])
def test_the_normal_form_of_a_text_changes_nothing(unit: str, tmp_path: Path) -> None:
    train = [VIETNAMESE[k % 3] for k in range(30)]
    half = [in_nfd(line) if k % 2 else line for k, line in enumerate(train)]
    lines, figures = [VIETNAMESE[1], in_nfd(VIETNAMESE[1])], []
    for name, text in (("nfc", train), ("half", half), ("nfd", [in_nfd(line) for line in train])):
        corpus = Corpus.from_texts(text, text[:3], name=name, unit=unit, store_dir=tmp_path / "stores")
        assert corpus.split("valid").characters == sum(len(line) + 1 for line in VIETNAMESE)
        run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell", out=tmp_path / name)
        of_kenlm = kenlm.Model(str(tmp_path / name))
        scores = [
            value
            for line in lines
            for value in (of_kenlm.score(line), run.model.perplexity(line), *run.model.score(line))
        ]
        assert scores[: len(scores) // 2] == scores[len(scores) // 2 :]
        figures.append((corpus.vocabulary.words, *scores))
    assert figures[0] == figures[1] == figures[2]


def test_preprocess_says_what_changed(tmp_path: Path) -> None:
    text = ["caf\u00e9 noir", "cafe\u0301 DI\u015e", "a\u00a0b a\u00a0b so\u00adft", "\u0131 b"]
    corpus = Corpus.from_texts(text, text[:1], lowercase=True, store_dir=tmp_path)
    assert corpus.provenance["notes"] == [
        "1 of 11 words were not in NFC: they are written in it",
        "within words are NO-BREAK SPACE in 2, SOFT HYPHEN in 1, e.g. a<U+00A0>b: data.spaces=unicode "
        "separates words at the spaces and leaves out the rest",
        "1 words have a dotless i, as in Turkish: data.vocabulary.lowercase=tr (or az) turns I into it, and "
        "\u0130 into i",
    ]
    plain = Corpus.from_texts(text, text[:1], normalize="none", spaces="unicode", lowercase="tr", store_dir=tmp_path)
    assert plain.provenance["notes"] == [
        "1 words are not in NFC: data.normalize=nfc makes equal what looks so",
    ]
    assert {"a", "b", "soft", "d\u0131\u015f"} < {*plain.vocabulary.words}


def test_a_word_known_in_another_form_is_named(tmp_path: Path) -> None:
    corpus = Corpus.from_texts(["caf\u00e9 noir"], normalize="none", store_dir=tmp_path)
    with pytest.raises(UserError) as said:
        TextForm(corpus.vocabulary).require_known(["cafe\u0301"])
    assert str(said.value) == (
        "'cafe\\u0301' is not in the vocabulary: it differs from 'caf\\xe9' in its normal form alone"
    )


@pytest.mark.parametrize("value", ["de", 1, None])
def test_other_languages_have_no_rules(value: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"lowercase=.*: must be true, false, or a language with special rules"):
        Corpus.from_texts(["a"], lowercase=value, store_dir=tmp_path)


def test_training_says_what_changed(tmp_path: Path) -> None:
    corpus = Corpus.from_texts(["\u0131rmak \u0131l\u0131k", "cafe\u0301"], lowercase=True, store_dir=tmp_path)
    notes: list[str] = []
    report_splits(corpus, notes.append, notes.append, notes.append)
    assert notes[0] == "1 of 3 words were not in NFC: they are written in it"
    assert notes[1].startswith("2 words have a dotless i")


def test_lower_case_of_a_run_keeps_its_language(tmp_path: Path) -> None:
    corpus = Corpus.from_texts(["\u0131l\u0131k irmak"], lowercase="tr", store_dir=tmp_path)
    run = lmtool.train({"kind": "ngram", "order": 1}, corpus, smoother="witten_bell", out=tmp_path / "run")
    table = lmtool.surprisal(run, ["ILIK \u0130RMAK"], lowercase=True)
    assert list(table.tokens) == ["\u0131l\u0131k", "irmak"] and table.oov.sum() == 0


def test_a_length_has_no_invisible_characters(tmp_path: Path) -> None:
    words = ["co\u00adop", "a\u200bb", "\u202bab\u202c", "\ufeffx", "\U0001f468\u200d\U0001f469", "\u0646\u200c\u0627"]
    corpus = Corpus.from_texts([" ".join(words)], store_dir=tmp_path)
    run = lmtool.train({"kind": "ngram", "order": 1}, corpus, smoother="witten_bell", out=tmp_path / "run")
    table = lmtool.surprisal(run, [" ".join(words)])
    assert list(table.length) == [4, 2, 2, 1, 1, 2]


def test_kenlm_keeps_the_ids_of_other_words(tmp_path: Path) -> None:
    corpus = Corpus.from_texts(["caf\u00e9 noir", "noir"], store_dir=tmp_path)
    lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell", out=tmp_path / "run")
    model = kenlm.Model(str(tmp_path / "run"))
    for word, known in (("cafe\u0301", "caf\u00e9"), ("th\u00e9", "<unk>")):
        scores = []
        for each in (word, word, known):
            before, after, last = kenlm.State(), kenlm.State(), kenlm.State()
            model.BeginSentenceWrite(before)
            scores.append((model.BaseScore(before, each, after), model.BaseScore(after, "noir", last), bytes(after)))
        assert scores[0] == scores[1] == scores[2] and word in model._words
        assert (word in model) == (known != "<unk>")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("  L'\u00c9T\u00c9 2023\u00a0\n", "l'ete 0000"),
        ("\u0130stanbul", "istanbul"),  # its lower case has a separate dot, an accent
        ("\u00abA\u00bb \u2014 b\u2013c\u2026", '"a"  -  b-c...'),
        ("\uff11\u0663\u00b2\u00bd", "00\u00b2\u00bd"),  # decimal digits alone
        ("a\tb\x85c\nd\u200be", "abcd\u200be"),
        ("\uff08x\uff09\uff1b\u3010y\u3011\u3002", "(x);[y]."),
        ("\ud55c", "\u1112\u1161\u11ab"),  # a syllable of Hangul stays decomposed
        ("\u2018q\u2019", "\u2018q'"),
        (" \n", ""),
    ],
)
def test_ccnet(text: str, wanted: str) -> None:
    assert ccnet(text) == ccnet(wanted) == wanted


def test_lines_and_lower_case() -> None:
    assert TextRules(normalize=Normalize.ccnet)("\u00c9 1 \n\nX\r\n") == "e 0\n\nx\n"
    assert TextRules(lowercase=True)("\u00c9 1 \n") == "\u00e9 1 \n"
    assert UNCHANGED("\u00c9 1 \n") == "\u00c9 1 \n"


def test_each_text_becomes_one_line() -> None:
    texts = TextBlock("\u00c9\nB \n\nX\n\ud800\n".encode(errors="surrogatepass"), np.array([6, 9, 13]))
    block = normalize_texts(texts, Normalize.ccnet)
    assert block.content.decode() == "eb\nx\n\ufffd\ufffd\ufffd\n" and block.ends.tolist() == [3, 5, 15]


@pytest.mark.parametrize("chars", [False, True])
def test_tokenizers_with_and_without_a_vocabulary(chars: bool) -> None:
    text = "\u00c9 1\n\x01\n\u201cX\u201d\r\n".encode()
    wanted = ["e", " ", "0", "</s>", '"', "x", '"', "</s>"] if chars else ["e", "0", "</s>", '"x"', "</s>"]
    rules = {"sentences": True, "rules": TextRules(normalize=Normalize.ccnet)}
    tokenizer = (CharTokenizer if chars else WordTokenizer)(**rules)
    ids, types = tokenizer(text, "t"), tokenizer.types()
    assert [types[k] for k in ids] == wanted and tokenizer.empty_lines == 1
    assert text_size(ids, types, chars=chars) == (8, 5), 'those of `e 0` and `"x"`, each with a line end'
    words = (*dict.fromkeys([*wanted, "<unk>"]), "<s>")
    vocabulary = Vocabulary(words, np.zeros(len(words), dtype=np.int64), words.index("</s>"), words.index("<unk>"))
    form = TextForm(vocabulary, Unit.char if chars else Unit.word, rules["rules"])
    assert [words[k] for k in form.tokenizer(vocabulary)(text, "t")] == wanted
    assert form.split("\u00c9 1") == wanted[: wanted.index("</s>")]
