"""The vocabulary that a run folder keeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.runs.corpus import load_vocabulary, save_vocabulary


def test_a_vocabulary_of_any_words(tmp_path: Path) -> None:
    words = ("\\", "\t", "\n", "\r", "\\n", " ", "\u2028", "é", "</s>", "<unk>", "<s>")
    kept = Vocabulary(words, np.arange(len(words))[::-1].copy(), 8, 9)
    path = tmp_path / "vocabulary.txt"
    save_vocabulary(kept, path)
    found = load_vocabulary(path)
    assert found.words == words and found.counts.tolist() == kept.counts.tolist() and (found.eos, found.unk) == (8, 9)
    lines = path.read_bytes().decode().split("\n")
    assert lines[:2] == ["\\\\\t10", "\\t\t9"]
    for damaged in ("\n".join(lines[:-2]), "a\tb\n", "", "a\n", "a\t1\na\t1\n<unk>\t0\n<s>\t0\n"):
        path.write_text(damaged)
        with pytest.raises(UserError, match="damaged"):
            load_vocabulary(path)
