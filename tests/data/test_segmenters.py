"""Scripts without spaces: the advice for text that white space does not cut into words, and segmenters."""

# ruff: noqa: RUF001 (marks that resemble those of English)

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import lmtool as package
from lmtool.config.data import Normalize, SegmenterConfig, Spaces
from lmtool.config.options import folder_in_use, kinds
from lmtool.config.settings import build_named_option
from lmtool.data.corpus import Corpus
from lmtool.data.segmenters import ICU_SCRIPTS, lacks_spaces
from lmtool.data.text_rules import TextRules
from tests.conftest import ROOT, Run
from tests.languages import LANGUAGES

OWN = ROOT / "docs" / "examples" / "own_options" / "own_options"
OPTIONS = f"options={OWN}"
WITHOUT_SPACES = {"Burmese", "Chinese", "Japanese", "Khmer", "Lao", "Thai", "Tibetan"}
ADVICE = "white space separates few words of this text: choose pieces (data.vocabulary.unit=bpe), letters"
CHINESE = ["我来到北京清华大学。", "他喜欢学习计算机科学。", "今天天气很好，我们去公园。"]
icu = pytest.mark.tool("icu")


def text(*lines: str, name: str = "train.txt") -> str:
    Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return name


def words_of(lines: list[str]) -> list[str]:
    return [word for line in lines for word in line.split()]


def icu_words(line: str) -> list[str]:
    """Return the words of a whole line by ICU alone; each punctuation mark is a word."""
    import icu

    boundaries = icu.BreakIterator.createWordInstance(icu.Locale("th"))
    units = icu.UnicodeString(line)
    boundaries.setText(units)
    ends = list(boundaries)
    parts = [str(units[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
    return [part for part in parts if part.strip() and part != "\u200b"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_which_text_lacks_spaces(language: str) -> None:
    assert lacks_spaces(words_of(LANGUAGES[language])) == (language in WITHOUT_SPACES)


def test_text_that_is_cut_already_lacks_none() -> None:
    assert lacks_spaces(["我来到北京清华大学"]) and not lacks_spaces(["我", "来到", "北京", "清华大学"])
    assert lacks_spaces(["เขาพูดภาษาไทย"]) and not lacks_spaces(["เขา", "พูด", "ภาษา", "ไทย"])
    # "あいうえお" has 5 letters. 30 % of 10 letters are 3, which is not over; of 9 it is 2.7.
    assert lacks_spaces(["あいうえお"]) and not lacks_spaces(["あいうえ"])
    assert not lacks_spaces(["ああああああ", "a" * 14]) and lacks_spaces(["ああああああ", "a" * 13])
    assert not lacks_spaces([]) and not lacks_spaces(["1234567", "..."])


def test_the_advice_is_not_that_train_lacks_words(lmtool: Run) -> None:
    data = (
        "data=text",
        f"data.train={text(*CHINESE)}",
        f"data.valid={text(*CHINESE[:1], '你叫什么名字？', name='v.txt')}",
    )
    said = lmtool("preprocess", *data)
    assert (
        "(25.0 % of valid)" in said
        and ADVICE in said
        and "data.segmenter=icu" in said
        and "lacks its words" not in said
    )
    assert ADVICE in lmtool("train", "model=ngram", "model.order=2", *data, "hydra.run.dir=run")
    assert ADVICE in lmtool("eval", "run=run", "split=valid")
    for line in ("raise data.vocabulary.size", "lower data.vocabulary.min_count"):
        assert line not in lmtool("preprocess", *data, "data.vocabulary.size=2", "data.vocabulary.min_count=2")
    other = text(*LANGUAGES["Thai"] * 2, name="other.txt")
    for verb in (("eval",), ("score", "to=x.tsv"), ("surprisal",), ("surprisal", "words=punctuation")):
        said = lmtool(*verb, "run=run", f"text={other}")
        assert ADVICE in said and "as the train text was" not in said
    with pytest.warns(UserWarning, match="white space separates few words"):
        package.evaluate("run", text=LANGUAGES["Thai"] * 2)


def test_text_with_spaces_gets_other_advice(lmtool: Run) -> None:
    cut = ["我 来到 北京 清华大学 。", "他 喜欢 学习 计算机 科学 。"]
    data = ("data=text", f"data.train={text(cut[0])}", f"data.valid={text(cut[1], name='v.txt')}")
    said = lmtool("train", "model=ngram", "model.order=2", *data, "hydra.run.dir=run")
    assert "train lacks its words" in said and ADVICE not in said
    said = lmtool("eval", "run=run", "text=v.txt")
    assert "cut and write it as the train text was" in said and ADVICE not in said
    said = lmtool("eval", "run=run", f"text={text(*CHINESE, *CHINESE, name='raw.txt')}")
    assert ADVICE in said and "or one of your own); or cut it as the train text was" in said


def options() -> list[SegmenterConfig]:
    with folder_in_use(OWN):
        return [build_named_option("segmenter", name, "data.segmenter") for name in kinds("segmenter")]


@icu
def test_a_segmenter_only_inserts_spaces() -> None:
    assert {option.kind for option in options()} == {"icu", "tsek"}
    hard = [
        "",
        "\r",
        "\ud83d\ude00我们\ud83d",
        "😀𠮷野家で食べた👩\u200d👩\u200d👧。",
        "e\u0301我\u0301",
        "我\u200b们\u3000你 \u00a0",
        "\0ไทย",
    ]
    for option in options():
        for line in [*hard, *(line for lines in LANGUAGES.values() for line in lines)]:
            assert "".join(option(line).split()) == "".join(line.split())
            assert not any(word[:1] in "\u0301\u200d" for word in option(line).split(" ") if word), line


@icu
@pytest.mark.parametrize("language", sorted(WITHOUT_SPACES - {"Tibetan"}))
def test_the_words_of_a_store_are_those_of_icu(language: str, lmtool: Run) -> None:
    name = text(*LANGUAGES[language])
    lmtool(
        "preprocess",
        "data=text",
        f"data.train={name}",
        f"data.valid={name}",
        "data.segmenter=icu",
        "data.normalize=none",
    )
    with Corpus.open(next(Path("stores").glob("*.h5"))) as corpus:
        split = corpus.split("train")
        words = [corpus.vocabulary.words[index] for index in split.ids if index != corpus.vocabulary.eos]
    assert words == [
        word
        for line in LANGUAGES[language]
        for chunk in line.replace("\u200b", " ").split()
        for word in (icu_words(chunk) if ICU_SCRIPTS.search(chunk) else [chunk])
    ]
    # On whole lines, ICU finds the same words; it cuts marks from those without a letter of these scripts, too.
    whole = [word for line in LANGUAGES[language] for word in icu_words(line)]
    assert "".join(words) == "".join(whole) and {word for word in words if ICU_SCRIPTS.search(word)} == {
        word for word in whole if ICU_SCRIPTS.search(word)
    }


@icu
def test_words_by_hand() -> None:
    segmenter = build_named_option("segmenter", "icu", "data.segmenter")
    for line, words in {
        "我来到北京清华大学。": "我 来到 北京 清华大学 。",
        "他说：“好”。": "他 说 ： “ 好 ” 。",
        "ประเทศไทยเป็นประเทศที่สวยงาม": "ประเทศไทย เป็น ประเทศ ที่ สวยงาม",
        "ຂ້ອຍຮັກພາສາລາວ": "ຂ້ອຍ ຮັກ ພາສາ ລາວ",
        "ខ្ញុំស្រឡាញ់ភាសាខ្មែរ": "ខ្ញុំ ស្រឡាញ់ ភាសាខ្មែរ",
        "iPhone手机 3.5元": "iPhone 手机 3.5 元",
    }.items():
        assert segmenter(line) == words
    # What has no letter of these scripts is as white space cuts it.
    for line in ("Don't stop, “now”!  (e.g. here)", "한국어는 교착어이다.", "བཀྲ་ཤིས་བདེ་ལེགས།", "«Ποῦ πᾷς;»"):
        assert segmenter(line) == line


@icu
def test_a_run_cuts_all_text_as_its_own(lmtool: Run) -> None:
    data = ("data=text", f"data.train={text(*CHINESE)}", f"data.valid={text(*CHINESE[:2], name='v.txt')}")
    said = lmtool("train", "model=ngram", "model.order=2", *data, "data.segmenter=icu", "hydra.run.dir=run")
    assert ADVICE not in said
    saved = json.loads(Path("run/run.json").read_text(encoding="utf-8"))
    assert saved["config"]["data"]["segmenter"] == {"kind": "icu", "version": sys.modules["icu"].ICU_VERSION}
    assert saved["config"]["data"]["spaces"] == "unicode" and saved["origins"] == {}
    split, read = (package.evaluate("run", **given) for given in ({"split": "valid"}, {"text": Path("v.txt")}))
    given = package.evaluate("run", text=CHINESE[:2])
    # 我 来到 北京 清华大学 。 </s>; 他 喜欢 学习 计算 机 科学 。 </s>: 14 tokens; 10 + 11 characters and 2 line ends.
    for scores in (split, read, given):
        assert scores.tokens == 14 and scores.scores.characters == 23
        assert scores.perplexity == pytest.approx(split.perplexity)
    model = package.load("run")
    assert model.form.split("我来到北京\u200b清华大学\u3000。") == ["我", "来到", "北京", "清华大学", "。"]
    assert model.predict("我来到", 1)[0][0] == "北京" and "北京" in lmtool("predict", "run=run", "text=我来到", "top=1")
    assert model.split_of([["我", "来到北京"]]).oov_words == ["来到北京"]  # a word of a list stays as it is
    (scored,) = package.score_texts("run", ["我来到北京清华大学。"])
    assert (scored.tokens, scored.oov) == (6, 0)
    table = package.surprisal("run", ["我来到北京清华大学。"])
    assert table["tokens"].tolist() == ["我 来到 北京 清华大学 。"] and table["oov"].tolist() == [0]
    import lmtool.kenlm as kenlm

    assert len(list(kenlm.Model("run").full_scores("我来到北京清华大学。"))) == 6


@icu
def test_pieces_do_not_cross_words(lmtool: Run) -> None:
    pytest.importorskip("tokenizers")
    name = text(*CHINESE * 20)
    data = ("data=text", f"data.train={name}", f"data.valid={name}", "data.segmenter=icu", "data.vocabulary.unit=bpe")
    lmtool("train", "model=ngram", "model.order=2", *data, "data.vocabulary.size=300", "hydra.run.dir=run")
    model = package.load("run")
    assert model.form.words("我来到北京清华大学。") == ["我", "来到", "北京", "清华大学", "。"]
    assert model.split_of(CHINESE[:1]).characters == 11


@icu
def test_settings_that_do_not_fit_are_refused(lmtool: Run) -> None:
    data = ("data=text", f"data.train={text(*CHINESE)}", "data.valid=train.txt")
    for unit in ("char", "grapheme"):
        said = lmtool("preprocess", *data, "data.segmenter=icu", f"data.vocabulary.unit={unit}", code=2)
        assert f"data.segmenter=icu: it finds words, not used with data.vocabulary.unit={unit}; leave one out" in said
    assert "not used with data.tags=true" in lmtool("preprocess", *data, "data.segmenter=icu", "data.tags=true", code=2)
    for given, message in {
        "ico": "data.segmenter=ico: no option of segmenter=; did you mean icu?",
        "{kind:icu,versio:1}": "no key 'data.segmenter.versio'; did you mean version?",
        "3": "data.segmenter=3: must be the name of an option of segmenter=",
    }.items():
        assert message in lmtool("preprocess", *data, f"data.segmenter={given}", code=2)
    said = lmtool("preprocess", "segmenter=icu", *data, code=2)
    assert "no key 'segmenter'; did you mean data.segmenter?" in said
    cut = ("data=text", "data.train=train.txt", "data.split.unit=tokens", "data.split.train=0.5")
    assert "set data.split.unit=lines" in lmtool("preprocess", *cut, "data.segmenter=icu", code=2)
    lmtool("preprocess", *data, "data.segmenter=none")
    lmtool("preprocess", *data)
    assert len(list(Path("stores").glob("*.h5"))) == 1


@icu
def test_another_icu_is_named(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a note is said once in a folder
    build_named_option("segmenter", "icu", "data.segmenter")("我们")
    assert not caplog.text
    older = build_named_option("segmenter", {"kind": "icu", "version": "50.1"}, "data.segmenter")
    assert older("我们 OK") == "我们 OK" and older("我们 OK")
    assert caplog.text.count("note: data.segmenter=icu: ICU 50.1 cut the text of this run, and here is ICU") == 1


def test_without_pyicu_the_command_is_named(lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "icu", None)
    data = ("data=text", f"data.train={text('the cat sat')}", "data.valid=train.txt", "data.segmenter=icu")
    lmtool("train", "model=ngram", "model.order=2", *data, "hydra.run.dir=run")  # which ICU would not change
    text(*CHINESE)
    said = lmtool("train", "model=ngram", "model.order=2", *data, code=2)
    assert (
        'PyICU is not installed: pip install "lmtool[icu]"' in said and "libicu-dev" in said and said.count("\n") == 1
    )


def test_a_sweep_over_segmenters(lmtool: Run) -> None:
    data = (
        "data=text",
        f"data.train={text(*LANGUAGES['Tibetan'])}",
        "data.valid=train.txt",
        "model=ngram",
        "model.order=2",
    )
    said = lmtool("train", "-m", OPTIONS, *data, "data.segmenter=null,tsek", "hydra.sweep.dir=sweep")
    assert "tsek" in said
    assert "were finished before" in lmtool("train", "-m", OPTIONS, "resume=sweep")


@icu
def test_a_corpus_of_python_keeps_its_segmenter(lmtool: Run) -> None:
    given = {"kind": "text", "train": text(*CHINESE), "valid": "train.txt", "segmenter": {"kind": "icu"}}
    with package.preprocess(data=given) as corpus:
        assert corpus.tokens("train") == 23  # 6, 8 and 9, with </s>
        run = package.train({"kind": "ngram", "order": 2}, corpus, out="run")
        assert package.evaluate(run, text=CHINESE).tokens == 23
        assert package.load("run").form.rules.segmenter.kind == "icu"


def test_a_source_of_ones_own_is_trained_on_from_python(lmtool: Run) -> None:
    """Its YAML file does not have the settings that all sources share."""
    Path("t.jsonl").write_text('{"text": "a b"}\n', encoding="utf-8")
    given = {"kind": "jsonl", "train": "t.jsonl", "valid": "t.jsonl"}
    with package.preprocess(data=given, options=OWN) as corpus:
        assert package.train({"kind": "ngram", "order": 2}, corpus, out="run", options=OWN).ngrams[0] == 5


def test_a_segmenter_of_ones_own(lmtool: Run) -> None:
    name = text("བཀྲ་ཤིས་བདེ་ལེགས།", "བདེ་ལེགས།")
    data = ("data=text", f"data.train={name}", f"data.valid={name}", "data.segmenter=tsek")
    assert "no option of segmenter=" in lmtool("train", *data, code=2)
    lmtool("train", OPTIONS, "model=ngram", "model.order=2", *data, "hydra.run.dir=run")
    saved = json.loads(Path("run/run.json").read_text(encoding="utf-8"))
    assert saved["config"]["data"]["segmenter"] == {"kind": "tsek"}
    assert saved["origins"] == {"segmenter": f"the folder {OWN}"}
    said = lmtool("eval", "run=run", f"text={name}", code=2)
    where = f"segmenter=tsek came from the folder {OWN}, which is not in use here: name it with options=FOLDER"
    assert said.startswith(f"lmtool: {where}")
    # བཀྲ་ ཤིས་ བདེ་ ལེགས། </s>, བདེ་ ལེགས། </s>
    assert package.evaluate("run", text=Path(name), options=OWN).tokens == 8
    assert package.load("run", options=OWN).form.split("བཀྲ་ཤིས།") == ["བཀྲ་", "ཤིས།"]
    lmtool("convert", OPTIONS, "runs=[run]", "prune_to=90%", "hydra.run.dir=small")
    assert json.loads(Path("small/run.json").read_text(encoding="utf-8"))["origins"] == saved["origins"]


def test_a_segmenter_that_changes_letters_is_refused(lmtool: Run, tmp_path: Path) -> None:
    own = tmp_path / "own" / "segmenter"
    own.mkdir(parents=True)
    (own / "bad.yaml").write_text("kind: bad\n")
    (own / "bad.py").write_text(
        "from dataclasses import dataclass\nfrom lmtool.config.groups import SegmenterConfig\n\n\n"
        "@dataclass(slots=True)\nclass Bad(SegmenterConfig):\n"
        "    def cut(self, line):\n        return line.replace('b', '')\n"
    )
    said = lmtool(
        "preprocess",
        "options=own",
        "data=text",
        f"data.train={text('a bc')}",
        "data.valid=train.txt",
        "data.segmenter=bad",
        code=2,
    )
    assert "data.segmenter=bad: 'a bc' became 'a c': a segmenter inserts spaces and changes nothing else" in said


def test_rules_with_a_segmenter() -> None:
    with folder_in_use(OWN):
        one, other = (build_named_option("segmenter", "tsek", "data.segmenter") for _ in range(2))
    rules = TextRules(segmenter=one, spaces=Spaces.unicode, normalize=Normalize.nfc)
    assert rules == TextRules(segmenter=other, spaces=Spaces.unicode, normalize=Normalize.nfc) and rules.changes
    assert hash(rules) == hash(TextRules(segmenter=other, spaces=Spaces.unicode, normalize=Normalize.nfc))
    assert rules != rules.word_rules and rules("བདེ་ལེགས།") == "བདེ་ ལེགས།" and rules.word_rules("བདེ་ལེགས།") == "བདེ་ལེགས།"
    assert rules.encoded("བདེ་ལེགས།\na\u200bb\n".encode()).decode() == "བདེ་ ལེགས།\na b\n"
    assert rules.count_inserted("བདེ་ལེགས། ab\n".encode(), rules.encoded("བདེ་ལེགས། ab\n".encode())) == 1
