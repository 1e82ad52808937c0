"""Readers of other programs' files: lmtool's, and beside most a plain, slow one, to the letter of the format.

NAME returns what lmtool reads, as plain values; it raises UserError if it refuses the file, or Wrong. plain_NAME gives
what it should be, or None without an opinion; it raises ValueError, KeyError or IndexError for what it cannot read.
"""

from __future__ import annotations

import codecs
import json
import math
import random
import re
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fuzzing.campaign import Wrong
from lmtool.config.data import Unit, VocabularyConfig
from lmtool.data.choose_vocabulary import read_subwords, read_word_list
from lmtool.data.cloze import read_cloze
from lmtool.data.readers import read_blocks
from lmtool.data.text_form import TextEncoder, TextForm
from lmtool.data.text_records import record_blocks
from lmtool.data.text_rules import TextRules
from lmtool.data.tokenizer import CharTokenizer, WordTokenizer
from lmtool.data.vocabulary import Vocabulary
from lmtool.evaluation.nbest import read_nbest, read_references, write_nbest
from lmtool.evaluation.other_tools import read_scores, tokens_of_file
from lmtool.ngram.files.arpa_model import arpa_model
from lmtool.ngram.files.count_files import CountFiles
from lmtool.ngram.models.word_classes import WordClasses, read_classes
from lmtool.runs.corpus import load_vocabulary
from lmtool.trees.codes import code_strings, read_tree

LN10 = math.log(10)
WHITE, WORD = re.compile("[ \t-\r]+"), re.compile("[^ \t-\r]+")
OTHER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
DECIMAL = re.compile(rb"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
SMALL = ("the", "cat", "</s>", "a", "sat", "dog", "on", "mat", "ran", "ünï", "<unk>", "<s>")  # all words of the cases
VOCABULARY = Vocabulary(SMALL, np.array([9, 5, 5, 4, 3, 2, 1, 1, 1, 1, 0, 0]), 2, 10)


class Given(NamedTuple):
    """A file to read, its unpacked contents, several for a .zip, and settings of whoever reads it."""

    path: Path
    unpacked: list[bytes]
    lower: bool = False
    sentences: bool = False
    tags: bool = False
    chars: bool = False

    @property
    def contents(self) -> list[bytes]:
        """Its contents, with LF for CR where there is no LF."""
        return [each if b"\n" in each else each.removesuffix(b"\r").replace(b"\r", b"\n") for each in self.unpacked]

    @property
    def lines(self) -> list[str]:
        """Its lines of text, with LF for CR LF. Raises ValueError if it is not text."""
        return whole_text(self.contents).replace("\r\n", "\n").removesuffix("\n").split("\n")

    @property
    def rows(self) -> list[list[str]]:
        """The words of its lines that have any, in lower case if that is asked for."""
        return [row for line in self.lines if (row := words_in(line.lower() if self.lower else line))]

    @property
    def fields(self) -> list[list[str]]:
        """The fields of its lines; of a file that is not packed."""
        lines = self.unpacked[0].removeprefix(codecs.BOM_UTF8).splitlines()
        return [[field.decode() for field in line.split()] for line in lines if line.strip()]

    @property
    def rules(self) -> TextRules:
        """The rules of text that a setting chooses."""
        return TextRules(self.lower)


def require_same(ours: Any, theirs: Any, what: str) -> None:
    if ours != theirs:
        raise Wrong(f"{what}: {str(ours)[:300]} and, read plainly, {str(theirs)[:300]}")


def whole_text(contents: list[bytes]) -> str:
    """Return text: UTF-8 without other byte-order marks or NUL, and not only white space."""
    texts = []
    for content in contents:
        if content.startswith(OTHER_MARKS) or b"\0" in content:
            raise ValueError("not UTF-8 text")
        text = re.sub("(?m)^\ufeff+", "", content.decode())
        texts.append(text if not text or text.endswith("\n") else text + "\n")
    return not_empty("".join(texts))


def not_empty(text: str) -> str:
    """Return a text. Raises ValueError if it is only white space, or has NUL."""
    if "\0" in text or not text.strip(" \t\n\v\f\r"):
        raise ValueError("NUL, or empty")
    return text


def words_in(line: str) -> list[str]:
    return [word for word in WHITE.split(line) if word]


def number_of(field: str) -> float:
    """Return a decimal number; of words only inf is accepted."""
    if field not in ("-inf", "inf") and not DECIMAL.fullmatch(field.encode()):
        raise ValueError(f"{field!r} is not a number")
    return float(field)


def text(given: Given) -> list[str]:
    """Return tokens of words, characters, streams, lower case and tags as `preprocess` reads them."""
    kind = CharTokenizer if given.chars else WordTokenizer
    tokenizer = kind(sentences=given.sentences, tags=given.tags, rules=given.rules)
    ids = [tokenizer(block, "text") for block in read_blocks(str(given.path))]
    types = tokenizer.types()
    return [types[k] for block in ids for k in block.tolist()]


def plain_text(given: Given) -> list[str]:
    text = whole_text(given.contents)
    text = text.lower() if given.lower else text
    if given.chars:
        text = text.replace("\r\n", "\n")
        if given.tags:
            text = WORD.sub(lambda word: word[0].rpartition("/")[0] or word[0], text)
        lines = [line for line in text.split("\n") if words_in(line)]
        return [token for line in lines for token in [*line, "</s>"]] if given.sentences else list(text)
    tokens = []
    for line in text.split("\n"):
        words = [word.rpartition("/")[0] or word if given.tags else word for word in words_in(line)]
        if "<s>" in words or "</s>" in words:
            raise ValueError("a mark in the text")
        tokens += [*words, "</s>"] if words and given.sentences else words
    return tokens


def bomb(given: Given) -> None:
    """Read what unpacks to a thousand times its size: this ends."""
    size, packed = 0, given.path.stat().st_size
    for block in read_blocks(str(given.path)):
        size += len(block)
        if size > max(400 * packed, 128 << 20):
            raise Wrong(f"{packed:,} bytes unpack to {size:,} and more")


def scored(given: Given) -> list[str]:
    """Return the words of lines or records as `score` reads them."""
    column = "text" if ".json" in given.path.name else None
    encoder = TextEncoder(TextForm(VOCABULARY, Unit.char if given.chars else Unit.word, given.rules))
    encoded = [encoder(block.texts()[0]) for block in record_blocks([str(given.path)], column)]
    for each in encoded:
        if each.documents[-1] != len(each.split.ids):
            raise Wrong("the texts are not the tokens")
    return [SMALL[token] for each in encoded for token in each.split.ids.tolist()]


def plain_scored(given: Given) -> list[str] | None:
    """Return the words of the lines of a text, those that are unknown as <unk>."""
    if given.chars or ".json" in given.path.name:
        return None
    text = "".join(whole_text([content]) if content.strip() else "" for content in given.contents)
    lines = [words_in(line) for line in (text.lower() if given.lower else text).split("\n")]
    if any("</s>" in line for line in lines):
        return None
    tokens = [word for line in lines if line for word in [*line, "</s>"]]
    return [word if word in SMALL[:-1] else "<unk>" for word in tokens]


def documents(given: Given) -> str:
    return b"".join(read_blocks(str(given.path), column="text")).decode()


def plain_documents(given: Given) -> str:
    texts = []
    for line in b"\n".join(given.contents).split(b"\n"):
        if line.strip():
            try:
                document = json.loads(line)
            except RecursionError as error:
                raise ValueError("too deep") from error
            text = document["text"] if isinstance(document, dict) and "text" in document else 3
            if text is not None and not isinstance(text, str):
                raise ValueError("no text")
            texts.append((text or "").replace("\r\n", "\n").removesuffix("\n") + "\n")
    whole = not_empty("".join(texts))
    whole.encode()
    return whole


def parquet(given: Given) -> None:
    """Read Parquet as `preprocess` and `counts=table` do; only pyarrow knows what damaged files hold."""
    if given.lower:
        CountFiles([str(given.path)], [1]).unigrams()
    else:
        b"".join(read_blocks(str(given.path), column="words")).decode()


def word_list(given: Given) -> list[str]:
    return list(read_word_list(str(given.path), given.rules))


def plain_word_list(given: Given) -> list[str]:
    """Return the words of a list, whose lines may be numbered."""
    rows = given._replace(lower=False).rows
    numbered = [row[0] for row in rows if len(row) > 1] == [str(k + 1) for k in range(len(rows))]
    column = 1 if numbered and any(not row[1].isdigit() for row in rows) else 0
    words = [row[column].lower() if given.lower else row[column] for row in rows]
    if len(set(words)) < len(words):
        raise ValueError("a word twice")
    return words


def questions(given: Given) -> tuple[list[list[int]], list[int]]:
    found = read_cloze(str(given.path), None, VOCABULARY, given.rules)
    return found.candidates.tolist(), found.context_ids.tolist()


def plain_questions(given: Given) -> tuple[list[list[int]], list[int]]:
    """Return the candidates and the contexts of pairs of lines, `Q word ...` and `C word ... word`."""

    def ids(words: list[str]) -> list[int]:
        return [SMALL.index(word if word in SMALL else "<unk>") for word in words]

    lines = [words_in(line.lower() if given.lower else line) for line in given.lines]
    return [ids(line[1:]) for line in lines[::2]], ids([word for line in lines[1::2] for word in line[1:-1]])


def answers(given: Given) -> list[int]:
    right = str(given.path.with_name("right-questions.txt"))
    return list(read_cloze(right, str(given.path), VOCABULARY, given.rules).answers.tolist())


def plain_answers(given: Given) -> list[int]:
    """Return the column with a 1 in each line after the first."""
    return [line.split(",")[1:].index("1") for line in given.lines[1:]]


def nbest(given: Given) -> list[tuple[str, str, float]] | None:
    """Return id, hypothesis and total of n-best lists, of Moses' format; read also Kaldi's, and its costs."""
    folder = given.path.parent
    costs = str(given.path) if given.path.name.startswith("costs") else None
    lists = read_nbest(str(folder / "right-kaldi.txt" if costs else given.path), costs)
    if not np.isfinite(lists.total).all() or lists.offsets[-1] != len(lists.texts):
        raise Wrong("totals or offsets")
    write_nbest(folder, lists, np.zeros(len(lists.texts)), lists.total)
    read_references(str(folder / "right-references.txt"), lists)
    ids = [lists.lists[np.searchsorted(lists.offsets, k, "right") - 1] for k in range(len(lists.texts))]
    return list(zip(ids, lists.texts, lists.total.tolist(), strict=True)) if lists.moses else None


def plain_nbest(given: Given) -> list[tuple[str, str, float]] | None:
    """Return id, hypothesis and total of Moses' lists; None for Kaldi's."""
    if given.path.name.startswith("costs") or "|||" not in given.lines[0]:
        return None
    rows = [[field.strip(" \t\n\v\f\r") for field in line.split("|||")] for line in given.lines]
    return [(row[0], row[1], number_of(row[3]) if len(row) > 3 else 0.0) for row in rows]


def references(given: Given) -> list[str] | None:
    """Return the references of right lists; None for Kaldi's, which have ids."""
    lists = read_nbest(str(given.path.with_name("right-moses.txt" if given.lower else "right-kaldi.txt")), None)
    found = read_references(str(given.path), lists)
    return list(found) if lists.moses else None


def plain_references(given: Given) -> list[str] | None:
    """Return the lines of the right lists' ids, 0 and 1."""
    return given.lines[:2] if given.lower else None


def scores(given: Given) -> list[tuple[str, float]]:
    """Return the words and their ln p of KenLM, of SRILM and of a TSV."""
    found = read_scores(str(given.path))
    tokens = tokens_of_file(found)
    require_same([tokens.words[k] for k in tokens.ids.tolist()], found.words, "tokens")
    return list(zip(found.words, found.log_prob.tolist(), strict=True))


def plain_scores(given: Given) -> list[tuple[str, float]] | None:
    """Return the words and ln p, at most 0: of SRILM's `p( word | ... ) = ... [ log10p ]`, of KenLM's tab-separated
    `word=id length log10p` among lines of a summary, or of the columns of a TSV.
    """
    lines, first, rows = given.lines, given.lines[0].split("\t"), []
    if any(line.startswith("\tp( ") for line in lines[:1000]):
        lines = [line.removeprefix("\tp( ") for line in lines if line.startswith("\tp( ")]
        rows = [(line.partition(" | ")[0], line.rpartition(" [ ")[2].partition(" ]")[0]) for line in lines]
    elif "=" in first[0]:
        for field in (field for line in lines for field in line.removesuffix("\r").split("\t")):
            parts = field.rsplit(" ", 2)
            if len(parts) == 3 and " " not in parts[0] and parts[0].rpartition("=")[2].isdigit() and parts[1].isdigit():
                rows.append((parts[0].rpartition("=")[0], parts[2]))
    elif "word" in first and "log10p" in first:
        cells = [line.split("\t") for line in "\n".join(lines).rstrip("\n").split("\n")[1:]]
        rows = [(line[first.index("word")], line[first.index("log10p")]) for line in cells]
    else:
        return None  # another of the names of a column
    return [(word, min(0.0, number_of(value.lower()) * LN10)) for word, value in rows]


def tree(given: Given) -> list[tuple[str, str]]:
    built = read_tree(given.path, SMALL[:-1])
    codes = zip(built.leaf_words.tolist(), code_strings(built), strict=True)
    return sorted((SMALL[word], code) for word, code in codes)


def plain_tree(given: Given) -> list[tuple[str, str]]:
    return sorted((line[0], line[1]) for line in given.fields)


def own_classes(given: Given) -> None:
    """Compare a user's word classes with those of lines `word class` or SRILM's `class p word`."""
    class_of = _numbered(read_classes(given.path, VOCABULARY, key="model.file")[0])
    if b"\\" not in given.unpacked[0]:
        pairs = [(line[0], line[1]) if len(line) == 2 else (line[2], line[0]) for line in given.fields]
        known = {word: name for word, name in pairs if word in SMALL}
        for word, other in product(known, known):
            same = class_of[word] == class_of[other]
            require_same(same, known[word] == known[other], f"classes of {word} and {other}")


def run_classes(given: Given) -> None:
    _numbered(WordClasses.open(given.path, VOCABULARY))


def _numbered(found: WordClasses) -> dict[str, int]:
    total = np.bincount(found.class_of[:-1], np.exp(found.log_within[:-1]), len(found.classes))
    if not np.allclose(total[total > 0], 1.0):
        raise Wrong(f"the words of a class sum to {total}")
    return dict(zip(SMALL, found.class_of.tolist(), strict=True))


def vocabulary_file(given: Given) -> list[tuple[str, str]]:
    vocabulary = load_vocabulary(given.path)
    if (vocabulary.counts < 0).any() or len(vocabulary.ids) != len(vocabulary.words):
        raise Wrong("counts or words")
    return list(zip(vocabulary.words, map(str, vocabulary.counts.tolist()), strict=True))


def plain_vocabulary_file(given: Given) -> list[tuple[str, str]] | None:
    """Return words and counts separated by tabs."""
    lines = [line.partition("\t") for line in given.unpacked[0].decode().removesuffix("\n").split("\n")]
    return None if any("\\" in line[0] for line in lines) else [(line[0], line[2]) for line in lines]


class PlainArpa:
    """An ARPA file as dictionaries: log10 p and log10 back-off weight by n-gram, a tuple of words."""

    def __init__(self, content: bytes) -> None:
        self.log_prob: dict[tuple[bytes, ...], float] = {}
        self.log_backoff: dict[tuple[bytes, ...], float] = {}
        self.order = 0
        at, order, finished = 0, 0, False
        lines = content.split(b"\n")
        while lines[at].strip() != b"\\data\\":
            at += 1
        for line in lines[at + 1 :]:
            fields = [field for field in line.strip(b" \t").replace(b"\t", b" ").split(b" ") if field]
            head = re.fullmatch(rb"\\(\d+)-grams:", line.strip())
            if head:
                order = self.order = int(head[1])
            elif line.strip() == b"\\end\\":
                finished = True
                break
            elif fields and order:
                ngram = tuple(fields[1 : order + 1])
                if len(ngram) != order or len(fields) > order + 2 or ngram in self.log_prob:
                    raise ValueError(f"not an n-gram, or a repeated one: {line!r}")
                self.log_prob[ngram] = number_of(fields[0].decode())
                self.log_backoff[ngram] = number_of(fields[order + 1].decode()) if len(fields) > order + 1 else 0.0
        if not finished:
            raise ValueError("cut off")

    def p(self, context: tuple[bytes, ...], word: bytes) -> float:
        """Return log10 p(word | context); -inf for 0, which the format writes as -99."""
        context = context[max(0, len(context) - self.order + 1) :]
        if (*context, word) in self.log_prob:
            value = self.log_prob[*context, word]
            return value if value > -99 else -math.inf
        if not context:
            return -math.inf
        weight = self.log_backoff.get(context, 0.0)
        return (weight if weight > -99 else -math.inf) + self.p(context[1:], word)


def arpa(given: Given) -> None:
    """Read an ARPA file, and compare probabilities of its n-grams and of others with the plain reader's."""
    model = arpa_model(str(given.path))
    vocabulary, table = model.vocabulary, model.table
    if given.unpacked:
        _same_probabilities(model, PlainArpa(b"".join(given.contents).removeprefix(codecs.BOM_UTF8)))
    values = np.concatenate([table.log_prob[:], table.log_backoff[:]])
    if np.isnan(values).any() or np.isposinf(values).any():
        raise Wrong("a value of the table is not a number")
    if model.normalized and table.unseen == -math.inf:
        total = float(np.exp(table.log_prob[: table.sizes[0]].astype(np.float64)).sum())
        if not math.isclose(total, 1.0, rel_tol=0.02):
            raise Wrong(f"said to sum to one, and the 1-grams of {len(vocabulary)} words sum to {total:.4g}")


def _same_probabilities(model: Any, theirs: PlainArpa) -> None:
    vocabulary, table, rng = model.vocabulary, model.table, random.Random(len(theirs.log_prob))
    names = [word.encode() for word in vocabulary.words]
    if b"<unk>" not in [ngram[0] for ngram in theirs.log_prob if len(ngram) == 1]:
        names[vocabulary.unk] = b"<UNK>"
    ids = {name: k for k, name in enumerate(names)}
    ngrams = [ngram for ngram in theirs.log_prob if len(ngram) > 1 and ngram[-1] in ids]
    chosen = rng.sample(ngrams, min(30, len(ngrams)))
    chosen += [tuple(rng.choices(names, k=theirs.order)) for _ in range(10)]
    for ngram in chosen:
        context, word = ngram[:-1], ngram[-1]
        # Shorter contexts than the model's begin a sentence.
        inside = len(context) < model.context_size and context[:1] != (b"<s>",)
        if inside or b"<s>" in ngram[1:] or b"</s>" in context:
            continue
        padded = [vocabulary.bos] * (model.context_size - len(context)) + [ids[each] for each in context]
        ours = float(model.log_prob(np.array([padded]), np.array([ids[word]]))[0])
        expected = theirs.p(context, word) * LN10
        if table.missing or table.unseen != -math.inf:
            expected = ours  # of lmtool's comment, which no other tool reads
        if math.isnan(ours) or ours == math.inf:
            raise Wrong(f"log p{ngram} is {ours}")
        if ours != expected and not math.isclose(ours, expected, rel_tol=1e-4, abs_tol=1e-4):
            raise Wrong(f"log p{ngram}: {ours} and, read plainly, {expected}")


def counts(given: Given) -> dict[tuple[str, ...], int]:
    files = CountFiles([str(given.path)], [1])
    found: dict[tuple[str, ...], int] = {}
    for k in (1, 2, 3, 4):
        for block, spans, numbers, _, _ in files.rows(k):
            for row, count in zip(spans.tolist(), numbers.tolist(), strict=True):
                ngram = tuple(block[first:last].tobytes().decode() for first, last in row)
                found[ngram] = found.get(ngram, 0) + count
    if any(count < 0 for count in found.values()):
        raise Wrong("a negative count")
    files.unigrams()
    return found


def plain_counts(given: Given) -> dict[tuple[str, ...], int]:
    """Return the counts of n-grams up to order 4, from lines of words and a count."""
    found: dict[tuple[str, ...], int] = {}
    for line in whole_text(given.contents).split("\n"):
        *words, count = [field for field in re.split("[ \t\r]+", line) if field] or [""]
        if (words or count) and (not re.fullmatch(r"[0-9]+", count) or not words):
            raise ValueError(f"no count: {line!r}")
        if words and len(words) < 5:
            found[tuple(words)] = found.get(tuple(words), 0) + int(count)
    return found


def pieces(given: Given) -> None:
    """Read a tokenizer.json or a .model of SentencePiece: what is accepted writes words back, or is OOV."""
    unit = Unit.unigram if given.lower else Unit.bpe
    rules = VocabularyConfig(file=None, size=None, min_count=1, lowercase=False, unit=unit)
    subwords = read_subwords(str(given.path), rules)
    words = ["the", "cat", "ünï", "\U0001f600", "x" * 50]
    table = subwords.table(words)
    for word, first, last in zip(words, table.starts[:-1].tolist(), table.starts[1:].tolist(), strict=True):
        if (ids := table.ids[first:last].tolist()) and min(ids) >= 0:  # OOV is negative
            require_same(subwords.text(ids), word, "pieces written back")
    require_same([*subwords.additions], [*subwords.names], "pieces as text")
