"""Items of `surprisal`: no context, position, lag or cache crosses one, and several texts in one are found."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lmtool as python
from lmtool.errors import UserError
from tests.conftest import NEURAL, Run

# Each bigram that is not listed has the probability of its second word, as no word has a back-off weight.
P1 = {"<unk>": 0.05, "</s>": 0.15, "when": 0.2, "the": 0.25, "dog": 0.2, "ran": 0.15}
P2 = {
    ("<s>", "when"): 0.1, ("<s>", "the"): 0.5, ("when", "the"): 0.8, ("the", "dog"): 0.4, ("dog", "ran"): 0.3,
    ("ran", "when"): 0.0125, ("ran", "</s>"): 0.6,
}  # fmt: skip
CONDITIONS = {"garden": "when the dog ran ran", "comma": "when the dog ran the dog"}


def arpa() -> str:
    one = [f"{math.log10(p):.7f}\t{word}" for word, p in P1.items()] + ["-99\t<s>"]
    two = [f"{math.log10(p):.7f}\t{a} {b}" for (a, b), p in P2.items()]
    sections = [f"\\{n}-grams:\n" + "\n".join(lines) + "\n" for n, lines in enumerate([one, two], 1)]
    return f"\\data\\\nngram 1={len(one)}\nngram 2={len(two)}\n\n" + "\n".join(sections) + "\n\\end\\\n"


def bits(text: str) -> list[float]:
    """Return the surprisals of the words of a text without context."""
    words = text.split()
    pairs = zip(["<s>", *words], words, strict=False)
    return [-math.log2(P2.get((a, b), P1.get(b, 0.05))) for a, b in pairs]


def rows_of(items: dict[Any, dict[str, str]], **more: Callable[[int, int, int], Any]) -> list[dict[str, Any]]:
    """Return a row per word of the texts of items, by condition. more: columns, from the numbers of text, word, row."""
    rows: list[dict[str, Any]] = []
    for item, conditions in items.items():
        for n, (condition, text) in enumerate(conditions.items()):
            for k, word in enumerate(text.split()):
                own = {name: value(n, k, len(rows)) for name, value in more.items()}
                rows.append({"item": item, "cond": condition, **own, "word": word})
    return rows


def written(rows: list[dict[str, Any]], name: str) -> str:
    with Path(name).open("w", newline="") as file:
        if name.endswith(".jsonl"):
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    return name


@pytest.fixture
def files(lmtool: Run) -> Run:
    Path("m.arpa").write_text(arpa())
    return lmtool


ITEMS = {1: CONDITIONS, 2: {"garden": "the dog ran", "comma": "the dog when"}}


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "frame"])
def test_several_columns_tell_items_apart(name: str, files: Run) -> None:
    rows = rows_of(ITEMS)
    texts = [text for conditions in ITEMS.values() for text in conditions.values()]
    if name == "frame":
        pandas = pytest.importorskip("pandas")
        found = python.surprisal("m.arpa", pandas.DataFrame(rows), item_column=["item", "cond"], spillover=2)
        table = found.astype(object).where(found.notna(), None).to_dict("records")
        assert "sentence" in found and list(found)[:3] == ["item", "cond", "word"]
    else:
        words = ("arpa=m.arpa", f"text={written(rows, name)}", "item_column=item,cond", "spillover=2", "to=o.jsonl")
        assert f"{name}: 17 words, 4 sentences, 4 items" in files("surprisal", *words)
        table = [json.loads(line) for line in Path("o.jsonl").read_text().splitlines()]
    assert [row["position"] for row in table] == [k for text in texts for k in range(1, len(text.split()) + 1)]
    wanted = [bits(text) for text in texts]
    assert [row["surprisal_bits"] for row in table] == pytest.approx([b for text in wanted for b in text], abs=1e-5)
    for back in (1, 2):
        lagged = [b for text in wanted for b in [None] * back + text[:-back]]
        assert [row[f"surprisal_bits_prev{back}"] for row in table] == [
            b and pytest.approx(b, abs=1e-5) for b in lagged
        ]


def test_conditions_of_an_item_are_refused_with_the_columns_name(files: Run) -> None:
    ask = ("surprisal", "arpa=m.arpa", "text=t.csv")
    for more in ({}, {"n": lambda n, k, row: k + 1}, {"rt": lambda n, k, row: 300 + 7 * row % 90}):
        written(rows_of(ITEMS, **more), "t.csv")
        said = files(*ask, code=2)
        assert "t.csv, row 6: item 1 is several texts of similar words, by column cond" in said
        assert "item_column=item,cond" in said
    # the texts end in periods; words have numbers, and there is no column of conditions
    dots = {item: {c: f"{t}." for c, t in conditions.items()} for item, conditions in ITEMS.items()}
    rows = rows_of(dots, n=lambda n, k, row: k)
    written([{key: value for key, value in row.items() if key != "cond"} for row in rows], "t.csv")
    assert (
        "row 6: item 1 is several texts of similar words, by column n: tell them apart by item_column=item,COLUMN"
        in (files(*ask, code=2))
    )
    # subjects who read the same texts, and a table without a column item
    rows = [
        {"who": who, **row} for item in (1, 2) for who in "ab" for row in rows_of({item: {"c": ITEMS[item]["comma"]}})
    ]
    written(rows, "t.csv")
    assert "by column who: tell them apart by item_column=item,who" in files(*ask, code=2)
    written([{"who": row["who"], "word": row["word"]} for row in rows if row["item"] == 1], "t.csv")
    assert "by column who: tell them apart by item_column=who" in files(*ask, code=2)
    assert "2 items" in files(*ask, "item_column=who")
    # a word's rows of all conditions or subjects together
    rows = [{"item": item, "who": who, "word": word} for item in (1, 2) for word in ("dog", "ran") for who in "pqr"]
    for kept in (rows, [row for row in rows if row["who"] != "r"]):
        written(kept, "t.csv")
        said = files(*ask, code=2)
        assert "t.csv, row 2: item 1 has each word in several rows, by column who: sort the table by it" in said
        assert "set item_column=item,who" in said
    pandas = pytest.importorskip("pandas")
    with pytest.raises(UserError, match=r"text, row 6: item 1 is several texts .* by column cond"):
        python.surprisal("m.arpa", pandas.DataFrame(rows_of(ITEMS)))


def test_texts_of_other_words_in_an_item_are_warned_of(files: Run) -> None:
    other = {1: {"x": "when the dog ran", "y": "dog dog ran"}, 2: {"x": "ran ran", "y": "the the when"}}
    written(rows_of(other), "t.csv")
    warned = "warning: t.csv, row 5: item 1 is read as one text, but column cond divides it: if it is several, set "
    assert f"{warned}item_column=item,cond" in files("surprisal", "arpa=m.arpa", "text=t.csv")
    rows = [{k: v for k, v in row.items() if k != "cond"} for row in rows_of(other, nr=lambda n, k, row: k + 1)]
    written(rows, "t.csv")
    assert "row 5: item 1 is read as one text, but column nr divides it" in (
        files("surprisal", "arpa=m.arpa", "text=t.csv")
    )
    pandas = pytest.importorskip("pandas")
    with pytest.warns(UserWarning, match="text, row 5: item 1 is read as one text, but column nr divides it"):
        python.surprisal("m.arpa", pandas.DataFrame(rows))


def story(sentences: int, shift: int) -> Iterator[tuple[int, int, int, str]]:
    """Sentence, word in sentence, word in story, word."""
    words, row = ["the", "dog", "ran", "when", "dog", "the", "ran"], 0
    for n in range(sentences):
        for k in range(3 + (n + shift) % 4):
            row += 1
            last = "." * (k == 2 + (n + shift) % 4)
            yield n + 1, k + 1, row, words[(3 * n + shift + k * k) % 7] + last


def test_other_columns_are_left_alone(files: Run) -> None:
    """Numbers within a sentence and a story, sentences by another name, speakers, regions, parts of speech, times."""
    rows = []
    for item, sentences in ((1, 3), (2, 4), (3, 3)):
        for n, k, zone, word in story(sentences, item):
            rows.append({
                "story": item, "word": word, "in_sentence": k, "zone": zone, "sent_nr": n, "speaker": "AB"[n % 2],
                "region": "pre" if k == 1 else "crit" if k == 2 else "post", "critical": int(k == 2), "pos": word[0],
                "rt": (len(rows) * 7919) % 400 + 200, "line": zone // 4, "page": f"p{item}",
            })  # fmt: skip
    written(rows, "t.csv")
    said = files("surprisal", "arpa=m.arpa", "text=t.csv", "item_column=story", "words=punctuation")
    assert f"{len(rows)} words, 10 sentences, 3 items" in said and "warning: t.csv, row" not in said


def test_item_columns_that_do_not_fit_are_named(files: Run) -> None:
    written(rows_of(ITEMS), "t.csv")
    ask = ("surprisal", "arpa=m.arpa", "text=t.csv")
    assert "item_column=story: t.csv has no such column, but item, cond, word" in (
        files(*ask, "item_column=[item,story]", code=2)
    )
    said = files(*ask, "item_column=cond", code=2)
    assert "t.csv, row 12: item garden began in row 1 and was interrupted" in said and "item_column=A,B" in said
    rows = rows_of({1: {"x": "the dog"}, 2: {"y": "ran when"}})
    written(rows, "t.csv")
    assert "4 words, 1 sentence, 1 item" in files(*ask, "item_column=[]")  # the table is one text
    rows = rows_of(ITEMS)
    rows[3]["cond"] = ""
    written(rows, "t.csv")
    assert "t.csv, row 4: it has no item (''): " in files(*ask, "item_column=[item,cond]", code=2)
    for wrong in ([1], 5, {"a": 1}):
        with pytest.raises(UserError, match=r"item_column"):
            python.surprisal("m.arpa", Path("t.csv"), item_column=wrong)


TEXTS = ["the cat sat on the mat", "a dog ran", "the dog sat on a mat"]
NETWORK = ["model.hidden_dim=6", "model.embedding_dim=6"]
KINDS = {
    "lstm": ["model=lstm", *(word for word in NEURAL if not word.startswith("model.")), *NETWORK],
    "letters": ["model=ngram", "model.order=4", "data=toy", "data.vocabulary.unit=char"],
    "pieces": ["model=ngram", "model.order=3", "data=toy", "data.vocabulary.unit=bpe", "data.vocabulary.size=280"],
    "stream": ["model=nplm", "model.across_sentences=true", *NEURAL],
}


READERS = [(kind, False) for kind in ("kn3", "nplm", "hs", "mix", "unigram", "neural", *KINDS)]


@pytest.mark.parametrize(("kind", "across"), [*READERS, ("lstm", True), ("stream", True)])
def test_each_item_has_the_surprisals_that_it_has_alone(kind: str, across: bool, runs: Path, lmtool: Run) -> None:
    """As rows of a table, and as files, of which each is an item."""
    pandas = pytest.importorskip("pandas")
    run = str(runs / kind)
    if kind in KINDS:
        if kind == "pieces":
            pytest.importorskip("tokenizers")
        extra = ["model.across_sentences=true"] if across and kind == "lstm" else []
        lmtool("train", *KINDS[kind], *extra, "hydra.run.dir=run")
        run = "run"
    elif kind in ("unigram", "neural"):
        members, weights = (f"{runs}/kn3,{runs}/nplm", "weights=[0.4,0.3,0.3]")
        more = ["cache_theta=0.5"] if kind == "neural" else []
        lmtool("ensemble", f"runs=[{members}]", weights, f"cache={kind}", *more, "hydra.run.dir=run")
        run = "run"
    settings: dict[str, Any] = {"across_sentences": across, "entropy": True, "spillover": 1, "sentences": "item"}
    rows = [{"story": n, "word": word} for n, text in enumerate(TEXTS) for word in text.split()]
    together = python.surprisal(run, pandas.DataFrame(rows), item_column="story", **settings)
    names = [name for name in together if name.startswith(("surprisal", "entropy", "position", "length"))]
    alone = [python.surprisal(run, [text], **settings)[names] for text in TEXTS]
    wanted = np.concatenate([each.to_numpy(float) for each in alone])
    np.testing.assert_allclose(together[names].to_numpy(float), wanted, rtol=1e-5, atol=1e-6)
    for n, text in enumerate(TEXTS):
        Path(f"part{n}.txt").write_text(f"{text}\n")
    of_files = python.surprisal(run, Path("part*.txt"), **settings)
    np.testing.assert_allclose(of_files[names].to_numpy(float), wanted, rtol=1e-5, atol=1e-6)


def test_a_cache_begins_empty_in_each_item(runs: Path, lmtool: Run) -> None:
    """Compare with plain relative frequencies of the item's tokens so far, including </s>."""
    pandas = pytest.importorskip("pandas")
    lmtool("ensemble", f"runs=[{runs}/kn3]", "weights=[0.75,0.25]", "cache=unigram", "hydra.run.dir=run")
    items = [["the cat sat", "the cat ran"], ["the dog sat", "the dog"]]
    rows = [
        {"item": n, "sentence": s, "word": word}
        for n, sentences in enumerate(items)
        for s, text in enumerate(sentences)
        for word in text.split()
    ]
    found = python.surprisal(["run", runs / "kn3"], pandas.DataFrame(rows), unit="nats")
    static, wanted = iter(found["surprisal_nats_kn3"]), []
    for sentences in items:
        seen: list[str] = []
        for text in sentences:
            for word in text.split():
                p = math.exp(-next(static))
                wanted.append(p if not seen else 0.75 * p + 0.25 * seen.count(word) / len(seen))
                seen.append(word)
            seen.append("</s>")
    assert np.exp(-found["surprisal_nats_run"]).tolist() == pytest.approx(wanted, rel=1e-9)
