"""limit_vocabulary: the n-grams of listed words, estimated on all words, as lmplz --limit_vocab_file has them."""

from __future__ import annotations

import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import lmtool as library
from tests.conftest import Run, result

TEXT = """the cat sat on the mat
the dog sat on the log
a cat and a dog ran to the mat
the cat ran
a dog sat
"""
LISTED = "the cat sat\non dog zebra\n"  # zebra is not in the text

# lmplz -o 3 --discount_fallback --limit_vocab_file LISTED of TEXT, without and with --prune 0 1 1: log10 p and backoff.
UNIGRAMS = {"<unk>": -0.955372, "<s>": 0.0, "</s>": -0.66377425, "the": -0.7659168, "cat": -0.9211322}
UNIGRAMS |= {"sat": -0.9211322, "on": -0.85039437, "dog": -0.9211322}
ALL = [
    UNIGRAMS,
    {
        **{"sat </s>": -0.5367202, "<s> the": -0.7659168, "on the": -0.3097065, "the cat": -0.7486336},
        **{"cat sat": -0.6331195, "dog sat": -0.6416239, "sat on": -0.6406576, "the dog": -0.7486336},
    },
    {
        **{"dog sat </s>": -0.40307897, "sat on the": -0.12781169, "<s> the cat": -0.37414503},
        **{"the cat sat": -0.37206218, "the dog sat": -0.21174967, "cat sat on": -0.21156994},
        **{"dog sat on": -0.4384573, "<s> the dog": -0.59199625},
    },
]
ALL_BACKOFFS = {
    **{"the": -0.07255066, "cat": -0.05958569, "sat": -0.12568174, "on": -0.2108534, "dog": -0.057038497},
    **{"<s> the": -0.30103, "the cat": -0.12493875, "cat sat": -0.30103, "dog sat": -0.30103, "sat on": -0.30103},
    **{"the dog": -0.30103},
}
PRUNED = [
    UNIGRAMS,
    {
        **{"<s> the": -0.7659168, "on the": -0.3097065, "the cat": -0.72673845, "dog sat": -0.6416239},
        **{"sat on": -0.6075965},
    },
    {"sat on the": -0.12781169, "<s> the cat": -0.33874753},
]
PRUNED_BACKOFFS = {
    **{"the": -0.034762107, "sat": -0.057038497, "on": -0.2108534, "dog": -0.057038497},
    **{"<s> the": -0.17609124, "sat on": -0.30103},
}


def write_texts(tmp: Path) -> list[str]:
    for name, text in {"train": TEXT, "valid": "the cat sat a dog ran the\n", "words": LISTED}.items():
        (tmp / f"{name}.txt").write_text(text)
    return ["data=text", "data.train=train.txt", "data.valid=valid.txt", "model.order=3"]


@pytest.mark.parametrize(
    ("prune", "want", "backoffs"), [("null", ALL, ALL_BACKOFFS), ("[0,1,1]", PRUNED, PRUNED_BACKOFFS)]
)
def test_every_ngram_is_lmplzs(
    prune: str, want: list[dict[str, float]], backoffs: dict[str, float], lmtool: Run, tmp_path: Path
) -> None:
    line = ["train", "model=ngram", *write_texts(tmp_path), "limit_vocabulary=words.txt", f"prune_counts={prune}"]
    lmtool(*line, "hydra.run.dir=run")
    lmtool("convert", "run=run", "to=run.arpa")
    assert set(Path("run/vocabulary.txt").read_text().split()[::2]) == UNIGRAMS.keys()
    rows = [line.split("\t") for line in Path("run.arpa").read_text().splitlines() if "\t" in line]
    found = {row[1]: (float(row[0]), float(row[2]) if len(row) > 2 else 0.0) for row in rows}
    assert found.keys() == {ngram for order in want for ngram in order}
    for order in want:
        for ngram, log_p in order.items():
            if ngram != "<s>":  # which is never predicted; tools write different numbers
                assert found[ngram] == pytest.approx((log_p, backoffs.get(ngram, 0.0)), abs=1e-6), ngram


def test_a_limited_run_is_a_run_like_others(lmtool: Run, tmp_path: Path) -> None:
    train = ["train", "model=ngram", *write_texts(tmp_path)]
    printed = lmtool(*train, "limit_vocabulary=words.txt", "hydra.run.dir=run")
    assert "out of vocabulary: 31.25 % of train, 25.00 % of valid" in printed  # 10 of 32 tokens, 2 of 8
    assert "have probability 0" not in printed  # words that are left out are <unk>
    assert result("run")["valid_perplexity"] == pytest.approx(6.1837089, rel=1e-6)  # lmplz's and query's, OOVs included
    # `query` of lmplz's file: the, cat, sat, a (OOV), dog, ran (OOV), the, </s>; log10.
    log10_p = [-0.7659168, -0.37414503, -0.37206218, -1.3820838, -0.9211322, -1.0124105, -0.7659168, -0.7363249]
    model = library.load("run")
    np.testing.assert_allclose(model.score("the cat sat a dog ran the") / np.log(10), log10_p, atol=1e-6)
    sums = np.exp(model.model.log_dist(np.array([[7, 7], [7, 0], [0, 3], [5, 6], [6, 6]]))).sum(axis=1)
    np.testing.assert_allclose(sums, 1, atol=1e-6)
    for stored in Path("stores").glob("text-*.h5"):
        stored.unlink()  # and is written again from the settings
    lmtool("eval", "run=run", "hydra.run.dir=valid")
    found = result("valid")
    assert (found["tokens"], found["oov"]) == (8, 2)
    assert found["perplexity"] == pytest.approx(6.1837089, rel=1e-6)
    assert found["perplexity_without_oov"] == pytest.approx(4.5281034, rel=1e-6)
    lmtool(*train, "limit_vocabulary=words.txt", "smoother=witten_bell", "hydra.run.dir=other")
    lmtool("ensemble", "runs=[run,other]", "weights=[0.5,0.5]", "hydra.run.dir=mixed")
    lmtool("eval", "run=mixed", "hydra.run.dir=mixed-valid")
    assert result("mixed")["perplexity"] == pytest.approx(result("mixed-valid")["perplexity"], rel=1e-9)
    lmtool(*train, "hydra.run.dir=whole")
    said = lmtool("ensemble", "runs=[run,whole]", code=2)
    assert "run and whole have different words (only one has " in said and "limit_vocabulary" in said
    for name in ("run", "whole"):
        lmtool("export", f"run={name}", f"to={name}.tsv")  # the counts that the model was estimated on: of all words
    assert Path("run.tsv").read_bytes() == Path("whole.tsv").read_bytes()
    lmtool(*train[:2], *train[2:], "limit_vocabulary=words.txt", "counts.memory=64KiB", "hydra.run.dir=small")
    assert Path("small/model.h5").read_bytes() == Path("run/model.h5").read_bytes()


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ("model=class_ngram", "model=class_ngram"),
        ("model=nplm", "model=nplm"),
        ("model=ngram data.vocabulary.unit=char", "data.vocabulary.unit"),
        ("model=ngram prune_to=10%", "prune_method=entropy"),
        ("model=ngram limit_vocabulary=nowhere.txt", "no file nowhere.txt"),
    ],
)
def test_what_it_is_not_for(settings: str, word: str, lmtool: Run, tmp_path: Path) -> None:
    data = write_texts(tmp_path)[:3]
    said = lmtool("train", *data, "limit_vocabulary=words.txt", *settings.split(), code=2)
    last = said.splitlines()[-1]
    assert last.startswith("lmtool: ") and "limit_vocabulary" in last and word in last
    assert not list(tmp_path.glob("outputs/**/run.json"))


@pytest.mark.parametrize(
    "smoother", ["kneser_ney", "witten_bell", "good_turing", "absolute", "laplace", "mle", "count_merging"]
)
@pytest.mark.parametrize("unknown", ["", " <unk>"])
def test_distributions_sum_to_one(smoother: str, unknown: str, lmtool: Run, tmp_path: Path) -> None:
    data = write_texts(tmp_path)
    (tmp_path / "train.txt").write_text(TEXT + TEXT.replace("\n", f"{unknown}\n"))
    lmtool("train", "model=ngram", *data, f"smoother={smoother}", "limit_vocabulary=words.txt", "hydra.run.dir=run")
    model = library.load("run").model
    contexts = np.stack(np.meshgrid(np.arange(8), np.arange(8)), axis=-1).reshape(-1, 2)
    np.testing.assert_allclose(np.exp(model.log_dist(contexts)).sum(axis=1), 1, atol=1e-6)


# lmplz --limit_vocab_file with the words seen 100 times or more, where `<unk>`, which lmplz refuses, has another name;
# and `query` on valid, OOVs included.
@pytest.mark.parametrize(
    ("order", "prune", "ngrams", "perplexity"),
    [
        (3, "null", [1083, 78_836, 214_193], 165.3583431),
        (5, "null", [1083, 78_836, 214_193, 246_838, 217_004], 158.2321916),
        (5, "[0,1,1,2]", [1083, 38_343, 48_431, 11_427, 5512], 163.1054512),
    ],
)
def test_ptb_is_lmplzs(
    order: int, prune: str, ngrams: list[int], perplexity: float, lmtool: Run, tmp_path: Path, real_data: Path
) -> None:
    for name in ("train", "valid"):
        text = (real_data / "ptb" / f"ptb.{name}.txt").read_text().replace("<unk>", "<UNK_>")
        (tmp_path / f"{name}.txt").write_text(text)
    counts = Counter((tmp_path / "train.txt").read_text().split())
    (tmp_path / "words.txt").write_text("\n".join(word for word, count in counts.items() if count >= 100))
    data = ["data=text", f"data.train={tmp_path}/train.txt", f"data.valid={tmp_path}/valid.txt"]
    line = [f"model.order={order}", f"limit_vocabulary={tmp_path}/words.txt", f"prune_counts={prune}"]
    lmtool("train", "model=ngram", *data, *line, "hydra.run.dir=run")
    assert result("run")["ngrams"] == ngrams
    assert result("run")["valid_perplexity"] == pytest.approx(perplexity, rel=1e-6)


def test_brown_is_lmplzs(lmtool: Run, tmp_path: Path, real_data: Path) -> None:
    # Words seen 3 times or more in the first nine tenths of the sentences; lmplz -o 4, and `query` on the others.
    text = []
    with zipfile.ZipFile(real_data / "brown" / "brown.zip") as archive:
        for name in sorted(n for n in archive.namelist() if len(n) == 10 and n[-2:].isdigit()):
            lines = (line.split() for line in archive.read(name).decode().split("\n"))
            text += [" ".join(word.rsplit("/", 1)[0] for word in line) for line in lines if line]
    cut = len(text) * 9 // 10
    for name, part in (("train", text[:cut]), ("valid", text[cut:])):
        (tmp_path / f"{name}.txt").write_text("\n".join(part))
    counts = Counter((tmp_path / "train.txt").read_text().split())
    (tmp_path / "words.txt").write_text("\n".join(word for word, count in counts.items() if count >= 3))
    data = ["data=text", f"data.train={tmp_path}/train.txt", f"data.valid={tmp_path}/valid.txt", "model.order=4"]
    lmtool("train", "model=ngram", *data, f"limit_vocabulary={tmp_path}/words.txt", "hydra.run.dir=run")
    assert result("run")["valid_perplexity"] == pytest.approx(256.876249, rel=1e-6)
    # data.vocabulary.file, which the pages gave for --limit_vocab_file, makes `<unk>` a frequent word of the text.
    lmtool("train", "model=ngram", *data, f"data.vocabulary.file={tmp_path}/words.txt", "hydra.run.dir=file")
    assert result("file")["valid_perplexity"] == pytest.approx(148.1586, rel=1e-6)
