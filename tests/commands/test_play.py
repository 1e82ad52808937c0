"""The page of `lmtool export to=play.html`, in a browser: its numbers beside those of the same rounded model."""

from __future__ import annotations

import html
import json
import math
import random
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

import lmtool as package
from lmtool.commands import _play
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.text_model import TextModel
from tests.conftest import Run, require_mistake

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
browser = pytest.mark.tool(CHROMIUM or "chromium")
FLAGS = "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-dev-shm-usage --virtual-time-budget=60000"
ODD = [
    "</script><script>document.title='RAN'</script>",
    "<img/src=x>",
    "__proto__",
    "constructor",
    "a\u2028b",
    "שלום",
    "é",
]
LINES = ["w0 w1 w2 w3", "", "W7  \u200bI\u0307\u00a0e\u0301 w3", "unknown <unk> </s> <s> שלום w1 w0 w9 w3 w2 w1", *ODD]


def answer(page: Path, lines: list[str] = LINES) -> tuple[str, Any]:
    """Open a page in a browser; return its elements as HTML, and what its script answers about lines."""
    profile = f"--user-data-dir={page.resolve().with_suffix('')}-profile"
    address = f"{page.resolve().as_uri()}#{quote(json.dumps(lines))}"
    command = [str(CHROMIUM), *FLAGS.split(), profile, "--dump-dom", address]
    text = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout
    found = re.search(r'<output id="json" hidden="">(.*?)</output>', text, re.DOTALL)
    assert found is not None and found[1]
    return text, json.loads(html.unescape(found[1]))


def driven(page: str, actions: str) -> list[str]:
    """Run actions on an exported page, without the policy under which no other script runs; return state, which they
    fill.
    """
    script = f"""document.addEventListener("lm", () => {{ const state = [], type = (line) => {{
      text.value = line; text.oninput(); }}; {actions}; json.textContent = JSON.stringify(state); }});"""
    content = re.sub(r"<meta http-equiv.*?>", lambda _: f"<script>{script}</script>", Path(page).read_text("utf-8"))
    content = content.replace("  show();\n", "  show();\n  document.dispatchEvent(new Event('lm')); return;\n")
    Path("driven.html").write_text(content, encoding="utf-8")
    found: list[str] = answer(Path("driven.html"), [])[1]
    return found


def told(*log_p: Any) -> str:
    """What the page says of the bits of tokens."""
    every = np.concatenate(log_p)
    return f"{-every.sum() / math.log(2):.2f} bits, perplexity {math.exp(-every.mean()):#.4g}"


NETWORK = {"training": {"epochs": 1}, "optim": {"lr": 0.05}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TextModel]:
    """Models on a text of odd words, by run folder, each rounded as its page is: n-grams to 8 bits, networks to 16."""
    folder = tmp_path_factory.mktemp("play")
    draw = random.Random(1)
    words = [*ODD, "İ", "<unk>", *(f"w{k}" for k in range(50))]
    text = {"kind": "text", "train": str(folder / "train.txt"), "valid": str(folder / "valid.txt")}
    for name, lines, shortest in ("train", 800, 0), ("valid", 20, 7):
        drawn = (draw.choices(words, range(len(words), 0, -1), k=draw.randint(shortest, 9)) for _ in range(lines))
        (folder / f"{name}.txt").write_text("\n".join(map(" ".join, drawn)), encoding="utf-8")
    rules = {"vocabulary": {"lowercase": "tr"}, "spaces": "unicode", "name": "ruled"}
    letters = {"vocabulary": {"unit": "char"}, "sentences": False, "name": "letters"}
    nplm: dict[str, Any] = {"kind": "nplm", "layers": 2, "fofe_window": 9, "direct_connections": True, "tied": False}
    small = {"embedding_dim": 8}
    nodes = {"kind": "hierarchical", "nodes": "morin_bengio"}
    settings: dict[str, dict[str, Any]] = {
        "ngram": {"model": {"kind": "ngram", "order": 4}, "data": text | rules},
        "letters": {"model": {"kind": "ngram", "order": 3}, "smoother": "stupid_backoff", "data": text | letters},
        "nplm": {"model": nplm | small | {"hidden_dim": 12}, "output": "hierarchical", "data": text, **NETWORK},
        "lbl": {"model": {"kind": "lbl"} | small, "output": nodes, "tree": "huffman", "data": text, **NETWORK},
        "lstm": {"model": {"kind": "lstm", "layers": 2} | small, "data": text, **NETWORK},
        "gru": {"model": {"kind": "lstm", "cell": "gru"} | small, "output": "nce", "data": text, **NETWORK},
    }
    found = {}
    for name, line in settings.items():
        package.train(**line, out=folder / name)
        bits = 8 if name in ("ngram", "letters", "lbl") else 16
        package.convert(run=folder / name, quantize=bits, out=folder / f"{name}-rounded")
        model = found[str(folder / name)] = package.load(folder / f"{name}-rounded")
        if bits == 16 or name == "lbl":
            model.network.double()  # as in the page
    return found


@browser
def test_the_numbers_are_those_of_python(trained: dict[str, TextModel], lmtool: Run) -> None:
    pages = [Path(f"{Path(folder).name}.html") for folder in trained]
    for folder, page in zip(trained, pages, strict=True):
        lmtool("export", f"run={folder}", f"to={page}", *(["dtype=int8"] if page.stem == "lbl" else []))
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(answer, pages))
    for model, (text, found) in zip(trained.values(), answers, strict=True):
        assert "RAN" not in text[: text.index("</title>")]
        orders: set[int | None] = set()
        for line, (rows, predicted) in zip(LINES, found, strict=True):
            words = model.form.split(line)
            assert [row["word"] for row in rows][: len(words)] == [
                word.strip() if len(word) > 1 else word for word in words
            ]
            assert [row["oov"] for row in rows][: len(words)] == [word not in model.vocabulary.ids for word in words]
            log_p = np.array([float(row["logp"]) for row in rows])
            np.testing.assert_allclose(log_p, model.score(line), rtol=0, atol=1e-7, err_msg=f"{model}: {line}")
            want = model.predict(line, 5, oov="unk")
            assert [model.form.token_text(id) for id, _ in predicted] == [word for word, _ in want]
            np.testing.assert_allclose([p for _, p in predicted], [p for _, p in want], rtol=1e-7)
            for row in rows:
                factors = [np.prod(part["factors"]) for part in row["parts"] if "factors" in part]
                assert not factors or sum(factors) == pytest.approx(np.exp(float(row["logp"])), rel=1e-7)
                orders.add(row.get("order"))
        assert orders == (set(range(1, model.context_size + 2)) if isinstance(model.model, NgramModel) else {None})


@browser
def test_words_are_added_and_chosen_without_a_mouse(runs: Path, lmtool: Run, tmp_path: Path) -> None:
    lmtool("export", f"run={runs}/kn3", "to=play.html")
    page = Path("play.html").read_text(encoding="utf-8")
    assert "default-src 'none'; script-src 'sha256-" in page and "http:" not in page and "https:" not in page
    state = driven(
        "play.html",
        """const key = (at, key) => at.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
        type("the cat");
        next.querySelector("button").click();
        const list = document.activeElement.parentNode.parentNode.id;
        state.push(text.value, list, why.querySelector("bdi").textContent);
        tokens.querySelector("[aria-pressed=true]").focus();
        key(document.activeElement, "ArrowLeft");
        state.push(why.querySelector("bdi").textContent, document.activeElement.textContent, total.textContent)""",
    )
    model = package.load(runs / "kn3")
    likeliest = model.predict("the cat", 1)[0][0]
    log_p = model.score(f"the cat {likeliest}")
    want = [f"the cat {likeliest}", "next", likeliest, "cat", f"cat{-log_p[1] / math.log(2):.1f}"]
    assert state == [*want, f"{len(log_p)} tokens, {told(log_p)}, unknown words: 0"]


@browser
def test_no_number_where_python_gives_none(lmtool: Run) -> None:
    for name in "train", "valid":
        Path(f"{name}.txt").write_text("the cat sat\nthe dog sat on the cat\n" * 3)
    data = ["data=text", "data.train=train.txt", "data.valid=valid.txt", "data.vocabulary.closed=true"]
    lmtool("train", "model=ngram", "model.order=2", "smoother=witten_bell", *data, "out=closed")
    lmtool("convert", "run=closed", "quantize=8", "out=rounded")
    lmtool("export", "run=closed", "to=closed.html")
    state = driven(
        "closed.html",
        """type("the cat dog zebra the cat"); state.push(total.textContent, tokens.textContent);
        type("the zebra"); state.push(why.textContent, next.textContent)""",
    )
    model = package.load("rounded")
    the, cat, dog, *_ = (f"{-log_p / math.log(2):.1f}" for log_p in model.score("the cat dog"))
    again, end = f"cat{cat}", f"{-model.score('the cat')[2] / math.log(2):.1f}"
    assert state[:2] == [
        "7 tokens, 2 of them without a probability, unknown words: 1",
        f"the{the}cat{cat}dog{dog}zebranonethenone{again}</s>{end}",
    ]
    assert state[2].startswith("zebra is out of vocabulary and has no probabilityThe model gives no probability to")
    assert state[3] == "No word has a probability here."


@browser
def test_each_line_begins_at_the_mark_where_ends_are_not_predicted(lmtool: Run) -> None:
    model = ["model=ngram", "model.order=3", "smoother=witten_bell"]
    lmtool("train", *model, "data=toy", "data.sentence_end=false", "out=ends")
    lmtool("convert", "run=ends", "quantize=8", "out=rounded")
    lmtool("export", "run=ends", "to=ends.html")
    lines = ["the cat", "the dog"]
    state = driven("ends.html", f"type({json.dumps(chr(10).join(lines))}); state.push(total.textContent)")
    assert state == [f"4 tokens, {told(*package.load('rounded').score(lines))}, unknown words: 0"]
    assert "Each line is a sentence of words" in Path("ends.html").read_text(encoding="utf-8")


@browser
def test_what_is_infinite_or_no_probability_is_named(lmtool: Run) -> None:
    for smoother in "mle", "stupid_backoff":
        lmtool("train", "model=ngram", "model.order=3", f"smoother={smoother}", "data=toy", f"out={smoother}")
        lmtool("export", f"run={smoother}", f"to={smoother}.html")
    start, bits, unknown = driven(
        "mle.html",
        """state.push(text.value, total.textContent);
        type("zebra the"); state.push(total.textContent + tokens.textContent + why.textContent + next.textContent)""",
    )
    assert "<unk>" not in start and len(start.split()) > 3 and "inf" not in bits.lower() and "words: 0" in bits
    assert "infinite bits, perplexity infinite" in unknown and "Infinity" not in unknown
    page = Path("stupid_backoff.html").read_text(encoding="utf-8")
    assert "not sum to one: p is a score, not a probability; do not compare this perplexity" in page
    assert "highest scores" in page and "with their probabilities" not in page


def test_what_a_page_cannot_hold_is_refused(runs: Path, lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    require_mistake(lmtool, f"export run={runs}/mix to=a.html", ["mixture of 2", "model=ngram, nplm", "hierarchical"])
    require_mistake(lmtool, f"export run={runs}/kn3 to=a.html dtype=int8", ["dtype=int8", "rounded to 8 bits"])
    monkeypatch.setattr(_play, "MAX_BYTES", 20_000)
    require_mistake(lmtool, f"export run={runs}/kn3 to=a.html", ["over 0.02", "lmtool convert", "prune_to=", "%"])
    require_mistake(lmtool, f"export run={runs}/nplm to=a.html", ["over 0.02", "dtype=int8", "data.vocabulary.size"])
    line = "train model=ngram model.order=1 data=toy data.vocabulary.unit=grapheme out=g"
    lmtool(*line.split())
    require_mistake(lmtool, "export run=g to=a.html", ["unit=grapheme", "unit=word and char"])
    assert not list(Path().glob("a.html*"))
