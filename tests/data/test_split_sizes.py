"""The sizes of a cut: shares are between 0 and 1, and a number of lines cannot be taken for a share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import lmtool as lm
from lmtool.data.preprocess import preprocess
from lmtool.data.sources.base import SplitConfig, SplitUnit
from lmtool.errors import UserError
from tests.data.test_preprocess import cut

NO_SHARES = (1, 1.0, 1.5, 80, 0, 0.0, -0.5, True, "80", "0.8", float("nan"), 1 << 63)


@pytest.mark.parametrize("value", NO_SHARES)
@pytest.mark.parametrize("name", ["train", "valid"])
def test_what_is_not_a_share_is_refused(name: str, value: object) -> None:
    rule = "must be a share between 0 and 1, e.g. 0.8, or, together with data.split.unit=lines or tokens, a whole"
    with pytest.raises(UserError, match=rf"^data\.split\.{name}=\S+: {rule} number of these$"):
        SplitConfig(None, **({"train": None, "valid": None} | {name: value}), shuffle_seed=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [1.0, 1.5, 80.0, 0, True, "80", 1 << 63])
@pytest.mark.parametrize("unit", list(SplitUnit))
def test_a_number_of_units_is_a_whole_number(unit: SplitUnit, value: object) -> None:
    with pytest.raises(UserError, match=r"^data\.split\.train=\S+: must be a share between 0 and 1"):
        SplitConfig(unit, value, None, None)


def test_numbers_and_shares_of_a_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.txt").write_text("".join(f"{k} x\n" for k in range(100)))  # 3 tokens a line
    for unit, train, valid, sentences in (
        (SplitUnit.lines, 80, None, [80, 10, 10]),
        (SplitUnit.lines, 1, 1, [1, 1, 98]),
        (SplitUnit.lines, 0.5, 20, [50, 20, 30]),
        (SplitUnit.tokens, 240, 15, [80, 5, 15]),
        (SplitUnit.tokens, 0.8, None, [80, 10, 10]),
        (None, 0.8, None, [80, 10, 10]),
    ):
        prepared = preprocess(cut(unit, train, valid, None), "stores", progress=False)
        assert [row["sentences"] for row in prepared.rows] == sentences


def test_a_training_prints_the_sizes_of_all_splits(lmtool: Callable[..., str]) -> None:
    Path("own.txt").write_text("".join(f"{letter} x\n" for letter in "abcdefghij"))
    said = "the text is cut into train 8, valid 1, test 1 sentences"
    assert f"note: {said}\n" in lmtool(
        "train", "model=ngram", "data=text", "data.train=own.txt", "data.split.train=0.8"
    )
    lmtool("train", "model=ngram", "data=text", "data.train=own.txt", "data.split.train=1.0", code=2)
    assert "is cut" not in lmtool("train", "model=ngram", "data=text", "data.train=own.txt", "data.valid=own.txt")
    data = {"kind": "text", "train": "own.txt", "split": {"train": 0.8}}
    with pytest.warns(UserWarning, match="out of vocabulary"):
        assert said in lm.train(model="ngram", data=data, out="run").notes
    lines = Path("own.txt").read_text().splitlines()
    with pytest.warns(UserWarning, match="out of vocabulary"):
        assert said in lm.train(model="ngram", data=lm.Corpus.from_texts(lines, valid=0.1, test=0.1), out="texts").notes
    stream = {**data, "sentences": False, "split": {"unit": "tokens", "train": 12}}
    with pytest.warns(UserWarning, match="out of vocabulary"):
        notes = lm.train(model="ngram", data=stream, out="stream").notes
    assert "the text is cut into train 12, valid 4, test 4 tokens" in notes
    with pytest.raises(UserError, match=r"data\.split\.train=80: must be a share"):
        lm.train(model="ngram", data={**data, "split": {"train": 80}}, out="none")
