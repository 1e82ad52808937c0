"""G.fst.txt: by hand, walked against the model's own log p, and beside kaldilm where that is installed."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.ngram.files import fst
from lmtool.ngram.files.arpa_model import arpa_model, write_arpa
from lmtool.ngram.files.fst import write_fst
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.pruning.entropy import prune_by_entropy
from lmtool.ngram.smoothers.relative_frequencies import StupidBackoff
from tests.conftest import Run
from tests.ngram.test_arpa import made

HAND = """\\data\\
ngram 1=6
ngram 2=5
ngram 3=3

\\1-grams:
-1	a	-0.5
-2	b	-0.25
-3	c	-0.125
-99	<s>	-1.5
-1.25	</s>
-4	<unk>

\\2-grams:
-0.5	a b	-0.75
-0.625	a c	-0.0625
-0.375	<s> a	-0.875
-0.1	b </s>
-0.2	c </s>

\\3-grams:
-0.25	<s> a b
-0.3	a b </s>
-0.35	<s> a c

\\end\\
"""


def in_log10(path: Path) -> list[str]:
    """Return the lines of G, with costs as positive log10."""
    lines = []
    for line in path.read_text().splitlines():
        *states, cost = line.split("\t")
        lines.append(" ".join([*states, f"{float(cost) / math.log(10):.4g}"]))
    return lines


def test_by_hand(tmp_path: Path) -> None:
    (tmp_path / "hand.arpa").write_text(HAND)
    model = arpa_model(str(tmp_path / "hand.arpa"))
    assert write_fst(model.table, model.vocabulary, tmp_path / "G.fst.txt") == []
    words = (tmp_path / "words.txt").read_text()
    assert words == "<eps> 0\na 1\nb 2\nc 3\n<unk> 4\n#0 5\n<s> 6\n</s> 7\n"
    # States: 0 <s>, 1 empty, 2 a, 3 b, 4 c, 5 a b, 6 <s> a. Nothing follows <unk> or a c: what leads there leads to
    # their longest suffixes with followers, and costs their back-off weights, 0 and 0.0625.
    assert in_log10(tmp_path / "G.fst.txt") == [
        *("0 1 5 0 1.5", "2 1 5 0 0.5", "3 1 5 0 0.25", "4 1 5 0 0.125", "5 3 5 0 0.75", "6 2 5 0 0.875"),
        *("1 2 1 1 1", "1 3 2 2 2", "1 4 3 3 3", "1 1 4 4 4", "1 1.25"),
        *("2 5 2 2 0.5", "2 4 3 3 0.6875", "0 6 1 1 0.375", "3 0.1", "4 0.2"),
        *("6 5 2 2 0.25", "6 4 3 3 0.4125", "5 0.3"),
    ]


Arcs = dict[int, list[tuple[int, int, float]]]  # of each state: next state, label, cost


def read(text: str) -> tuple[int, Arcs, dict[int, float]]:
    """Return the start state, arcs and final costs of an FST in OpenFst's text format."""
    rows = [line.split("\t") for line in text.splitlines() if line]
    arcs, final = Arcs(), dict[int, float]()
    for row in rows:
        if len(row) <= 2:
            final[int(row[0])] = float(row[1]) if len(row) == 2 else 0.0
        else:
            arcs.setdefault(int(row[0]), []).append((int(row[1]), int(row[2]), float(row[4]) if len(row) > 4 else 0.0))
    return int(rows[0][0]), arcs, final


def costs(text: str, words: list[int], backoff: int, *, only_if_needed: bool = False) -> float:
    """Return the cost of the best path of a sentence.

    only_if_needed: whether a path backs off only from a state without the next word, as the model does.
    """
    start, arcs, final = read(text)
    best = {start: 0.0}
    for word in [*words, None]:
        waiting = sorted(best)
        while waiting:  # back-off arcs lead to shorter contexts, so that this ends
            state = waiting.pop()
            has = state in final if word is None else any(label == word for _, label, _ in arcs.get(state, []))
            for after, label, cost in arcs.get(state, []):
                backs_off = label == backoff and not (only_if_needed and has)
                if backs_off and best[state] + cost < best.get(after, math.inf):
                    best[after] = best[state] + cost
                    waiting.append(after)
            if only_if_needed and not has:
                del best[state]
        if word is None:
            return min((cost + final[state] for state, cost in best.items() if state in final), default=math.inf)
        following: dict[int, float] = {}
        for state, so_far in best.items():
            for after, label, cost in arcs.get(state, []):
                if label == word:
                    following[after] = min(following.get(after, math.inf), so_far + cost)
        best = following
    raise AssertionError


def own_costs(model: NgramModel, sentences: list[list[int]]) -> list[float]:
    """-log p of sentences under the model itself."""
    ids = [[*words, model.vocabulary.eos] for words in sentences]
    offsets = np.cumsum([0, *map(len, ids)])
    log_prob = model.log_prob_text(np.concatenate(ids).astype(np.int64), offsets)
    return (-np.add.reduceat(log_prob, offsets[:-1])).tolist()


def some_models() -> dict[str, tuple[NgramModel, Vocabulary]]:
    found = {f"order {n}": made(n) for n in (1, 2, 4)}
    table, vocabulary = made(4)
    found["pruned"] = prune_by_entropy(table, 1e-3, vocabulary), vocabulary
    found["8 bits"] = table.quantize(8), vocabulary
    found["stupid"] = made(3, StupidBackoff(3, alpha=0.4))
    return {name: (NgramModel(*each), each[1]) for name, each in found.items()}


def random_ids(vocabulary: Vocabulary, count: int) -> list[list[int]]:
    rng, last = random.Random(1), len(vocabulary) - 1
    ids = [i for i in range(last) if i != vocabulary.eos]
    return [[rng.choice(ids[: rng.choice([4, 20])]) for _ in range(rng.randrange(8))] for _ in range(count)]


@pytest.mark.parametrize("name", some_models())
def test_paths_cost_what_the_model_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fst, "NGRAMS_PER_WRITE", 7)
    model, vocabulary = some_models()[name]
    write_fst(model.table, vocabulary, tmp_path / "G.fst.txt")
    numbers = dict(line.split(" ") for line in (tmp_path / "words.txt").read_text().splitlines())
    text, sentences = (tmp_path / "G.fst.txt").read_text(), random_ids(vocabulary, 60)
    start, arcs, final = read(text)
    assert start == 0 and set(arcs) | set(final) == set(range(len(set(arcs) | set(final)))), "no gaps, as k2 reads them"
    better = 0
    for words, wanted in zip(sentences, own_costs(model, sentences), strict=True):
        labels = [int(numbers[vocabulary.words[word]]) for word in words]
        backoff = int(numbers["#0"])
        found, best = costs(text, labels, backoff, only_if_needed=True), costs(text, labels, backoff)
        if math.isinf(wanted):  # of an unseen <unk>, which has log10 p = -99 in G as in ARPA files
            assert best > 99 * math.log(10)
            continue
        assert found == pytest.approx(wanted, rel=1e-5, abs=1e-5)
        assert best <= wanted + 1e-4
        better += best < wanted - 1e-4
    # Up to order 2, the state after a word is the same with and without backing off, and the direct arc costs less.
    assert better == 0 if name in ("order 1", "order 2") else better < len(sentences)


@pytest.mark.tool("kaldilm")
@pytest.mark.parametrize("name", some_models())
def test_best_paths_are_those_of_kaldilm(name: str, tmp_path: Path) -> None:
    import kaldilm

    model, vocabulary = some_models()[name]
    write_fst(model.table, vocabulary, tmp_path / "G.fst.txt")
    write_arpa(model.table, vocabulary, tmp_path / "model.arpa")
    theirs = kaldilm.arpa2fst(
        str(tmp_path / "model.arpa"), disambig_symbol="#0", read_symbol_table=str(tmp_path / "words.txt")
    )
    ours, backoff = (tmp_path / "G.fst.txt").read_text(), len(vocabulary) - 1
    for words in random_ids(vocabulary, 100):
        labels = [word + 1 - (vocabulary.eos is not None and word > vocabulary.eos) for word in words]
        assert costs(ours, labels, backoff) == pytest.approx(costs(theirs, labels, backoff), rel=1e-4)


def test_numbers_of_a_lexicon(tmp_path: Path) -> None:
    """As arpa2fst --read-symbol-table: n-grams with words that are not in the table are left out."""
    (tmp_path / "hand.arpa").write_text(HAND)
    (tmp_path / "lexicon.txt").write_text("<eps>\t0\na 7\n<UNK> 8\nc 9\n#0 20\n<s> 21\n</s> 22\n")
    model = arpa_model(str(tmp_path / "hand.arpa"))
    assert write_fst(model.table, model.vocabulary, tmp_path / "G.fst.txt", str(tmp_path / "lexicon.txt")) == ["b"]
    # Without b, a is followed by c alone, and a b is no state any more.
    assert in_log10(tmp_path / "G.fst.txt") == [
        *("0 1 20 0 1.5", "2 1 20 0 0.5", "3 1 20 0 0.125", "4 2 20 0 0.875"),
        *("1 2 7 7 1", "1 3 9 9 3", "1 1 8 8 4", "1 1.25"),
        *("2 3 9 9 0.6875", "0 4 7 7 0.375", "3 0.2", "4 3 9 9 0.4125"),
    ]
    assert not (tmp_path / "words.txt").exists()


def test_mistakes(tmp_path: Path) -> None:
    (tmp_path / "hand.arpa").write_text(HAND)
    model, to = arpa_model(str(tmp_path / "hand.arpa")), tmp_path / "G.fst.txt"
    for content, said in (
        ("a 1\n", "also for #0"),
        ("a 1\nb 1\n#0 2\n", "gives two words the same"),
        ("a 1\nb\n#0 2\n", "a word and its number in each line"),
    ):
        (tmp_path / "lexicon.txt").write_text(content)
        with pytest.raises(UserError, match=said):
            write_fst(model.table, model.vocabulary, to, str(tmp_path / "lexicon.txt"))
    (tmp_path / "words.txt").write_text("<eps> 0\na 1\n")
    with pytest.raises(UserError, match=r"words\.txt has other words: set symbol_table="):
        write_fst(model.table, model.vocabulary, to)
    named = Vocabulary(("a", "b", "#0", *model.vocabulary.words[3:]), model.vocabulary.counts, 4, 3)
    with pytest.raises(UserError, match="cannot have the word '#0'"):
        write_fst(model.table, named, to)
    with pytest.raises(UserError, match="has no </s>, without which no path of G ends"):
        write_fst(model.table, replace(model.vocabulary, eos=None), to)
    assert not to.exists()


def test_from_the_command_line(lmtool: Run, runs: Path) -> None:
    said = lmtool("convert", f"run={runs}/kn3", "to=lang/G.fst.txt")
    assert said.startswith("wrote lang/G.fst.txt: ") and Path("lang/words.txt").is_file()
    lmtool("convert", f"run={runs}/kn3", "to=kn3.arpa")
    lmtool("convert", "arpa=kn3.arpa", "symbol_table=lang/words.txt", "to=lm/G_3_gram.fst.txt")
    a, b = (read(Path(name).read_text()) for name in ("lang/G.fst.txt", "lm/G_3_gram.fst.txt"))
    assert len(a[1]) == len(b[1]) and sorted(a[2].values()) == pytest.approx(sorted(b[2].values()))
    lmtool("export", f"run={runs}/kn3", "to=again/G.fst.txt")
    assert Path("again/G.fst.txt").read_bytes() == Path("lang/G.fst.txt").read_bytes()
    Path("few.txt").write_text("<eps> 0\nthe 1\n#0 2\n")
    assert "words not in few.txt, such as" in lmtool(
        "convert", "arpa=kn3.arpa", "symbol_table=few.txt", "to=few.fst.txt"
    )
    said = lmtool("convert", f"run={runs}/kn3", "symbol_table=few.txt", "to=x.arpa", code=2)
    assert "symbol_table=few.txt: must be null unless to=G.fst.txt" in said
    stream = ["data=text", "data.name=stream", "data.train=s.txt", "data.valid=s.txt", "data.sentences=false"]
    Path("s.txt").write_text("a b a b b a\n")
    lmtool("train", "model=ngram", "model.order=2", *stream, "hydra.run.dir=stream")
    said = lmtool("convert", "run=stream", "to=stream/G.fst.txt", code=2)
    assert "the model has no </s>" in said and said.count("\n") == 1
