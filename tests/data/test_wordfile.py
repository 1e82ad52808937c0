"""The vocabulary that a run folder keeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.runs.corpus import load_vocabulary, save_vocabulary


def test_a_vocabulary_of_any_words(tmp_path: Path) -> None:
    escaped = ("\\\\", "\\\\t", "\\\t", "\\n", "\t", "\n", "\r")
    plain = ("\\", "\\alpha", "a\\", "\\<unk>", " ", "\u2028", "\u00e9", "</s>", "<unk>", "<s>")
    words = escaped + plain
    eos_unk = len(words) - 3, len(words) - 2
    kept = Vocabulary(words, np.arange(len(words))[::-1].copy(), *eos_unk)
    path = tmp_path / "vocabulary.txt"
    save_vocabulary(kept, path)
    found = load_vocabulary(path)
    assert found.words == words and found.counts.tolist() == kept.counts.tolist() and (found.eos, found.unk) == eos_unk
    lines = path.read_bytes().decode().split("\n")
    want = ["\\\\\\\\", "\\\\\\\\t", "\\\\\\t", "\\\\n", "\\t", "\\n", "\\r", *plain]  # a piece \\ is itself
    assert [line.split("\t")[0] for line in lines[:-1]] == want
    for damaged in ("\n".join(lines[:-2]), "a\tb\n", "", "a\n", "a\t1\na\t1\n<unk>\t0\n<s>\t0\n"):
        path.write_text(damaged)
        with pytest.raises(UserError, match="damaged"):
            load_vocabulary(path)
