"""Files of scores: the tokens with their log-probabilities, so that a file can be used without anything else.

Two files can be compared or mixed if their tokens are the same words, from whichever store, vocabulary or tool; their
`Tokens.fingerprint` is then equal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.data.split import Split
from lmtool.data.vocabulary import BOS, UNK, Vocabulary
from lmtool.errors import UserError, first_line
from lmtool.system import schemas
from lmtool.system.arrays import FloatArray, IntArray, in_chunks, logs, sentence_offsets, whole_numbers
from lmtool.system.checksums import DamagedFile
from lmtool.system.hdf5_files import atomic_hdf5, attributes, open_hdf5, require_own_content
from lmtool.system.schemas import parse_json

KIND = "lmtool scores"
FORMAT = 3
SCORES_FILE = "scores.h5"
TOKENS_PER_CHUNK = 1 << 20  # tokens hashed at once
SCORES_REMEDY = "make it again with lmtool eval"


@dataclass(frozen=True)
class Tokens:
    """The N predicted tokens of a text in S sentences, with their words.

    ids: `[N]`, of an unsigned type, into `words`, the vocabulary. offsets: int64 `[S + 1]`, where sentences begin, and
    N; `[0, N]` without sentences. oov_positions: int64, positions of the tokens that are `<unk>` for a word outside the
    vocabulary. oov_words: these words; None if they are not known, e.g. in a file of scores.
    """

    ids: npt.NDArray[Any]
    words: tuple[str, ...]
    offsets: IntArray
    oov_positions: IntArray
    oov_words: Sequence[str] | None = None

    @property
    def count(self) -> int:
        """N."""
        return len(self.ids)

    @property
    def oov_known(self) -> bool:
        """Whether OOVs are known: in a file of another program, the vocabulary is the words of its text."""
        return self.words[-1] == BOS

    @cached_property
    def ids_of_words(self) -> dict[str, int]:
        """The id of each word."""
        return {word: index for index, word in enumerate(self.words)}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the words in the order of the text; it does not depend on their ids."""
        digests = b"".join(hashlib.sha256(word.encode()).digest()[:8] for word in self.words)
        word_hashes = np.frombuffer(digests, dtype=np.uint64)
        digest = hashlib.sha256()
        for part in in_chunks(self.count, TOKENS_PER_CHUNK):
            digest.update(word_hashes[self.ids[part]].tobytes())
        return digest.hexdigest()

    def encode(self, words: list[str]) -> IntArray:
        """Return the ids of words, `[N]`; the id of `<unk>` for a word outside the vocabulary."""
        unk = self.ids_of_words.get(UNK, len(self.words) - 1)  # a closed vocabulary has none
        return np.array([self.ids_of_words.get(word, unk) for word in words], dtype=np.int64)

    def place(self, token: int) -> str:
        """Return the position of a token, for a message: `sentence 3, token 5`, both counted from 1."""
        sentence = int(np.searchsorted(self.offsets, token, side="right")) - 1
        return f"sentence {sentence + 1:,}, token {token - int(self.offsets[sentence]) + 1}"


def tokens_of(split: Split, vocabulary: Vocabulary) -> Tokens:
    """Return the tokens of a split with their words."""
    return Tokens(split.ids, vocabulary.words, split.offsets, split.oov_positions, split.oov_words)


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Natural log-probabilities float64 `[N]` of tokens, with the properties that are saved with them.

    split: the name of the split or the text.
    normalized: whether the distributions sum to one; None if that is unknown.
    characters: number of characters of the text, with spaces and newlines; 0 if unknown.
    words: number of its words and sentence ends.
    fitted: the parts of the model that were fitted or chosen on this text.
    across: whether contexts crossed sentences; None if unknown.
    dynamic: whether the model learned from the text as it read it.
    """

    log_prob: FloatArray
    tokens: Tokens
    split: str
    normalized: bool | None
    characters: int = 0
    words: int | None = None
    fitted: tuple[str, ...] = ()
    across: bool | None = None
    dynamic: bool = False

    def mix_with(self, log_prob: FloatArray, others: Sequence[TokenScores], fitted: Sequence[str]) -> TokenScores:
        """Return the scores of a mixture of these and others: log p `[N]`. fitted: what was fitted on the text."""
        each = [self, *others]
        return replace(
            self,
            log_prob=log_prob,
            normalized=all_of([scores.normalized for scores in each]),
            characters=max(scores.characters for scores in each),
            words=next((scores.words for scores in each if scores.words is not None), None),
            fitted=tuple(dict.fromkeys([*fitted, *(what for scores in each for what in scores.fitted)])),
            across=True if any(scores.across for scores in each) else all_of([scores.across for scores in each]),
            dynamic=any(scores.dynamic for scores in each),
        )

    def save(self, path: Path) -> None:
        """Write the file, completely or not at all."""
        words = np.frombuffer("\0".join(self.tokens.words).encode(), dtype=np.uint8)
        parts = {
            "log_prob": self.log_prob,
            "ids": self.tokens.ids.astype(np.min_scalar_type(len(self.tokens.words))),
            "offsets": self.tokens.offsets,
            "oov_positions": self.tokens.oov_positions,
            "words": words,
        }
        with atomic_hdf5(path, sum(part.nbytes for part in parts.values())) as file:
            for name, part in parts.items():
                file.create_dataset(name, data=part)
            about = json.dumps({name: getattr(self, name) for name in schemas.ABOUT})
            file.attrs.update({"kind": KIND, "format": FORMAT, "split": self.split, "about": about})
            file.attrs["tokens_fingerprint"] = self.tokens.fingerprint

    @classmethod
    def open(cls, path: Path) -> TokenScores:
        """Read a file of scores."""
        try:
            with open_hdf5(path) as file:
                if file.attrs.get("kind") != KIND or file.attrs.get("format") != FORMAT:
                    raise UserError(f"{path} holds no scores that this version of lmtool can read: {SCORES_REMEDY}")
                require_own_content(file, path)
                ids, words = file["ids"][:], tuple(file["words"][:].tobytes().decode("utf-8").split("\0"))
                whole_numbers("ids", ids, ("N",), below=len(words))
                offsets = sentence_offsets("offsets", file["offsets"][:], len(ids))
                oov = whole_numbers("oov_positions", file["oov_positions"][:], ("U",), below=len(ids))
                tokens = Tokens(ids, words, offsets, oov)
                said = attributes(file, schemas.SCORES)
                about = parse_json(said["about"], schemas.ABOUT, "about")
                about = {name: about[name] for name in schemas.ABOUT} | {"fitted": tuple(about["fitted"])}
                scores = cls(logs("log_prob", file["log_prob"][:]), tokens, said["split"], **about)
                expected = said["tokens_fingerprint"]
        except FileNotFoundError:
            raise UserError(f"no file {path}: {SCORES_REMEDY}") from None
        except DamagedFile as error:
            raise UserError(f"{path} is damaged ({error}): {SCORES_REMEDY}") from error
        except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise UserError(
                f"{path} is cut off or not a file of scores ({first_line(error)}): {SCORES_REMEDY}"
            ) from error
        if len(scores.log_prob) != tokens.count or tokens.fingerprint != expected:
            raise UserError(f"{path} is damaged: its tokens are not those that were scored; {SCORES_REMEDY}")
        return scores


def all_of(known: Sequence[bool | None]) -> bool | None:
    """Return whether all are true: False if one is False, else None if one is unknown."""
    return False if False in known else None if None in known else True


def quote_word(tokens: Tokens, token: int) -> str:
    """Return the word of a token, for a message."""
    word = tokens.words[int(tokens.ids[token])]
    return repr(word) if word != BOS else "<s>"
