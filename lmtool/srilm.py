"""SRILM's commands ngram-count, ngram and compute-best-mix, computed by lmtool's own functions.

python -m lmtool.srilm ngram-count -order 3 -text train.txt -lm kn.arpa.gz     # or lmtool-ngram-count ...
python -m lmtool.srilm link FOLDER     # writes files with SRILM's names, for scripts that find them by PATH
"""

from __future__ import annotations

import argparse
import io
import itertools
import re
import shlex
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from lmtool import __main__
from lmtool.config.rules import require
from lmtool.data.readers import read_blocks, read_stream
from lmtool.data.standard_input import INPUT, standard_input
from lmtool.data.text_form import TextForm, split_of_text
from lmtool.data.text_rules import TextRules
from lmtool.data.tokenizer import RESERVED, split_words
from lmtool.data.vocabulary import BOS, EOS, UNK, Vocabulary
from lmtool.errors import UserError
from lmtool.evaluation.other_tools import Part, detail_lines, read_scores
from lmtool.evaluation.token_scores import tokens_of
from lmtool.mixtures.linear import Mixture, mix
from lmtool.mixtures.static import mix_static
from lmtool.ngram.counting.counts import Counts, count_text
from lmtool.ngram.estimation.estimate import estimate_per_order
from lmtool.ngram.files.arpa_model import arpa_table, vocabulary_of, write_arpa
from lmtool.ngram.files.arpa_read import read_arpa
from lmtool.ngram.files.count_files import CountFiles, counted_train, read_counts, write_counts
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.pruning.entropy import prune_by_entropy, prune_low_probabilities
from lmtool.ngram.query.sums import check_sums, renormalize
from lmtool.ngram.smoothers.srilm_options import srilm_smoother
from lmtool.ngram.tables.storage import Storage
from lmtool.system.arrays import LN10, IntArray, decimal
from lmtool.system.files import atomic_write, packed_file
from lmtool.text_model import TextModel

Options = dict[str, Any]
STREAMS = ("-", "/dev/stdin", "/dev/stdout")
BOUNDARIES = re.compile(rb"^[ \t]*<s>(?=\s)|(?<=[ \t])</s>(?=[ \t\r]*$)", re.MULTILINE)

# The options of each command by the type of their values, bool for those without; # is an order from 1 to 9.
OPTIONS: dict[str, dict[Any, str]] = {
    "ngram-count": {
        str: "text read vocab write write-vocab lm map-unk",
        int: "order debug gt#min gt#max",
        float: "prune addsmooth addsmooth# cdiscount cdiscount#",
        bool: "unk limit-vocab tolower sort memuse interpolate interpolate# kndiscount kndiscount# ukndiscount "
        "ukndiscount# wbdiscount wbdiscount#",
    },
    "ngram": {
        str: "lm mix-lm mix-lm# ppl write-lm vocab map-unk rescore nbest",
        int: "order debug bayes gen seed",
        float: "prune lambda mix-lambda# rescore-lmw rescore-wtw",
        bool: "unk limit-vocab renorm tolower prune-lowprobs memuse",
    },
    "compute-best-mix": {str: "lambda", float: "precision"},
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog}: {message}: {self.prog} -help lists the options that lmtool has")


def parse(command: str, words: list[str]) -> Options:
    """Return the options on a line with their values, by their names with _ for -."""
    parser = _Parser(prog=command, allow_abbrev=False, add_help=False, argument_default=argparse.SUPPRESS)
    parser.add_argument("-help", action="help")
    if command == "compute-best-mix":
        parser.add_argument("files", nargs="+")
        words = [re.sub("^(lambda|precision)=", r"-\1=", word) for word in words]
    for kind, names in OPTIONS[command].items():
        for name in names.split():
            for each in dict.fromkeys(name.replace("#", str(order)) for order in range(1, 10)):
                value = {"action": "store_true"} if kind is bool else {"type": number if kind is float else kind}
                parser.add_argument(f"-{each}", **value)
    for files in ("-text", "-read", "-lm", "-mix-lm", "-ppl"):  # of two files one would be left out without a word
        if words.count(files) > 1:
            parser.error(f"{files}: give it once")
    given = vars(parser.parse_args(words))
    if "limit_vocab" in given and "vocab" not in given:
        parser.error("-limit-vocab: needs -vocab FILE")
    require("order" not in given or 1 <= given["order"] <= 16, f"{command} -order", given.get("order"), "from 1 to 16")
    require(given.get("prune", 0) >= 0, f"{command} -prune", given.get("prune"), "0 or more")
    require(len(given.get("map_unk", UNK).split()) == 1, f"{command} -map-unk", given.get("map_unk"), "a word")
    return given


def number(value: str) -> float:
    """Return the value of an option. Raises ValueError if it is not a finite number."""
    if not np.isfinite(result := float(value)):
        raise ValueError
    return result


def _blocks(name: str) -> Iterator[bytes]:
    """Yield blocks of whole lines of a file or of standard input."""
    return read_stream(standard_input(), INPUT) if name in STREAMS else read_blocks(name, tables=True)


def _text(name: str) -> Iterator[bytes]:
    """Yield the blocks of a text without `<s>` and `</s>` at the ends of lines."""
    return (BOUNDARIES.sub(b"", block) if b"s>" in block else block for block in _blocks(name))


def _lines(name: str) -> Iterator[bytes]:
    return (line for block in _blocks(name) for line in io.BytesIO(block))


@contextmanager
def _written(name: str) -> Iterator[Path]:
    """Yield the path to write a file to; if it is standard output, what was written is then copied there."""
    with tempfile.TemporaryDirectory(prefix="lmtool-") as folder:
        path = Path(folder) / "standard-output" if name in STREAMS else Path(name)
        yield path
        if name in STREAMS:
            with path.open(encoding="utf-8", newline="") as file:
                shutil.copyfileobj(file, sys.stdout)


def _listed(given: Options) -> list[str] | None:
    """Return the words of -vocab, one per line, where ## begins a comment; None without it."""
    lines = (line for line in _lines(given["vocab"]) if not line.startswith(b"##")) if "vocab" in given else ()
    words = [line.split()[0].decode() for line in lines if line.strip()]
    return list(dict.fromkeys(word.lower() if "tolower" in given else word for word in words)) or None


def _named(vocabulary: Vocabulary, given: Options) -> Vocabulary:
    """Return the vocabulary with the name of -map-unk for `<unk>`."""
    unk = given.get("map_unk", UNK)
    return replace(vocabulary, words=tuple(unk if word == UNK else word for word in vocabulary.words))


def ngram_count(given: Options) -> None:
    """Count, and write what the options name."""
    if ("text" in given) == ("read" in given) or not given.keys() & {"lm", "write", "write_vocab"}:
        raise UserError("ngram-count: give one of -text FILE and -read FILE, and -lm, -write or -write-vocab FILE")
    rules = TextRules(lowercase="tolower" in given)
    if "text" in given:
        words, order = _listed(given), given.get("order", 3)
        counts, vocabulary, places = count_text(_text(given["text"]), order, rules, words, given.get("map_unk"))
    else:
        counts, vocabulary, places = _read_counts(given, rules)
    named = _named(vocabulary, given)
    if "write_vocab" in given:
        ordered = dict.fromkeys([named.words[vocabulary.unk], BOS, EOS, *named.words])
        with (
            _written(given["write_vocab"]) as path,
            atomic_write(path) as temporary,
            packed_file(temporary, path) as file,
        ):
            file.write("\n".join([*ordered, ""]).encode())
    if "write" in given:
        with _written(given["write"]) as path:
            write_counts(counts, named, places, path)
            if "sort" in given:
                lines = sorted(_lines(str(path)), key=lambda line: line.split()[:-1])
                with atomic_write(path) as temporary, packed_file(temporary, path) as file:
                    file.writelines(lines)
    if "lm" in given:
        closed = "unk" not in given
        smoother = srilm_smoother(given, counts.order, len(vocabulary) - 1 - closed)
        table = estimate_per_order(counts, smoother, closed=closed)
        for note in smoother.notes:
            print(f"note: {note}", file=sys.stderr)
        if "prune" in given:
            table = prune_by_entropy(table, given["prune"], vocabulary)
        with _written(given["lm"]) as path:
            write_arpa(table, named, path, closed=closed)


def _read_counts(given: Options, rules: TextRules) -> tuple[Counts, Vocabulary, IntArray]:
    """Return the counts of a file, as count_text does; with -limit-vocab, of n-grams with words of -vocab alone."""
    listed, path, order = _listed(given), given["read"], given.get("order", 3)
    with tempfile.TemporaryDirectory(prefix="lmtool-") as folder:
        if path in STREAMS or "limit_vocab" in given:  # the file is read once for each order
            known = {word.encode() for word in (*(listed or ()), *RESERVED)}
            all_known = (line for line in _lines(path) if known.issuperset(line.split()[:-1]))
            content = b"".join(all_known if "limit_vocab" in given else _blocks(path))
            path = f"{folder}/counts"
            Path(path).write_bytes(content)
        files = CountFiles([path], [1])
        words = [word for word in listed or files.unigrams() if word != given.get("map_unk")]
        train = counted_train(files, None, rules, words)
        counts = read_counts(files, train.vocabulary, train.first_places, rules, order, Storage())
    return counts, train.vocabulary, train.first_places


def ngram(given: Options) -> None:
    """Read, mix, prune and use models."""
    require("lm" in given, "ngram -lm", "", "the name of an ARPA file")
    for name, values, text in (("debug", range(3), "0, 1 or 2"), ("bayes", range(1), "0")):
        require(given.get(name, 0) in values, f"ngram -{name}", given.get(name), text)
    if "mix_lm" not in given and any(key.startswith("mix_lm") for key in given):
        raise UserError("ngram -mix-lm2: needs -mix-lm FILE, the model whose weight is what the others leave")
    models, weights = _members(given)
    vocabulary = models[0].vocabulary
    model: Mixture | NgramModel = Mixture(list(models), np.array(weights))
    if "bayes" not in given:
        table, total = models[0].table, weights[0]
        for other, weight in zip(models[1:], weights[1:], strict=True):  # one after the other, as SRILM mixes
            total += weight
            shares = np.array([1 - weight / total, weight / total] if total else [1.0, 0.0])
            table = mix_static([NgramModel(table, vocabulary), other], shares, vocabulary)
        if "renorm" in given:
            table = renormalize(table)
        if not table.normalized:
            low, high = check_sums(table, vocabulary.eos)[1:]
            print(f"note: probabilities sum to {low:.4g} to {high:.4g}: -renorm divides by the sums", file=sys.stderr)
        if "prune" in given:
            table = prune_by_entropy(table, given["prune"], vocabulary)
        if "prune_lowprobs" in given:
            table = prune_low_probabilities(table)
        if "write_lm" in given:
            closed = table.log_prob[vocabulary.unk : vocabulary.unk + 1][0] == -np.inf
            with _written(given["write_lm"]) as path:
                write_arpa(table, _named(vocabulary, given), path, closed=bool(closed))
        model = NgramModel(table, vocabulary)
    elif given.keys() & {"write_lm", "prune", "prune_lowprobs", "renorm"}:
        raise UserError("ngram -bayes 0: makes no single model, as -write-lm, -prune, -prune-lowprobs and -renorm need")
    text_model = TextModel(model, TextForm(vocabulary, rules=TextRules(lowercase="tolower" in given)))
    if "gen" in given:
        print(*text_model.generate(count=given["gen"], length=1000, seed=given.get("seed")), sep="\n")
    for name in given.keys() & {"rescore", "nbest"}:
        _rescore(given, given[name], text_model, reorder=name == "nbest")
    if "ppl" in given:
        level, parts = given.get("debug", 0), _scored(given, model, text_model.form)
        lines = detail_lines(parts, sentences=True, name=given["ppl"], unk=vocabulary.unk)
        for line in lines if level else deque(lines, 2):
            if level > 1 or not line.startswith("\tp( "):
                print(line)


def _scored(given: Options, model: Mixture | NgramModel, form: TextForm) -> Iterator[Part]:
    """Yield the parts of -ppl for detail_lines as they arrive."""
    for block in _text(given["ppl"]):
        split, matched = split_of_text([block], given["ppl"], form)[0], None
        if given.get("debug", 0) > 1 and isinstance(model, NgramModel):
            matched = model.map_text(model.matched_lengths, split)
        yield tokens_of(split, _named(form.vocabulary, given)), model.score_text(split), matched, split.offsets


def _members(given: Options) -> tuple[list[NgramModel], list[float]]:
    """Return the models of -lm, -mix-lm and so on, over the words of all of them and of -vocab, and their weights; with
    -limit-vocab, without n-grams that have words that are not in it.
    """
    keys = sorted(key for key in given if key == "lm" or key.startswith("mix_lm"))
    weights = [given.get(key.replace("lm", "lambda"), 0.5 if key == "lm" else 0.0) for key in keys]
    rest = min(1, len(keys) - 1)  # the model whose weight is not given: that of -mix-lm, or the only one
    left = weights[rest] + 1 - sum(weights)
    require(min(left, *weights) > -1e-9, "ngram -lambda", weights[0], "0 or more, and at most 1 with all -mix-lambdaN")
    weights[rest] = max(left, 0.0)
    files = ["/dev/stdin" if given[key] == "-" else given[key] for key in keys]
    arpas = [replace(arpa, grams=arpa.grams[: given.get("order", 3)]) for arpa in map(read_arpa, files)]
    listed = _listed(given) or []
    words = dict.fromkeys([*(word for arpa in arpas for word in arpa.words), *listed])
    vocabulary = vocabulary_of(list(words), ends=True)
    models = [NgramModel(arpa_table(arpa, vocabulary), vocabulary) for arpa in arpas]
    return [model.limit(listed) for model in models] if "limit_vocab" in given else models, weights


def _rescore(given: Options, name: str, model: TextModel, *, reorder: bool) -> None:
    """Print the hypotheses of a file in SRILM's own format, with new scores. reorder: best first."""
    hypotheses: list[tuple[float, str]] = []
    for line in map(bytes.decode, _lines(name)):
        acoustic, *rest = split_words(line) or [""]
        if len(rest) < 2 or np.isnan([decimal(acoustic), decimal(rest[0])]).any() or not rest[1].isdecimal():
            what = "ACOUSTIC-SCORE LM-SCORE NUMBER-OF-WORDS and words; lmtool rescore reads Moses's files"
            raise UserError(f"{name}: {line.rstrip()!r} is not {what}")
        log_prob, words = model.score([rest[2:]])[0], len(rest) - 2
        score = float(log_prob[log_prob > -np.inf].sum()) / LN10  # words with probability 0 are left out, as in SRILM
        total = decimal(acoustic) + given.get("rescore_lmw", 8.0) * score + given.get("rescore_wtw", 0.0) * words
        hypotheses.append((-total, " ".join([acoustic, f"{score:.7g}", str(words), *rest[2:]])))
        if not reorder:
            print(hypotheses.pop()[1])
    for _, scored in sorted(hypotheses, key=lambda pair: pair[0]):
        print(scored)


def compute_best_mix(given: Options) -> None:
    """Fit the weights of outputs of `ngram -debug 2 -ppl` by EM, until none changes by more than -precision."""
    scores = [read_scores(name).log_prob for name in given["files"]]
    weights = np.array([decimal(value) for value in given.get("lambda", " ".join("1" * len(scores))).split()])
    usable = len(scores) == len(weights) and weights.min() >= 0 < weights.sum() < np.inf
    if len({len(log_prob) for log_prob in scores}) > 1 or not usable:
        raise UserError("compute-best-mix: give scores of one text, and as many weights of 0 or more by -lambda 'A B'")
    log_prob = np.stack(scores)
    log_prob, weights = log_prob[:, (log_prob > -np.inf).any(axis=0)], weights / weights.sum()

    def listed(values: Any) -> str:
        return f"({' '.join(f'{value:g}' for value in values)})"

    for iteration in itertools.count(1):
        mixed, before = mix(log_prob, weights), weights
        print(f"iteration {iteration}, lambda = {listed(weights)}, ppl = {np.exp(-mixed.mean()):g}", file=sys.stderr)
        weights = weights * np.exp(log_prob - mixed).mean(axis=1)
        if not np.abs(weights - before).max() > max(given.get("precision", 0.001), 0):
            break
    print(f"{log_prob.shape[1]} non-oov words, best lambda {listed(weights)}")
    print(f"pairwise cumulative lambda {listed(weights / np.cumsum(weights))}")


COMMANDS = {"ngram-count": ngram_count, "ngram": ngram, "compute-best-mix": compute_best_mix}


def command(words: list[str]) -> int:
    """Run a command of SRILM, given its name and options, and return 0; or write executable files with the commands'
    names into a folder.
    """
    name, *rest = words or [""]
    if name in COMMANDS:
        COMMANDS[name](parse(name, rest))
    elif name == "link" and len(rest) == 1:
        for name in COMMANDS:
            with atomic_write(Path(rest[0], name)) as temporary:
                temporary.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m lmtool.srilm {name} "$@"\n')
            Path(rest[0], name).chmod(0o755)
        print(f"wrote {', '.join(COMMANDS)} into {rest[0]}: put it first in PATH")
    else:
        raise UserError(f"python -m lmtool.srilm {name}: use {', '.join(COMMANDS)} with options, or link FOLDER")
    return 0


def run() -> NoReturn:
    """Run this process's command, named by its console script or by its first word, and end the process."""
    name = Path(sys.argv[0]).stem.removeprefix("lmtool-")
    __main__.run(lambda words: command([name, *words] if name in COMMANDS else words))


if __name__ == "__main__":
    run()
