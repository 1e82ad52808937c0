"""Pictures with words of any writing system: their letters are drawn, in their order, and none is cut at an edge."""

from __future__ import annotations

import importlib.util
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmtool.data.text_form import visible
from lmtool.plots import style
from lmtool.plots.charts import (
    Dot,
    charts_of,
    dots_figure,
    lines_figure,
    loss_against_rate,
    settings_figure,
    weight_bars,
)
from lmtool.plots.curves import History, training_curves
from lmtool.plots.style import as_png, as_svg, new_figure, shortened
from lmtool.plots.word_pictures import map_figure, tree_figure
from lmtool.trees.analysis import DrawnNode, top_of
from lmtool.trees.builders import balanced_tree
from tests.languages import TEXTS

pytestmark = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib")
MakeFont = Callable[..., Path]
ETHIOPIC = "ሰላም"
WORDS = {language: [*dict.fromkeys(text.split())] for language, text in TEXTS.items()}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Have only matplotlib's own fonts, and those that a test adds to the list of files."""
    from matplotlib import font_manager

    manager, files = font_manager.fontManager, []
    own = [entry for entry in manager.ttflist if "mpl-data" in entry.fname]
    monkeypatch.setattr(manager, "ttflist", own)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: files)
    monkeypatch.setattr("lmtool.system.terminal._noted", set())
    yield files


@pytest.fixture
def make_font(tmp_path: Path, installed: list[str]) -> MakeFont:
    """Return a function that installs a font of which all letters are `width` thousandths of its size wide."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    def make(family: str, letters: str, width: int) -> Path:
        box = TTGlyphPen(None)
        for k, point in enumerate([(50, 0), (50, 700), (width - 50, 700), (width - 50, 0)]):
            (box.lineTo if k else box.moveTo)(point)
        box.closePath()
        names = {ord(letter): f"letter{k}" for k, letter in enumerate(dict.fromkeys(letters))}
        order = [".notdef", *names.values()]
        builder = FontBuilder(1000, isTTF=True)
        builder.setupGlyphOrder(order)
        builder.setupCharacterMap(names)
        builder.setupGlyf(dict.fromkeys(order, box.glyph()))
        builder.setupHorizontalMetrics(dict.fromkeys(order, (width, 50)))
        builder.setupHorizontalHeader(ascent=800, descent=-200)
        builder.setupNameTable({"familyName": family, "styleName": "Regular"})
        builder.setupOS2(usWeightClass=400)
        builder.setupPost()
        path = tmp_path / f"{family}.ttf"
        builder.save(path)
        installed.append(str(path))
        return path

    return make


def width_of(text: str) -> float:
    """Return the width of a text in a picture, in points, at a size of 100 points: that of all its letters."""
    with new_figure(20, 2, [text]) as figure:
        drawn = figure.text(0, 0, f"{text}.", fontsize=100)  # the full stop has no part in the difference
        return float(drawn.get_window_extent().width * 72 / figure.dpi)


# fonts


def test_a_font_with_the_letters_is_chosen(make_font: MakeFont, caplog: pytest.LogCaptureFixture) -> None:
    make_font("Two Ems", ETHIOPIC, 2000)  # installed after matplotlib has listed the fonts
    assert style.families(["a b", ETHIOPIC]) == ["DejaVu Sans", "Two Ems"]
    # Three letters, each 200 points wide, then a full stop of DejaVu Sans: 0.318 em, of which 0.1 is its dot's end.
    assert 600 <= width_of(ETHIOPIC) <= 635
    assert not caplog.messages


def test_the_default_font_is_enough(make_font: MakeFont) -> None:
    make_font("All", "aя\u03b1", 2000)
    assert style.families(["aя\u03b1 \u200d\u2067\xad\n"]) == ["DejaVu Sans"]


def test_few_fonts_of_noto_are_preferred(make_font: MakeFont) -> None:
    make_font("A Lot", "ሀሁሂሃก", 1000)
    make_font("Noto Sans Mono One", "ሀሁሂሃ", 1000)
    make_font("Noto Sans One", "ሀሁሂሃ", 1000)
    make_font("Noto Sans Half", "ሀሁ", 1000)
    make_font("Last Resort", "ሀሁሂሃก中", 1000)
    assert style.families(["ሀሁ ሂሃ"]) == ["DejaVu Sans", "Noto Sans One"]
    assert style.families(["ሀሁ", "ሂሃก"]) == ["DejaVu Sans", "Noto Sans One", "A Lot"]


def test_han_letters_are_those_of_the_country(make_font: MakeFont) -> None:
    for country in ("HK", "JP", "KR", "SC"):
        make_font(f"Noto Sans CJK {country}", "中のン국", 1000)
    found = {text: style.families([text])[1][-2:] for text in ("中", "中の", "ン中", "中국")}
    assert found == {"中": "SC", "中の": "JP", "ン中": "JP", "中국": "KR"}


def test_a_font_that_is_gone_or_broken_is_not_chosen(make_font: MakeFont, installed: list[str], tmp_path: Path) -> None:
    make_font("Gone", ETHIOPIC, 1000)
    assert style.families([ETHIOPIC])[1:] == ["Gone"]
    (tmp_path / "Gone.ttf").unlink()
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    installed.append(str(tmp_path / "broken.ttf"))
    assert style.families([ETHIOPIC])[1:] == []


def test_letters_without_a_font_are_noted_once(installed: list[str], caplog: pytest.LogCaptureFixture) -> None:
    for word in ("ልለ", "ለሐ", "abc"):
        as_png(map_figure(np.eye(3, 2), [word, "b", "c"], None))
    (note,) = caplog.messages
    assert note == (
        "note: pictures show boxes for letters that no installed font has (ETHIOPIC): install a "
        "font of the script, e.g. of https://fonts.google.com/noto; Debian and Ubuntu have the packages "
        "fonts-noto-core, fonts-noto-cjk (Chinese, Japanese, Korean) and fonts-symbola (emoji)"
    )
    as_png(map_figure(np.eye(3, 2), ["中ሐ።", "b", "😵\N{WOMAN}"], None))
    _, note = caplog.messages
    assert "(CJK, ETHIOPIC, symbols): install" in note


# order and marks


def pixels(text: str) -> bytes:
    with new_figure(3, 1, [text]) as figure:
        figure.text(0.1, 0.3, text, fontsize=20)
    return as_png(figure)


def test_hebrew_and_arabic_are_drawn_from_right_to_left() -> None:
    left_to_right = "\u202d"
    assert pixels("\u05d0\u05d1\u05d2") == pixels(f"{left_to_right}\u05d2\u05d1\u05d0")
    # Beh twice: the final form at the left of the initial form.
    assert pixels("\u0628\u0628") == pixels(f"{left_to_right}\ufe90\ufe91") != pixels(f"{left_to_right}\ufe8f\ufe8f")
    assert pixels("") != pixels("\u0628\u0628")


def test_marks_take_no_place_of_their_own() -> None:
    assert width_of("e\u0323\u0302") == pytest.approx(width_of("e"), abs=1)  # of Vietnamese
    assert width_of("\u05e9\u05c1\u05b8") == pytest.approx(width_of("\u05e9"), abs=1)  # of Hebrew


def test_letters_of_words_are_not_torn() -> None:
    # ZWNJ joins letters of a Persian word; the vowel sign of Burmese (U+102C) belongs to its letter.
    words = ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "a\u200bb", "\u101e\u1031\u102c" * 17]
    assert visible(words[0]) == words[0] and visible(words[1]) == "'a\\u200bb'" and visible("\u200d") == "'\\u200d'"
    label = top_of(balanced_tree(np.arange(3)), words, np.array([3, 2, 1]), 0).label
    assert label == f"\u200f{words[0]}\u200f\u200e, a\\u200bb, " + "\u101e\u1031\u102c" * 15 + "…"
    # The quotes and the comma of a Hebrew word stay beside it.
    quoted = ["\u201e\u05d0\u05d1\u201d", "\u05d2,", "a"]
    label = top_of(balanced_tree(np.arange(3)), quoted, np.array([3, 2, 1]), 0).label
    assert pixels(f"\u200e{label}") == pixels("\u202d\u201d\u05d1\u05d0\u201e, ,\u05d2, a")
    with new_figure(1, 1, words) as figure:
        name = shortened(figure, "\u101e\u1031\u102c" * 99)
    assert re.fullmatch("…(\u101e\u1031\u102c)+", name)


def test_a_label_of_a_tree_begins_at_its_left(installed: list[str]) -> None:
    label = "\u05d0, \u05d1, … (5 words)"
    figure = tree_figure(DrawnNode(-1, "", 1.0, label, ()))
    drawn = ET.fromstring(as_svg(figure, "name", ""))
    assert f"\u200e{label}" in {"".join(text.itertext()) for text in drawn.iter("text")}
    # The words from right to left, then the English of the label from left to right.
    assert pixels(f"\u200e{label}") == pixels("\u202d\u05d1 ,\u05d0, … (5 words)")


def test_svg_has_the_letters_themselves(installed: list[str]) -> None:
    names = {min(words, key=len) for words in WORDS.values()}
    drawn = ET.fromstring(as_svg(dots_figure([Dot(name, 1.0, "1") for name in names], "\u0645\u0639"), "name", ""))
    assert names | {"\u0645\u0639"} <= {"".join(text.itertext()) for text in drawn.iter("text")}


# edges


def outside(figure: Any) -> list[str]:
    """Return the texts that do not lie within a figure, at the resolution of a PNG."""
    from matplotlib.text import Text

    warnings.filterwarnings("ignore", message="Glyph ")
    figure.draw_without_rendering()
    hidden = set()  # labels of ticks beyond the ends of an axis
    for axis in [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]:
        low, high = sorted(axis.get_view_interval())
        ticks = [tick for tick in axis.get_major_ticks() if not (axis.axes.axison and low <= tick.get_loc() <= high)]
        hidden |= {label for tick in ticks for label in (tick.label1, tick.label2)}
    found = []
    for text in figure.findobj(Text):
        box = text.get_window_extent()
        inside = figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
        inside &= figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1
        if text.get_text() and text.get_visible() and text not in hidden and not inside:
            found.append(text.get_text())
    return found


WIDE = ("Amharic", "Arabic", "Chinese", "Hindi", "Tibetan", "Vietnamese", "Emoji")
LONG = {language: "".join(WORDS[language])[:60] for language in WIDE} | {"Latin": "W" * 60}


@pytest.mark.parametrize("language", LONG)
def test_no_text_is_cut_at_an_edge(language: str, installed: list[str]) -> None:
    long = LONG[language]
    leaf = DrawnNode(-1, "0", 0.5, ", ".join([long[:16]] * 4), ())
    other = DrawnNode(-2, "1", 0.5, "a", ())
    history = History([1.0, 2.0], [3.0, 2.0], [30.0, 20.0], [0.1, 0.2], [0.1, 0.2], [0.1, 0.1])
    seeds = [({"model": name, "order": order}, 1.5) for name in (long, "b") for order in ("1", "2", "3")]
    grid = [({"model": name, "order": order}, 1.5) for name in (long, *"bcdefg") for order in ("1", "2", "3")]
    many = [({"model": name, "kind": kind}, 1.5) for name in (long, *"bcdefg") for kind in ("u", "v")]
    pictures = {
        "tree": tree_figure(DrawnNode(0, "", 1.0, "", (leaf, other))),
        "paths": tree_figure(DrawnNode(0, "", 1.0, "", (other, other)), long),
        "map": map_figure(np.eye(3, 2), [long, long[:9], "c"], ("first", "second")),
        "dots": dots_figure([Dot(long, 1.0, "1"), Dot("b", 2.0, "2", (1.5, 2.5))], "perplexity"),
        "weights": weight_bars([long, "b"], [[0.99, 0.01]]),
        "classes": weight_bars([long, long, "b", "c"], [[0.4, 0.3, 0.2, 0.1]] * 2),
        "rates": loss_against_rate([0.1, 1.0], [2.0, 3.0], [2.0, 2.5], 0.5, f"data={long * 2}"),
        "curves": training_curves(history, f"data={long * 2}"),
        "valid": lines_figure({long: {1.0: [2.0]}, "b": {1.0: [2.0], 2.0: [1.0]}}, "p", "epochs", long),
        "lines": settings_figure(charts_of(seeds)[0], "perplexity"),
        "grid": settings_figure(charts_of(grid)[0], "perplexity"),
        "settings": settings_figure(charts_of(many)[0], "perplexity"),
    }
    assert {name: outside(figure) for name, figure in pictures.items()} == {name: [] for name in pictures}
