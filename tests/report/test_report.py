"""`lmtool report` from end to end: what a page has, that it needs nothing else, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from lmtool.cli.command_line import main
from lmtool.errors import UserError
from lmtool.plots import can_plot
from lmtool.report.page import Picture, Section, Table, page
from lmtool.report.reading import (
    Entry,
    Kind,
    ReportFolder,
    find_folders,
    kind_of,
    model_name,
    read_entry,
    read_rates,
    short_names,
)
from lmtool.report.sections import comparison, shared_settings, summary, sweep_section, trees
from lmtool.runs.run import Run as RunFolder
from lmtool.sweeps.result_table import Row
from lmtool.system.terminal import Cell
from tests.conftest import NEURAL, Run, answer

pytestmark = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib")
FAST = ["threads=1", "resamples=100"]
ALPHAS = ["model.order=1", "smoother=laplace", "smoother.alpha=0.001,0.1,10"]
RATES = ["training.epochs=0.5", "optim.lr=0.01,0.1"]
VOID = {"meta", "img", "br", "wbr", "link", "input"}


class Page(HTMLParser):
    """A page's ids, the ids that are pointed to, its headings, attributes, and whether its elements are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.ids: list[str] = []
        self.targets: set[str] = set()
        self.titles: list[str] = []
        self.sources: list[str] = []
        self.tags: list[str] = []
        self.labels: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self._take(attrs, tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._take(attrs, tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2"):
            self.titles.append(data)

    def _take(self, attrs: list[tuple[str, str | None]], tag: str) -> None:
        for name, value in attrs:
            value = value or ""
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "srcset", "data"):
                self.sources.append(value)
            if tag == "svg" and name == "aria-label":
                self.labels.append(value)
            self.targets |= set(re.findall(r"url\(#([^)]+)\)", value))


def page_of(folder: Path) -> Page:
    """report.html, checked: whole, unique ids, nothing from outside, pictures beside it."""
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    assert not page.open and page.text.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert len(set(page.ids)) == len(page.ids)
    assert all(source.startswith(("#", "data:image/png;base64,")) for source in page.sources)
    assert page.targets | {source[1:] for source in page.sources if source.startswith("#")} <= set(page.ids)
    assert not {"script", "link", "iframe", "object"} & set(page.tags) and "http" not in page.text.replace(
        "http-equiv", ""
    )
    assert "@import" not in page.text and "prefers-color-scheme: dark" in page.text
    assert not re.search(r'style="[^"]*#[0-9a-f]{6}', page.text)  # colors go by their names
    assert len(page.labels) == page.tags.count("svg") and all(page.labels)
    result = json.loads((folder / "result.json").read_text())
    assert sorted(result["pictures"]) == sorted(path.name for path in folder.glob("*.png"))
    assert len(result["pictures"]) == page.tags.count("figure")
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in result["pictures"])
    assert len(page.text) < 3_000_000
    return page


@pytest.fixture(scope="module")
def made(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Besides `runs`: evaluations, mixtures, a comparison, sweeps, a tree, a range test."""
    folder = tmp_path_factory.mktemp("made")
    at, own = f"hydra.run.dir={folder}", [f"store_dir={runs}/stores", "threads=1"]
    text = f"text={folder}/twelve.txt"  # an interval needs ten sentences
    (folder / "twelve.txt").write_text("the cat sat\na dog ran\nthe dog\n" * 4)
    for line in (
        ["eval", f"run={runs}/kn3", "split=test", f"{at}/eval-kn3"],
        ["eval", f"run={runs}/nplm", "split=test", f"{at}/eval-nplm"],
        ["ensemble", f"runs=[{runs}/kn3,{runs}/nplm]", "method=classes", "split=test", f"{at}/classes"],
        ["ensemble", f"runs=[{runs}/kn3,{folder}/eval-kn3]", "split=test", "fit_split=test", f"{at}/scores"],
        ["compare", f"runs=[{runs}/kn3,{runs}/nplm]", text, "resamples=100", f"{at}/compare"],
        ["compare", f"runs=[{runs}/kn3,{runs}/nplm]", "split=test", "resamples=100", f"{at}/few"],
        ["eval", f"run={runs}/kn3", text, f"{at}/twelve-kn3"],
        ["eval", f"run={runs}/nplm", text, f"{at}/twelve-nplm"],
        ["tree", "data=toy", "tree=huffman", "levels=3", f"{at}/tree"],
        ["train", "model=nplm", *NEURAL, "lr_range=true", "lr_range_steps=30", f"{at}/rates"],
        ["train", "-m", "model=ngram", "data=toy", *ALPHAS, f"hydra.sweep.dir={folder}/alphas"],
        ["train", "-m", "model=nplm", *NEURAL, *RATES, f"hydra.sweep.dir={folder}/lrs"],
    ):
        assert main([*line, *own]) == 0
    return folder


def test_a_page_of_everything(runs: Path, made: Path, lmtool: Run) -> None:
    said = lmtool("report", str(runs), str(made), "hydra.run.dir=page", "levels=2", "words=20", *FAST)
    page = page_of(Path("page"))
    assert page.titles == [
        f"lmtool report: {runs.name}, {made.name}",
        "Runs",
        "Perplexities with their intervals",
        "Comparison: compare",
        "Comparison: few",
        "Sweep: alphas",
        "Sweep: lrs",
        "Learning curves",
        "Mixture weights",
        "Trees",
        "Maps of words",
        "Learning-rate range tests",
    ]
    assert "Sweep: alphas: 1 picture\n" in said and "page/report.html" in said
    pictures = set(json.loads(Path("page/result.json").read_text())["pictures"])
    assert pictures == {
        *("intervals.png", "compare.png", "sweep-alphas.png", "sweep-lrs.png"),
        *("curves.png", "curves-hs.png", "curves-nplm.png", "weights-mix.png"),
        *("weights-classes.png", "weights-scores.png", "tree-hs.png", "tree-tree.png", "map-hs.png", "map-nplm.png"),
        "lr-range-rates.png",
    }
    kn3 = json.loads((runs / "kn3" / "result.json").read_text())
    assert f'<td class="number">{kn3["valid_perplexity"]:.4f}</td>' in page.text
    assert f'<td class="number">{math.log2(kn3["valid_perplexity"]):.4f}</td>' in page.text
    text = page.text.replace("<wbr>", "")
    assert "modified_kneser_ney of order 3" in text and "hsoftmax + hierarchical (union)" in text
    assert "alphas: alpha=0.001" in text and "95 % CI, lower" in text
    assert text.count("too few sentences to tell") == 1


def test_an_ngram_run_has_no_curves(runs: Path, lmtool: Run) -> None:
    lmtool("report", f"{runs}/kn3", "hydra.run.dir=page", *FAST)
    page = page_of(Path("page"))
    assert page.titles == ["lmtool report: kn3", "Runs"] and not list(Path("page").glob("*.png"))


def test_a_neural_run(runs: Path, lmtool: Run) -> None:
    lmtool("report", f"paths=[{runs}/nplm]", "map=none", "hydra.run.dir=page", *FAST)
    page = page_of(Path("page"))
    assert page.titles[1:] == ["Runs", "Learning curves"]
    assert re.match(r"nplm: nplm \+ \w+, data=toy\. Perplexity on valid from ", page.labels[0])
    for word in ("epochs", "learning rate", "accuracy (%)", "perplexity", "train", "valid"):
        assert f">{word}</text>" in page.text


def test_the_words_of_a_map(runs: Path, lmtool: Run) -> None:
    lmtool("report", f"{runs}/nplm", "words=[cat,dog,the]", "hydra.run.dir=page", *FAST)
    text = page_of(Path("page")).text
    assert all(f">{word}</text>" in text for word in ("cat", "dog", "the")) and ">bird</text>" not in text
    assert "the embeddings of 3 words" in text
    said = lmtool("report", f"{runs}/nplm", f"{runs}/hs", "words=[cat,dgo,the]", "hydra.run.dir=other", code=2)
    assert said.startswith("lmtool: dgo is not in the vocabulary (similar: dog)") and said.count("\n") == 1
    assert not list(Path("other").glob("*.png")) and not Path("other/report.html").exists()


@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="needs scikit-learn")
def test_a_map_by_tsne(runs: Path, lmtool: Run) -> None:
    lmtool("report", f"{runs}/nplm", "map=tsne", "words=15", "hydra.run.dir=page", *FAST)
    first = page_of(Path("page")).text
    assert "t-SNE" in first and "principal component" not in first


def test_no_path_is_the_newest_run(runs: Path, lmtool: Run) -> None:
    assert "no run below ./outputs" in lmtool("report", code=2)
    shutil.copytree(runs / "kn3", "outputs/train/one")
    lmtool("report", "hydra.run.dir=page", *FAST)
    assert page_of(Path("page")).titles[0] == "lmtool report: one"
    shutil.rmtree("outputs")


def test_names_are_escaped(runs: Path, lmtool: Run) -> None:
    name = "<b>&\"x'$a$"
    for copy in ("kn3", "nplm", "mix"):
        shutil.copytree(runs / copy, f"{name}/{copy}{name}")
    lmtool("report", name, "hydra.run.dir=page", "words=3", *FAST)
    page = page_of(Path("page"))
    assert page.titles[0] == f"lmtool report: {name}" and "b" not in page.tags
    assert {path.name for path in Path("page").glob("*.png")} == {
        *("curves-nplm-b-x-a.png", "map-nplm-b-x-a.png", "weights-mix-b-x-a.png")
    }


def test_jobs_that_failed_stand_in_the_table(lmtool: Run, runs: Path) -> None:
    lmtool(
        *("train", "-m", "model=ngram", "data=toy", "smoother=laplace", "smoother.alpha=1,-1", "hydra.sweep.dir=sweep"),
        *(f"store_dir={runs}/stores", "threads=1"),
        code=2,
    )
    lmtool("report", "sweep", "hydra.run.dir=page", *FAST)
    page = page_of(Path("page"))
    assert page.titles[1:] == ["Runs", "Sweep: sweep"] and "must be a number above 0" in page.text


def test_a_sweep_without_records_says_so(made: Path, tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    shutil.copy(made / "alphas" / "sweep.csv", tmp_path / "sweep")
    (part,) = sweep_section(ReportFolder(tmp_path / "sweep", Kind.sweep, "sweep"), []).parts
    assert isinstance(part, str) and "has no records of jobs (job.json)" in part


def test_what_a_folder_is(runs: Path, made: Path, tmp_path: Path) -> None:
    kinds = {path.name: kind_of(path) for path in made.iterdir() if path.is_dir()}
    assert kinds == {
        **{"eval-kn3": Kind.scores, "eval-nplm": Kind.scores, "scores": Kind.scores, "classes": Kind.run},
        **{"compare": Kind.compare, "few": Kind.compare, "tree": Kind.tree, "rates": Kind.rates},
        **{"twelve-kn3": Kind.scores, "twelve-nplm": Kind.scores},
        **dict.fromkeys(("alphas", "lrs"), Kind.sweep),
    }
    found, unfinished = find_folders([made / "alphas", runs / "kn3", runs / "kn3"])
    assert [each.name for each in found] == ["alphas", "alphas/0", "alphas/1", "alphas/2", "kn3"] and not unfinished
    assert [each.sweep == made / "alphas" for each in found] == [False, True, True, True, False]
    (tmp_path / "deep" / "cut").mkdir(parents=True)
    (tmp_path / "deep" / "cut" / "state.safetensors").touch()
    shutil.copytree(runs / "kn3", tmp_path / "deep" / "kn3")
    found, unfinished = find_folders([tmp_path])
    assert [each.name for each in found] == ["kn3"] and unfinished == [tmp_path / "deep" / "cut"]
    with pytest.raises(UserError, match="cut: not finished; resume with lmtool train resume="):
        find_folders([tmp_path / "deep" / "cut"])


def test_short_names() -> None:
    assert short_names([Path("/a/x"), Path("/a/y")]) == ["x", "y"]
    assert short_names([Path("/a/x"), Path("/b/x"), Path("/b/y")]) == ["a/x", "b/x", "y"]
    assert short_names([Path("/a/x"), Path("/a/x")]) == ["x", "x"]


# Line, what is done to a copy of the runs before, and what is said.
DAMAGE = [
    ("report nowhere", None, "no folder nowhere"),
    ("report empty", None, "nothing to show in empty"),
    ("report kn3/run.json", None, "kn3/run.json is a file"),
    ("report nplm", ("nplm/metrics.jsonl", ""), "nplm/metrics.jsonl is empty"),
    ("report nplm", ("nplm/metrics.jsonl", '{"epoch": 1'), "nplm/metrics.jsonl is damaged in line 1"),
    ("report nplm", ("nplm/metrics.jsonl", None), "no metrics in nplm/metrics.jsonl"),
    ("report kn3", ("kn3/result.json", ""), "kn3/result.json is damaged"),
    ("report kn3", ("kn3/result.json", "[1]"), "kn3/result.json is damaged (it must be an object; got [1])"),
    ("report kn3", ("kn3/result.json", '{"valid_perplexity": "x"}'), "kn3/result.json is damaged"),
    ("report kn3", ("kn3/run.json", "{}"), "kn3/run.json is damaged"),
    ("report mix", ("mix/scores.h5", "x"), "mix/scores.h5 is damaged (it does not begin as"),
    ("report mix", ("mix/result.json", '{"members": [{}], "weights": [1]}'), "mix/"),
    ("report hs", ("hs/tree.safetensors", "x"), "hs/tree.safetensors is damaged"),
    ("report hs", ("hs/checkpoint.safetensors", "x"), "hs/checkpoint.safetensors is damaged"),
    ("report kn3 words=2", None, "words=2: must be a number from 3 to 5000, or a list"),
    ("report kn3 words=[1,2,3]", None, "words=[1, 2, 3]: must be"),
    ("report kn3 map=umap", None, "map"),
    ("report kn3 metric=cloze_perplexity", None, "metric=cloze_perplexity: no sweep with two jobs that have it"),
    ("report kn3 metric=loss", None, "metric"),
]


@pytest.mark.parametrize(("line", "damage", "said"), DAMAGE, ids=[f"{line}-{said[:30]}" for line, _, said in DAMAGE])
def test_a_mistake_is_one_line_and_no_file(
    line: str, damage: tuple[str, str | None] | None, said: str, runs: Path, lmtool: Run
) -> None:
    Path("empty").mkdir()
    for name in {"kn3", "nplm", "mix", "hs"} & set(line.replace("/", " ").split()):
        shutil.copytree(runs / name, name)
    if damage is not None:
        file, content = damage
        Path(file).unlink(missing_ok=True)
        if content is not None:
            Path(file).write_text(content)
    found = lmtool(*line.split(), "hydra.run.dir=page", "threads=1", code=2)
    assert found.startswith("lmtool: ") and found.count("\n") == 1 and said in found
    assert not Path("page/report.html").exists() and not list(Path("page").glob("*.png"))


READERS: dict[str, Callable[[Path], object]] = {
    "lr_range.json": read_rates,
    "compare": lambda path: comparison(ReportFolder(path, Kind.compare)),
    "tree": lambda path: trees([], [ReportFolder(path, Kind.tree)]),
    "run": lambda path: read_entry(ReportFolder(path, Kind.scores), "name", resamples=100, seed=1, block=20),
}


@pytest.mark.parametrize(
    ("reader", "file", "content"),
    [
        ("lr_range.json", "lr_range.json", '{"rates": []}'),
        ("lr_range.json", "lr_range.json", '{"rates": [1], "losses": [1, 2], "smoothed": [1], "proposed": 1}'),
        ("lr_range.json", "lr_range.json", '{"rates": [0], "losses": [1], "smoothed": [1], "proposed": 1}'),
        ("compare", "result.json", "{}"),
        ("compare", "result.json", '{"members": [{"run": "a"}]}'),
        ("tree", "result.json", '{"top": {}}'),
        ("run", "result.json", '{"perplexity": -1}'),
        ("run", "result.json", '{"perplexity": 3, "cloze": 3}'),
    ],
)
def test_what_is_damaged_is_named(reader: str, file: str, content: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(UserError, match="is damaged") as raised:
        READERS[reader](tmp_path)
    assert str(tmp_path / file) in str(raised.value) and "\n" not in str(raised.value)


def test_without_matplotlib(runs: Path, lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmtool.commands.report.can_plot", lambda: False)
    found = lmtool("report", f"{runs}/kn3", code=2)
    assert found == 'lmtool: report needs matplotlib: pip install "lmtool[plots]"\n'


def test_a_page_of_every_part() -> None:
    rows: list[list[Cell]] = [["a=b/c,d <e>", 1.5], ["x", None]]
    parts = [
        Table(["run", "n < m"], rows),
        Table(["one", "word"], [["&", "\u05e9"]], folded="more <of> it"),
        "a <paragraph>",
    ]
    text = page('a "title" & more', "it <begins>", [Section("One <1>", parts)])
    read = Page(text)
    assert not read.open and text.startswith("<!DOCTYPE html>\n") and text.endswith("</html>\n")
    assert read.titles == ['a "title" & more', "One <1>"] and "nav" not in read.tags
    assert '<th scope="row" dir="auto">a=b/<wbr>c,<wbr>d &lt;e&gt;</th><td class="number">1.5000</td>' in text
    assert '<td dir="auto">\u05e9</td>' in text
    assert '<td class="number">-</td>' in text and '<th scope="col" class="number">n &lt; m</th>' in text
    assert "<details><summary>more &lt;of&gt; it</summary>" in text and "<p>a &lt;paragraph&gt;</p>" in text
    assert Page(page("t", "i", [Section("A"), Section("B")])).sources == ["#section-1", "#section-2"]


OF_TEXT = {"block": 1, "dynamic": False, "split": "test", "fitted_on_this_text": False, "fitted": []}
OF_TEXT |= {"normalized": True, "across_sentences": None}  # a row's other entries


def test_infinite_perplexities_of_a_comparison_are_shown(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("difference", "from", "to", "p_bootstrap", "p_randomization"))
    members = [{"run": name, "perplexity": value, **nothing, **OF_TEXT} for name, value in (("a", 2.5), ("b", None))]
    (tmp_path / "result.json").write_text(json.dumps({"split": "test", "members": members}))
    (table,) = comparison(ReportFolder(tmp_path, Kind.compare)).parts
    assert isinstance(table, Table) and [row[1] for row in table.rows] == [2.5, math.inf]


def entry(name: str, split: str, perplexity: float, *, normalized: bool = True, sweep: bool = False) -> Entry:
    source = ReportFolder(Path(name), Kind.scores, name, Path("sweep") if sweep else None)
    return Entry(source, name, data="toy", split=split, perplexity=perplexity, normalized=normalized)


def test_splits_have_tables_of_their_own_and_odd_scores_are_last() -> None:
    entries = [
        *(entry("a", "valid", 12.0), entry("b", "test", 14.0), entry("stupid", "valid", 2.0, normalized=False)),
        *(entry("c", "valid", 11.0), entry("none", "valid", math.inf), entry("d", "test", 13.0, sweep=True)),
    ]
    valid, test, jobs = summary(entries).parts
    assert valid == Table(
        ["run", "perplexity", "bits per token"],
        [["c", 11.0, math.log2(11)], ["a", 12.0, math.log2(12)], ["none", math.inf, math.inf]],
        title="toy, valid",
        unnormalized=[["stupid", 2.0, 1.0]],
    )
    assert isinstance(test, Table) and test.title == "toy, test" and test.rows == [["b", 14.0, math.log2(14)]]
    assert isinstance(jobs, Table) and (jobs.title, jobs.folded) == ("", "1 jobs of sweeps: toy, test")
    text = page("t", "i", [Section("Runs", [valid])])
    assert "<h3>toy, valid</h3>" in text
    note = (
        '<th scope="rowgroup" colspan="3">Scores that do not sum to one, or whose sum is unknown: not comparable.</th>'
    )
    assert text.index(">none<") < text.index(note) < text.index(">stupid<")


def job(name: str, run: str, split: str, value: float | None, cloze: float | None, normalized: bool = True) -> Row:
    found = {} if cloze is None else {"perplexity": cloze}
    status = "no such run" if value is None else "done"
    metric = None if value is None else "perplexity"
    known = {"metric_name": metric, "metric_value": value, "perplexity": value, "seconds": 0.5, "split": split}
    return Row(name, {"run": run, "split": split}, status, cloze=found, normalized=normalized, **known)


def test_a_sweep_has_a_chart_for_each_split() -> None:
    rows = [
        job("0", "a", "valid", 10.5, 3.25),
        job("1", "b", "valid", 11.0, None),
        job("2", "a", "test", 12.0, 3.5),
        job("3", "b", "test", math.inf, 4.0),
        job("4", "c", "test", 5.0, 4.5, normalized=False),
        job("5", "c", "valid", None, None),
    ]
    source = ReportFolder(Path("s"), Kind.sweep, "s")
    chart, cloze, note, table = sweep_section(source, rows).parts
    assert isinstance(cloze, Picture) and cloze.caption.startswith(
        "Cloze perplexity on test of 2 jobs. The lowest is 3.500 with run=a."
    )
    assert isinstance(chart, Picture) and chart.caption.startswith(
        "Perplexity on valid of 2 jobs. The lowest is 10.5 with run=a."
    )
    assert note == "Jobs without a finite, comparable metric, which are not drawn: 3."
    assert table == Table(
        ["job", "run", "split", "perplexity", "cloze_perplexity", "seconds", "status"],
        [
            ["0", "a", "valid", 10.5, 3.25, 0.5, "done"],
            ["1", "b", "valid", 11.0, None, 0.5, "done"],
            ["2", "a", "test", 12.0, 3.5, 0.5, "done"],
            ["3", "b", "test", math.inf, 4.0, 0.5, "done"],
            ["5", "c", "valid", None, None, 0.5, "no such run"],
        ],
        folded="The table of 6 jobs",
        unnormalized=[["4", "c", "test", 5.0, 4.5, 0.5, "done"]],
    )


def test_the_title_of_a_sweep_has_what_all_jobs_share() -> None:
    given = {"data.train": "t.txt", "data.name": "own", "model.order": 3, "training.patience": 0, "threads": 1}
    done = [Row("0", given | {"seed": k}, result={"options": {"data": "text", "model": "ngram"}}) for k in (1, 2)]
    rows = [*done, Row("2", {"seed": 3}, "a mistake")]
    assert shared_settings(rows) == "data=own, model=ngram, model.order=3, training.patience=0"


def test_a_comparison_names_its_split_and_sets_odd_scores_apart(tmp_path: Path) -> None:
    ends = {"from": 0.5, "to": 1.5, "p_bootstrap": 0.01, "p_randomization": 0.02}
    members = [
        {"run": "a", "perplexity": 4.0, "difference": None, **dict.fromkeys(ends), **OF_TEXT},
        {"run": "b", "perplexity": 2.0, "difference": -2.0, **ends, **OF_TEXT, "normalized": False},
        {"run": "c", "perplexity": 5.0, "difference": 1.0, **ends, **OF_TEXT},
    ]
    (tmp_path / "result.json").write_text(json.dumps({"split": "test", "members": members}))
    table, chart = comparison(ReportFolder(tmp_path, Kind.compare)).parts
    assert isinstance(table, Table) and table.title == "test"
    assert [row[0] for row in table.rows] == ["a", "c"] and [row[0] for row in table.unnormalized] == ["b"]
    assert isinstance(chart, Picture) and "of perplexity from a on test" in chart.caption
    assert [label.get_text() for label in chart.figure.axes[0].get_yticklabels()] == ["c"]


def test_an_evaluation_says_of_which_run_it_is(runs: Path, lmtool: Run) -> None:
    lmtool("eval", f"run={runs}/kn3", f"store_dir={runs}/stores")
    assert answer()["run"] == str((runs / "kn3").resolve())


# Reports, cards and pictures name the options that were chosen, not the settings classes behind them


GRU = ["data=toy", "output=softmax", "model.embedding_dim=4", "model.hidden_dim=6", "training.steps=2"]


def run_of(config: dict[str, Any], choices: dict[str, str]) -> RunFolder:
    words = {"store": "", "store_fingerprint": "", "vocabulary_fingerprint": ""}
    return RunFolder(folder=Path("run"), kind="train", config=config, choices=choices, **words)


NAMES = [
    ({"model": {"kind": "lstm", "cell": "gru"}, "output": {"kind": "softmax"}}, {"model": "gru"}, "gru + softmax"),
    ({"model": {"kind": "lstm", "cell": "rnn"}, "output": {"kind": "softmax"}}, {"model": "rnn"}, "rnn + softmax"),
    ({"model": {"kind": "lstm", "cell": "gru"}, "output": {"kind": "softmax"}}, {"model": "lstm"}, "gru + softmax"),
    ({"model": {"kind": "lstm", "cell": "gru"}, "output": {"kind": "softmax"}}, {}, "gru + softmax"),
    ({"model": {"kind": "lstm", "cell": "lstm"}, "output": {"kind": "nce"}}, {"model": "lstm"}, "lstm + nce"),
    ({"model": {"kind": "nplm"}, "output": {"kind": "nce"}}, {"model": "nce", "output": "nce"}, "nce"),
    ({"model": {"kind": "nplm"}, "output": {"kind": "softmax"}}, {"model": "skip_layer"}, "skip_layer + softmax"),
    (
        {"model": {"kind": "nplm"}, "output": {"kind": "hierarchical"}, "tree": {"kind": "clusters"}},
        {"model": "hsoftmax", "output": "mine", "tree": "wide"},
        "hsoftmax + mine (wide)",
    ),
    ({"model": {"kind": "ngram", "order": 3}, "smoother": {"kind": "laplace"}}, {}, "laplace of order 3"),
    (
        {"model": {"kind": "ngram", "order": 3}, "smoother": {"kind": "laplace"}},
        {"model": "ngram", "smoother": "add_one"},
        "add_one of order 3",
    ),
    (
        {"model": {"kind": "class_ngram", "order": 3, "num_classes": 200}, "smoother": {"kind": "laplace"}},
        {"model": "class_ngram", "smoother": "laplace"},
        "class_ngram, laplace of order 3",
    ),
]


@pytest.mark.parametrize(("config", "choices", "name"), NAMES)
def test_by_hand(config: dict[str, Any], choices: dict[str, str], name: str) -> None:
    assert model_name(run_of(config, choices)) == name


def test_the_report_and_the_pictures_of_a_gru(lmtool: Run, with_curves: None, monkeypatch: pytest.MonkeyPatch) -> None:
    titles: list[str] = []
    if can_plot():
        import lmtool.plots.curves as curves

        drawn = curves.training_curves
        monkeypatch.setattr(curves, "training_curves", lambda h, title="": titles.append(title) or drawn(h, title))
    lmtool("train", "model=gru", *GRU, "hydra.run.dir=runs/gru")
    lmtool("train", "model=lstm", *GRU, "hydra.run.dir=runs/lstm")
    lmtool("report", "runs/gru", "runs/lstm", "hydra.run.dir=page", "map=none")
    page = Path("page/report.html").read_text(encoding="utf-8").replace("<wbr>", "")
    assert "gru + softmax" in page and "lstm + softmax" in page
    assert model_name(RunFolder.open(Path("runs/gru"))) == "gru + softmax"
    if can_plot():
        assert titles[:2] == ["gru + softmax, data=toy", "lstm + softmax, data=toy"]
