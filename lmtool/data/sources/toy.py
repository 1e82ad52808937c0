"""Some twenty short sentences: enough to try every command, and to work a model out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from lmtool.config.groups import DataConfig
from lmtool.data.sources.base import Source

TRAIN = """\
the cat sat on the mat
the dog sat on the rug
the cat saw the dog
the dog saw the cat
a bird sang in the tree
the bird saw the cat
the cat ran to the tree
the dog ran to the cat
a cat sat in the sun
a dog slept on the mat
the bird flew to the tree
the sun set on the tree
the dog slept in the sun
a bird sat on the dog
the cat slept on the rug
the mat was in the sun
the rug was on the mat
a cat and a dog ran
the bird and the cat sat
the cat and the dog slept
"""
VALID = """\
the cat sat on the rug
a bird sat in the tree
the dog ran to the tree
the bird slept in the sun
"""
TEST = """\
the dog sat on the mat
a cat saw the bird
the bird flew to the sun
a horse slept in the sun
"""


@dataclass(slots=True)
class ToyData(DataConfig):
    """Some twenty short sentences that are part of lmtool; `horse` in test is out of vocabulary."""

    def source(self, *, progress: bool, download: bool) -> Source:
        """The sentences of this file."""
        texts = {"train": TRAIN, "valid": VALID, "test": TEST}
        return Source(
            splits={name: partial(_blocks, text) for name, text in texts.items()},
            stamp=texts,
            identity=lambda: texts,
        )


def _blocks(text: str) -> Iterator[bytes]:
    yield text.encode()
