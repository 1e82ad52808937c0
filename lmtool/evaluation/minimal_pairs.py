"""Accuracy on minimal pairs, each an acceptable and an unacceptable sentence: the share of pairs in which a model
prefers the acceptable one, by paradigm, phenomenon and field, as in BLiMP (Warstadt et al. 2020), with bootstrap
intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from lmtool.data.documents import decode_bytes, json_document, require_new_names
from lmtool.data.faults import STOP, STOP_AT_FAULTS, Faults
from lmtool.data.text_files import DownloadConfig, fetch, find_files, note_places, text_files
from lmtool.data.text_records import RecordBlock, record_blocks
from lmtool.errors import RecordError, UserError
from lmtool.evaluation.text_scores import Rows
from lmtool.system.arrays import FloatArray, IntArray

GOOD, BAD = "sentence_good", "sentence_bad"
PARADIGM, PHENOMENON, FIELD = "UID", "linguistics_term", "field"
BLIMP = "blimp"
BLIMP_FILE, BLIMP_MEMBERS = "blimp/BLiMP.zip", "::data/*.jsonl"
DOWNLOAD = DownloadConfig(
    "https://raw.githubusercontent.com/alexwarstadt/blimp/f5949a22b36a0e3a90b9932d4abe35ca77c5e8c8/BLiMP.zip",
    "sha256:172a1a714d72e72a89e8384dd531483f3d0f8a9aee3d33dccaf7992d8cecbb73",
)
TIE = 1e-5  # nats; sums of the same log-probabilities differ by less, through float32 networks and the order of adding
LEVEL = 0.95  # confidence level of the intervals
Pair = dict[str, Any]  # a record; its GOOD, BAD and PARADIGM are text


def pair_files(name: str, *, progress: bool) -> list[str]:
    """Return the files of text=: the files of BLiMP, downloaded unless they exist, or files as in text_files."""
    if name != BLIMP:
        return text_files(name, "text")
    note_places([BLIMP_FILE])
    files = find_files(BLIMP_FILE) or [str(fetch(DOWNLOAD, progress=progress))]
    return [f"{files[0]}{BLIMP_MEMBERS}"]


def read_pairs(
    names: Iterable[str], faults: Faults = STOP_AT_FAULTS, taken: Sequence[str] = ()
) -> tuple[list[Pair], list[str]]:
    """Return the records of files of JSON Lines or Parquet, and the file and line of each.

    The paradigm of a record without one is the name of its file and of its phenomenon, if any. faults: collects the
    faults of records, which are left out. taken: names that paradigms may not have.
    """
    pairs: list[Pair] = []
    places: list[str] = []
    first: dict[str, Pair] = {}
    named: dict[str, str] = {}  # files by their paradigms, if these are not given
    for block in record_blocks(names, GOOD, passed=faults.on_error != STOP):
        file = PurePosixPath(block.name.rpartition("::")[2]).name.partition(".")[0]
        for where, value in _records(block):
            record: Any = None
            with faults:
                if block.fault:
                    raise RecordError(block.fault)
                fields = json_document(value, where, "text") if isinstance(value, bytes) else value
                for name in (GOOD, BAD):
                    sentence = fields.get(name) if isinstance(fields, dict) else None
                    if not isinstance(sentence, str) or not sentence.strip():
                        rule = f"each is an object with the sentences {GOOD} and {BAD}"
                        raise RecordError(f"{where}: {name!r} is missing, empty or not text: {rule}")
                require_new_names(fields, taken, where)
                record = fields
            if record is None:
                continue
            paradigm = record.get(PARADIGM)
            if paradigm is None:
                paradigm = " ".join(str(part) for part in (file, record.get(PHENOMENON)) if part is not None)
                other = named.setdefault(paradigm, block.name)
                if other != block.name:
                    remedy = f"give the pairs a {PARADIGM}, or rename a file"
                    raise UserError(f"{where}: {other} has the same name: {remedy}")
            pairs.append(record | {PARADIGM: str(paradigm)})
            places.append(where)
            known = first.setdefault(str(paradigm), record)
            for key in (PHENOMENON, FIELD):
                if record.get(key) != known.get(key):
                    two = f"two values of {key}, {known.get(key)!r} and {record.get(key)!r}"
                    raise UserError(f"{where}: paradigm {paradigm!r} has {two}: give each a {PARADIGM}")
    if not pairs:
        raise UserError(": ".join([f"text={', '.join(names)}", "there are no pairs", *faults.first_messages[:1]]))
    return pairs, places


def _records(block: RecordBlock) -> Iterator[tuple[str, Any]]:
    """Yield each record, a line of JSON or a row as a dict, with its place."""
    if block.rows is not None:
        for number, record in enumerate(block.rows.to_pylist(), block.first):
            yield f"{block.name}, row {number}", {key: decode_bytes(value) for key, value in record.items()}
    elif block.fault:
        yield block.fault, None
    else:
        yield from block.records()


def outcomes(good: Rows, bad: Rows, *, per_token: bool) -> FloatArray:
    """Return 1 for each pair whose good sentence has the higher log p, 0.5 for a tie, else 0: float64 `[N]`."""
    scores = [rows["log_prob"] / (np.maximum(rows["tokens"], 1) if per_token else 1) for rows in (good, bad)]
    with np.errstate(invalid="ignore"):  # both may be -inf
        tie = (scores[0] == scores[1]) | (np.abs(scores[0] - scores[1]) <= TIE)
    return np.where(tie, 0.5, scores[0] > scores[1])


class Groups(NamedTuple):
    """The rows of a table of accuracies. paradigm_ids: the paradigm of each pair, int64 `[N]`. names: level and name of
    each of G groups. weights: float64 `[G, P]`; the accuracy of a group is the mean over paradigms with these weights.
    """

    paradigm_ids: IntArray
    names: list[tuple[str, str]]
    weights: FloatArray

    def totals(self, flags: Any) -> list[int]:
        """Return how many pairs of each group have a flag; flags: bool `[N]`."""
        return [int(total) for total in (self.weights > 0) @ np.bincount(self.paradigm_ids, flags)]


def group_pairs(pairs: Sequence[Pair]) -> Groups:
    """Return overall (the mean over paradigms, then over pairs), and the fields, phenomena and paradigms named."""
    first = {pair[PARADIGM]: pair for pair in reversed(pairs)}
    paradigms = sorted(first, key=lambda name: (*(str(first[name].get(key)) for key in (FIELD, PHENOMENON)), name))
    ids = {name: k for k, name in enumerate(paradigms)}
    paradigm_ids = np.array([ids[pair[PARADIGM]] for pair in pairs])
    groups = {("overall", "mean over paradigms"): np.ones(len(paradigms))}
    if len(paradigms) > 1:
        groups["overall", "mean over pairs"] = np.bincount(paradigm_ids).astype(np.float64)
    for level, key in (("field", FIELD), ("phenomenon", PHENOMENON), ("paradigm", PARADIGM)):
        for k, name in enumerate(paradigms):
            if (value := first[name].get(key)) is not None:
                groups.setdefault((level, str(value)), np.zeros(len(paradigms)))[k] = 1
    weights = np.array(list(groups.values()))
    return Groups(paradigm_ids, list(groups), weights / weights.sum(axis=1, keepdims=True))


def accuracies(outcome: FloatArray, groups: Groups, *, resamples: int, seed: int) -> dict[str, list[float]]:
    """Return the accuracy of each group, given the outcomes `[N]`, and the limits of its interval by the bootstrap.

    The pairs of each paradigm are drawn with replacement: the numbers of wins, ties and losses are multinomial.
    """
    rng, points = np.random.default_rng(seed), np.array([1.0, 0.5, 0.0])
    counts = np.stack([np.bincount(groups.paradigm_ids, outcome == value) for value in points], axis=1)  # [P, 3]
    drawn = np.zeros((resamples, len(groups.names)))
    for k, (count, size) in enumerate(zip(counts, counts.sum(axis=1), strict=True)):
        shares = rng.multinomial(int(size), count / size, resamples) @ points / size  # [B]
        (used,) = np.nonzero(groups.weights[:, k])
        drawn[:, used] += shares[:, None] * groups.weights[used, k]
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0).tolist()
    return {"accuracy": (groups.weights @ (counts @ points / counts.sum(axis=1))).tolist(), "lower": low, "upper": high}
