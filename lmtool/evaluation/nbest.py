"""N-best lists: read, scored with a language model, written again best first.

There are two formats, told apart by the first line:

- Moses: `id ||| hypothesis ||| features ||| total`; features and total may be missing (total then counts as 0). Written
  with ` lmtool= X` after the features, and the new total.
- Kaldi: `utterance-k hypothesis`, and in another file `utterance-k cost` (lower is better; 0 without that file).
  Written as the same two files.

A hypothesis may be empty; a line may not.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lmtool.data.readers import decimal, read_text
from lmtool.data.text_form import split_words
from lmtool.errors import UserError
from lmtool.system.arrays import FloatArray, IntArray
from lmtool.system.files import atomic_write

BAR = "|||"
NUMBER = re.compile("[0-9]+")  # not what else Unicode calls a digit, as \u00b2
DIGITS = 18  # of a number of a list, at most
WHITE = " \t\n\v\f\r"  # what separates words: ASCII white space alone, as in training


@dataclass(frozen=True, slots=True)
class NBest:
    """H hypotheses in L lists, in the order of their lines.

    lists: the id of each list. offsets: int64 `[L + 1]`, where lists begin, and H. texts: the words of each hypothesis.
    total: float64 `[H]`, the scores in the file, higher is better. fields: of each line, for writing.
    """

    path: str
    moses: bool
    lists: list[str]
    offsets: IntArray
    texts: list[str]
    total: FloatArray
    fields: list[list[str]]


def read_nbest(path: str, costs: str | None) -> NBest:
    """Read lists of either format. costs: the second file of Kaldi's format.

    Raises UserError, with the line, for an empty line, one without id or hypothesis, a score that is not a number, a
    list that is continued after another list, and costs that are missing for a hypothesis or given for Moses' format.
    """
    lines = read_text(path).removesuffix("\n").split("\n")
    moses = BAR in lines[0]
    if moses and costs is not None:
        raise UserError(f"nbest_costs={costs}: {path} has its scores in its own lines")
    cost_of = {} if costs is None else _read_costs(costs)
    lists: list[str] = []
    starts: list[int] = []
    texts: list[str] = []
    total: list[float] = []
    all_fields: list[list[str]] = []
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        if not line.strip(WHITE):
            raise UserError(f"{where} is empty: each line of an n-best list is a hypothesis; remove it")
        if moses:
            fields = [field.strip(WHITE) for field in line.split(BAR)]
            if len(fields) < 2 or not fields[0]:
                raise UserError(f"{where}: should be id ||| hypothesis ||| features ||| total")
            name, value = fields[0], _number(fields[3], where) if len(fields) > 3 else 0.0
            texts.append(fields[1])
        else:
            key, _, rest = line.strip(WHITE).partition(" ")
            name, _, rank = key.rpartition("-")
            if not name or not NUMBER.fullmatch(rank):
                raise UserError(
                    f"{where}: {key!r} should be utterance-number, as Kaldi writes it (or use |||, as Moses)"
                )
            if costs is not None and key not in cost_of:
                raise UserError(f"{costs} has no cost of {key} ({where})")
            fields, value = [key, rest.strip(WHITE)], -cost_of.get(key, 0.0)
            texts.append(fields[1])
        if not lists or lists[-1] != name:
            lists.append(name)
            starts.append(number - 1)
        total.append(value)
        all_fields.append(fields)
    split_up, times = Counter(lists).most_common(1)[0]
    if times > 1:
        raise UserError(f"{path}: the list of {split_up} is continued after another list: sort the lines")
    return NBest(path, moses, lists, np.array([*starts, len(texts)]), texts, np.array(total), all_fields)


def _read_costs(path: str) -> dict[str, float]:
    cost_of: dict[str, float] = {}
    for number, line in enumerate(read_text(path).removesuffix("\n").split("\n"), start=1):
        fields = split_words(line)
        if len(fields) != 2:
            raise UserError(f"{path}, line {number}: should be utterance-number cost")
        if fields[0] in cost_of:
            raise UserError(f"{path}, line {number}: {fields[0]} has a cost already; remove one")
        cost_of[fields[0]] = _number(fields[1], f"{path}, line {number}")
    return cost_of


def _number(text: str, where: str) -> float:
    value = decimal(text)
    if not np.isfinite(value):
        raise UserError(f"{where}: {text!r} is not a number")
    return value


def read_references(path: str, nbest: NBest) -> list[str]:
    """The reference of each list: the line of that number, from 0, where all ids are numbers; else from `id words`.

    Raises UserError where a list has none.
    """
    lines = read_text(path).rstrip("\n").split("\n")
    if nbest.moses and all(NUMBER.fullmatch(name) for name in nbest.lists):
        missing = [name for name in nbest.lists if len(name) > DIGITS or int(name) >= len(lines)]
        if missing:
            raise UserError(f"{path} has {len(lines)} lines, none for list {missing[0]} (they count from 0)")
        return [lines[int(name)] for name in nbest.lists]
    references = {key: rest for key, _, rest in (line.partition(" ") for line in lines)}
    for name in nbest.lists:
        if name not in references:
            raise UserError(f"{path} has no line that begins with {name}")
    return [references[name] for name in nbest.lists]


def hypothesis_log_prob(nbest: NBest, score: Callable[[list[str]], list[FloatArray]]) -> FloatArray:
    """log p `[H]`, natural, of each hypothesis as a sentence of its own, its end included.

    score: TextModel.score; equal hypotheses are scored once. Raises UserError for a hypothesis that it refuses.
    """
    distinct = list(dict.fromkeys(nbest.texts))
    try:
        of_text = dict(zip(distinct, (math.fsum(log_prob.tolist()) for log_prob in score(distinct)), strict=True))
    except UserError as error:
        raise UserError(f"{nbest.path}: {error}") from None
    return np.array([of_text[text] for text in nbest.texts])


def ranked(nbest: NBest, new_total: FloatArray) -> IntArray:
    """The hypotheses `[H]`, list by list, best first; equally good ones in their order in the file."""
    orders = [np.argsort(-new_total[a:b], kind="stable") + a for a, b in itertools.pairwise(nbest.offsets.tolist())]
    return np.concatenate(orders)


def write_nbest(folder: Path, nbest: NBest, log_prob: FloatArray, new_total: FloatArray) -> list[Path]:
    """Write the lists with their new totals `[H]`, best first, and the best of each as best.txt; returns the paths.

    log_prob: `[H]`, natural, of the language model. Raises UserError where a file cannot be written.
    """
    order = ranked(nbest, new_total).tolist()
    files: dict[str, list[str]] = {}
    if nbest.moses:
        files["nbest.txt"] = [_moses_line(nbest.fields[k], float(log_prob[k]), float(new_total[k])) for k in order]
    else:
        files["nbest.txt"] = [" ".join(nbest.fields[k]).rstrip(" ") for k in order]
        files["nbest-costs.txt"] = [f"{nbest.fields[k][0]} {-new_total[k]:.9g}" for k in order]
    firsts = [order[at] for at in nbest.offsets[:-1].tolist()]
    files["best.txt"] = [f"{name} {nbest.texts[k]}".rstrip(" ") for name, k in zip(nbest.lists, firsts, strict=True)]
    for name, lines in files.items():
        with atomic_write(folder / name) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [folder / name for name in files]


def _moses_line(fields: list[str], log_prob: float, total: float) -> str:
    name, hypothesis, *rest = fields
    features = f"{rest[0] if rest else ''} lmtool= {log_prob:.9g}".strip()
    return f" {BAR} ".join([name, hypothesis, features, f"{total:.9g}", *rest[2:]])
