"""Text in UTF-16 and UTF-32 is recognized without a byte-order mark, in every script and by every reader."""

# ruff: noqa: RUF001

from __future__ import annotations

import gzip
import io
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lmtool.data.encodings import require_utf8
from lmtool.data.readers import read_blocks, read_stream
from lmtool.data.text_records import record_blocks
from lmtool.errors import UserError
from lmtool.ngram.files.arpa_model import vocabulary_of
from lmtool.ngram.models.word_classes import read_classes
from lmtool.trees import read_tree
from tests.commands.test_surprisal import ARPA

TEXTS = {
    "Amharic": "ሰላም ለዓለም ። እንዴት ነህ ፧\nደህና ነኝ ።\n",
    "Arabic": "السلام عليكم ورحمة الله\nكيف الحال؟\n",
    "Armenian": "Բարեւ աշխարհ։\n",
    "Bengali": "আমার সোনার বাংলা।\nআমি তোমায় ভালোবাসি।\n",
    "Burmese": "မင်္ဂလာပါ။\nနေကောင်းလား။\n",
    "Chinese": "你好世界。\n今天天气一一很好。\n",
    "emoji": "\U0001f469\u200d\U0001f467 hi\n",
    "English": "the cat sat\n",
    "Georgian": "გამარჯობა მსოფლიო\n",
    "Greek": "ἐν ἀρχῇ ἦν ὁ λόγος\n",
    "Hebrew": "בְּרֵאשִׁית בָּרָא אֱלֹהִים\n",
    "Hindi": "मैं हिन्दी में लिखता हूँ।\n",
    "Japanese": "こんにちは世界。\nカタカナ\u3000です\n",
    "jamo": "\u1112\u1161\u11ab\u1100\u1173\u11af\n",
    "Khmer": "សួស្តី\u200bពិភពលោក\n",
    "Korean": "안녕하세요 세계\n가가 각\n",
    "Lao": "ສະບາຍດີຊາວໂລກ\n",
    "Persian": "می\u200cخواهم کتاب\u200cها را بخوانم\n",
    "Punjabi": "ਸਤਿ ਸ੍ਰੀ ਅਕਾਲ ਦੁਨੀਆ\nਤੁਸੀਂ ਕਿਵੇਂ ਹੋ\n",
    "Russian": "Привет мир\nКак дела?\n",
    "Tamil": "வணக்கம் உலகம்\n",
    "Thai": "สวัสดีชาวโลก\nวันนี้อากาศดีมากช\n",
    "Tibetan": "བཀྲ་ཤིས་བདེ་ལེགས།\n",
    "Turkish": "Merhaba dünya, ışık İstanbul\n",
    "Vietnamese": "Xin cha\u0300o the\u0302\u0301 gio\u031b\u0301i\n",
    "Yoruba": "Ẹ káàárọ̀ ayé\n",
}
OTHERS = ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"]


@pytest.mark.parametrize("encoding", OTHERS)
@pytest.mark.parametrize("script", TEXTS)
def test_every_script(script: str, encoding: str) -> None:
    said = rf"^x\.txt is {encoding}, not UTF-8: convert it, e\.g\. with iconv -f {encoding} -t UTF-8$"
    twice = TEXTS[script] * 2
    for text in (twice, twice * 200, twice.replace("\n", "\r\n")):
        with pytest.raises(UserError, match=said):
            require_utf8(text.encode(encoding), "x.txt")
        require_utf8(text.encode(), "x.txt")


def test_binary_files_and_texts_with_a_nul_byte_are_neither() -> None:
    numbers = random.Random(1)
    for size in (100, 1000, 9000):
        require_utf8(numbers.randbytes(size), "x.bin")
    require_utf8(b"a\n\0\n", "x.txt")
    for place in range(20):
        require_utf8(b"the cat sat on the mat\n"[:place] + b"\0" + b"the cat sat on the mat\n"[place:] * 3, "x.txt")
    require_utf8(b"\x0a\0\0\0 \0\0\0\x07\0\0\0" * 9, "x.bin")  # numbers of 32 bits, which are line ends and spaces


READERS: dict[str, Callable[[str], object]] = {
    "lines": lambda path: list(read_blocks(path)),
    "documents": lambda path: list(read_blocks(path, column="text")),
    "texts": lambda path: list(record_blocks([path], None)),
    "records": lambda path: list(record_blocks([path], "text")),
    "a stream": lambda path: list(read_stream(io.BytesIO(Path(path).read_bytes()), path)),
    "a tree": lambda path: read_tree(path, ["a", "b"]),
    "classes": lambda path: read_classes(Path(path), vocabulary_of(["a", "b"], sentences=True), key="model.file"),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader(reader: str, tmp_path: Path) -> None:
    path = tmp_path / ("x.jsonl" if reader in ("documents", "records") else "x.txt")
    for encoding, mark in (("UTF-16LE", ""), ("UTF-32BE", ""), ("UTF-16", "\ufeff")):
        path.write_bytes((mark + '{"text": "a"}\nb 1\n').encode("UTF-16BE" if mark else encoding))
        with pytest.raises(UserError, match=rf"{path.name} is {encoding}, not UTF-8: convert it") as caught:
            READERS[reader](str(path))
        assert "\n" not in str(caught.value)


def test_every_verb(lmtool: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"a.arpa": ARPA, "nbest.txt": "0 ||| a ||| f ||| 1\n", "x.tsv": "word\tp\na\t0.5\n"}.items():
        Path(name).write_bytes(text.encode("UTF-16LE"))
    Path("x.txt").write_bytes("мама мыла раму\n".encode("UTF-16BE"))
    Path("de.arpa").write_text(ARPA)
    Path("train.txt").write_text("a b\n")
    text = ("preprocess", "data=text", "data.valid=null")
    for line, file, encoding in (
        (("eval", "arpa=a.arpa", "text=train.txt"), "a.arpa", "UTF-16LE"),
        (("eval", "arpa=de.arpa", "text=x.txt"), "x.txt", "UTF-16BE"),
        (("rescore", "arpa=de.arpa", "nbest=nbest.txt"), "nbest.txt", "UTF-16LE"),
        (("score", "arpa=de.arpa", "text=x.txt", "to=s.tsv"), "x.txt", "UTF-16BE"),
        (("surprisal", "arpa=de.arpa", "text=x.tsv"), "x.tsv", "UTF-16LE"),
        (("compare", "runs=[x.tsv,de.arpa]", "text=train.txt"), "x.tsv", "UTF-16LE"),
        ((*text, "data.train=x.txt"), "x.txt", "UTF-16BE"),
        ((*text, "data.train=train.txt", "data.vocabulary.file=x.txt"), "x.txt", "UTF-16BE"),
    ):
        said = lmtool(*line, code=2).splitlines()[-1]
        what = f"lmtool: {file} is {encoding}, not UTF-8: convert it, e.g. with iconv -f {encoding} -t UTF-8"
        assert said.removesuffix("; or data.on_error=skip leaves such records out") == what
    Path("x.txt.gz").write_bytes(gzip.compress(Path("x.txt").read_bytes()))
    assert "x.txt.gz is UTF-16BE, not UTF-8" in lmtool("eval", "arpa=de.arpa", "text=x.txt.gz", code=2)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path("x.txt").read_bytes())))
    assert "standard input is UTF-16BE, not UTF-8" in lmtool("eval", "arpa=de.arpa", "text=-", code=2)


@pytest.mark.parametrize("mark", [",", ";"])
def test_a_list_of_words_has_no_cells(mark: str, lmtool: Callable[..., str]) -> None:
    Path("w.csv").write_text(f"the{mark}12\ncat{mark}3\n")
    Path("t.txt").write_text("the cat\n")
    Path("de.arpa").write_text(ARPA)
    said = f"w.csv: each line has cells with {mark} between them: give words alone, one per line"
    words = ("preprocess", "data=text", "data.train=t.txt", "data.valid=null", "data.vocabulary.file=w.csv")
    assert lmtool(*words, code=2).splitlines()[-1] == f"lmtool: {said}"
    limited = ("convert", "arpa=de.arpa", "to=x.arpa", "limit_vocabulary=w.csv")
    assert lmtool(*limited, code=2).splitlines()[-1] == f"lmtool: limit_vocabulary={said}"
    Path("w.csv").write_text(f"the\ncat\n{mark}\n")  # which may be words themselves
    assert "train       3          1      3    0      0 " in lmtool(*words)
