"""What lmtool reads from a file, as plain values; each function raises UserError if it refuses the file, or Wrong."""

from __future__ import annotations

import itertools
import math
import random
from codecs import BOM_UTF8
from typing import Any

import numpy as np

from fuzzing import plain
from fuzzing.campaign import Wrong
from fuzzing.plain import SMALL, Given
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

VOCABULARY = Vocabulary(SMALL, np.array([9, 5, 5, 4, 3, 2, 1, 1, 1, 1, 0, 0]), 2, 10)


def require_same(ours: Any, theirs: Any, what: str) -> None:
    """Raise Wrong if two answers differ."""
    if ours != theirs:
        raise Wrong(f"{what}: {str(ours)[:300]} and, read plainly, {str(theirs)[:300]}")


def text(given: Given) -> list[str]:
    """Return tokens of words, characters, streams, lower case and tags as `preprocess` reads them."""
    tokenizer: WordTokenizer | CharTokenizer
    if given.chars:
        tokenizer = CharTokenizer(sentences=given.sentences, tags=given.tags, rules=TextRules(given.lower))
    else:
        tokenizer = WordTokenizer(sentences=given.sentences, tags=given.tags, rules=TextRules(given.lower))
    ids = [tokenizer(block, "text") for block in read_blocks(str(given.path))]
    types = tokenizer.types()
    return [types[k] for block in ids for k in block.tolist()]


def bomb(given: Given) -> None:
    """Read what unpacks to a thousand times its size: this ends."""
    size = 0
    for block in read_blocks(str(given.path)):
        size += len(block)
        if size > max(400 * len(given.raw), 128 << 20):
            raise Wrong(f"{len(given.raw):,} bytes unpack to {size:,} and more")


def scored(given: Given) -> list[str]:
    """Return the words of lines or records as `score` reads them."""
    column = "text" if ".json" in given.path.name else None
    encoder = TextEncoder(TextForm(VOCABULARY, Unit.char if given.chars else Unit.word, TextRules(given.lower)))
    encoded = [encoder(block.texts()[0]) for block in record_blocks([str(given.path)], column)]
    for each in encoded:
        if each.documents[-1] != len(each.split.ids):
            raise Wrong("the texts are not the tokens")
    return [SMALL[token] for each in encoded for token in each.split.ids.tolist()]


def documents(given: Given) -> str:
    """Return the text of JSON Lines as `preprocess` reads them."""
    return b"".join(read_blocks(str(given.path), column="text")).decode()


def parquet(given: Given) -> None:
    """Read Parquet as `preprocess` and `counts=table` do; only pyarrow knows what damaged files hold."""
    if given.lower:
        CountFiles([str(given.path)], [1]).unigrams()
    else:
        b"".join(read_blocks(str(given.path), column="words")).decode()


def word_list(given: Given) -> list[str]:
    """Return the words of a list."""
    return list(read_word_list(str(given.path), TextRules(given.lower)))


def questions(given: Given) -> tuple[list[list[int]], list[int]]:
    """Return the candidates and the contexts of cloze questions."""
    found = read_cloze(str(given.path), None, VOCABULARY, TextRules(given.lower))
    return found.candidates.tolist(), found.context_ids.tolist()


def answers(given: Given) -> list[int]:
    """Return the answers of valid cloze questions."""
    right = str(given.path.with_name("right-questions.txt"))
    return list(read_cloze(right, str(given.path), VOCABULARY, TextRules(given.lower)).answers.tolist())


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


def references(given: Given) -> list[str] | None:
    """Return the references of right lists; None for Kaldi's, which have ids."""
    lists = read_nbest(str(given.path.with_name("right-moses.txt" if given.lower else "right-kaldi.txt")), None)
    found = read_references(str(given.path), lists)
    return list(found) if lists.moses else None


def scores(given: Given) -> list[tuple[str, float]]:
    """Return the words and their ln p of KenLM, of SRILM and of a TSV."""
    found = read_scores(str(given.path))
    tokens = tokens_of_file(found)
    require_same([tokens.words[k] for k in tokens.ids.tolist()], found.words, "tokens")
    return list(zip(found.words, found.log_prob.tolist(), strict=True))


def tree(given: Given) -> list[tuple[str, str]]:
    """Return the words and codes of a tree."""
    built = read_tree(given.path, SMALL[:-1])
    return sorted(
        (SMALL[word], code) for word, code in zip(built.leaf_words.tolist(), code_strings(built), strict=True)
    )


def own_classes(given: Given) -> None:
    """Read a user's word classes."""
    class_of = _numbered(read_classes(given.path, VOCABULARY, key="model.file")[0])
    known = {} if b"\\" in given.raw else plain.own_classes_of(given)
    for word, other in itertools.product(known, known):
        require_same(class_of[word] == class_of[other], known[word] == known[other], f"classes of {word} and {other}")


def run_classes(given: Given) -> None:
    """Read the classes of a run folder."""
    _numbered(WordClasses.open(given.path, VOCABULARY))


def _numbered(found: WordClasses) -> dict[str, int]:
    total = np.bincount(found.class_of[:-1], np.exp(found.log_within[:-1]), len(found.classes))
    if not np.allclose(total[total > 0], 1.0):
        raise Wrong(f"the words of a class sum to {total}")
    return dict(zip(SMALL, found.class_of.tolist(), strict=True))


def vocabulary_file(given: Given) -> list[tuple[str, str]]:
    """Return the words and counts of the vocabulary of a run folder."""
    vocabulary = load_vocabulary(given.path)
    if (vocabulary.counts < 0).any() or len(vocabulary.ids) != len(vocabulary.words):
        raise Wrong("counts or words")
    return list(zip(vocabulary.words, map(str, vocabulary.counts.tolist()), strict=True))


def arpa(given: Given) -> None:
    """Read an ARPA file: probabilities of its n-grams and of others."""
    model = arpa_model(str(given.path))
    vocabulary, table = model.vocabulary, model.table
    theirs = plain.PlainArpa(b"".join(given.contents).removeprefix(BOM_UTF8))
    rng = random.Random(len(given.raw))
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
    values = np.concatenate([table.log_prob[:], table.log_backoff[:]])
    if np.isnan(values).any() or np.isposinf(values).any():
        raise Wrong("a value of the table is not a number")
    if model.normalized and table.unseen == -math.inf:
        total = float(np.exp(table.log_prob[: table.sizes[0]].astype(np.float64)).sum())
        if not math.isclose(total, 1.0, rel_tol=0.02):
            raise Wrong(f"said to sum to one, and the 1-grams sum to {total:.4g}")


def counts(given: Given) -> dict[tuple[str, ...], int]:
    """Return n-grams with their counts."""
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
