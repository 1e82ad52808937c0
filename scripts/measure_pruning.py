"""The measurement of pruning for ./scripts/measure: size against perplexity."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure_spark import text_words

SHARES = (0.5, 0.3)  # of the n-grams, besides
CUTOFFS = ([0, 0, 1], [0, 1, 1], [0, 1, 2], [0, 2, 2], [0, 3, 3], [0, 5, 5], [0, 9, 9], [0, 19, 19])
VARIKN = ("0.005", "0.02", "0.05", "0.1", "0.3")  # thresholds of counts2kn -p


def pruning(data: Path, lmtool: Callable[..., float]) -> None:
    """A curve for each of PARTS=ptb3,ptb5,big5; VARIKN=counts2kn adds that program's models of PTB, order 3."""
    for part in os.environ.get("PARTS", "ptb3,ptb5,big5").split(","):
        words = ["data=ptb"] if part.startswith("ptb") else text_words("big20", data)
        lmtool("preprocess", *words, "store_dir=stores-" + part)
        store = next(Path("stores-" + part).glob("*.h5"))
        curve(part, store, int(part[-1]))
        if part == "ptb3" and os.environ.get("VARIKN"):
            varikn(Path(os.environ["VARIKN"]), store, data)


def limited(data: Path, lmtool: Callable[..., float]) -> None:
    """Brown, order 4: the words seen 3 times or more in the first nine tenths of its sentences, listed in two ways."""
    text = []
    with zipfile.ZipFile(data / "brown" / "brown.zip") as archive:
        for name in sorted(n for n in archive.namelist() if len(n) == 10 and n[-2:].isdigit()):
            lines = (line.split() for line in archive.read(name).decode().split("\n"))
            text += [" ".join(word.rsplit("/", 1)[0] for word in line) for line in lines if line]
    cut = len(text) * 9 // 10
    for name, part in (("train", text[:cut]), ("valid", text[cut:])):
        Path(f"{name}.txt").write_text("\n".join(part))
    counts = Counter(Path("train.txt").read_text().split())
    Path("words.txt").write_text("\n".join(word for word, count in counts.items() if count >= 3))
    words = ["data=text", "data.train=train.txt", "data.valid=valid.txt", "model=ngram", "model.order=4"]
    for setting in ("limit_vocabulary", "data.vocabulary.file"):
        lmtool("train", *words, f"{setting}=words.txt", f"hydra.run.dir={setting}")
        lmtool("eval", f"run={setting}", f"hydra.run.dir={setting}-valid")
        found = json.loads(Path(f"{setting}-valid/result.json").read_text())
        print(
            f"{setting}: {found['tokens']:,} tokens, {found['oov']:,} OOVs, perplexity {found['perplexity']:.2f}, "
            f"without OOVs {found['perplexity_without_oov']:.2f}"
        )


def curve(name: str, store: Path, order: int) -> None:
    """At the sizes that cut-offs give: these, entropy pruning, and pruning by expected gain."""
    from lmtool.ngram.estimation.estimate import estimate
    from lmtool.ngram.smoothers.absolute_discounting import ModifiedKneserNey

    with _Text(store, order) as text:
        smoother = ModifiedKneserNey(order)
        table = estimate(text.counts, smoother)
        total = sum(table.sizes)
        print(f"{name}: {total:,} n-grams, perplexity {text.perplexity(table):.3f}")
        print(
            f"{'cut-offs':<12} {'n-grams':>11} {'share':>7} {'cut-offs':>9} {'entropy':>9} {'gain':>9} {'seconds':>8}"
        )
        for share in SHARES:
            size = int(share * total)
            row = "".join(f"{cell:>10.3f}" for cell in text.pruned(table, smoother, size))
            print(f"{'':<12} {size:>11,} {share:>7.1%}{'':>10}{row}", flush=True)
        for cutoffs in CUTOFFS:
            rest = cutoffs[-1:] * (order - len(cutoffs))
            cut = estimate(text.counts, ModifiedKneserNey(order), cutoffs=cutoffs + rest)
            size, cells = sum(cut.sizes), [text.perplexity(cut)]
            start = time.perf_counter()
            cells += text.pruned(table, smoother, size)
            seconds = time.perf_counter() - start
            row = "".join(f"{cell:>10.3f}" for cell in cells)
            print(
                f"{','.join(map(str, cutoffs)):<12} {size:>11,} {size / total:>7.1%}{row} {seconds:>8.1f}", flush=True
            )


def varikn(program: Path, store: Path, data: Path) -> None:
    """At the sizes that variKN's counts2kn gives: its models, entropy pruning, and pruning by expected gain."""
    from lmtool.ngram.estimation.estimate import estimate
    from lmtool.ngram.smoothers.absolute_discounting import ModifiedKneserNey

    for name in ("train", "valid"):
        lines = (data / "ptb" / f"ptb.{name}.txt").read_text().splitlines()
        Path(f"varikn.{name}").write_text("".join(f"<s> {line.strip()} </s>\n" for line in lines if line.strip()))
    print(f"{'variKN -p':<12} {'n-grams':>11} {'variKN':>17} {'entropy':>9} {'gain':>9}")
    with _Text(store, 3) as text:
        smoother = ModifiedKneserNey(3)
        table = estimate(text.counts, smoother)
        for threshold in VARIKN:
            words = ["-n", "3", "-3", "-s", "-a", "-C", "-p", threshold, "-o", "varikn.valid"]
            subprocess.run([str(program), *words, "varikn.train", "varikn.arpa"], check=True, capture_output=True)
            size, found = _scored_arpa(Path("varikn.arpa"), data)
            row = "".join(f"{cell:>10.3f}" for cell in text.pruned(table, smoother, size))
            print(f"{threshold:<12} {size:>11,} {found:>17.3f}{row}", flush=True)


def _scored_arpa(path: Path, data: Path) -> tuple[int, float]:
    """The number of n-grams of variKN's file and its perplexity of PTB's valid, by KenLM's module; its fields are set
    apart by blanks, where the format has tabs.
    """
    import kenlm

    lines, order, size = [], 0, 0
    for line in path.read_text().splitlines():
        if found := re.match(r"\\(\d+)-grams:", line):
            order = int(found[1])
        elif found := re.match(r"ngram \d+=(\d+)", line):
            size += int(found[1])
        elif order and line and not line.startswith("\\"):
            fields = line.split()
            line = "\t".join([fields[0], " ".join(fields[1 : 1 + order]), *fields[1 + order :]])
        lines.append(line)
    Path("tabs.arpa").write_text("\n".join(lines) + "\n")
    model = kenlm.Model("tabs.arpa")
    scores = [
        score
        for line in (data / "ptb" / "ptb.valid.txt").read_text().splitlines()
        for score, _, _ in model.full_scores(line)
    ]
    return size, 10 ** (-sum(scores) / len(scores))


class _Text:
    """A store, its counts, and what tables make of its valid split."""

    def __init__(self, store: Path, order: int) -> None:
        from lmtool.data.corpus import Corpus
        from lmtool.ngram.counting.counts import count_ngrams

        self.corpus = Corpus.open(store)
        self.counts = count_ngrams(self.corpus.text("train"), self.corpus.vocabulary, order)

    def __enter__(self) -> _Text:
        return self

    def __exit__(self, *_: object) -> None:
        self.corpus.close()

    def perplexity(self, table: Any) -> float:
        from lmtool.evaluation.score import perplexity
        from lmtool.ngram.models.ngram_model import NgramModel

        valid = self.corpus.split("valid")
        return perplexity(NgramModel(table, self.corpus.vocabulary).log_prob_text(valid.ids, valid.offsets))

    def pruned(self, table: Any, smoother: Any, size: int) -> list[float]:
        """Perplexities of the table pruned to a size by entropy and by expected gain."""
        from lmtool.ngram.pruning.entropy import prune_to_size_by_entropy
        from lmtool.ngram.pruning.gain import prune_to_size_by_gain

        by_entropy, _ = prune_to_size_by_entropy(table, size, self.corpus.vocabulary.eos)
        by_gain, _ = prune_to_size_by_gain(self.counts, smoother, table, size)
        return [self.perplexity(by_entropy), self.perplexity(by_gain)]
