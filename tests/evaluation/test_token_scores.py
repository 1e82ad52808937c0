"""Scores as a file: whole or refused, and a fingerprint that is that of the words."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from lmtool.errors import UserError
from lmtool.evaluation.token_scores import Tokens, TokenScores
from lmtool.system.checksums import seal

WORDS = ("a", "b", "</s>", "<unk>", "<s>")


def tokens(ids: list[int], words: tuple[str, ...] = WORDS, *, sentences: bool = True) -> Tokens:
    """Return the tokens of ids; each <unk> is an OOV."""
    ends = [place + 1 for place, k in enumerate(ids) if words[k] == "</s>"] if sentences else [len(ids)]
    oov = [place for place, k in enumerate(ids) if words[k] == "<unk>"]
    return Tokens(np.array(ids, dtype=np.uint8), words, np.array([0, *ends]), np.array(oov, dtype=np.int64))


TEXT = [0, 1, 2, 3, 0, 2]  # a b </s> <unk> a </s>


def test_the_fingerprint_is_that_of_the_words_in_their_order() -> None:
    here = tokens(TEXT).fingerprint
    assert tokens([2, 3, 1, 0, 2, 1], ("<unk>", "</s>", "a", "b", "<s>")).fingerprint == here  # numbered otherwise
    assert tokens(TEXT, ("a", "c", "</s>", "<unk>", "<s>")).fingerprint != here  # the same numbers, another word
    assert tokens([1, 0, 2, 3, 0, 2]).fingerprint != here
    assert tokens(TEXT[:3]).fingerprint != here


def test_places_are_counted_from_one() -> None:
    assert tokens(TEXT).place(0) == "sentence 1, token 1"
    assert tokens(TEXT).place(4) == "sentence 2, token 2"


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    log_prob = np.log(np.linspace(0.1, 0.9, 6))
    TokenScores(log_prob, tokens(TEXT), "valid", False).save(tmp_path / "scores.h5")
    found = TokenScores.open(tmp_path / "scores.h5")
    np.testing.assert_array_equal(found.log_prob, log_prob)
    assert (found.split, found.normalized, found.tokens.words) == ("valid", False, tokens(TEXT).words)
    np.testing.assert_array_equal(found.tokens.offsets, [0, 3, 6])
    np.testing.assert_array_equal(found.tokens.oov_positions, [3])


def test_damage_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "scores.h5"
    with pytest.raises(UserError, match="no file"):
        TokenScores.open(path)
    TokenScores(np.zeros(6), tokens(TEXT), "valid", True).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"is damaged \(its checksum differs\)"):
        TokenScores.open(path)
    path.write_bytes(whole)
    with h5py.File(path, "r+") as file:
        file["ids"][1] = 0
    seal(path)
    with pytest.raises(UserError, match="its tokens are not those that were scored"):
        TokenScores.open(path)
    path.write_bytes(whole)
    for name, at, value in (("offsets", 1, 9), ("offsets", 0, 1), ("oov_positions", 0, 6)):
        with h5py.File(path, "r+") as file:
            right, file[name][at] = file[name][at], value
        seal(path)
        with pytest.raises(UserError, match="is cut off or not a file of scores"):
            TokenScores.open(path)
        with h5py.File(path, "r+") as file:
            file[name][at] = right
    with h5py.File(path, "r+") as file:
        file.attrs["kind"] = "lmtool corpus"
    seal(path)
    with pytest.raises(UserError, match="holds no scores"):
        TokenScores.open(path)
