"""What the ways of counting share: the memory that they may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmtool.config.groups import CountsConfig
from lmtool.config.rules import MISSING, size_in_bytes

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus
    from lmtool.ngram.tables.storage import Storage


@dataclass(slots=True)
class CountsInMemory(CountsConfig):
    """memory: that the process may have, such as 512MiB, or null."""

    memory: str | None = MISSING

    def __post_init__(self) -> None:
        if self.memory is not None:
            size_in_bytes(self.memory, "counts.memory")

    def storage(self, corpus: Corpus) -> Storage:
        """Three quarters of the free memory, or what `memory` says; temporary files lie beside the store."""
        from lmtool.ngram.tables.storage import Storage

        return Storage.within(self.memory, corpus)
