"""N-best lists: read, scored with a language model, written again best first.

Two forms are known by their first line:

- Moses: `id ||| hypothesis ||| features ||| total`, of which features and total may be left out (total then counts as
  0). Written with ` lmtool= X` behind the features and the new total.
- Kaldi: `utterance-k hypothesis`, and beside it a file of costs, `utterance-k cost` (lower is better; 0 without it).
  Written in the same two files.

A hypothesis may be empty; a line may not.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lmtool.data.readers import read_text
from lmtool.errors import UserError
from lmtool.language_model import FloatArray, IntArray
from lmtool.system.files import written_whole

BAR = "|||"


@dataclass(frozen=True, slots=True)
class NBest:
    """H hypotheses in L lists, each list's one after the other, in the order of their lines.

    lists: the id of each list. offsets: `[L + 1]`, where lists begin, and H. words: of each hypothesis, as text.
    total: `[H]`, the score that the list has already, higher is better. fields: what stood on each line, for writing.
    """

    path: str
    moses: bool
    lists: list[str]
    offsets: IntArray
    words: list[str]
    total: FloatArray
    fields: list[list[str]]


def read_nbest(path: str, costs: str | None) -> NBest:
    """Read lists of either form; costs: Kaldi's second file.

    Raises UserError, with the line, for an empty line, one without id or hypothesis, a score that is no number, a list
    that goes on after another has begun, and costs that do not go with the hypotheses.
    """
    lines = read_text(path).removesuffix("\n").split("\n")
    moses = BAR in lines[0]
    if moses and costs is not None:
        raise UserError(f"nbest_costs={costs}: {path} has its scores in its own lines")
    cost_of = {} if costs is None else _read_costs(costs)
    lists: list[str] = []
    starts: list[int] = []
    words: list[str] = []
    total: list[float] = []
    kept: list[list[str]] = []
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        if not line.strip():
            raise UserError(f"{where} is empty: each line of an n-best list is a hypothesis; remove it")
        if moses:
            fields = [field.strip() for field in line.split(BAR)]
            if len(fields) < 2 or not fields[0]:
                raise UserError(f"{where}: should be id ||| hypothesis ||| features ||| total")
            name, value = fields[0], _number(fields[3], where) if len(fields) > 3 else 0.0
            words.append(fields[1])
        else:
            key, _, rest = line.strip().partition(" ")
            name, _, rank = key.rpartition("-")
            if not name or not rank.isdigit():
                raise UserError(
                    f"{where}: {key!r} should be utterance-number, as Kaldi writes it (or use |||, as Moses)"
                )
            if costs is not None and key not in cost_of:
                raise UserError(f"{costs} has no cost of {key} ({where})")
            fields, value = [key, rest.strip()], -cost_of.get(key, 0.0)
            words.append(fields[1])
        if not lists or lists[-1] != name:
            lists.append(name)
            starts.append(number - 1)
        total.append(value)
        kept.append(fields)
    again = next((name for name in lists if lists.count(name) > 1), None) if len(set(lists)) < len(lists) else None
    if again is not None:
        raise UserError(f"{path}: the list of {again} goes on after another one began: sort the lines")
    return NBest(path, moses, lists, np.array([*starts, len(words)]), words, np.array(total), kept)


def _read_costs(path: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        fields = line.split()
        if len(fields) != 2:
            raise UserError(f"{path}, line {number}: should be utterance-number cost")
        found[fields[0]] = _number(fields[1], f"{path}, line {number}")
    return found


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise UserError(f"{where}: {text!r} is no number")
    return value


def read_references(path: str, nbest: NBest) -> list[str]:
    """The right words of each list `[L]`: for ids that are numbers line `id`, counted from 0; else lines `id words`.

    Raises UserError where a list has none.
    """
    lines = read_text(path).rstrip("\n").split("\n")
    if nbest.moses and all(name.isdigit() for name in nbest.lists):
        missing = [name for name in nbest.lists if int(name) >= len(lines)]
        if missing:
            raise UserError(f"{path} has {len(lines)} lines, none for list {missing[0]} (they count from 0)")
        return [lines[int(name)] for name in nbest.lists]
    right = {key: rest for key, _, rest in (line.partition(" ") for line in lines)}
    for name in nbest.lists:
        if name not in right:
            raise UserError(f"{path} has no line that begins with {name}")
    return [right[name] for name in nbest.lists]


def ranked(nbest: NBest, new_total: FloatArray) -> IntArray:
    """The hypotheses `[H]` list by list, best first; those that are as good in the order they stood in."""
    orders = [np.argsort(-new_total[a:b], kind="stable") + a for a, b in itertools.pairwise(nbest.offsets.tolist())]
    return np.concatenate(orders)


def write_nbest(folder: Path, nbest: NBest, log_prob: FloatArray, new_total: FloatArray) -> list[Path]:
    """Write the lists with their new totals `[H]`, best first, and the best of each as best.txt; returns the files.

    log_prob: `[H]`, natural, what the language model gives each hypothesis.
    """
    order = ranked(nbest, new_total).tolist()
    files: dict[str, list[str]] = {}
    if nbest.moses:
        files["nbest.txt"] = [_moses_line(nbest.fields[k], float(log_prob[k]), float(new_total[k])) for k in order]
    else:
        files["nbest.txt"] = [" ".join(nbest.fields[k]).rstrip() for k in order]
        files["nbest-costs.txt"] = [f"{nbest.fields[k][0]} {-new_total[k]:.9g}" for k in order]
    firsts = [order[at] for at in nbest.offsets[:-1].tolist()]
    files["best.txt"] = [f"{name} {nbest.words[k]}".rstrip() for name, k in zip(nbest.lists, firsts, strict=True)]
    for name, lines in files.items():
        with written_whole(folder / name) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [folder / name for name in files]


def _moses_line(fields: list[str], log_prob: float, total: float) -> str:
    name, hypothesis, *rest = fields
    features = f"{rest[0] if rest else ''} lmtool= {log_prob:.9g}".strip()
    return f" {BAR} ".join([name, hypothesis, features, f"{total:.9g}", *rest[2:]])
