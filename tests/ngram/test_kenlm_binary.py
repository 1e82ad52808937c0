"""KenLM's binary files give the numbers of their ARPA files, by KenLM's module and by one in its place."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import lmtool as python
from lmtool import kenlm as ours
from lmtool.data.sources.builtin import TEST
from lmtool.errors import UserError
from lmtool.text_model import TextModel
from tests.commands.test_arpa_alone import ARPA, LOG10, TEXT
from tests.conftest import Run, result

MAGIC = b"mmap lm http://kheafield.com/code format version 5\n"


def binary(words: list[str], count: int | None = None, *, has_words: bool = True) -> bytes:
    """Return a file as KenLM writes it, except for the tables between the header and the words."""
    header = MAGIC.ljust(56, b"\0") + struct.pack("<3fIIIQ", 0, 1, -0.5, 1, 2**32 - 1, 0, 1)
    header += struct.pack("<B3xfI?3xIQQ", 2, 1.5, 0, has_words, 0, len(words) if count is None else count, 3)
    return header + bytes(range(256)) + b"".join(word.encode() + b"\0" for word in words) * has_words


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a stand-in for the module `kenlm`, which reads the ARPA file beside the binary."""
    stand_in = ModuleType("kenlm")
    stand_in.State = ours.State  # type: ignore[attr-defined]
    stand_in.Model = lambda path: ours.Model(Path(path).with_suffix(".arpa"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kenlm", stand_in)


@pytest.fixture
def files(lmtool: Run, module: None) -> Run:
    Path("de.arpa").write_text(ARPA)
    Path("de.bin").write_bytes(binary(["<unk>", "<s>", "</s>", "a", "b"]))
    Path("de.txt").write_text(TEXT)
    return lmtool


def test_by_hand(files: Run) -> None:
    model = python.load("de.bin")
    assert model.words == ("<unk>", "a", "b", "</s>") and model.context_size == 1 and not model.normalized
    np.testing.assert_allclose(model.score("a b") / math.log(10), LOG10[:3], rtol=1e-6)
    np.testing.assert_allclose(model.score("b zzz a") / math.log(10), LOG10[3:], rtol=1e-6)
    dist = model.log_dist(np.array([[1], [4]])) / math.log(10)  # after a, and after <s>
    np.testing.assert_allclose(dist, [[-1.4, -0.7, -0.4, -0.9, -np.inf], [-1.5, -0.1, -1.2, -1.0, -np.inf]], rtol=1e-6)
    assert model.predict("a", 2) == [("b", pytest.approx(10**-0.4)), ("a", pytest.approx(10**-0.7))]


def test_commands_give_the_numbers_of_the_arpa_file(files: Run) -> None:
    said = {}
    for name in ("de.arpa", "de.bin"):
        kept = files("eval", f"arpa={name}", "text=de.txt", "detail=true").split("tokens per second")[0]
        assert "[2gram]" in kept and "note: these scores do not sum to one" in files(
            "score", f"arpa={name}", "text=de.txt", f"to={name}.tsv", f"filter={name}.txt", "max_perplexity=5"
        )
        kept += files("predict", "a", f"arpa={name}") + files("generate", f"arpa={name}", "count=3", "seed=1")
        said[name] = kept.replace(name, "de")
    assert said["de.bin"] == said["de.arpa"]
    assert Path("de.bin.tsv").read_text() == Path("de.arpa.tsv").read_text()
    assert Path("de.bin.txt").read_text() == Path("de.arpa.txt").read_text() == "a b\n"


@pytest.mark.parametrize("second", ["", "-0.2\t<s> b\n"])
def test_sentences_without_ends(files: Run, second: str) -> None:
    """Several words follow `<s>`: the text is sentences, although no `</s>` is predicted; one word: it is a stream."""
    arpa = ARPA.replace("-0.7\t</s>", "-99\t</s>").replace("-0.6\tb </s>\n", second)
    Path("de.arpa").write_text(arpa if second else arpa.replace("ngram 2=3", "ngram 2=2"))
    Path("de.bin").write_bytes(binary(["<unk>", "<s>", "a", "b"]))  # the stand-in lacks a </s> of probability 0
    for name in ("de.arpa", "de.bin"):
        vocabulary = python.load(name).vocabulary
        assert (vocabulary.eos, vocabulary.sentences) == (None, bool(second))


def test_surprisal_and_pairs(files: Run) -> None:
    Path("pairs.jsonl").write_text('{"sentence_good": "a b", "sentence_bad": "b a"}\n')
    found = {}
    for name in ("de.arpa", "de.bin"):
        files("surprisal", f"arpa={name}", "text=de.txt", f"to={name}.tsv")
        head, *rows = [line.split("\t") for line in Path(f"{name}.tsv").read_text().splitlines()]
        numbers = [row[head.index("surprisal_bits")] for row in rows]
        said = files("pairs", f"arpa={name}", "text=pairs.jsonl")
        found[name] = [float(number) for number in numbers], "overall   mean over paradigms      1    1.0000" in said
    assert found["de.bin"] == (pytest.approx(found["de.arpa"][0], rel=1e-6), True)


def test_members_of_comparisons_and_mixtures(files: Run) -> None:
    files("compare", "runs=[de.arpa,de.bin]", "text=de.txt", "hydra.run.dir=compared")
    first, second = result("compared")["members"]
    assert second["perplexity"] == pytest.approx(first["perplexity"], rel=1e-6) == 10 ** (5 / 7)
    files("ensemble", "runs=[de.arpa,de.bin]", "text=de.txt", "weights=[0.25,0.75]", "hydra.run.dir=mix")
    files("eval", "run=mix", "text=de.txt", "hydra.run.dir=out")
    assert result("out")["perplexity"] == pytest.approx(10 ** (5 / 7), rel=1e-6)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (binary(["<unk>", "a"], has_words=False), "de.bin has no words, as build_binary -v leaves them out"),
        (binary(["<unk>", "a"], 4), "de.bin is damaged: 4 words should be at its end"),
        (binary(["<unk>", "a"])[:-1], "de.bin is damaged: 2 words should be at its end"),
        (binary(["a", "b"]), "de.bin is damaged: 2 words should be at its end"),
        (binary(["<unk>", "\x80"]).replace("\x80".encode(), b"\x80"), "de.bin has words that are not UTF-8"),
    ],
)
def test_files_that_are_refused(files: Run, content: bytes, said: str) -> None:
    Path("de.bin").write_bytes(content)
    answer = files("eval", "arpa=de.bin", "text=de.txt", code=2)
    assert said in answer and "use the ARPA file that it was made from" in answer and answer.count("\n") == 1


def test_words_that_end_as_the_first_one_and_a_count_without_it(files: Run) -> None:
    Path("de.bin").write_bytes(binary(["<unk>", "<s>", "</s>", "a<unk>", "b"], 4))
    assert python.load("de.bin").words == ("<unk>", "a<unk>", "b", "</s>")


needs_build_binary = pytest.mark.tool("kenlm", "build_binary")


@pytest.fixture
def built(lmtool: Run) -> TextModel:
    """The model of toy.arpa, of which KenLM's build_binary has made each kind of binary."""
    lmtool("train", "model=ngram", "data=toy", "model.order=4", "hydra.run.dir=kn4")
    lmtool("convert", "run=kn4", "to=toy.arpa")
    return python.load("toy.arpa")


KINDS = {"probing": [], "trie": ["trie"], "array": ["-a", "22", "trie"], "quantized": ["-q", "16", "-b", "16", "trie"]}


@needs_build_binary
@pytest.mark.parametrize("kind", KINDS)
def test_all_of_kenlms_formats(built: TextModel, kind: str, lmtool: Run) -> None:
    subprocess.run(["build_binary", *KINDS[kind], "toy.arpa", "toy.bin"], check=True, capture_output=True)
    model, tolerance = python.load("toy.bin"), 1e-2 if kind == "quantized" else 1e-6
    assert set(model.words) == set(built.words) and model.normalized and model.context_size == 3
    ids = built.vocabulary.encode(model.vocabulary.words)
    for line in [*TEST.splitlines(), "", "zzz the <unk> zzz cat"]:
        np.testing.assert_allclose(model.score(line), built.score(line), rtol=tolerance, atol=1e-6)
    draw = np.random.default_rng(0)
    contexts, targets = draw.integers(0, len(ids), (200, 3)), draw.integers(0, len(ids) - 1, 200)
    dist, wanted = model.log_dist(contexts), built.log_dist(ids[contexts])[:, ids]
    np.testing.assert_allclose(dist[:, :-1], wanted[:, :-1], rtol=tolerance, atol=1e-6)
    np.testing.assert_array_equal(model.log_prob(contexts, targets), dist[np.arange(200), targets])
    for method, arguments in (("matched_lengths", (contexts, targets)), ("context_lengths", (contexts,))):
        theirs = getattr(built.model, method)(*(ids[each] for each in arguments))
        np.testing.assert_array_equal(getattr(model.model, method)(*arguments), theirs)
    Path("test.txt").write_text(TEST)
    for name in ("toy.arpa", "toy.bin"):
        lmtool("eval", f"arpa={name}", "text=test.txt", f"hydra.run.dir={name}.out")
    assert result("toy.bin.out")["perplexity"] == pytest.approx(result("toy.arpa.out")["perplexity"], rel=tolerance)


@needs_build_binary
def test_a_file_that_kenlm_cannot_read(built: TextModel) -> None:
    subprocess.run(["build_binary", "toy.arpa", "toy.bin"], check=True, capture_output=True)
    Path("toy.bin").write_bytes(Path("toy.bin").read_bytes()[:1000])
    with pytest.raises(UserError, match=r"toy\.bin: KenLM's module cannot read it \(Binary file has size 1000 but"):
        python.load("toy.bin")


@needs_build_binary
def test_a_file_that_never_ends_a_sentence_is_of_running_text(built: TextModel) -> None:
    arpa = ARPA.replace("-0.7\t</s>", "-99\t</s>").replace("ngram 2=3", "ngram 2=2").replace("-0.6\tb </s>\n", "")
    Path("x.arpa").write_text(arpa)
    subprocess.run(["build_binary", "x.arpa", "x.bin"], check=True, capture_output=True)
    assert python.load("x.bin").words == python.load("x.arpa").words == ("<unk>", "a", "b")
