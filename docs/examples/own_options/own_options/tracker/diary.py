"""Diary: a JSON line for everything that a training reports, all trainings in one file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmtool.config.groups import TrackerConfig
from lmtool.config.rules import MISSING


@dataclass
class DiaryTracker(TrackerConfig):
    """A JSON line for everything that a training reports, after the name of its run."""

    kind: str = "diary"
    path: str = MISSING

    def begin(self, folder: Path, settings: dict[str, Any], earlier: str | None) -> str:
        """Begin a run, or continue the earlier one."""
        self.run = earlier or settings["run"]
        self._write("resumed" if earlier else "begun", settings)
        return self.run

    def log(self, numbers: dict[str, float], step: int) -> None:
        """Write the numbers of an evaluation."""
        self._write("step", {"step": step, **numbers})

    def picture(self, name: str, path: Path) -> None:
        """Write the name and the size of a picture."""
        self._write("picture", {"name": name, "bytes": path.stat().st_size})

    def end(self, result: dict[str, float] | None) -> None:
        """Write the result."""
        self._write("done" if result is not None else "cut off", result)

    def _write(self, what: str, values: dict[str, Any] | None) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps([self.run, what, values]) + "\n")
