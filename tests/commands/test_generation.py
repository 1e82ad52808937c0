"""Texts drawn from models: distributions known in closed form, seeds, greedy choices."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import lmtool as package
from lmtool.data.text_form import TextForm
from lmtool.data.vocabulary import Vocabulary
from lmtool.language_model import LanguageModel
from lmtool.sampling import draw, sampling_distribution
from lmtool.system.arrays import FloatArray, IntArray
from lmtool.text_model import TextModel
from tests.conftest import Run, answer

LOG_P = np.log(np.array([[0.5, 0.25, 0.125, 0.125]]))


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "want"),
    [
        (1.0, None, None, [0.5, 0.25, 0.125, 0.125]),
        (0.5, None, None, [16 / 22, 4 / 22, 1 / 22, 1 / 22]),
        (1.0, 1, None, [1, 0, 0, 0]),
        (1.0, 2, None, [2 / 3, 1 / 3, 0, 0]),
        (1.0, 3, None, [4 / 7, 2 / 7, 1 / 7, 0]),
        (1.0, 9, None, [0.5, 0.25, 0.125, 0.125]),
        (1.0, None, 0.5, [1, 0, 0, 0]),
        (1.0, None, 0.51, [2 / 3, 1 / 3, 0, 0]),
        (1.0, None, 0.75, [2 / 3, 1 / 3, 0, 0]),
        (1.0, None, 0.76, [4 / 7, 2 / 7, 1 / 7, 0]),
        (1.0, None, 1.0, [0.5, 0.25, 0.125, 0.125]),
        (1.0, 2, 0.66, [1, 0, 0, 0]),  # of the two likeliest, the first has two thirds
        (1.0, 2, 0.67, [2 / 3, 1 / 3, 0, 0]),
        (1e-300, None, None, [1, 0, 0, 0]),
    ],
)
def test_what_words_are_drawn_from(
    temperature: float, top_k: int | None, top_p: float | None, want: list[float]
) -> None:
    order = [2, 0, 3, 1]
    found = sampling_distribution(LOG_P[:, order], temperature, top_k, top_p)
    ties = [2, 0, 3, 1] if want[3] == want[2] else order  # of the two last the first, in the order given, is kept
    np.testing.assert_allclose(found[0], np.array(want)[ties], rtol=1e-12, atol=1e-300)


def test_a_draw_never_takes_what_has_no_probability() -> None:
    p = np.array([[0.0, 0.5, 0.0, 0.5, 0.0]])
    for at, want in ((0.0, 1), (0.4999, 1), (0.5, 3), (1 - 2**-53, 3)):
        assert draw(p, np.array([at])).tolist() == [want]


class Known(LanguageModel):
    """A model in which b is always followed by `</s>`; else a, b, `<unk>`, `</s>` have 0.4, 0.3, 0.1, 0.2."""

    context_size, vocabulary_size = 1, 5

    def log_dist(self, contexts: IntArray) -> FloatArray:
        p = np.where(contexts == 1, [[0.0, 0.0, 0.0, 1.0, 0.5]], [[0.4, 0.3, 0.1, 0.2, 0.5]])
        with np.errstate(divide="ignore"):
            return np.log(p)


KNOWN = TextModel(Known(), TextForm(Vocabulary(("a", "b", "<unk>", "</s>", "<s>"), np.array([4, 3, 1, 2, 0]), 3, 2)))


def test_texts_are_drawn_as_often_as_they_are_likely() -> None:
    count = 20_000
    found = Counter(KNOWN.generate(count=count, length=3, seed=5))
    first = {"": 0.2, "b": 0.3, "a": 0.4 * 0.2, "<unk>": 0.1 * 0.2, "a b": 0.4 * 0.3, "a a a": 0.4**3}
    for text, p in first.items():
        assert abs(found[text] - count * p) < 4 * math.sqrt(count * p * (1 - p)), text
    assert not any("b " in text or "<s>" in text for text in found)


def test_the_same_seed_gives_the_same_texts() -> None:
    texts = KNOWN.generate(count=6, length=9, seed=3)
    assert KNOWN.generate(count=6, length=9, seed=3) == texts != KNOWN.generate(count=6, length=9, seed=4)
    assert KNOWN.generate(count=2, length=9, seed=3) == texts[:2]
    assert [text.split()[:2] for text in texts] == [text.split() for text in KNOWN.generate(count=6, length=2, seed=3)]
    assert KNOWN.generate("a b", count=2) == ["a b", "a b"]  # </s> is certain
    assert KNOWN.generate(temperature=0, count=1, length=4) == ["a a a a"]


@pytest.mark.parametrize("name", ["kn3", "nplm", "hs", "mix"])
def test_one_word_to_choose_from_is_the_likeliest(name: str, runs: Path) -> None:
    loaded = package.load(runs / name)
    greedy = loaded.generate("the", temperature=0, count=2, length=8)
    assert greedy[0] == greedy[1] == loaded.generate("the", top_k=1, count=1, length=8)[0]
    assert loaded.generate("the", top_p=1e-9, count=1, length=8)[0] == greedy[0]
    words = [*greedy[0].split(), "</s>"]
    assert words[0] == "the" and words[1] == loaded.predict("the", 1)[0][0]


def test_generate_says_what_it_keeps(runs: Path, lmtool: Run) -> None:
    said = lmtool("generate", "the cat", f"run={runs}/kn3", "count=3", "seed=2", "length=6")
    kept = answer()
    assert said.splitlines()[2:] == kept["texts"] and len(kept["texts"]) == 3 and kept["seed"] == 2
    assert all(text.startswith("the cat") and len(text.split()) <= 8 for text in kept["texts"])
