"""What lmtool reads from a file, compared with the plain readers; a reading raises Wrong, or UserError if refused."""

from __future__ import annotations

import codecs
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fuzzing import plain
from fuzzing.campaign import Wrong
from lmtool.config.data import Unit, VocabularyConfig
from lmtool.data.choose_vocabulary import read_subwords, read_word_list
from lmtool.data.cloze import read_cloze
from lmtool.data.readers import read_blocks
from lmtool.data.text_form import TextEncoder, TextForm
from lmtool.data.text_records import text_blocks
from lmtool.data.tokenizer import CharTokenizer, WordTokenizer
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.evaluation.nbest import read_nbest, read_references, write_nbest
from lmtool.evaluation.other_tools import read_scores, tokens_of_file
from lmtool.ngram.files.arpa_model import arpa_model
from lmtool.ngram.files.counts_read import CountFiles
from lmtool.ngram.models.word_classes import WordClasses, read_classes
from lmtool.runs.corpus import load_vocabulary
from lmtool.trees.codes import code_strings, read_tree

BOM = codecs.BOM_UTF8


class Given(NamedTuple):
    """A file to read. suffix: of its packing. variant: chooses among settings."""

    path: Path
    raw: bytes
    suffix: str
    variant: int

    @property
    def contents(self) -> list[bytes]:
        """Its unpacked contents. Raises ValueError if it is damaged."""
        return plain.unpacked(self.raw, self.suffix)

    @property
    def text(self) -> str:
        """Its text, with LF for CR LF. Raises ValueError if it is not text."""
        return plain.text_of(self.contents).replace("\r\n", "\n")


def require_same(ours: Any, theirs: Any, what: str) -> None:
    """Raise Wrong if two answers differ."""
    if ours != theirs:
        raise Wrong(f"{what}: {str(ours)[:300]} and, read plainly, {str(theirs)[:300]}")


@contextmanager
def agreed(plainly: Callable[[], Any], what: str) -> Iterator[Any]:
    """Yield what a plain reader finds, None if it refuses; the block must then end with a UserError, else without."""
    try:
        theirs = plainly()
    except (ValueError, KeyError, IndexError) as error:
        theirs, reason = None, error
    try:
        yield theirs
    except UserError as error:
        if theirs is not None:
            raise Wrong(f"{what} is refused: {error}") from error
        raise
    if theirs is None:
        raise Wrong(f"{what} is accepted: {reason}")


def text(given: Given) -> None:
    """Read words, characters, streams, lower case and tags as `preprocess` does."""
    lower, sentences, tags = bool(given.variant & 1), bool(given.variant & 2), bool(given.variant & 4)
    tokeniser: WordTokenizer | CharTokenizer

    def plainly() -> list[str]:
        whole = plain.text_of(given.contents)
        if given.variant & 8:
            return plain.characters_of(whole.lower() if lower else whole, sentences=sentences)
        return plain.words_of(whole, sentences=sentences, tags=tags, lower=lower)

    with agreed(plainly, "text") as tokens:
        if given.variant & 8:
            tokeniser = CharTokenizer(sentences=sentences, lowercase=lower)
        else:
            tokeniser = WordTokenizer(sentences=sentences, tags=tags, lowercase=lower)
        ids = [tokeniser(block, "text") for block in read_blocks(str(given.path))]
        types = tokeniser.types()
        require_same([types[k] for block in ids for k in block.tolist()], tokens, "tokens")


def bomb(given: Given) -> None:
    """Read what unpacks to a thousand times its size: this ends."""
    size = 0
    for block in read_blocks(str(given.path)):
        size += len(block)
        if size > max(400 * len(given.raw), 128 << 20):
            raise Wrong(f"{len(given.raw):,} bytes unpack to {size:,} and more")


def scored(given: Given) -> None:
    """Read lines or records as `score` does."""
    form = TextForm(small_vocabulary(), chars=bool(given.variant & 8), lowercase=bool(given.variant & 1))
    column = "text" if ".json" in given.path.name else None
    encoder = TextEncoder(form)
    encoded = [encoder(block) for block in text_blocks([str(given.path)], column)]
    for each in encoded:
        if len(each.oov) != len(each.documents) - 1 or each.documents[-1] != len(each.split.ids):
            raise Wrong("the texts are not the tokens")
    if column is None and not given.variant & 8:
        whole = "".join(plain.text_of([content]) if content.strip() else "" for content in given.contents)
        whole = whole.lower() if given.variant & 1 else whole
        ids = [word for line in whole.split("\n") if line.strip(" \t\v\f\r") for word in [*_words(line), "</s>"]]
        expected = small_vocabulary().encode("<unk>" if word == "<s>" else word for word in ids).tolist()
        found = [token for each in encoded for token in each.split.ids.tolist()]
        if "</s>" not in _words(whole):
            require_same(found, expected, "ids")


def documents(given: Given) -> None:
    """Read JSON Lines as `preprocess` does."""
    with agreed(lambda: plain.documents_of(given.contents, "text"), "documents") as whole:
        blocks = b"".join(read_blocks(str(given.path), column="text")).decode()
        require_same(blocks, whole, "documents")


def parquet(given: Given) -> None:
    """Read Parquet as `preprocess` and `counts=table` do; only pyarrow knows what damaged files hold."""
    if given.variant & 1:
        CountFiles([str(given.path)], [1]).unigrams()
    else:
        b"".join(read_blocks(str(given.path), column="words")).decode()


def word_list(given: Given) -> None:
    """Read a list of words."""
    rules = VocabularyConfig(file=None, size=None, min_count=1, lowercase=bool(given.variant & 1), unit=Unit.word)

    def plainly() -> list[str]:
        lines = [line for line in map(_words, given.text.split("\n")) if line]
        numbered = [line[0] for line in lines if len(line) > 1] == [str(k + 1) for k in range(len(lines))]
        column = 1 if numbered and any(not line[1].isdigit() for line in lines) else 0
        words = [line[column] for line in lines]
        words = [word.lower() for word in words] if given.variant & 1 else words
        if len(set(words)) < len(words):
            raise ValueError("a word twice")
        return words

    with agreed(plainly, "a list of words") as words:
        require_same(read_word_list(str(given.path), rules), words, "words")


def cloze(given: Given) -> None:
    """Read cloze questions or, in a file named answers, the answers."""
    answers = given.path.name.startswith("answers")
    questions = given.path.with_name("right-questions.txt") if answers else given.path
    found = read_cloze(
        str(questions), str(given.path) if answers else None, small_vocabulary(), bool(given.variant & 1)
    )
    if answers:
        rows = [line.split(",") for line in given.text.removesuffix("\n").split("\n")[1:]]
        require_same(found.answers.tolist(), [row[1:].index("1") for row in rows], "answers")
        return
    lines = given.text.removesuffix("\n").split("\n")
    lines = [line.lower() for line in lines] if given.variant & 1 else lines
    vocabulary = small_vocabulary()
    candidates = [vocabulary.encode(_words(line)[1:]).tolist() for line in lines[::2]]
    contexts = [word for line in lines[1::2] for word in _words(line)[1:-1]]
    require_same(found.candidates.tolist(), candidates, "candidates")
    require_same(found.context_ids.tolist(), vocabulary.encode(contexts).tolist(), "contexts")


def nbest(given: Given) -> None:
    """Read n-best lists of either format, Kaldi's costs, and references."""
    name, folder = given.path.name, given.path.parent
    costs = str(given.path) if name.startswith("costs") else None
    lists = read_nbest(str(folder / "right-kaldi.txt" if costs else given.path), costs)
    if not np.isfinite(lists.total).all() or lists.offsets[-1] != len(lists.texts):
        raise Wrong("totals or offsets")
    if lists.moses:
        rows = plain.nbest_of(given.text)
        require_same(lists.texts, [row[1] for row in rows], "hypotheses")
        require_same(lists.total.tolist(), [row[2] for row in rows], "totals")
        ids = [lists.lists[np.searchsorted(lists.offsets, k, "right") - 1] for k in range(len(rows))]
        require_same(ids, [row[0] for row in rows], "ids")
    zeros = np.zeros(len(lists.texts))
    write_nbest(folder, lists, zeros, lists.total)
    read_references(str(folder / "right-references.txt"), lists)


def references(given: Given) -> None:
    """Read the references of right lists."""
    right = "right-moses.txt" if given.variant & 1 else "right-kaldi.txt"
    lists = read_nbest(str(given.path.with_name(right)), None)
    found = read_references(str(given.path), lists)
    lines = given.text.rstrip("\n").split("\n")
    if lists.moses:
        require_same(found, [lines[int(name)] for name in lists.lists], "references")


def scores(given: Given) -> None:
    """Read scores of KenLM, of SRILM and in a TSV."""
    found = read_scores(str(given.path))
    text = given.text
    if any(line.startswith("\tp( ") for line in text.split("\n")[:1000]):
        rows = plain.srilm_of(text)
    elif "=" in text.partition("\n")[0].partition("\t")[0]:
        rows = plain.kenlm_of(text)
    elif "word\t" in text.partition("\n")[0] and "log10p" in text.partition("\n")[0]:
        try:
            rows = plain.tsv_of(text)
        except ValueError as error:
            if "is not in list" in str(error):
                return  # another of the names of a column
            raise Wrong(str(error)) from error
    else:
        return
    require_same(found.words, [word for word, _ in rows], "words")
    for ours, (word, theirs) in zip(found.log_prob.tolist(), rows, strict=True):
        if ours != min(theirs, 0.0) or math.isnan(ours):
            raise Wrong(f"log p of {word}: {ours} and, read plainly, {theirs}")
    tokens = tokens_of_file(found)
    require_same([tokens.words[k] for k in tokens.ids.tolist()], found.words, "tokens")


def tree(given: Given) -> None:
    """Read a tree of words and codes."""
    words = small_vocabulary().words[:-1]
    built = read_tree(given.path, words)
    leaves = zip(built.leaf_words.tolist(), code_strings(built), strict=True)
    lines = [line.split() for line in given.raw.removeprefix(BOM).splitlines()]
    expected = sorted((words.index(line[0].decode()), line[1].decode()) for line in lines if line)
    require_same(sorted(leaves), expected, "codes")


def classes(given: Given) -> None:
    """Read word classes: a user's file, or that of a run folder."""
    vocabulary = small_vocabulary()
    if given.path.name.startswith("own"):
        found, _ = read_classes(given.path, vocabulary, key="model.file")
        lines = [[field.decode() for field in line.split()] for line in given.raw.removeprefix(BOM).split(b"\n")]
        pairs = [(line[0], line[1]) if len(line) == 2 else (line[2], line[0]) for line in lines if line]
        known = {vocabulary.ids[word]: name for word, name in pairs if word in vocabulary.ids}
        for word, name in () if b"\\" in given.raw else known.items():
            for other, other_name in known.items():
                if (found.class_of[word] == found.class_of[other]) != (name == other_name):
                    raise Wrong(f"classes of {vocabulary.words[word]} and {vocabulary.words[other]}")
    else:
        found = WordClasses.open(given.path, vocabulary)
    total = np.bincount(found.class_of[:-1], np.exp(found.log_within[:-1]), len(found.classes))
    if not np.allclose(total[total > 0], 1.0):
        raise Wrong(f"the words of a class sum to {total}")


def vocabulary_file(given: Given) -> None:
    """Read the vocabulary of a run folder."""
    vocabulary = load_vocabulary(given.path)
    if (vocabulary.counts < 0).any() or len(vocabulary.ids) != len(vocabulary.words):
        raise Wrong("counts or words")
    lines = given.raw.decode().removesuffix("\n").split("\n")
    plainly = [(line.partition("\t")[0], line.partition("\t")[2]) for line in lines]
    if not any("\\" in word for word, _ in plainly):
        ours = list(zip(vocabulary.words, map(str, vocabulary.counts.tolist()), strict=True))
        require_same(ours, plainly, "words and counts")


def arpa(given: Given) -> None:
    """Read an ARPA file: probabilities of its n-grams and of others."""
    model = arpa_model(str(given.path))
    vocabulary, table = model.vocabulary, model.table
    content = b"".join(given.contents).removeprefix(BOM)
    try:
        theirs = plain.PlainArpa(content)
    except ValueError as error:
        raise Wrong(f"an ARPA file is accepted: {error}") from error
    rng = random.Random(given.variant)
    names = [word.encode() for word in vocabulary.words]
    if b"<unk>" not in [ngram[0] for ngram in theirs.log_prob if len(ngram) == 1]:
        names[vocabulary.unk] = b"<UNK>"
    ids = {name: k for k, name in enumerate(names)}
    ngrams = [ngram for ngram in theirs.log_prob if len(ngram) > 1 and ngram[-1] in ids]
    chosen = rng.sample(ngrams, min(30, len(ngrams)))
    chosen += [tuple(rng.choices(names, k=theirs.order)) for _ in range(10)]
    for ngram in chosen:
        if b"<s>" in ngram[1:] or b"</s>" in ngram[:-1]:
            continue
        context, word = ngram[:-1], ngram[-1]
        padded = [vocabulary.bos] * (model.context_size - len(context)) + [ids[each] for each in context]
        if len(context) < model.context_size and context[:1] != (b"<s>",):
            continue  # shorter contexts than the model's begin a sentence
        ours = float(model.log_prob(np.array([padded]), np.array([ids[word]]))[0])
        expected = theirs.p(context, word) * plain.LN10
        if table.missing or table.unseen != -math.inf:
            expected = ours  # of lmtool's comment, which no other tool reads
        if math.isnan(ours) or ours == math.inf:
            raise Wrong(f"log p{ngram} is {ours}")
        if ours != expected and not math.isclose(ours, expected, rel_tol=1e-4, abs_tol=1e-4):
            raise Wrong(f"log p{ngram}: {ours} and, read plainly, {expected}")
    values = np.concatenate([table.log_probs(0, sum(table.sizes)), table.log_backoffs(0, sum(table.sizes[:-1]))])
    if np.isnan(values).any() or np.isposinf(values).any():
        raise Wrong("a value of the table is not a number")
    if model.normalised and table.unseen == -math.inf:
        total = float(np.exp(table.log_probs(0, table.sizes[0]).astype(np.float64)).sum())
        if not math.isclose(total, 1.0, rel_tol=0.02):
            raise Wrong(f"said to sum to one, and the 1-grams sum to {total:.4g}")


def counts(given: Given) -> None:
    """Read n-grams with their counts."""
    files = CountFiles([str(given.path)], [1])
    found: dict[tuple[str, ...], int] = {}
    for k in (1, 2, 3, 4):
        for block, spans, numbers, _, _ in files.rows(k):
            for row, count in zip(spans.tolist(), numbers.tolist(), strict=True):
                ngram = tuple(block[first:last].tobytes().decode() for first, last in row)
                found[ngram] = found.get(ngram, 0) + count
    if any(count < 0 for count in found.values()):
        raise Wrong("a negative count")
    theirs = {ngram: count for ngram, count in plain.counts_of(given.contents).items() if len(ngram) < 5}
    require_same(found, theirs, "counts")
    files.unigrams()


def pieces(given: Given) -> None:
    """Read a tokenizer.json or a .model of SentencePiece: what is accepted writes words back."""
    unit = Unit.unigram if given.variant & 1 else Unit.bpe
    rules = VocabularyConfig(file=None, size=None, min_count=1, lowercase=False, unit=unit)
    subwords = read_subwords(str(given.path), rules)
    words = ["the", "cat", "ünï", "\U0001f600", "x" * 50]
    table = subwords.table(words)
    for word, first, last in zip(words, table.starts[:-1].tolist(), table.starts[1:].tolist(), strict=True):
        require_same(subwords.text(table.ids[first:last].tolist()), word, "pieces written back")
    for number in range(min(len(subwords.names), 50)):
        subwords.addition(number)


def _words(line: str) -> list[str]:
    return [word for word in plain.WHITE.split(line) if word]


def small_vocabulary() -> Any:
    """Return the vocabulary of all cases, of a few words."""
    words = ("the", "cat", "</s>", "a", "sat", "dog", "on", "mat", "ran", "ünï", "<unk>", "<s>")
    return Vocabulary(words, np.array([9, 5, 5, 4, 3, 2, 1, 1, 1, 1, 0, 0]), 2, 10)
