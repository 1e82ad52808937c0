"""A corpus: the splits, vocabulary and cloze questions of a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lmtool.config.data import Normalize, Spaces, Unit, VocabularyConfig, require_lowercase
from lmtool.config.rules import require, require_flags, require_path, require_whole
from lmtool.data.cloze import Cloze
from lmtool.data.remote import is_address
from lmtool.data.split import Split, StoredTokens
from lmtool.data.store import STORE_REMEDY, Store, StoredText
from lmtool.data.subwords import Subwords
from lmtool.data.text_form import TextForm, visible
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError, translate_path_errors
from lmtool.results.base import TableResult
from lmtool.system.arrays import IntArray, sentence_offsets, whole_numbers
from lmtool.system.hdf5_files import attributes
from lmtool.system.schemas import COUNT, SPLIT, VOCABULARY, parse_json
from lmtool.system.terminal import Cell, html_table

Sentence = str | Sequence[str]


class Corpus(Store):
    """The arrays, words and questions of a store that is open for reading; a context manager.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "a dog sat"], valid=["the dog sat"])
    >>> corpus.tokens("valid"), len(corpus.vocabulary.words)
    (4, 8)
    """

    def __init__(self, store: Store) -> None:
        """store: an open store; it is closed with the corpus."""
        if not isinstance(store, Store):
            raise UserError(f"Corpus({store!r:.40}): call lmtool.preprocess({store!r:.40}), or Corpus.open for a store")
        super().__init__(store.file, store.path)

    @classmethod
    def open(cls, path: str | Path) -> Corpus:
        """Open a store by its path or address. Raises UserError if it is missing, damaged or of another format."""
        require_path("path", path, null=False)
        return cls(Store.open(path))

    @property
    def folder(self) -> Path | None:
        """The folder of the store, where other files can be put beside it; None at an address."""
        return None if is_address(str(self.path)) else self.path.parent

    @classmethod
    @translate_path_errors()
    def from_texts(
        cls,
        train: Iterable[Sentence],
        valid: Iterable[Sentence] | float | None = None,
        test: Iterable[Sentence] | float | None = None,
        *,
        name: str = "texts",
        sentences: bool = True,
        sentence_end: bool = True,
        unit: str = "word",
        lowercase: bool | str = False,
        normalize: str = "nfc",
        spaces: str = "ascii",
        min_count: int = 1,
        size: int | None = None,
        words: Iterable[str] | None = None,
        closed: bool = False,
        on_error: str = "stop",
        store_dir: str | Path = "stores",
    ) -> Corpus:
        """Build a corpus from the given text and write its store to `store_dir`, unless it already exists.

        train, valid, test: sentences in any iterable, which is read once. A sentence is a string, cut into words at
        ASCII white space as a line of a file is, or a list of words. valid is only needed by methods that read it. It
        may be a share, such as 0.1, which is cut from the end of train, and then test may be a share after valid: of
        sentences, or of words if `sentences` is False.
        name: name of the data set and, with a hash, of the store's file.
        sentences: False for one stream without `</s>`, whose contexts cross the strings.
        sentence_end: False for sentences whose end, `</s>`, is not predicted.
        unit: "word", "char" or "grapheme" for a model of characters, "bpe" or "unigram" for one of pieces of words.
        lowercase: whether all text becomes lower case, or the language whose rules apply: "tr", "az" or "lt".
        normalize: the normal form of the text: "nfc", "nfd", "nfkc", "ccnet" or "none".
        spaces: "unicode" if Unicode's white space also separates words.
        min_count: words with fewer occurrences in train become `<unk>`, or no pieces are learned from them.
        size: maximum number of words (the most frequent; None for no limit), or number of pieces (None for 8000).
        words: the whole vocabulary, instead of words from train.
        closed: whether words out of the vocabulary are refused and have no probability, instead of that of `<unk>`.
        on_error: "skip" leaves out, with a note, items that are not sentences or contain `<s>` or `</s>`.

        Text of more than about 32 MB is written to a temporary file first.
        Raises UserError for items that are not text, for `<s>` and `</s>` in it, and if the store cannot be written.
        """
        from lmtool.data.sources.builtin import TextsData
        from lmtool.data.sources.texts import write_texts

        kinds: dict[str, tuple[object, type]] = {"name": (name, str), "sentences": (sentences, bool)}
        kinds |= {"sentence_end": (sentence_end, bool), "closed": (closed, bool)}
        kinds |= {"min_count": (min_count, int)} | ({} if size is None else {"size": (size, int)})
        for key, (given, kind) in kinds.items():
            require(isinstance(given, kind), key, repr(given), f"of type {kind.__name__}")
        require_path("store_dir", store_dir, null=False)
        choices = {"unit": (unit, Unit), "normalize": (normalize, Normalize), "spaces": (spaces, Spaces)}
        for key, (value, members) in choices.items():
            require(value in list(members.__members__), key, repr(value), f"one of {', '.join(members.__members__)}")
        require_lowercase(lowercase, "lowercase")
        rules = VocabularyConfig(
            file=None, size=size, min_count=min_count, lowercase=lowercase, unit=Unit(unit), closed=closed
        )
        form, white = Normalize(normalize), Spaces(spaces)
        data = TextsData("texts", name, sentences, rules, normalize=form, spaces=white, on_error=on_error, digest=None)
        data.sentence_end = sentence_end
        return cls(write_texts({"train": train, "valid": valid, "test": test}, data, words, Path(store_dir)))

    def __reduce__(self) -> tuple[Any, ...]:  # the store is opened again
        return Corpus.open, (str(self.path if self.folder is None else self.path.resolve()),)

    def _repr_html_(self) -> str:
        table = html_table(list(self.rows[0]), [list(row.values()) for row in self.rows])
        return f"<p>Corpus {escape(self.name)}</p>{table}"

    def __repr__(self) -> str:
        tokens = ", ".join(f"{row['split']} {row['tokens']:,}" for row in self.rows)
        return f"<Corpus {self.name}: {tokens} tokens; vocabulary {self.rows[0]['vocabulary']:,}>"

    def __enter__(self) -> Corpus:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words, most frequent first, `<s>` last. Raises UserError if they are damaged."""
        group = self.group("vocabulary")
        try:
            words = tuple(group["words"][:].tobytes().decode("utf-8").split("\0"))
            counts, marks = whole_numbers("counts", group["counts"][:], (len(words),)), attributes(group, VOCABULARY)
            if max(marks["eos"], marks["unk"]) >= len(words):
                raise UserError(
                    f"{self.path} is damaged in its vocabulary (</s> or <unk> is not a word): {STORE_REMEDY}"
                )
            return Vocabulary(words, counts, marks["eos"] if marks["eos"] >= 0 else None, marks["unk"])
        except (KeyError, OSError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{self.path} is damaged in its vocabulary ({error}): {STORE_REMEDY}") from error

    @property
    def unit(self) -> Unit:
        """The kind of its tokens."""
        return Unit(self.provenance["settings"]["vocabulary"]["unit"])

    @cached_property
    def subwords(self) -> Subwords | None:
        """The tokenizer whose pieces are the vocabulary; None if the vocabulary has words or characters."""
        if not self.unit.is_subword:
            return None
        return Subwords.parse(self.group("vocabulary")["tokenizer"][:].tobytes().decode(), str(self.path))

    def knows(self, name: str) -> bool:
        """Return whether the split is in the store or was counted externally."""
        return name in self.splits or self._is_counted(name)

    def _is_counted(self, name: str) -> bool:
        return self.train_counted_externally and name == "train"

    def split(self, name: str) -> Split:
        """Read a split. Raises UserError, listing the available splits, if it is missing."""
        self.require_split(name)
        group = self.group(f"splits/{name}")
        try:
            ids, size = group["ids"][:], attributes(group, SPLIT)
            whole_numbers("ids", ids, ("N",), below=len(self.group("vocabulary")["counts"]))
            return Split(
                ids,
                sentence_offsets("offsets", group["offsets"][:], len(ids)),
                whole_numbers("oov_positions", group["oov_positions"][:], ("U",), below=len(ids)),
                size["characters"],
                self.vocabulary.bos,
                words=size["words"],
            )
        except (KeyError, OSError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{self.path} is damaged in its {name} split ({error}): {STORE_REMEDY}") from error

    def text(self, name: str) -> StoredText:
        """Return a split that is read piece by piece; the store must stay open."""
        self.require_split(name)
        return super().text(name)

    def stored(self, name: str, *, across_sentences: bool = False, reset_share: float = 0.0) -> StoredTokens:
        """Return a split that is read piece by piece from the open store.

        across_sentences: whether contexts cross sentences; for reset_share of the sentences they do not.
        Raises UserError for sentences without `</s>`.
        """
        self.require_split(name)
        vocabulary = self.vocabulary
        if vocabulary.sentences and vocabulary.eos is None:
            raise UserError(f"{self.path} has sentences without </s>: read it whole, by training.memory=null")
        share = reset_share if across_sentences else 1.0
        return StoredTokens(self.group(f"splits/{name}")["ids"], vocabulary.eos, vocabulary.bos, share)

    def bytes_in_memory(self, name: str) -> int:
        """Return the bytes needed to train on a split in memory: ids twice, positions, and the order of examples."""
        ids = self.group(f"splits/{name}")["ids"]
        return len(ids) * (2 * int(ids.dtype.itemsize) + 1 + 8)

    def oov_share(self, name: str) -> float:
        """Return the share of a split's tokens that are out of vocabulary, from 0 to 1; `<unk>` in the text is not."""
        if self._is_counted(name):
            return float(self.rows[0]["OOV %"] or 0) / 100
        return len(self.group(f"splits/{name}")["oov_positions"]) / self.tokens(name)

    @property
    def first_places(self) -> IntArray:
        """The first occurrence of each word, int64 `[V]`, if train was counted externally, as in ExternalCounts."""
        return np.asarray(self.group("vocabulary")["first_places"])

    def tokens(self, name: str) -> int:
        """Return the number of tokens of a split, without reading it."""
        if self._is_counted(name):
            return int(self.rows[0]["tokens"] or 0)
        return len(self.group(f"splits/{name}")["ids"])

    @property
    def sources(self) -> dict[str, tuple[int, int]]:
        """Where the tokens of each source of train begin and end; empty if train is one text or counted externally."""
        if "train" not in self.splits:
            return {}
        said = attributes(self.group("splits/train"), {"sources?": str}).get("sources", "{}")
        ends: dict[str, int] = parse_json(said, {str: COUNT}, "sources")
        return dict(zip(ends, pairwise([0, *ends.values()]), strict=True))

    def examples(
        self,
        count: int = 5,
        *,
        context_size: int = 3,
        split: str = "train",
        seed: int | None = None,
        across_sentences: bool = False,
    ) -> TableResult:
        """Return examples as a table: the words before, left-padded with `<s>`, and the target w(t).

        count: number of examples: the first of the split or, with a seed, random ones in the order of the text.
        context_size: number of words before. across_sentences: whether these continue into the sentences before, as of
        a network trained with model.across_sentences=true. Raises UserError if the split is missing.

        >>> lmtool.Corpus.from_texts(train=["the cat sat"]).examples(2, context_size=2).as_table()[1]
        [['<s>', '<s>', 'the'], ['<s>', 'the', 'cat']]
        """
        require_whole("count", count)
        require_whole("context_size", context_size)
        require_whole("seed", seed, 0, null=True)
        require_flags(across_sentences=across_sentences)
        text = self.split(split).as_stream(across_sentences)
        index = np.arange(min(count, text.tokens))
        if seed is not None:
            index = np.sort(np.random.default_rng(seed).choice(text.tokens, len(index), replace=False))
        form = TextForm(self.vocabulary, subwords=self.subwords)
        words, rows = self.vocabulary.words, np.column_stack(text.windows(index, context_size)).tolist()
        table: list[list[Cell]] = [[visible(label) for label in form.labels(words[i] for i in row)] for row in rows]
        header = [*(f"w(t-{k})" for k in range(context_size, 0, -1)), "w(t)"]
        return TableResult(header=header, table=table, about=f"{self.name}: examples of {split}")

    def cloze(self, name: str) -> Cloze | None:
        """Return the cloze questions of a split, or None if it has none."""
        if f"cloze/{name}" not in self.file:
            return None
        group = self.group(f"cloze/{name}")
        return Cloze(group["context_ids"][:], group["context_offsets"][:], group["candidates"][:], group["answers"][:])

    def require_split(self, name: str, setting: str = "split") -> None:
        """Raise UserError if there is no such split; setting: the setting that names it."""
        if name not in self.splits:
            made = f", or make {name} by data.{name}=FILE, data.split.{name}=0.1 or from_texts({name}=)"
            remedy = f"name one of these{made if name in ('valid', 'test') else ''}"
            raise UserError(f"{setting}={name}: {self.path} has only {', '.join(self.splits)}; {remedy}")
