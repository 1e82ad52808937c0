"""./scripts/reproduce: its recipes are whole, and its tables say what the runs say."""

from __future__ import annotations

import importlib.util
import json
import math
import shlex
import subprocess
import sys
import tomllib
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lmtool.config.settings import build_settings
from tests.conftest import composed_line
from tests.schemas import VERB_SETTINGS

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "reproduce"
RECIPES = sorted((SCRIPT.parent / "reproductions").glob("*.toml"))
pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="the scripts are not beside the tests")


@pytest.fixture(scope="module")
def script() -> Any:
    loader = SourceFileLoader("reproduce", str(SCRIPT))
    spec = importlib.util.spec_from_loader("reproduce", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a module of the scripts, where pandas is installed."""
    pytest.importorskip("pandas")
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_each_command_is_one_of_lmtools(path: Path, script: Any) -> None:
    recipe = tomllib.loads(path.read_text(encoding="utf-8"))
    known: list[str] = []
    for step in recipe["step"]:
        verb, *words = shlex.split(step["command"].replace("{examples}", "."))
        build_settings(composed_line(verb, *words), VERB_SETTINGS[verb])
        for word in words:
            key, value = word.split("=", 1)
            named = value.strip("[]").split(",") if key in ("run", "runs", "tree.run") else []
            assert set(named) <= set(known), f"{step['name']} uses what is not there yet"
        known.append(step["name"])
    assert len(known) == len(set(known))
    for row in recipe["row"]:
        for key in ("here", "over"):
            if key in row:
                step_name, what = row[key].split()
                assert step_name in known and what


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_results_are_of_the_commands_that_there_are(path: Path, script: Any) -> None:
    """Figures of other settings than the recipe's, as those from before a setting was added, are not today's."""
    steps = tomllib.loads(path.read_text(encoding="utf-8"))["step"]
    commands = {f"lmtool {shlex.join(script.words_of(step, Path('scripts/reproductions')))}" for step in steps}
    lines = (script.RESULTS / f"{path.stem}.md").read_text(encoding="utf-8").splitlines()
    assert {line for line in lines if line.startswith("lmtool ")} <= commands


def test_a_table_by_hand(script: Any, tmp_path: Path) -> None:
    for name, result in (("a", {"perplexity": 20.0, "cloze": {"perplexity": 3.25}}), ("b", {"perplexity": 8.0})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(json.dumps(result | {"seconds": 90.4}))
    (tmp_path / "b" / "wall.json").write_text('{"seconds": 29.6}')
    (tmp_path / "b" / "metrics.jsonl").write_text('{"train_loss": 2.0}\n{"train_loss": 1.5}\n')
    recipe = {
        "title": "T",
        "about": "A.",
        "notes": "- N.",
        "step": [{"name": name, "command": f"eval run={name}"} for name in ("a", "b", "c")],
        "row": [
            {"what": "cloze", "here": "a cloze.perplexity", "published": "3.2", "most": 3.2},
            {"what": "ratio", "here": "a perplexity", "over": "b perplexity", "digits": 3, "most": 2.5},
            {"what": "nats", "here": "b perplexity", "nats": True},
            {"what": "loss", "here": "b metrics.train_loss", "digits": 1},
            {"what": "gone", "here": "c perplexity"},
            {"what": "theirs alone", "here": "c perplexity", "published": "7.5"},
            {"what": "theirs", "published": "6.5; 6.25"},
        ],
    }
    lines = script.page("hand", recipe, tmp_path).splitlines()
    assert [line for line in lines if line.startswith("|")][2:] == [
        "| cloze | 3.2 | at most 3.2 | 3.25 (missed) | 90 |",
        "| ratio |  | at most 2.5 | 2.500 | 90 |",
        "| nats |  |  | 2.08 | 30 |",
        "| loss |  |  | 1.5 | 30 |",
        "| theirs alone | 7.5 | | not run | |",
        "| theirs | 6.5; 6.25 | | | |",
    ]
    assert "Not run: gone." in lines and "All commands together: 2.0 minutes." in lines
    assert "lmtool eval run=a out=a" in lines and not any("run=c" in line for line in lines)


def test_a_recipe_that_was_not_run_shows_its_commands(script: Any, tmp_path: Path) -> None:
    recipe = {"title": "T", "about": "A.", "notes": "- N.", "row": [{"what": "x", "here": "c perplexity"}]}
    lines = script.page("hand", recipe | {"step": [{"name": "c", "command": "eval run=c"}]}, tmp_path).splitlines()
    assert "None of these commands has been run." in lines and "lmtool eval run=c out=c" in lines


ARTICLE = """ 
 = Oak wood = 
 
 The oak is a <unk> of wood , and oak wood is hard . 
 
 = = Uses = = 
 
 Oak wood is used for <unk> , the wood of the oak for ships . 
"""
TINY = ["model.embedding_dim=4", "model.hidden_dim=4", "training.steps=3", "training.minutes=null"]
SMALLER = {"model=class_ngram": ["model.classes=3"], "model=nplm": TINY, "model=lstm": TINY}
SMALLER["model=nce"] = [*TINY, "output.num_noise=5"]


def test_wikitext(script: Any, tmp_path: Path, lmtool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the command on a text in WikiText's format, with tiny networks, each step in this process."""
    folder = tmp_path / "wikitext-2"
    folder.mkdir()
    for split, articles in (("train", 20), ("valid", 3), ("test", 4)):
        (folder / f"wiki.{split}.tokens").write_text(ARTICLE * articles)
    monkeypatch.setenv("LMTOOL_DATA", str(tmp_path))

    def run(words: list[str], cwd: Path | None = None, **options: Any) -> Any:
        if words[: len(script.LMTOOL)] != script.LMTOOL:
            return real(words, cwd=cwd, **options)
        verb, *settings = words[len(script.LMTOOL) :]
        monkeypatch.chdir(str(cwd))
        lmtool(verb, *settings, *(SMALLER.get(settings[0], []) if verb == "train" else []))
        return SimpleNamespace(returncode=0)

    real = subprocess.run
    monkeypatch.setattr(script.subprocess, "run", run)
    monkeypatch.setattr(script, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(sys, "argv", ["reproduce", "wikitext2", "--folder", str(tmp_path / "runs")])
    script.main()
    rows = (tmp_path / "results" / "wikitext2.md").read_text().splitlines()
    rows = [line for line in rows if line.startswith("| ")][1:]
    here = {row.split("|")[1].strip(): row.split("|")[4].strip() for row in rows}
    # Each article has 38 words in eight lines, four of which are empty.
    assert [here.pop(f"predicted tokens of {split}") for split in ("valid", "test")] == ["138.00", "184.00"]
    perplexities = [float(number) for number in here.values() if number]
    assert len(perplexities) == 16 and all(1 < perplexity < 30 for perplexity in perplexities)


def test_what_is_finished_with_the_same_settings_is_not_run_again(script: Any, tmp_path: Path) -> None:
    step = {"name": "a", "command": "train model=ngram data=toy"}
    (tmp_path / "a" / ".hydra").mkdir(parents=True)
    (tmp_path / "a" / "result.json").write_text("{}")
    (tmp_path / "a" / "run.json").write_text("{}")
    (tmp_path / "a" / ".hydra" / "overrides.yaml").write_text("- data=toy\n- model=ngram\n- threads=1\n")
    script.run_step(tmp_path, step, None)
    assert not (tmp_path / "a" / "wall.json").exists()
    with pytest.raises(SystemExit, match="made by another command"):
        script.run_step(tmp_path, {"name": "a", "command": "train model=ngram data=names"}, None)


def test_a_step_is_run_and_timed(script: Any, tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    script.run_step(tmp_path / "toy", {"name": "kn", "command": "train model=ngram data=toy model.order=2"}, 1)
    assert script.finished(tmp_path / "toy" / "kn", "train") and script.seconds(tmp_path / "toy", "kn") > 0
    wanted = {"data": "toy", "model": "ngram", "model.order": 2}
    assert script.settings_of_run(tmp_path / "toy" / "kn", "train") == wanted
    script.run_step(tmp_path / "toy", {"name": "no", "command": "train model=ngram data=toy x=1", "optional": True}, 1)
    with pytest.raises(SystemExit):
        script.run_step(tmp_path / "toy", {"name": "no", "command": "eval run=nowhere"}, 1)


def test_log_likelihood_of_held_out_stories_by_hand(imported: Any) -> None:
    """Without predictors, the others' mean and variance: 4 and 4 for the first story, 2 and 1 for the second."""
    y, story = np.array([1.0, 3.0, 2.0, 6.0]), np.array([1, 1, 2, 2])
    wide, narrow = -0.5 * math.log(2 * math.pi * 4), -0.5 * math.log(2 * math.pi)
    found = imported("reading_times").held_out_log_likelihood(np.empty((4, 0)), y, story)
    assert found == pytest.approx([wide - 9 / 8, wide - 1 / 8, narrow, narrow - 8])


def test_gain_of_a_predictor_is_that_of_its_variance(imported: Any) -> None:
    """y = 1 + 2 a + 3 b + noise of variance 4: b, of variance 1, explains 9 of 13, half of log(13/4) nats."""
    rng, story = np.random.default_rng(1), np.repeat(np.arange(10), 2000)
    a, b, useless, noise = rng.normal(size=(4, 20000))
    y = 1 + 2 * a + 3 * b + 2 * noise
    mean, half = imported("reading_times").gain(a[:, None], b[:, None], y, story)
    assert mean == pytest.approx(0.5 * math.log(13 / 4), abs=0.02) and abs(mean - 0.5 * math.log(13 / 4)) < half
    mean, half = imported("reading_times").gain(a[:, None], useless[:, None], y, story)
    assert abs(mean) < 0.001 and half < 0.001


def test_words_of_stories_and_their_times_by_hand(
    imported: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = tmp_path / "natural_stories"
    corpus.mkdir()
    monkeypatch.setenv("LMTOOL_DATA", str(tmp_path))
    words = ["ducks'", "'The", "sea!'", "he", "cried.", "None"]
    times = [math.exp(k) for k in range(6)]
    rows = [f"{word}\t{k}\t1" for k, word in enumerate(words, 1)]
    (corpus / "all_stories.tok").write_text("\n".join(["word\tzone\titem", *rows]) + "\n")
    rows = [f"{row}\t{time}" for row, time in zip(rows, times, strict=True)]
    (corpus / "processed_wordinfo.tsv").write_text("\n".join(["word\tzone\titem\tgmeanItemRT", *reversed(rows)]) + "\n")
    pieces = ["du", "cks", "'", " '", "The", " sea", "!'", " he", " cried", ".", " None"]
    offsets = np.cumsum([0, *map(len, pieces)])
    log_2 = math.log(2)
    rows = [
        f"{piece},{-k * log_2 if k else ''},{at},0" for k, (piece, at) in enumerate(zip(pieces, offsets, strict=False))
    ]
    (corpus / "all_stories_gpt3.csv").write_text("\n".join(["token,logprob,offset,story", *rows]) + "\n")
    imported("reading_times").prepare(tmp_path)
    lines = [line.split("\t") for line in (tmp_path / "stories.tsv").read_text().splitlines()]
    assert [line[:3] for line in lines] == [
        ["item", "zone", "word"],
        ["1", "1", "ducks'"],
        ["1", "2", '"The'],
        ["1", "3", 'sea!"'],
        ["1", "4", "he"],
        ["1", "5", "cried."],
        ["1", "6", "None"],
    ]
    assert [line[3] for line in lines[1:3]] == ["", "0.0"]  # a word's time is in the row before it
    assert lines[1][5] == ""
    assert [float(line[5]) for line in lines[2:]] == [3 + 4, 5 + 6, 7, 8 + 9, 10]


def test_table_of_minimal_pairs_by_hand(imported: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "blimp").mkdir()
    monkeypatch.setenv("LMTOOL_DATA", str(tmp_path))
    published = [("a_1", "a", 0.5, 0.75), ("a_2", "a", 0.25, 1), ("b_1", "b", 0.75, 0.5), ("overall", "b", 0, 0)]
    rows = [dict(zip(("UID", "linguistics_term", "ngram", "lstm"), row, strict=True)) for row in published]
    (tmp_path / "blimp" / "models_summary.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "kn-blimp.csv").write_text(
        "level,name,accuracy,lower,upper,ties\n"
        "overall,mean over paradigms,.6,.55,.65,12\nphenomenon,c,.6,.5,.7,0\n"
        "paradigm,a_1,.5,.4,.6,2\nparadigm,a_2,.6,.5,.7,10\nparadigm,b_1,.7,.6,.8,0\n"
    )
    recipe = {"row": [{"what": "KN", "run": "kn"}, {"what": "NCE", "run": "nce"}]}
    assert imported("minimal_pairs").table(tmp_path, recipe) == [
        "| | KN | n-gram, published | LSTM, published |",
        "|---|--:|--:|--:|",
        "| a | 0.550 | 0.375 | 0.875 |",
        "| b | 0.700 | 0.750 | 0.500 |",
        "| **all paradigms** | 0.600 | 0.500 | 0.750 |",
        "| 95 % interval | 0.550 to 0.650 | | |",
        "| ties, each half right | 12 | | |",
        "",
        "Not run: NCE.",
    ]


def test_table_of_reading_times(imported: Any, tmp_path: Path) -> None:
    """Times are surprisal, frequency and noise of variance 1/4: surprisal explains half of log(5) nats."""
    rng = np.random.default_rng(1)
    lines = ["item zone word time listed_time gpt3 sentence position oov log_frequency_bits length surprisal_bits"]
    for item in range(1, 11):
        for zone in range(1, 201):
            bits, frequency, noise, listed = rng.normal(size=4)
            sentence, position = divmod(zone - 1, 10)
            word = "ab,"[: rng.integers(1, 4)]
            time = bits + frequency + noise / 2
            cells = item, zone, word, time, listed, -bits, sentence, position, int(zone == 15), frequency, len(word)
            lines.append(" ".join(map(str, (*cells, bits))))
    (tmp_path / "kn-surprisal.tsv").write_text("\n".join(lines).replace(" ", "\t") + "\n")
    (tmp_path / "kn").mkdir()
    (tmp_path / "kn" / "result.json").write_text('{"valid_perplexity": 98.25}')
    recipe = {"row": [{"what": "KN", "run": "kn"}, {"what": "NCE", "run": "nce"}]}
    words, *_, frequency, model, gpt3, missing = imported("reading_times").table(tmp_path, recipe)
    assert missing == "| NCE | | not run | | | |"
    # Left out are the first and last of 10 words, an OOV and the word after it, and the second word of a story.
    assert words == f"{10 * (20 * 8 - 2 - 1):,} of 2,000 words."
    assert frequency.startswith("| log frequency alone |  | ") and gpt3.startswith("| GPT-3 (davinci) |  | ")
    cells = model.split(" | ")
    assert cells[:2] == ["| KN", "98.2"] and cells[5] == "-1.000 |"
    mean, half, with_marks = (float(number) for number in f"{cells[2]} ± {cells[3]}".split(" ± "))
    assert mean == pytest.approx(500 * math.log(5), abs=half) and mean == pytest.approx(with_marks, abs=20)
    assert abs(float(cells[4])) < 20  # of times that have nothing to do with the words
    assert gpt3.split(" | ")[2] == cells[2] and gpt3.endswith("| 1.000 |")
