"""The report of a split's scores by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lmtool import language_model
from lmtool.data.cloze import Cloze
from lmtool.data.split import Split
from lmtool.errors import UserError
from lmtool.evaluation import metrics as scoring
from lmtool.evaluation.metrics import cloze_report, log_z, perplexity, save_cloze, score_questions
from lmtool.evaluation.token_scores import Tokens, TokenScores
from lmtool.mixtures.linear import Mixture
from lmtool.results import Evaluation
from tests.commands.test_ensemble import Fixed

SPLIT = Split(
    ids=np.array([0, 1, 2, 0], dtype=np.uint8), offsets=np.array([0, 4]), oov_positions=np.array([2]), characters=10,
    bos=3, words=2,
)  # fmt: skip
LOG_PROB = np.log([0.5, 0.25, 0.125, 0.5])  # 1 + 2 + 3 + 1 = 7 bits
WORDS = ("a", "b", "<unk>", "<s>")


def evaluation(split: Split = SPLIT, log_prob: np.ndarray = LOG_PROB, **known: Any) -> Evaluation:
    tokens = Tokens(split.ids, WORDS, split.offsets, split.oov_positions)
    scores = TokenScores(log_prob, tokens, "valid", True)
    known = {"characters": split.characters, "words_and_ends": split.words, "seconds": 2.0} | known
    return Evaluation.of("run", scores, **known)


def test_the_report_of_four_tokens() -> None:
    found = evaluation()
    assert (found.split, found.tokens, found.oov, found.tokens_per_second) == ("valid", 4, 1, 2.0)
    assert found.perplexity == pytest.approx(2 ** (7 / 4)) and found.bits_per_token == pytest.approx(1.75)
    assert found.perplexity_without_oov == pytest.approx(2 ** (4 / 3))
    assert found.perplexity_per_word == pytest.approx(2**3.5) and found.bits_per_word == pytest.approx(3.5)
    assert found.bits_per_character == pytest.approx(0.7)
    assert found.log_prob == pytest.approx(-7 * math.log(2))
    assert "accuracy" not in found.as_json() and "cloze" not in found.as_json()
    kept = evaluation(cloze={"perplexity": math.inf}, accuracy=0.5).as_json()
    assert kept["accuracy"] == 0.5 and kept["cloze"] == {"perplexity": math.inf}


class Z(Fixed):
    """A model whose log Z after a word is that word's id."""

    self_normalized = True

    def log_z(self, contexts: np.ndarray) -> np.ndarray:
        return contexts[:, 0].astype(float)


def test_log_z_over_evenly_spread_contexts() -> None:
    # The contexts are <s> (3), 0, 1, 2; of these the first and the last, or all.
    model: Any = Z([[0.25] * 4], 1)
    assert log_z(model, SPLIT, 2) == {"contexts": 2, "mean": 2.5, "std": 0.5}
    assert log_z(model, SPLIT) == {"contexts": 4, "mean": 1.5, "std": pytest.approx(math.sqrt(5) / 2)}
    assert log_z(Fixed([[1.0]], 1), SPLIT) is None


def test_a_bar_is_at_its_end_when_all_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []

    @contextmanager
    def bar(total: int, *, shown: bool) -> Iterator[Any]:
        assert (total, shown) == (4, True)
        yield SimpleNamespace(update=steps.append)

    monkeypatch.setattr(scoring, "token_bar", bar)
    monkeypatch.setattr(language_model, "token_bar", bar)
    model: Any = Fixed([[0.5, 0.25, 0.125, 0.125]] * 4, 1)
    assert model.score_text(SPLIT, progress=True).tolist() == np.log([0.5, 0.25, 0.125, 0.5]).tolist()
    assert sum(steps) == 4
    assert scoring.split_accuracy(model, SPLIT, progress=True) == 0.5 and sum(steps) == 8
    monkeypatch.setattr(language_model, "TOKENS_PER_CHUNK", 3)
    found = model.score_text(SPLIT, progress=True)
    assert sum(steps) == 12 and found.tolist() == np.log([0.5, 0.25, 0.125, 0.5]).tolist()


def test_each_kind_of_model_scores_a_text_in_its_way() -> None:
    table = [[0.5, 0.25, 0.125, 0.125], [0.25] * 4, [0.125] * 4, [0.25] * 4]
    model: Any = Fixed(table, 1)  # 0 after <s>, 1 after 0, 2 after 1, 0 after 2
    one = np.array([0.25, 0.25, 0.25, 0.125])
    assert np.exp(model.score_text(SPLIT)) == pytest.approx(one)
    assert np.exp(model.score_tokens(SPLIT, 1, 3)) == pytest.approx(one[1:3])
    mixture: Any = Mixture([model, Fixed([[0.5, 0.125, 0.25, 0.125]] * 4, 1)], np.array([0.5, 0.5]))
    both = (one + np.array([0.5, 0.125, 0.25, 0.5])) / 2
    assert np.exp(mixture.score_text(SPLIT)) == pytest.approx(both)
    assert np.exp(mixture.mix_scores(np.log(np.full((2, 4), 0.5)), SPLIT)) == pytest.approx([0.5] * 4)
    with pytest.raises(UserError, match="unnormalized=true: this model has no scores"):
        model.score_tokens(SPLIT, 0, 4, unnormalized=True)
    rough: Any = Z([[0.25] * 4], 1)
    rough.unnormalized_log_prob = lambda contexts, targets: contexts[:, 0] - 10.0 * targets
    assert rough.score_tokens(SPLIT, 0, 4, unnormalized=True).tolist() == [3, -10, -19, 2]


def test_accuracy_by_hand() -> None:
    # The likeliest are 0 after <s> (3) and 0, of 1 and 2 that tie the first, and after 2 nothing but <s>.
    table = [[0.4, 0.3, 0.2, 0.1], [0.2, 0.3, 0.3, 0.2], [0.1, 0.2, 0.1, 0.6], [0.4, 0.3, 0.2, 0.1]]
    model: Any = Fixed(table, 1)
    assert model.argmax(np.array([[3], [0], [1], [2]])).tolist() == [0, 0, 1, 1]
    assert model.argmax(np.empty((0, 1), dtype=int)).tolist() == []
    assert scoring.split_accuracy(model, SPLIT) == 0.25
    model.argmax = lambda contexts: np.array([0, 1, 2, 0])[: len(contexts)]
    assert scoring.split_accuracy(model, SPLIT) == 1
    model.dynamic = True
    model.log_dist_text = lambda split, first, last: np.log(table)[[3, 0, 1, 2][first:last]]
    assert scoring.split_accuracy(model, SPLIT) == 0.25


def test_cloze_questions_by_hand(tmp_path: Path) -> None:
    # ln 3 to ln 1; a tie, whose answer is the second; and no probability at all, where all are as likely.
    with np.errstate(divide="ignore"):
        log_prob = np.log([[0.3, 0.1], [0.2, 0.2], [0.0, 0.0]])
    save_cloze(tmp_path / "c.csv", log_prob)
    assert (tmp_path / "c.csv").read_text() == "ID,Class1,Class2\n1,0.75,0.25\n2,0.5,0.5\n3,0.5,0.5\n"
    found = cloze_report(log_prob, np.array([0, 1, 0]))
    assert found == {"questions": 3, "perplexity": pytest.approx((16 / 3) ** (1 / 3)), "accuracy": pytest.approx(2 / 3)}
    assert cloze_report(np.log([[0.2, 0.4, 0.4, 0.4], [0.3, 0.3, 0.2, 0.1]]), np.array([3, 2]))["accuracy"] == 1 / 6
    with pytest.raises(UserError, match="without their answers"):
        cloze_report(log_prob, np.array([0, -1, 0]))


@pytest.mark.parametrize(("answers", "known"), [([1, 0], True), ([-1, 0], False), ([-1, -1], False)])
def test_questions_are_reported_where_all_answers_are_known(answers: list[int], known: bool, tmp_path: Path) -> None:
    # After 0: 1 or, out of vocabulary, 2 twice, which share its 1/8; after 1 all three of them are as likely.
    questions = Cloze(np.array([0, 1]), np.array([0, 1, 2]), np.array([[2, 1, 2], [1, 3, 0]]), np.array(answers))
    corpus: Any = SimpleNamespace(cloze=lambda split: questions, vocabulary=SimpleNamespace(unk=2, bos=3))
    model: Any = Fixed([[0.5, 0.25, 0.125, 0.125], [0.25] * 4], 1)
    said, noted = [], []
    found = score_questions(model, corpus, "test", tmp_path, said.append, noted.append)
    assert (tmp_path / "cloze.csv").read_text().splitlines()[1] == "1,0.166666667,0.666666667,0.166666667"
    assert said[0].startswith("2 cloze questions") and noted[0].startswith("2 of the 6 candidates, out of vocabulary")
    assert ("0 of them the answer" in noted[0]) == known and (found is not None) == known
    if found is not None:
        assert found["perplexity"] == pytest.approx((3 / 2 * 3) ** 0.5) and found["oov_candidates"] == 2


def test_what_is_not_known_of_a_text() -> None:
    found = evaluation(replace(SPLIT, words=None, characters=0, oov_positions=np.arange(4)))
    assert found.perplexity_per_word is found.bits_per_word is found.bits_per_character is None
    assert found.perplexity_without_oov is None
    of_white_space = evaluation(replace(SPLIT, words=0, characters=0))  # the end of a stream of letters
    assert of_white_space.perplexity_per_word is of_white_space.bits_per_word is None
    assert found.oov == 4 and evaluation(replace(SPLIT, words=4)).perplexity_per_word == found.perplexity


def test_numbers_that_no_float_holds() -> None:
    # 710 nats a word: exp(709) is a float, exp(710) is none.
    for nats, finite in ((708.0, True), (710.0, False)):
        found = evaluation(log_prob=np.full(4, -nats / 2))  # four tokens of two words
        assert math.isfinite(found.perplexity_per_word or 0.0) == finite
    impossible = np.array([-1.0, -np.inf, -1.0, -1.0])
    found = evaluation(log_prob=impossible)
    assert perplexity(impossible) == found.perplexity == math.inf and found.as_json()["perplexity"]
