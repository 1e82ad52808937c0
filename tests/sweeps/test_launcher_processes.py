"""Submitit's jobs while a sweep waits for them: one whose process died, and an interruption."""

from __future__ import annotations

from typing import Any

import pytest

from lmtool.sweeps.launcher_processes import looked_after

submitit = pytest.importorskip("submitit")
LOCAL = {"_target_": "hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher"}


class Job:
    def __init__(self, number: int) -> None:
        self.number, self.is_cancelled = number, False

    def results(self) -> list[Any]:
        if self.number:
            return [self.number]
        raise submitit.core.utils.UncompletedJobError("killed\nits log")

    def cancel(self, check: bool) -> None:
        self.is_cancelled = True


def test_a_dead_process_fails_its_job_alone_and_an_interruption_cancels_all(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Job] = []

    def map_array(self: object, function: object, *arguments: list[int]) -> list[Job]:
        started.extend(map(Job, arguments[0]))
        return started

    monkeypatch.setattr(submitit.AutoExecutor, "map_array", map_array)
    with looked_after(LOCAL):
        done, dead = (job.results()[0] for job in submitit.AutoExecutor.map_array(None, None, [7, 0]))
    assert done == 7 and dead.return_value == float("inf") and not any(job.is_cancelled for job in started)
    with pytest.raises(KeyboardInterrupt), looked_after(LOCAL):
        submitit.AutoExecutor.map_array(None, None, [1])
        raise KeyboardInterrupt
    assert all(job.is_cancelled for job in started) and submitit.AutoExecutor.map_array is map_array
