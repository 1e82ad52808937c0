"""The one inside of submitit's that is touched: the test notices when it moves."""

from __future__ import annotations

from typing import Any

import pytest

submitit = pytest.importorskip("submitit")

from lmtool.sweeps.submitit_inside import is_known, jobs_wrapped  # noqa: E402


class Wrapped:
    def __init__(self, job: Any) -> None:
        self.job = job


def test_the_inside_is_where_it_was() -> None:
    assert is_known(), "submitit.AutoExecutor.map_array has moved: lmtool/sweeps/submitit_inside.py must follow"


def test_jobs_are_wrapped_while_the_block_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(self: object, function: object, *arguments: list[int]) -> list[int]:
        return [10 * value for value in arguments[0]]

    monkeypatch.setattr(submitit.AutoExecutor, "map_array", started)
    with jobs_wrapped(Wrapped) as jobs:
        given = submitit.AutoExecutor.map_array(None, None, [1, 2])
        assert [item.job for item in given] == [10, 20] and jobs == [10, 20]
    assert submitit.AutoExecutor.map_array is started


def test_where_it_has_moved_nothing_is_touched(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def other(self: object) -> list[int]:
        return []

    monkeypatch.setattr(submitit.AutoExecutor, "map_array", other)
    assert not is_known()
    with jobs_wrapped(Wrapped) as jobs:
        assert submitit.AutoExecutor.map_array is other and jobs == []
    assert "unknown version of submitit" in caplog.text
