"""`lmtool pairs` and `lmtool.pairs`: accuracies by hand, intervals, ties, OOVs, files and errors."""

from __future__ import annotations

import csv
import gzip
import json
import math
import zipfile
from pathlib import Path

import numpy as np
import pytest

import lmtool as python
from lmtool.evaluation import minimal_pairs
from lmtool.evaluation.text_scores import TEXT
from tests.commands.test_arpa_alone import ARPA
from tests.conftest import Run

# By hand, from ARPA, in log10: a b is -1.1, b a -2.7, a -1, b -1.8, b zzz a -3.9; x and y, two OOVs, are -2.2 each.
PAIRS = [
    ("a b", "b a", "one", "P", "F"),  # right
    ("x", "y", "one", "P", "F"),  # a tie of OOVs
    ("b", "a b", "two", "P", "F"),  # wrong
    ("a b", "a", "two", "P", "F"),  # wrong by the sum; right by the mean, -1.1 / 3 against -1 / 2
    ("a", "b zzz a", "three", "Q", "G"),  # right, with an OOV
]
NAMES = ("sentence_good", "sentence_bad", "UID", "linguistics_term", "field")
KEYS = ("accuracy", "lower", "upper", "ties", "oov")


def lines(pairs: list[tuple[str, ...]] = PAIRS) -> str:
    return "".join(json.dumps(dict(zip(NAMES, pair, strict=False))) + "\n" for pair in pairs)


@pytest.fixture
def files(lmtool: Run) -> Run:
    Path("de.arpa").write_text(ARPA)
    Path("pairs.jsonl").write_text(lines())
    return lmtool


def table(name: str, delimiter: str = ",") -> dict[tuple[str, str], list[float]]:
    with Path(name).open(newline="") as file:
        header, *rows = csv.reader(file, delimiter=delimiter)
    assert header == ["level", "name", "pairs", *KEYS]
    return {(level, name): [float(value) for value in values] for level, name, *values in rows}


def test_accuracies_by_hand(files: Run) -> None:
    said = files("pairs", "arpa=de.arpa", "text=pairs.jsonl", "to=out.csv", "items=items.jsonl.gz", "hydra.run.dir=out")
    assert "de: 1 ties, each counted as half; 2 pairs with an OOV" in said
    assert "pairs.jsonl: 5 pairs, by sums of log p; intervals of 95 %" in said
    third = 1 / 3
    assert table("out.csv") == {
        # Of paradigm one, two pairs with 1 and 1/2, a quarter of the draws has the mean 1/2, and a quarter the mean 1.
        ("overall", "mean over paradigms"): pytest.approx([5, 1.75 * third, 1.5 * third, 2 * third, 1, 2]),
        ("overall", "mean over pairs"): pytest.approx([5, 0.5, 0.4, 0.6, 1, 2]),
        ("field", "F"): [4, 0.375, 0.25, 0.5, 1, 1],
        ("field", "G"): [1, 1, 1, 1, 0, 1],
        ("phenomenon", "P"): [4, 0.375, 0.25, 0.5, 1, 1],
        ("phenomenon", "Q"): [1, 1, 1, 1, 0, 1],
        ("paradigm", "one"): [2, 0.75, 0.5, 1, 1, 1],
        ("paradigm", "two"): [2, 0, 0, 0, 0, 0],
        ("paradigm", "three"): [1, 1, 1, 1, 0, 1],
    }
    result = json.loads(Path("out/result.json").read_text())
    assert (result["pairs"], result["criterion"]) == (5, "sum")
    assert result["runs"] == [
        {"run": "de", "accuracy": 1.75 * third, "lower": 0.5, "upper": pytest.approx(2 * third), "ties": 1, "oov": 2}
    ]
    items = [json.loads(line) for line in gzip.decompress(Path("items.jsonl.gz").read_bytes()).splitlines()]
    assert [item["correct"] for item in items] == [1, 0.5, 0, 0, 1]
    assert items[4].items() >= {"run": "de", "UID": "three", "tokens_bad": 4, "oov_good": 0, "oov_bad": 1}.items()
    assert items[4]["log_prob_nats_bad"] == pytest.approx(-3.9 * math.log(10))


def test_means_per_token(files: Run) -> None:
    files("pairs", "arpa=de.arpa", "text=pairs.jsonl", "criterion=mean", "to=out.tsv")
    found = table("out.tsv", "\t")
    assert found["paradigm", "two"][1] == 0.5 and found["overall", "mean over pairs"][1] == 0.7


@pytest.mark.filterwarnings("ignore:a high share is out of vocabulary")
def test_several_runs_are_columns_of_one_table(files: Run, runs: Path) -> None:
    members = [f"{runs}/kn3", f"{runs}/nplm", "de.arpa"]
    said = files("pairs", f"runs=[{','.join(members)}]", "text=pairs.jsonl", "to=out.csv", "items=all.jsonl")
    with Path("out.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    names = ["kn3", "nplm", "de"]
    assert header == ["level", "name", "pairs", *(f"{run} {key}" for run in names for key in KEYS)]
    (printed,) = [line.split() for line in said.splitlines() if line.startswith("level")]
    assert len(rows) == 9 and printed == ["level", "name", "pairs", "kn3", "+-", "nplm", "+-", "de", "+-"]
    (first,) = [line.split() for line in said.splitlines() if "mean over paradigms" in line]
    assert first[-2:] == ["0.5833", "0.0833"], "the interval is from 1/2 to 2/3"
    assert [json.loads(line)["run"] for line in Path("all.jsonl").read_text().splitlines()] == np.repeat(
        names, 5
    ).tolist()
    result = python.pairs(members, "pairs.jsonl")
    assert result.rows[0]["de accuracy"] == pytest.approx(1.75 / 3)
    assert result.metric == 1 - result.runs[0].accuracy


@pytest.mark.filterwarnings("ignore:a high share is out of vocabulary")
def test_equal_seeds_give_equal_intervals_whatever_other_runs_there_are(files: Run, runs: Path) -> None:
    rng = np.random.default_rng(7)
    words = [("a b", "b a")[:: rng.choice([1, -1], p=[0.7, 0.3])] for _ in range(200)]
    Path("many.jsonl").write_text(lines([(*pair, "u") for pair in words]))
    once, again, other = (python.pairs("de.arpa", "many.jsonl", seed=seed, resamples=101).runs for seed in (1, 1, 4))
    beside = python.pairs([f"{runs}/kn3", "de.arpa"], "many.jsonl", seed=1, resamples=101).runs
    assert once == again != other and beside[1] == once[0]
    first = python.pairs("de.arpa", "many.jsonl").runs[0]
    accuracy, lower, upper = first.accuracy, first.lower, first.upper
    half = 1.96 * math.sqrt(accuracy * (1 - accuracy) / 200)
    assert (lower, upper) == pytest.approx((accuracy - half, accuracy + half), abs=0.011)


def test_printed_sentences_are_cut_as_the_model_needs_them(files: Run) -> None:
    Path("printed.jsonl").write_text(lines([("A b.", "B a!", "u"), ("a-b, b", "a, b b", "u")]))
    settings = ["words=punctuation", "keep_punctuation=false", "lowercase=true"]
    files("pairs", "arpa=de.arpa", "text=printed.jsonl", *settings, "items=items.jsonl")
    items = [json.loads(line) for line in Path("items.jsonl").read_text().splitlines()]
    assert items[0]["sentence_good"] == "A b." and items[1]["tokens_good"] == 3
    found = [items[0][key] / math.log(10) for key in ("log_prob_nats_good", "log_prob_nats_bad")]
    assert found == pytest.approx([-1.1, -2.7], abs=1e-5), "those of a b and b a"
    assert (items[1]["oov_good"], items[1]["oov_bad"]) == (1, 0)


def test_sums_in_another_order_are_ties() -> None:
    good, bad = np.zeros(4, TEXT), np.zeros(4, TEXT)
    good["log_prob"] = [0.1 + 0.2 + 0.3, -math.inf, -math.inf, -4.0]
    bad["log_prob"] = [0.3 + 0.2 + 0.1, -math.inf, -5.0, -4.001]
    assert minimal_pairs.outcomes(good, bad, per_token=False).tolist() == [0.5, 0.5, 0, 1]


def test_files_of_all_kinds(files: Run) -> None:
    plain = [pair[:2] for pair in PAIRS]
    Path("own").mkdir()
    Path("own/agreement.jsonl").write_text(lines(plain[:2]))
    Path("own/binding.jsonl.gz").write_bytes(gzip.compress(lines(plain[2:]).encode()))
    rows = [(row["level"], row["name"], row["pairs"]) for row in python.pairs("de.arpa", "own").rows]
    assert rows[2:] == [("paradigm", "agreement", 2), ("paradigm", "binding", 3)], "a paradigm is a file"
    with zipfile.ZipFile("pairs.zip", "w") as archive:
        archive.writestr("data/one.jsonl", lines())
        archive.writestr("README", "no pairs")
    assert python.pairs("de.arpa", "pairs.zip::data/*.jsonl").rows == python.pairs("de.arpa", "pairs.jsonl").rows
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist([json.loads(line) for line in lines().splitlines()]), "pairs.parquet")
    assert python.pairs("de.arpa", "pairs.parquet").rows == python.pairs("de.arpa", "pairs.jsonl").rows


def test_blimp_is_read_from_the_data_folder(files: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("corpora/blimp").mkdir(parents=True)
    with zipfile.ZipFile("corpora/blimp/BLiMP.zip", "w") as archive:
        archive.writestr("data/one.jsonl", lines())
        archive.writestr("data/.DS_Store", b"\xff\x00")
        archive.writestr("__MACOSX/data/._.DS_Store", b"\xff\x00")
    monkeypatch.setenv("LMTOOL_DATA", "corpora")
    assert "blimp: 5 pairs" in files("pairs", "arpa=de.arpa", "text=blimp")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"sentence_good": "a", "sentence_bad": "b"}\n\n{"sentence_good": "a"}\n',
            "line 3: 'sentence_bad' is missing",
        ),
        ('{"sentence_good": 1, "sentence_bad": "b"}\n', "line 1: 'sentence_good' is missing, empty or not text"),
        ('["a", "b"]\n', "line 1: 'sentence_good' is missing, empty or not text"),
        (lines([("a", "b"), ("a", " ")]), "bad.jsonl, line 2: 'sentence_bad' is missing, empty or not text"),
        (
            lines([("a b", "b\na")]),
            "bad.jsonl, line 1, sentence_bad: 'b\\na': the run's data has one sentence per line",
        ),
        (lines([("a b", "b a")]) + "{'a': 1}\n", "bad.jsonl, line 2: not JSON"),
        ('{"sentence_good": "\udce9", "sentence_bad": "b"}\n', "bad.jsonl, line 1: not JSON"),  # not UTF-8
        (
            lines([("a b", "b a", "u", "A"), ("a b", "b a", "u", "B")]),
            "bad.jsonl, line 2: paradigm 'u' has two values of linguistics_term, 'A' and 'B': give each a UID",
        ),
        ("\n", "there are no pairs"),
    ],
)
def test_broken_records_are_named(files: Run, text: str, said: str) -> None:
    Path("bad.jsonl").write_text(text, errors="surrogateescape")
    assert said in files("pairs", "arpa=de.arpa", "text=bad.jsonl", code=2)


def test_a_sentence_without_words_is_an_error_that_names_the_line(files: Run) -> None:
    Path("marks.jsonl").write_text(lines([("a b", "b a"), ("a", "...")]))
    line = ["pairs", "arpa=de.arpa", "text=marks.jsonl", "words=punctuation"]
    assert "2 pairs" in files(*line)
    assert "marks.jsonl, line 2, sentence_bad: no words are left" in files(*line, "keep_punctuation=false", code=2)
    with pytest.raises(python.UserError, match=r"bad\[1\] has no words"):
        python.load("de.arpa").compare(["a", "b"], ["b", " "])


def test_pairs_without_a_paradigm_are_grouped_by_file_and_phenomenon(files: Run) -> None:
    plain = [{"sentence_good": "a b", "sentence_bad": "b a", "linguistics_term": term} for term in "ABB"]
    Path("own.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in [*plain, plain[0] | {"UID": 0}]))
    rows = [(row["level"], row["name"], row["pairs"]) for row in python.pairs("de.arpa", "own.jsonl").rows]
    assert rows[2:] == [
        ("phenomenon", "A", 2),
        ("phenomenon", "B", 2),
        ("paradigm", "0", 1),
        ("paradigm", "own A", 1),
        ("paradigm", "own B", 2),
    ]


def test_two_files_of_one_name_are_refused(files: Run) -> None:
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Path(folder, "pairs.jsonl").write_text('{"sentence_good": "a b", "sentence_bad": "b a"}\n')
    said = files("pairs", "arpa=de.arpa", "text='*/pairs.jsonl'", code=2)
    assert "b/pairs.jsonl, line 1: " in said and "a/pairs.jsonl has the same name: give the pairs a UID" in said


def test_items_are_json_and_keep_the_records_and_the_input(files: Run) -> None:
    Path("never.arpa").write_text(ARPA.replace("-0.9\tb", "-inf\tb").replace("-0.4\ta b", "-inf\ta b"))
    Path("odd.jsonl").write_text(
        json.dumps({"sentence_good": "\ud800 a", "sentence_bad": "b", "year": math.nan}) + "\n"
    )
    files("pairs", "arpa=never.arpa", "text=odd.jsonl", "items=items.jsonl")
    (line,) = Path("items.jsonl").read_text().splitlines()
    assert '"year": null' in line and '"log_prob_nats_bad": null' in line and "\\ud800 a" in line
    for name, key in (("pairs.jsonl", "items"), ("out.csv", "items"), ("pairs.jsonl", "to")):
        said = files("pairs", "arpa=de.arpa", "text=pairs.jsonl", "to=out.csv", f"{key}={name}", code=2)
        assert f"{key}={name}" in said
    assert Path("pairs.jsonl").read_text() == lines()
    Path("run.jsonl").write_text(json.dumps({"sentence_good": "a", "sentence_bad": "b", "tokens_good": 7}) + "\n")
    said = files("pairs", "arpa=de.arpa", "text=run.jsonl", "items=items.jsonl", code=2)
    assert "run.jsonl, line 1: 'tokens_good' is a column of the scores" in said
    assert python.load("never.arpa").compare("b", "b b").tolist() == [0]


def test_a_cache_is_refused_wherever_sentences_are_compared(files: Run, runs: Path) -> None:
    files("ensemble", f"runs=[{runs}/kn3]", "cache=unigram", "hydra.run.dir=cached")
    model = python.load("cached")
    for call in (
        lambda: model.compare("a", "b"),
        lambda: model.token_score("a"),
        lambda: python.pairs("cached", "pairs.jsonl"),
    ):
        with pytest.raises(python.UserError, match="has a cache"):
            call()


def test_scores_of_tokens_and_of_pairs_in_python(files: Run) -> None:
    model = python.load("de.arpa")
    (scored,) = model.token_score(["a b"], surprisal=True, bits=True)
    assert [token for token, _ in scored] == ["a", "b", "</s>"]
    assert [value / math.log2(10) for _, value in scored] == pytest.approx([0.1, 0.4, 0.6], abs=1e-5)
    assert model.token_score(["a zzz", []])[1] == [("</s>", pytest.approx(-math.log(10), abs=1e-4))]
    assert [token for token, _ in model.token_score("a zzz")[0]] == ["a", "zzz", "</s>"]
    assert model.compare("a b", "b a") == pytest.approx([1.6 * math.log(10)], abs=1e-4)
    assert model.compare(["x", "b"], ["y", "a b"]) == pytest.approx([0, -0.7 * math.log(10)], abs=1e-4)
    with pytest.raises(python.UserError, match="1 good sentences and 2 bad ones"):
        model.compare("a", ["a", "b"])


def test_faulty_pairs_are_left_out(files: Run) -> None:
    good = json.dumps({"sentence_good": "a b", "sentence_bad": "b a"})
    Path("bad.jsonl").write_bytes(f'{good}\n{{"a\n{good[:-1]}, "run": 1}}\n{good}\n\xff\n[]\n'.encode("latin-1"))
    words = ("pairs", "arpa=de.arpa", "text=bad.jsonl", "items=items.jsonl")
    assert "bad.jsonl, line 2: not JSON" in files(*words, code=2)
    said = files(*words, "on_error=skip")
    assert "on_error=skip: faulty records, left out: 4; bad.jsonl, line 2: not JSON" in said and "2 pairs" in said
    assert "line 3: 'run' is a column of the scores, too: rename it, or set prefix=lm_" in said
    files(*words, "on_error=skip", "prefix=lm_")
    found = [json.loads(line) for line in Path("items.jsonl").read_text().splitlines()]
    assert [each["run"] for each in found] == [None, 1, None] and found[0]["lm_run"] == "de"
