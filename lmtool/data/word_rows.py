"""Words as a reader sees them, in rows: read from text, or from a table with a word per row whose columns are kept."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import Any

import numpy as np

from lmtool.data.documents import decode_bytes
from lmtool.data.faults import NULL, SKIP, STOP, STOP_AT_FAULTS, Faults
from lmtool.data.printed_words import sentence_ends, split_sentences
from lmtool.data.readers import TABLES, format_of_name, read_blocks
from lmtool.data.tables import cells_of
from lmtool.data.text_records import record_blocks
from lmtool.data.tokenizer import split_words
from lmtool.errors import RecordError, UserError
from lmtool.system.arrays import IntArray

WORD, ITEM, SENTENCE = "word", "item", "sentence"
WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")
NUMBER = re.compile(r"-?((0|[1-9]\d{0,17})(\.\d*)?|\.\d+)([eE][-+]?\d+)?")  # not 007, which is a name
MISSING = ("", "NA", "NaN")
SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which cannot be written
SPACED = re.compile(r"([ \t-\r]*)([^ \t-\r]+)([ \t-\r]*\Z)?")  # a word, and the white space around it in its line


@dataclass(frozen=True, slots=True)
class WordRows:
    """W words in S sentences of items, which are texts such as stories.

    name: name of the table or text, for errors.
    columns: the columns of the table, in their order, then item, sentence and position (in the sentence, from 1),
    unless the table has them.
    starts: int64 `[S + 1]`, the first row of each sentence, and W.
    item_starts: the same for each item.
    warnings: on items that look like several texts, and on sentences that may not have been found.
    notes: how sentences were found.
    cells: the columns of a text table, verbatim.
    errors: the errors of rows whose faults were skipped.
    spaces: for text, the white space before each word in its line, and after it if it is the last word; None for a
    table.
    """

    name: str
    columns: dict[str, list[Any]]
    words: list[str]
    starts: IntArray
    item_starts: IntArray
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cells: dict[str, list[str]] = field(default_factory=dict)
    spaces: list[tuple[str, str]] | None = None
    errors: list[str | None] = field(default_factory=list)


def read_word_rows(
    files: Sequence[str],
    word: str | None,
    item: Sequence[str] | None,
    sentence: str | None,
    sentences: str | None,
    faults: Faults = STOP_AT_FAULTS,
) -> WordRows:
    """Read the words of files. A file is a table if a column of words is named or its suffix is that of a table; else
    it is text, whose files are items and whose lines are sentences.

    word, item, sentence: names of columns; item may be several, whose values together identify an item. None: `word`,
    and `item` and `sentence` if the table has these columns. sentences: `punctuation` or `item`, instead of the lines
    of text or the column of sentences; None: the latter, or final punctuation in a table without such a column. faults:
    collects the faults of lines of text, which are left out, and of rows without a word. Raises UserError, naming the
    row, for a row with a different number of cells from the header, and for an item whose rows are not consecutive or
    are several conditions.
    """
    tables = [name for name in files if word is not None or format_of_name(name) or format_of_name(name, TABLES)]
    rules = word, item, sentence, sentences
    if not tables:
        faults.on_error = SKIP if faults.on_error == NULL else faults.on_error  # a line does not have a row
        name = files[0] if len(files) == 1 else f"the text of {len(files):,} files from {files[0]} on"
        columns, spaces = columns_of_sentences((_lines(name, faults) for name in files), sentences)
        return rows_of_table(columns, name, *rules, spaces=spaces)
    if len(files) > 1:
        raise UserError(f"{len(files):,} files are named, but {tables[0]} is a table: name one table, or files of text")
    columns, cells = _read_table(files[0], word or WORD, faults)
    return rows_of_table(columns, files[0], *rules, cells=cells, faults=faults)


def columns_of_sentences(
    texts: Iterable[Iterable[str | Sequence[str]]], sentences: str | None, first: int = 1
) -> tuple[dict[str, list[Any]], list[tuple[str, str]]]:
    """Return the columns item and word of texts of sentences, each a line or its words, with items numbered from 1, and
    the spaces of WordRows. A column sentence, numbered from `first`, is added unless a rule `sentences` finds them.
    """
    marks = sentences == "punctuation"
    numbered = ((n, k, line) for n, text in enumerate(texts, 1) for k, line in enumerate(text, first))
    rows = [(n, *row) for n, k, line in numbered for row in _cut_line(line, k, marks=marks)]
    names = (ITEM, WORD, SENTENCE) if sentences is None else (ITEM, WORD)
    return {name: [row[k] for row in rows] for k, name in enumerate(names)}, [row[3] for row in rows]


def rows_of_lines(blocks: Iterable[bytes], name: str, sentences: str | None) -> Iterator[WordRows]:
    """Yield the words of blocks of text, all of one item. sentences: as in read_word_rows."""
    first = 1
    for block in blocks:
        if lines := list(filter(split_words, block.decode("utf-8").split("\n"))):
            columns, spaces = columns_of_sentences([lines], sentences, first)
            yield rows_of_table(columns, name, sentences=sentences, spaces=spaces)
            first += len(lines)


def _cut_line(line: str | Sequence[str], number: int, *, marks: bool) -> Iterator[tuple[str, int, tuple[str, str]]]:
    """Yield the words of a line, its number, and their spaces. marks: whether sentence ends within words cut them."""
    if not isinstance(line, str):
        yield from ((word, number, ("", "")) for word in line)
        return
    line = line.removesuffix("\n").removesuffix("\r").replace("\n", " ")
    for before, word, after in SPACED.findall(line):
        *others, last = split_sentences(word) if marks else [word]
        for part in others:
            yield part, number, (before, "")
            before = ""
        yield last, number, (before, after)


def rows_of_table(
    columns: dict[str, list[Any]],
    name: str,
    word: str | None = None,
    item: Sequence[str] | None = None,
    sentence: str | None = None,
    sentences: str | None = None,
    *,
    spaces: list[tuple[str, str]] | None = None,
    cells: dict[str, list[str]] | None = None,
    faults: Faults = STOP_AT_FAULTS,
) -> WordRows:
    """Return the rows of a table with a word per row. Arguments: as in WordRows, others as in read_word_rows."""
    asked = [("word", word or WORD), *(("item", column) for column in item or ()), ("sentence", sentence)]
    for setting, column in asked:
        if column is not None and column not in list(columns):
            named = ", ".join(map(str, columns))
            raise UserError(f"{setting}_column={column}: {name} has no such column, but {named}: name one of these")
    kept, errors = _checked_rows(columns[word or WORD], name, faults)
    if not kept:
        raise UserError(f"{name} has no rows: give a table with a word in each")
    columns, cells = ({key: [col[k] for k in kept] for key, col in each.items()} for each in (columns, cells or {}))
    words = ["" if error else text for text, error in zip(columns[word or WORD], errors, strict=True)]
    keys = [key for key in [ITEM] if key in columns] if item is None else list(item)
    sentence_cells = None if sentences is not None else columns.get(sentence or SENTENCE)
    for what, values in (*((ITEM, columns[key]) for key in keys), (SENTENCE, sentence_cells or ())):
        for row, value in enumerate(values, 1):
            if not isinstance(value, Hashable) or value in (None, "") or value != value:  # nan
                remedy = f"give a text or a number, or name another {what}_column="
                raise UserError(f"{name}, row {row}: it has no {what} ({value!r}): {remedy}")
    items = list(zip(*(columns[key] for key in keys), strict=True)) or [(1,)] * len(words)
    item_starts = _changes(items)
    seen: dict[Any, int] = {}
    numbers: list[int] = []
    ends: list[str] = []
    for first, last in pairwise(item_starts.tolist()):
        if seen.setdefault(items[first], first) != first:
            began = (
                f"item {', '.join(map(str, items[first]))} began in row {seen[items[first]] + 1} and was interrupted"
            )
            remedy = "sort the table so that each item is one text, or name all columns of an item by item_column=A,B"
            raise UserError(f"{name}, row {first + 1}: {began}: {remedy}")
        if sentence_cells is None and sentences != "item":
            ends += sentence_ends(words[first:last])
            numbers += np.cumsum([1, *map(bool, ends[first : last - 1])]).tolist()
        else:
            changes = _changes((items if sentence_cells is None else sentence_cells)[first:last])
            numbers += np.repeat(np.arange(1, len(changes)), np.diff(changes)).tolist()
    starts = _changes(list(zip(items, numbers, strict=True)))
    position = np.arange(len(words)) - np.repeat(starts[:-1], np.diff(starts)) + 1
    own = {} if keys else {ITEM: [1] * len(words)}
    own |= {sentence or SENTENCE: numbers, "position": position.tolist()}
    others = {key: columns[key] for key in columns if key not in (word or WORD, sentence or SENTENCE, *keys)}
    whole = columns | {key: values for key, values in own.items() if key not in columns}
    found = WordRows(name, whole, words, starts, item_starts, cells=cells, spaces=spaces, errors=errors)
    found.warnings.extend(_several_texts(found, keys, items, others))
    if ends:
        _report_sentences(found, ends)
    return found


def _report_sentences(rows: WordRows, ends: list[str]) -> None:
    """Add a note on the marks that end sentences, and a warning if few sentences end in one or words have several."""
    count, marks = len(rows.starts) - 1, Counter(filter(None, ends))
    others = {"without a mark": count - marks.total()} if count > marks.total() else {}
    listed = ", ".join(f"{mark} {number:,}" for mark, number in [*marks.most_common(), *others.items()])
    found = f"{rows.name}: {count:,} sentence{'s' * (count > 1)} by final marks ({listed})"
    rows.notes.append(found)
    remedy = "give them by a column (sentence_column=), or as lines of text"
    if len(rows.words) > 1000 and count * 200 < len(rows.words):
        rows.warnings.append(f"{found} in {len(rows.words):,} words, fewer than one in 200: {remedy}")
    long = {word for word in set(rows.words) if len(split_sentences(word)) > 1}
    several = [row for row, word in enumerate(rows.words, 1) if word in long]
    if several:
        what = "words have" if len(several) > 1 else "word has"
        of = f"{len(several):,} {what} several sentences, the first in row {several[0]}"
        rows.warnings.append(f"{rows.name}: {of}, and count as in one: cut them, or {remedy}")


def _several_texts(
    rows: WordRows, keys: list[str], items: list[tuple[Any, ...]], others: dict[str, list[Any]]
) -> list[str]:
    """Return a warning if items look like several texts each: another column divides them into blocks of rows, or has
    word numbers that restart within a sentence. keys: the columns of items `[W]`. others: the columns that are not of
    words, items or sentences. Raises UserError if the texts are similar, like the conditions of an item.
    """
    ends, warnings = set(rows.item_starts.tolist()), []
    restarts = {key: _restarts(values, ends) for key, values in others.items()}
    for key in sorted(others, key=lambda key: bool(restarts[key])):
        inner = restarts[key] or set(_changes(others[key]).tolist()) - ends
        if not inner:
            continue
        named = f"{rows.name}, row {min(inner) + 1}: item {', '.join(map(str, items[min(inner)]))}"
        alike = sum(rows.words[row] == rows.words[row - 1] for row in inner)
        if len(inner) > 1 and 2 * alike >= len(inner):  # item, condition or subject change from row to row
            remedy = f"sort the table by it, and set item_column={','.join([*keys, key])}"
            raise UserError(f"{named} has each word in several rows, by column {key}: {remedy}")
        starts = sorted(inner | ends)
        blocks = [rows.words[first:last] for first, last in pairwise(starts)]
        pairs = [pair for start, *pair in zip(starts[1:], blocks, blocks[1:], strict=False) if start in inner]
        sizes = [min(map(len, pair)) for pair in pairs]
        if sum(sizes) < 2 * len(pairs):  # values of single words, such as reading times and parts of speech
            continue
        remedy = f"item_column={','.join([*keys, 'COLUMN' if restarts[key] else key])}"
        if 2 * sum(_in_common(*pair) for pair in pairs) >= sum(sizes):
            raise UserError(f"{named} is several texts of similar words, by column {key}: tell them apart by {remedy}")
        doubtful = not inner <= set(rows.starts.tolist())  # a text begins within a sentence
        if not restarts[key]:  # each item has the same values, each in one block; numbers are not sentence numbers
            values = list(map(str, others[key]))
            each_once = len(set(zip(items, values, strict=True))) == len(blocks) == len(set(values)) * (len(ends) - 1)
            doubtful |= not all(isinstance(value, int) for value in others[key])
            doubtful &= each_once and min(sizes) > 1
        if doubtful:
            warnings.append(f"{named} is read as one text, but column {key} divides it: if it is several, set {remedy}")
    return warnings[:1]


def _restarts(values: list[Any], ends: set[int]) -> set[int]:
    """Return the rows where word numbers restart within an item, at 0 or 1; empty for other columns. ends: the first
    rows of items, and W.
    """
    if not all(type(value) is int for value in values) or values[0] not in (0, 1) or max(values) < 2:
        return set()
    falls = {row for row in range(1, len(values)) if row in ends or values[row] <= values[row - 1]}
    return falls - ends if all(values[row] == values[0] for row in falls) else set()


def _in_common(one: list[str], other: list[str]) -> int:
    """Return the number of words that two texts have in common at their beginnings and ends."""
    sides = zip(one, other, strict=False), zip(reversed(one), reversed(other), strict=False)
    alike = sum(1 for side in sides for _ in takewhile(lambda pair: pair[0] == pair[1], side))
    return min(alike, len(one), len(other))


def _changes(values: Sequence[Any]) -> IntArray:
    """Return the indices where a value differs from the previous one, with 0 first and the number of values last."""
    places = [k for k in range(1, len(values)) if values[k] != values[k - 1]]
    return np.array([0, *places, len(values)], dtype=np.int64)


def _lines(name: str, faults: Faults) -> Iterator[str]:
    """Yield the lines with words."""
    for block in read_blocks(name, faults=faults):
        yield from filter(split_words, block.decode("utf-8").split("\n"))


def _read_table(name: str, word: str, faults: Faults) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
    """Return the columns of a table and, for a text table, the same columns verbatim."""
    if format_of_name(name) is not None:
        records: list[dict[str, Any]] = []
        passed = faults.on_error != STOP
        for block in record_blocks([name], word, setting="word_column", passed=passed):
            if not passed:
                block.texts()  # raises errors that name the line or row
            fields = block.fields()
            records += fields if isinstance(fields, list) else fields.to_pylist()
        names = dict.fromkeys(key for record in records for key in record)
        return {key: [decode_bytes(record.get(key)) for record in records] for key in names}, {}
    content = b"".join(read_blocks(name, tables=True)).decode("utf-8")
    header, rows, mark = cells_of(content, name)
    columns = {key: [row[k] for row in rows] for k, key in enumerate(header)}
    numbers = {key: _numbers(values, decimal_comma=mark == ";") for key, values in columns.items() if key != word}
    return columns | numbers, columns


def _checked_rows(values: list[Any], name: str, faults: Faults) -> tuple[list[int], list[str | None]]:
    """Return which rows are kept, given the values in the column of words, and the fault of each kept row, if any."""
    errors: dict[int, str | None] = {}
    for row, value in enumerate(values):
        error = None
        if not isinstance(value, str) or not split_words(value) or SURROGATE.search(value):
            error = f"{name}, row {row + 1}: {value!r} is not a word: give one, or remove the row"
            with faults:
                raise RecordError(error)
        if error is None or faults.on_error == NULL:
            errors[row] = error
    return list(errors), list(errors.values())


def _numbers(cells: list[str], *, decimal_comma: bool) -> list[Any]:
    """Return the cells of a column as numbers, None for missing ones, if all others are numbers; otherwise
    unchanged.
    """
    values = [cell.replace(",", ".") for cell in cells] if decimal_comma else cells
    given = [value for value in values if value not in MISSING]
    if not given or not all(map(NUMBER.fullmatch, given)):
        return cells
    number = int if all(map(WHOLE.fullmatch, given)) else float
    return [None if value in MISSING else number(value) for value in values]
