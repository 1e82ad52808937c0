"""Cloze questions: what is read and refused, how they are scored, and candidates out of vocabulary."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

import lmtool
from lmtool.data.cloze import Cloze, read_cloze, unk_sharers
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.evaluation.metrics import cloze_report, with_one_unk
from lmtool.mixtures.log_linear import likelihood
from tests.conftest import Run, result

VOCABULARY = Vocabulary(("a", "b", "c", "</s>", "<unk>", "<s>"), np.zeros(6, int), 3, 4)
QUESTIONS = "Q a b c\nC b a\nQ c d a\nC a b c\nQ a c b\nC c\n"


def written(folder: Path, text: str, answers: str | None = None) -> tuple[str, str | None]:
    (folder / "q.txt").write_text(text)
    if answers is not None:
        (folder / "a.csv").write_text(answers)
    return str(folder / "q.txt"), None if answers is None else str(folder / "a.csv")


def test_reads_questions(tmp_path: Path) -> None:
    cloze = read_cloze(*written(tmp_path, QUESTIONS, "ID,1,2,3\n1,1,0,0\n2,1,0,0\n3,0,1,0\n"), VOCABULARY)
    assert cloze.candidates.tolist() == [[0, 1, 2], [2, 4, 0], [0, 2, 1]]
    assert cloze.answers.tolist() == [0, 0, 1]
    # The sentences before the words in question: "b", "a b", and nothing.
    assert cloze.contexts_matrix(3, 5).tolist() == [[5, 5, 1], [5, 0, 1], [5, 5, 5]]
    assert cloze.contexts_matrix(1, 5).tolist() == [[1], [1], [5]]
    blank = read_cloze(*written(tmp_path, "Q a b\nC b _1_\n"), VOCABULARY)
    assert blank.answers.tolist() == [-1] and blank.contexts_matrix(2, 5).tolist() == [[5, 1]]


@pytest.mark.parametrize(
    ("text", "answers", "said"),
    [
        ("Q a b\nQ a b\n", None, "line 2: should begin with C"),
        ("Q a b\nC a\nQ a b c\nC a\n", None, "line 3: 3 candidates, others 2"),
        ("Q a b\nC c\n", None, "line 2: 'c' is not one of the candidates"),
        ("Q a b\n", None, "cut off"),
        ("Q a b\nC a\n\n", None, "line 3: should begin with Q"),
        ("Q a b\nC a\n", "ID,1,2\n1,0,1\n", "line 2: 'b', but .* has 'a'"),
        ("Q a b\nC a\n", "ID,1,2\n1,1,1\n", "line 2: should be a number and 2 classes"),
        ("Q a b\nC a\n", "ID,1,2\n", "answers 0 questions, there are 1"),
        ("Q a b\nC a\nQ a b\nC b\n", "ID,1,2\n1,1,0\u20282,0,1\n", "row 1: 5 cells, but the header has 3"),
    ],
)
def test_bad_questions(text: str, answers: str | None, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        read_cloze(*written(tmp_path, text, answers), VOCABULARY)


def test_answers_of_a_spreadsheet(tmp_path: Path) -> None:
    for mark in (";", "\t"):
        table = "\ufeffID,1,2,3\r\n1,1,0,0\r\n2,1,0,0\r\n3,0,1,0\r\n".replace(",", mark)
        assert read_cloze(*written(tmp_path, QUESTIONS, table), VOCABULARY).answers.tolist() == [0, 0, 1]


def test_words_are_cut_as_the_text_is(tmp_path: Path) -> None:
    spaced = Vocabulary(("a\u00a0b", "b", "</s>", "<unk>", "<s>"), np.zeros(5, int), 2, 3)
    cloze = read_cloze(*written(tmp_path, "Q a\u00a0b b\r\nC b\u2028 a\u00a0b\r\n"), spaced)
    assert cloze.candidates.tolist() == [[0, 1]] and cloze.answers.tolist() == [0]
    assert cloze.context_ids.tolist() == [3]


def test_scores_renormalized_over_the_candidates() -> None:
    # p 0.1 and 0.3 of the candidates become 1/4 and 3/4; 0.2 and 0.2 become halves: perplexity 1 / sqrt(1/4 * 1/2).
    log_prob = np.log(np.array([[0.1, 0.3], [0.2, 0.2]]))
    found = cloze_report(log_prob, np.array([0, 0]))
    assert found["perplexity"] == pytest.approx(8**0.5) and found["questions"] == 2
    assert found["accuracy"] == 0.25  # half of the tie
    with pytest.raises(UserError, match="without their answers"):
        cloze_report(log_prob, np.array([0, -1]))


# The vocabulary is a, </s> and <unk>: of 9 tokens a 4, <unk> 4 (b, c, d, d), </s> 1. With one more each p(a) is 5/12,
# and p(<unk>) too. x and y share it: renormalized a has 1/2, x 1/4, y 1/4. The third question has one such word, which
# shares with none.
DATA = ["data=text", "data.name=own", "data.train=train.txt", "data.valid=train.txt", "data.vocabulary.file=words.txt"]
DATA += ["data.cloze_valid=questions.txt"]


@pytest.fixture
def questions(lmtool: Run) -> Run:
    Path("train.txt").write_text("a a a a b c d d\n")
    Path("words.txt").write_text("a\n")
    Path("questions.txt").write_text("Q a x y\nC a a\nQ x a y\nC a y\nQ a a x\nC x\n")
    lmtool("train", "model=ngram", "model.order=1", "smoother=laplace", *DATA, "hydra.run.dir=run")
    return lmtool


def test_they_share_and_are_told(questions: Run) -> None:
    said = questions("eval", "run=run", "hydra.run.dir=eval")
    assert (
        "note: 4 of the 9 candidates, out of vocabulary like others of their question, share p(<unk>) equally with "
        "these, 1 of them the answer\n"
    ) in said
    cloze = result("eval")["cloze"]
    assert (cloze["questions"], cloze["oov_candidates"], cloze["oov_answers"]) == (3, 4, 1)
    # 1/2, 1/4 and, of a, a and x alike, 1/3.
    assert cloze["perplexity"] == pytest.approx((2 * 4 * 3) ** (1 / 3))
    with Path("eval/cloze.csv").open() as file:
        rows = [[float(value) for value in row[1:]] for row in list(csv.reader(file))[1:]]
    np.testing.assert_allclose(rows, [[1 / 2, 1 / 4, 1 / 4], [1 / 4, 1 / 2, 1 / 4], [1 / 3] * 3], rtol=1e-8)


def test_a_training_reports_them_and_a_sweep_is_ranked_by_them(questions: Run) -> None:
    assert result("run")["cloze"]["perplexity"] == pytest.approx((2 * 4 * 3) ** (1 / 3))
    assert result("run")["train_perplexity"] == pytest.approx(result("run")["valid_perplexity"])  # of the same file
    # The likelihood of the text prefers a small alpha, and that of the answers a larger one.
    words = ("-m", "model=ngram", "model.order=2", "smoother=laplace", "smoother.alpha=0.01,1", *DATA)
    assert best_job(questions("train", *words, "out=by_text")) == "0.01"
    said = questions("train", *words, "metric=cloze_perplexity", "out=by_answers")
    assert best_job(said) == "1" and "the cloze questions rank the jobs" in said
    record = json.loads(Path("by_answers/1/job.json").read_text())
    assert record["value"] == result("by_answers/1")["cloze"]["perplexity"]
    error = questions("train", *words[1:4], *DATA[:-1], "metric=cloze_perplexity", "out=none", code=2)
    assert "metric=cloze_perplexity: own has no questions with answers for valid" in error
    error = questions("eval", "run=run", "text=train.txt", "metric=cloze_perplexity", "out=none", code=2)
    assert "metric=cloze_perplexity: run run on train.txt has no cloze questions with answers" in error


@pytest.mark.filterwarnings("ignore:a high share is out of vocabulary", "ignore:100.0 % of the sentences of valid")
def test_an_infinite_perplexity_is_read_again(questions: Run) -> None:
    Path("questions.txt").write_text("Q a y </s>\nC a </s>\nQ y a </s>\nC a a y\n")
    data = {word.split("=")[0].removeprefix("data."): word.split("=")[1] for word in DATA[1:]}
    vocabulary = {"file": data.pop("vocabulary.file")}
    settings = {
        "data": {"kind": "text", **data, "vocabulary": vocabulary},
        "smoother": "mle",
        "metric": "cloze_perplexity",
    }
    for _ in range(2):  # the second time the run is finished
        run = lmtool.train({"kind": "ngram", "order": 2}, out="again", resume=True, **settings)
        assert run.cloze is not None and run.metric == run.cloze["perplexity"] == math.inf
        assert "cloze perplexity" in repr(run)


def best_job(said: str) -> str:
    """Return the value of the setting of the first job in the table of a sweep."""
    return said.partition("---")[2].splitlines()[1].split()[1]


def test_the_weights_that_are_best_on_them_are_kept(questions: Run) -> None:
    small = ("model=nplm", "training.epochs=6", "training.evaluate_every=1", "optim.lr=0.003", "device=cpu", *DATA)
    kept = {}
    for name in ("valid", "cloze"):
        said = questions("train", *small, f"training.keep_best={name}", f"out={name}")
        assert (f"best {name} perplexity" in said) and said.count("best ") == 1 and "valid perplexity" in said
        lines = [json.loads(line) for line in Path(name, "metrics.jsonl").read_text().splitlines()]
        kept[name] = min(lines, key=lambda line: line[f"{name}_perplexity"])
        assert result(name)["cloze"]["perplexity"] == kept[name]["cloze_perplexity"]
        assert result(name)["valid_perplexity"] == kept[name]["valid_perplexity"]
        said = questions("eval", f"run={name}", f"out={name}-eval")
        assert result(f"{name}-eval")["cloze"]["perplexity"] == pytest.approx(kept[name]["cloze_perplexity"], rel=1e-5)
        assert f"here: {name} (checkpoint{' by its cloze questions' * (name == 'cloze')});" in said
    assert kept["valid"]["step"] != kept["cloze"]["step"]
    error = questions("train", *small[:-1], "training.keep_best=cloze", "out=none", code=2)
    assert "training.keep_best=cloze: own has no questions with answers for valid" in error
    assert not Path("none/run.json").exists()


def test_a_mixture_shares_and_its_weights_are_fitted_so(questions: Run) -> None:
    questions("train", "model=ngram", "model.order=2", "smoother=witten_bell", *DATA, "hydra.run.dir=two")
    said = questions("ensemble", "runs=[run,two]", "method=log_linear", "fit_on=cloze", "hydra.run.dir=mix")
    assert "4 of the 9 candidates, out of vocabulary" in said and "not converged" not in said
    found = result("mix")
    assert found["fit"]["converged"] is True and found["fit"]["gap"] <= 1e-9

    def cloze_log_perplexity(weights: list[float]) -> float:
        questions("ensemble", "runs=[run,two]", "method=log_linear", f"weights={weights}", "hydra.run.dir=other")
        return math.log(result("other")["cloze"]["perplexity"])

    best = math.log(found["cloze"]["perplexity"])
    for k, step in ((0, 0.1), (1, 0.1)):
        other = list(found["weights"])
        other[k] += step
        assert cloze_log_perplexity(other) >= best - 1e-9


def test_members_are_renormalized_over_the_candidates_before_they_are_mixed(questions: Run) -> None:
    questions("train", "model=ngram", "model.order=2", "smoother=witten_bell", *DATA, "hydra.run.dir=two")
    members = []
    for name in ("run", "two"):
        questions("eval", f"run={name}", f"out={name}-eval")
        members.append(probabilities(f"{name}-eval"))
    said = questions("ensemble", "runs=[run,two]", "weights=1:3", "over=candidates", "out=mix")
    assert "over=candidates is of the cloze results alone" in said
    expected = (members[0] + 3 * members[1]) / 4
    np.testing.assert_allclose(probabilities("mix"), expected, rtol=1e-7)
    assert result("mix")["over"] == "candidates"
    questions("ensemble", "runs=[run,two]", "weights=1:3", "out=full")
    assert result("full")["perplexity"] == result("mix")["perplexity"]  # of the text
    assert np.abs(probabilities("full") - expected).max() > 0.005
    said = questions("eval", "run=mix", "out=again")  # the run knows how it mixes
    assert "over=candidates is of the cloze results alone" in said
    np.testing.assert_array_equal(probabilities("again"), probabilities("mix"))
    said = questions("ensemble", "runs=[run,two]", "fit_on=cloze", "over=candidates", "out=fitted")
    assert "favors it here: the mixture (weights by its cloze questions)" in said
    assert "favors it here: fitted (weights by its cloze questions)" in questions(
        "eval", "run=fitted", "out=fitted-eval"
    )
    assert result("fitted")["cloze"]["perplexity"] <= result("mix")["cloze"]["perplexity"]
    for words, error in (
        ("split=test", "over=candidates: own has no questions for split=test"),
        ("cache=unigram", "over=candidates: "),
        ("method=log_linear", "over=candidates: "),
    ):
        refused = questions("ensemble", "runs=[run,two]", "weights=1:1", "over=candidates", words, "out=none", code=2)
        assert error in refused


def probabilities(folder: str) -> np.ndarray:
    """Return the numbers of cloze.csv, `[Q, K]`."""
    rows = list(csv.reader(Path(folder, "cloze.csv").read_text().splitlines()))[1:]
    return np.array([[float(value) for value in row[1:]] for row in rows])


def test_what_is_fitted_on_differs_by_a_constant() -> None:
    # Two members, four questions; unk is 9. log p of <unk> is the same for all candidates out of vocabulary.
    rng = np.random.default_rng(1)
    candidates = np.array([[9, 1, 9, 2], [3, 9, 9, 9], [1, 2, 3, 4], [9, 5, 6, 7]])
    cloze = Cloze(np.empty(0, dtype=np.int64), np.zeros(5, dtype=np.int64), candidates, np.array([2, 0, 1, 0]))
    words = np.log(rng.dirichlet(np.ones(10), (2, 4)))
    log_prob = np.take_along_axis(words, np.broadcast_to(candidates, (2, 4, 4)), axis=2)
    sharers = unk_sharers(candidates, 9)
    assert sharers.tolist() == [[2, 1, 2, 1], [1, 3, 3, 3], [1] * 4, [1] * 4]
    folded, answers = with_one_unk(log_prob, cloze, 9)
    assert answers.tolist() == [0, 0, 1, 0]
    differences = []
    for weights in ([1.0, 0.0], [0.3, 0.9], [2.0, 0.4]):
        mixed = np.tensordot(np.array(weights), log_prob, axes=1) - np.log(sharers)
        shared = -math.log(cloze_report(mixed, cloze.answers)["perplexity"])
        differences.append(likelihood(np.array(weights), lambda: iter([(folded, answers)])).value - shared)
    np.testing.assert_allclose(differences, math.log(2) / 4, rtol=1e-9)  # of one answer, shared by two


def test_figures_of_tokens_of_a_split_without_text_are_refused(questions: Run) -> None:
    small = ("model=ngram", "model.order=1", "smoother=laplace", "data.cloze_test=questions.txt")
    questions("train", *small, *DATA, "hydra.run.dir=asked")
    Path("questions.txt").write_text("Q a b c\nC c _1_\n")
    questions("train", *small, *DATA, "data.cloze_valid=null", "hydra.run.dir=blank")
    said = questions("eval", "run=blank", "split=test", "hydra.run.dir=answers")
    assert said.count("the answers of split=test are not given") == 1 and "perplexity  " not in said
    assert Path("answers/cloze.csv").read_text().count("\n") == 2
    found = lmtool.evaluate("asked", "test")
    assert found.cloze is not None and found.metric == found.cloze["perplexity"] and "cloze questions" in repr(found)
    for name in ("tokens", "perplexity", "perplexity_per_word", "log_prob", "words", "tokens_per_second"):
        with pytest.raises(UserError, match=r"test has cloze questions and no text: see \.cloze"):
            getattr(found, name)
