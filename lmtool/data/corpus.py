"""The HDF5 store: token ids, sentence offsets, vocabulary, cloze questions. The only user of h5py for text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt

from lmtool.config.data import DataConfig, Unit, VocabularyConfig
from lmtool.config.rules import require
from lmtool.data.cloze import Cloze
from lmtool.data.remote import exists, is_address, open_pieces, place
from lmtool.data.split import FAR, StoredTokens, Windows, context_reset_mask, positions
from lmtool.data.subwords import Subwords
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError, of_paths
from lmtool.system.arrays import IntArray, sentence_offsets, whole_numbers
from lmtool.system.checksummed_file import DamagedFile
from lmtool.system.hdf5_files import open_hdf5, open_hdf5_pieces, require_own_content

KIND = "lmtool corpus"
FORMAT = 1
Sentence = str | Sequence[str]
REMEDY = "delete it and run lmtool preprocess again"


@dataclass(frozen=True)
class Split:
    """The predicted tokens of one split, N of them in S sentences.

    ids: `[N]`, of the smallest unsigned type that fits; every word and, in text with sentences, one `</s>` after
    each sentence. offsets: int64 `[S + 1]`, where sentences begin, and N; `[0, N]` without sentences. oov_positions:
    int64, the positions of words outside the vocabulary, whose id is that of `<unk>`. characters: of the raw text, with
    spaces and newlines; 0 where that is not known. bos: the id of `<s>`. apart: whether its sentences are independent
    of each other, and not running text. documents: int64, where texts begin that are independent of each other, and N;
    None for one running text. words: of the raw text, and sentence ends; None where that is not known. oov_words: what
    stood at oov_positions; None where that is not known, as of a store.
    """

    ids: npt.NDArray[Any]
    offsets: IntArray
    oov_positions: IntArray
    characters: int
    bos: int
    independent_sentences: bool = False
    documents: IntArray | None = None
    words: int | None = None
    oov_words: Sequence[str] | None = None

    @property
    def tokens(self) -> int:
        """N, the number of predicted tokens."""
        return len(self.ids)

    def as_stream(self, across_sentences: bool, reset_share: float = 0.0) -> Split:
        """The text for a model whose contexts may cross sentences: one stream, or one for each document, then; else as
        it is.

        reset_share: share of the sentences that begin anew all the same.
        """
        if not across_sentences or self.independent_sentences or len(self.offsets) <= 2:
            return self
        if self.documents is not None:
            return replace(self, offsets=self.documents)
        if not reset_share:
            return self._joined
        starts = self.offsets[1:-1]
        chosen = starts[context_reset_mask(starts, reset_share)]
        return replace(self, offsets=np.concatenate([self.offsets[:1], chosen, self.offsets[-1:]]))

    @cached_property
    def _joined(self) -> Split:
        return replace(self, offsets=self.offsets[[0, -1]])

    @cached_property
    def in_memory(self) -> Windows:
        """The tokens with what contexts are made from."""
        padded = np.append(self.ids, np.asarray(self.bos, dtype=self.ids.dtype))
        return Windows(padded, positions(self.offsets[:-1], self.tokens))

    def windows(self, index: IntArray, size: int | None) -> tuple[IntArray, IntArray]:
        """Return contexts int64 `[B, size]`, left-padded with `<s>`, and targets int64 `[B]` of tokens at index `[B]`.

        size: None for contexts of all words before, and at least one `<s>`.
        """
        if size is None:
            size = int(self._exact_position(index).max(initial=0)) + 1
        if size <= FAR:
            return self.in_memory(index, size)
        back = np.arange(size, 0, -1)
        where = np.where(back <= self._exact_position(index)[:, None], index[:, None] - back, -1)
        return self.in_memory.padded[where].astype(np.int64), self.ids[index].astype(np.int64)

    def contexts(self, start: int, stop: int, size: int | None) -> IntArray:
        """Contexts int64 `[stop - start, size]` of the tokens from `start` to before `stop`."""
        return self.windows(np.arange(start, stop), size)[0]

    def _exact_position(self, index: IntArray) -> IntArray:
        sentence = np.searchsorted(self.offsets, index, side="right") - 1
        return index - self.offsets[sentence]


class StoredText(NamedTuple):
    """The ids `[N]` and offsets `[S + 1]` of a split, as Split has them, in a store that is open."""

    ids: h5py.Dataset
    offsets: h5py.Dataset


class Corpus:
    """A store, opened for reading; a context manager.

    path: of the store. name: data.name. sentences: whether its text is sentences, which end in `</s>`, and not one
    stream. splits: their names. fingerprint: the same where settings and text are the same. provenance: what the store
    was made of. counted: whether its train split lies elsewhere and was counted there.
    """

    def __init__(self, file: h5py.File, path: Path) -> None:
        """file: of the store, open for reading; `Corpus.open` and `from_texts` open one."""
        self._file = file
        self.path = path
        self.name = str(file.attrs["name"])
        self.sentences = bool(file.attrs["sentences"])
        self.fingerprint = str(file.attrs["fingerprint"])
        self.splits = [str(name) for name in json.loads(file.attrs["splits"])]
        self.provenance: dict[str, Any] = json.loads(file.attrs["provenance"])
        self.train_counted_externally = "first_places" in file["vocabulary"]

    @classmethod
    @of_paths()
    def open(cls, path: str | Path) -> Corpus:
        """Open a store, also at an address (lmtool.data.remote.place).

        Raises UserError where it is missing, cut off, not a store or of another format.
        """
        path = place(path)
        if not exists(path):
            raise UserError(f"no store {path}: make it with lmtool preprocess")
        try:
            file = open_hdf5_pieces(open_pieces(str(path))) if is_address(str(path)) else open_hdf5(path)
        except DamagedFile as error:
            raise UserError(f"{path} is damaged ({error}): {REMEDY}") from error
        except OSError as error:
            raise UserError(f"{path} is cut off or no HDF5 file: {REMEDY}") from error
        try:
            if file.attrs.get("kind") != KIND:
                raise UserError(f"{path} is not a store of lmtool: {REMEDY}")
            if file.attrs.get("format") != FORMAT:
                raise UserError(f"{path} has store format {file.attrs.get('format')}, not {FORMAT}: {REMEDY}")
            if not file.attrs.get("complete", False):
                raise UserError(f"{path} was never finished: {REMEDY}")
            require_own_content(file, path)
            corpus = cls(file, path)
            for ids, offsets in map(corpus.text, corpus.splits):
                sentence_offsets("offsets", offsets[[0, -1]], len(ids))  # before 0.7 a cut by tokens left out the last
            return corpus
        except BaseException as error:
            file.close()
            if isinstance(error, LookupError | OSError | TypeError | ValueError | RuntimeError):
                raise UserError(f"{path} is damaged ({error}): {REMEDY}") from error
            raise

    @property
    def folder(self) -> Path | None:
        """The folder of the store, where other files can be put beside it; None at an address."""
        return None if is_address(str(self.path)) else self.path.parent

    @classmethod
    @of_paths()
    def from_texts(
        cls,
        train: Iterable[Sentence],
        valid: Iterable[Sentence] | float,
        test: Iterable[Sentence] | float | None = None,
        *,
        name: str = "texts",
        sentences: bool = True,
        unit: str = "word",
        lowercase: bool = False,
        min_count: int = 1,
        size: int | None = None,
        words: Iterable[str] | None = None,
        store_dir: str | Path = "stores",
    ) -> Corpus:
        """A corpus of text that is given here; its store is written to `store_dir`, unless it is there already.

        train, valid, test: sentences in any iterable, which is read once. A sentence is a string, cut into words at
        ASCII white space as a line of a file is, or a list of words. valid may be a share instead, such as 0.1, which
        is cut from the end of train, and test then too, from behind valid: by sentences, or by words where `sentences`
        is False. name: of the data set and, with a hash, of the store's file. sentences: False for one stream without
        `</s>`, whose contexts cross the strings. unit: "word", "char" for a model of characters, "bpe" or "unigram" for
        one of pieces of words. lowercase: whether all text becomes lower case. min_count: words with fewer occurrences
        in train become `<unk>`, or no pieces are learned from them. size: at most so many words, the most frequent;
        None for no limit; the number of pieces, None for 8000. words: the whole vocabulary instead. Text of more than
        some 32 MB goes through a temporary file. Raises UserError for what is not text, for `<s>` and `</s>` in it, and
        where the store cannot be written.
        """
        from lmtool.data.sources.texts import write_texts

        kinds: list[tuple[str, object, type]] = [("name", name, str), ("sentences", sentences, bool)]
        kinds += [("lowercase", lowercase, bool), ("min_count", min_count, int)]
        kinds += [("size", size, int)] if size is not None else []
        for key, value, kind in kinds:
            require(isinstance(value, kind), key, repr(value), f"of type {kind.__name__}")
        units = [known.value for known in Unit]
        require(unit in units, "unit", repr(unit), f"one of {', '.join(units)}")
        rules = VocabularyConfig(file=None, size=size, min_count=min_count, lowercase=lowercase, unit=Unit(unit))
        splits = {"train": train, "valid": valid, "test": test}
        path = write_texts(splits, name=name, sentences=sentences, rules=rules, words=words, store_dir=Path(store_dir))
        return cls.open(path)

    @cached_property
    def settings(self) -> DataConfig:
        """The settings of the data set, as they were when the store was written.

        Raises UserError where they do not fit this version, or are those of an option that is not in use here.
        """
        from lmtool.config.settings import saved_settings

        settings = saved_settings(self.provenance["settings"], "data")
        assert isinstance(settings, DataConfig)
        return settings

    def __repr__(self) -> str:
        tokens = ", ".join(f"{row['split']} {row['tokens']:,}" for row in self.provenance["rows"])
        return f"<Corpus {self.name}: {tokens} tokens; vocabulary {self.provenance['rows'][0]['vocabulary']:,}>"

    def close(self) -> None:
        """Close the file; what was read stays."""
        self._file.close()

    def __enter__(self) -> Corpus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words, most frequent first, `<s>` last. Raises UserError where they are damaged."""
        group = self._read("vocabulary")
        words = tuple(group["words"][:].tobytes().decode("utf-8").split("\0"))
        counts, eos, unk = group["counts"][:], int(group.attrs["eos"]), int(group.attrs["unk"])
        if len(counts) != len(words) or not (-1 <= eos < len(words) and 0 <= unk < len(words)):
            raise UserError(f"{self.path} is damaged in its vocabulary: {REMEDY}")
        return Vocabulary(words, counts, eos if eos >= 0 else None, unk)

    @property
    def unit(self) -> Unit:
        """What one token is."""
        return Unit(self.provenance["settings"]["vocabulary"]["unit"])

    @cached_property
    def subwords(self) -> Subwords | None:
        """The tokeniser whose pieces are the vocabulary; None where words or characters are.

        Raises UserError without the library tokenizers.
        """
        if not self.unit.is_subword:
            return None
        return Subwords.parse(self._read("vocabulary")["tokenizer"][:].tobytes().decode(), str(self.path))

    def knows(self, name: str) -> bool:
        """Whether a split is there, or was counted elsewhere."""
        return name in self.splits or self._counts(name)

    def _counts(self, name: str) -> bool:
        return self.train_counted_externally and name == "train"

    def split(self, name: str) -> Split:
        """Read a split. Raises UserError, naming those there are, where it is missing, and where it is damaged."""
        self._require(name)
        group = self._read(f"splits/{name}")
        try:
            ids, words = group["ids"][:], group.attrs.get("words")
            words = len(ids) if self.unit is Unit.word else words  # missing in stores of characters of before 0.7
            if ids.max() >= len(self._read("vocabulary")["counts"]):
                raise UserError(f"{self.path} is damaged in its {name} split (id {ids.max():,}): {REMEDY}")
            return Split(
                ids,
                sentence_offsets("offsets", group["offsets"][:], len(ids)),
                whole_numbers("oov_positions", group["oov_positions"][:], ("U",), below=len(ids)),
                int(group.attrs["characters"]),
                self.vocabulary.bos,
                words=None if words is None else int(words),
            )
        except (KeyError, OSError, ValueError) as error:
            raise UserError(f"{self.path} is damaged in its {name} split ({error}): {REMEDY}") from error

    def text(self, name: str) -> StoredText:
        """A split that is read piece by piece; the store must stay open. Raises UserError where it is missing."""
        self._require(name)
        group = self._read(f"splits/{name}")
        return StoredText(group["ids"], group["offsets"])

    def stored(self, name: str, *, across_sentences: bool = False, reset_share: float = 0.0) -> StoredTokens:
        """A split that is read piece by piece, with contexts that cross sentences or not; the store must stay open.

        reset_share: share of the sentences that begin anew where contexts cross the others. Raises UserError, naming
        those there are, where it is missing.
        """
        self._require(name)
        vocabulary = self.vocabulary
        share = reset_share if across_sentences else 1.0
        return StoredTokens(self._read(f"splits/{name}")["ids"], vocabulary.eos, vocabulary.bos, share)

    def bytes_in_memory(self, name: str) -> int:
        """The memory of training on a split in memory: its ids twice, positions, and the order of the examples."""
        ids = self._read(f"splits/{name}")["ids"]
        return len(ids) * (2 * int(ids.dtype.itemsize) + 1 + 8)

    def oov_share(self, name: str) -> float:
        """The share of a split's tokens that are out of vocabulary and became `<unk>`, from 0 to 1.

        `<unk>` in the text itself is a word of the vocabulary and not counted.
        """
        if self._counts(name):
            return float(self.provenance["rows"][0]["OOV %"]) / 100
        return len(self._read(f"splits/{name}")["oov_positions"]) / self.tokens(name)

    @property
    def first_places(self) -> IntArray:
        """Of a store whose train split was counted elsewhere: int64 `[V]`, as ExternalCounts has it."""
        places: IntArray = self._read("vocabulary")["first_places"][:]
        return places

    def tokens(self, name: str) -> int:
        """The number of tokens of a split, without reading it."""
        if self._counts(name):
            return int(self.provenance["rows"][0]["tokens"])
        return len(self._read(f"splits/{name}")["ids"])

    @property
    def sources(self) -> dict[str, tuple[int, int]]:
        """Where the tokens of each source of train begin and end; empty where train is one text, or lies elsewhere."""
        if "train" not in self.splits:
            return {}
        ends: dict[str, int] = json.loads(self._read("splits/train").attrs.get("sources", "{}"))
        return dict(zip(ends, pairwise([0, *ends.values()]), strict=True))

    def cloze(self, name: str) -> Cloze | None:
        """The cloze questions of a split; None where there are none."""
        if f"cloze/{name}" not in self._file:
            return None
        group = self._read(f"cloze/{name}")
        return Cloze(group["context_ids"][:], group["context_offsets"][:], group["candidates"][:], group["answers"][:])

    def _require(self, name: str) -> None:
        if name not in self.splits:
            raise UserError(f"split={name}: {self.path} has only {', '.join(self.splits)}")

    def _read(self, name: str) -> h5py.Group:
        try:
            return self._file[name]
        except (KeyError, OSError) as error:
            raise UserError(f"{self.path} is damaged: it has no {name}; {REMEDY}") from error
