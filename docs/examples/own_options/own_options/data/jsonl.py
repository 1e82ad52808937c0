"""JSON Lines: one document per line, whose text is one of its fields; each line of this text is a sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lmtool.config.groups import DataConfig
from lmtool.config.rules import MISSING
from lmtool.data.sources.base import Source
from lmtool.errors import UserError


@dataclass(slots=True)
class JsonlData(DataConfig):
    """JSON Lines files, one for each split."""

    train: str = MISSING
    valid: str = MISSING
    field: str = MISSING

    def source(self, *, progress: bool, download: bool) -> Source:
        """Return the source, which reads the files later."""
        paths = {"train": Path(self.train), "valid": Path(self.valid)}
        for name, path in paths.items():
            if not path.is_file():
                raise UserError(f"no file {path} for data.{name}: check the path")
        return Source(
            splits={name: partial(self._blocks, path) for name, path in paths.items()},
            stamp={name: [str(path.resolve()), path.stat().st_mtime_ns] for name, path in paths.items()},
        )

    def _blocks(self, path: Path) -> Iterator[bytes]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                text = str(json.loads(line)[self.field])
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(f"{path}, line {number}: no field {self.field!r} ({error!r})") from None
            yield text.encode() + b"\n"
