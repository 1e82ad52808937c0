"""The pages of options on the site, each generated from the option's two files."""

from __future__ import annotations

import importlib
import re
import sys
from types import ModuleType

import pytest

from lmtool.config.options import GROUP_MODULES, folder_in_use, kinds, yaml_files
from tests.conftest import ROOT

EXTENSIONS = ROOT / "docs" / "_extensions"
COMPUTING = [
    (group, name) for group in GROUP_MODULES if group not in ("data", "tracker", "segmenter") for name in kinds(group)
]
ALL = [(group, name) for group in GROUP_MODULES for name in yaml_files(group)]


@pytest.fixture(scope="module")
def texts() -> ModuleType:
    return imported("option_text")


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    return imported("option_pages")


def imported(name: str) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(EXTENSIONS), *sys.path])
        return importlib.import_module(name)


def balanced(latex: str) -> bool:
    """Return whether each brace, \\left and \\begin is closed."""
    bare = re.sub(r"\\[{}]", "", latex)
    depths = [bare[:end].count("{") - bare[:end].count("}") for end in range(len(bare) + 1)]
    begins, ends = re.findall(r"\\begin\{(\w+)\}", latex), re.findall(r"\\end\{(\w+)\}", latex)
    lefts, rights = re.findall(r"\\left\b", latex), re.findall(r"\\right\b", latex)
    return min(depths) == depths[-1] == 0 and sorted(begins) == sorted(ends) and len(lefts) == len(rights)


def test_balanced_formulas_are_told_from_others() -> None:
    assert balanced(r"\frac{a}{b} \left( x \right) \begin{cases} 1 \end{cases} \{")
    assert not any(map(balanced, (r"\frac{a}{b", r"}{", r"\left( x", r"\begin{cases} 1")))


@pytest.mark.parametrize(("group", "name"), COMPUTING, ids=lambda value: value)
def test_an_option_says_what_it_computes(texts: ModuleType, group: str, name: str) -> None:
    said = texts.option_text(texts.docstring(group, name))
    assert said.title.endswith(".") and "math" not in said.title
    assert said.formulas, "a `.. math::` block"
    assert re.search(r"\d{4}", said.source), "Source: authors (year), title, venue"
    assert said.complexity.startswith(("O(", "as of", "a look-up", "one more", "two more")), "Complexity: O(...)"
    inline = re.findall(r":math:`([^`]+)`", said.body)
    assert all(balanced(latex) for latex in [*said.formulas, *inline])


@pytest.mark.parametrize(("group", "name"), ALL, ids=lambda value: value)
def test_each_setting_has_its_meaning_and_what_it_may_be(texts: ModuleType, group: str, name: str) -> None:
    for setting in texts.settings(group, name):
        assert setting.meaning, f"conf/{group}/{name}.yaml: a comment for {setting.name}"
        assert setting.values, f"{group}.{setting.name}: type or range"


def test_every_page_is_made_once_and_whole(writer: ModuleType) -> None:
    pages = writer.pages()
    assert {f"{group}/{name}.md" for group, name in ALL} | {
        f"{group}/index.md" for group in GROUP_MODULES
    } == pages.keys()
    for path, page in pages.items():
        assert page.startswith("# ") and len(re.findall(r"^# ", page, re.MULTILINE)) >= 1, path
        assert page.count("```") % 2 == 0 and page.count("$") % 2 == 0, path
        assert ":math:" not in page and ".. math" not in page and "\0" not in page, path
        outside = re.sub(r"```.*?```|`[^`\n]*`", "", page, flags=re.DOTALL)
        assert not re.search(r"(?<!\\)<", outside), f"{path}: a tag that a browser would take for HTML"
    kneser_ney = pages["smoother/kneser_ney.md"]
    assert "lmtool train model=ngram data=ptb smoother=kneser_ney\n" in kneser_ney
    assert "| 151.42 | `model.order=5` |" in kneser_ney
    assert "| `tree.path` | to be given | path of the file of words and codes | text |" in pages["tree/file.md"]
    assert "| `smoother.interpolate` | `true` | false: back off," in kneser_ney
    smoothers, trees = pages["smoother/index.md"], pages["tree/index.md"]
    assert "valid with `model.order=5`; printed by" in smoothers and "occurrences. | 151.42 |" in smoothers
    assert "valid; printed by" in trees and "(Mnih & Hinton 2009). | 169.49 |" in trees
    assert "708.85" not in smoothers, "of scores that do not sum to one"
    assert "[`model=nplm`](nplm.md)" in pages["model/nce.md"] and "(../output/nce.md)" in pages["model/nce.md"]
    for option, name in (("output/nce", "neural.NCELoss"), ("tree/brown", "trees.brown_tree")):
        assert re.search(rf"In Python: .*`lmtool\.{name}`.*\. Files:", pages[f"{option}.md"])
    assert "In Python: {py:obj}`lmtool.trees.huffman_tree`. Files:" in pages["tree/huffman.md"]


def test_figures_are_of_options_that_there_are(texts: ModuleType) -> None:
    measured = texts._measured()
    assert measured and all(measured[group]["rows"].keys() <= yaml_files(group).keys() for group in measured)
    figures = texts.figures("smoother", "modified_kneser_ney")
    assert [row.perplexity for row in figures.rows[:2]] == ["157.77", "148.01"]


def test_figures_are_those_of_a_reproduction(texts: ModuleType) -> None:
    published = (ROOT / "scripts" / "results" / "mnih-teh2012.md").read_text()
    small = [*texts.figures("output", "softmax").rows, *texts.figures("output", "nce").rows]
    assert len(small) == 5 and all(f" {row.perplexity} " in published for row in small)


def test_formulas_and_markup_become_markdown(writer: ModuleType) -> None:
    rest = "a < b, `<s>` and :math:`x_1\n+ y`:\n\n.. math::\n\n    a &= b \\\\\n    c &= d\n\nThe end."
    wanted = "a \\< b, `<s>` and $x_1 + y$:\n\n```{math}\na &= b \\\\\nc &= d\n```\n\nThe end.\n"
    assert writer.markdown(rest) == wanted
    assert writer.markdown("n_r of p(w|h'), O(n T), O(W log W) and O(D words), not `a_b` or div_value.") == (
        "$n_{r}$ of $p(w|h')$, $O(n\\,T)$, $O(W \\log\\,W)$ and O(D words), not `a_b` or div_value.\n"
    )
    assert writer.plain("a|b [*] `<s>` </s>", cell=True) == r"a\|b \[\*\] `<s>` \</s>"


def test_only_what_changed_is_written(writer: ModuleType, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(writer, "pages", lambda: {"a/x.md": "new", "a/y.md": "same"})
    (tmp_path / "a").mkdir()
    for name, text in (("x", "old"), ("y", "same"), ("z", "gone")):
        (tmp_path / "a" / f"{name}.md").write_text(text)
    before = (tmp_path / "a" / "y.md").stat().st_mtime_ns
    writer.write_pages(tmp_path)
    assert (tmp_path / "a" / "x.md").read_text() == "new" and not (tmp_path / "a" / "z.md").exists()
    assert (tmp_path / "a" / "y.md").stat().st_mtime_ns == before


def test_an_option_from_outside_has_a_page_of_what_it_says(writer: ModuleType) -> None:
    with folder_in_use(ROOT / "docs" / "examples" / "own_options" / "own_options"):
        page = writer.page("smoother", "dirichlet")
    assert "`smoother.mu`" in page and "## Published" not in page and "above 0" in page
    assert "smoother/dirichlet.md" not in writer.pages()
