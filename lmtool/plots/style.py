"""Colors, sizes, fonts and axes of all pictures, and their conversion to PNG and SVG.

A picture is drawn once, in the light colors. In the SVG each color becomes a CSS variable, so that a page shows the
same picture on a light and on a dark background.
"""

from __future__ import annotations

import io
import itertools
import logging
import math
import re
import unicodedata
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import regex

from lmtool.errors import escape_controls
from lmtool.system.files import atomic_write
from lmtool.system.terminal import letters_of, note_once

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colors by name, on a light and on a dark background. Ink, muted and the series have a contrast of at least 4.5 to the
# page; the series differ not only in red and green. All light colors must differ.
COLORS = {
    "page": ("#ffffff", "#14171b"),
    "ink": ("#1b1f24", "#e6e9ed"),
    "muted": ("#59616b", "#a2abb6"),
    "grid": ("#e3e6ea", "#31373f"),
    "series1": ("#1f5fa8", "#7ab8f5"),
    "series2": ("#a8500f", "#f2a65e"),
    "series3": ("#00715a", "#56cfa8"),
    "series4": ("#8a3a8c", "#d9a0dc"),
    "series5": ("#756000", "#d8c04f"),
    "series6": ("#b3203f", "#ff8a94"),
}
LIGHT, DARK = ({name: pair[k] for name, pair in COLORS.items()} for k in (0, 1))
INK, MUTED, GRID = LIGHT["ink"], LIGHT["muted"], LIGHT["grid"]
SERIES = [LIGHT[f"series{k}"] for k in range(1, 7)]
MARKERS = ["o", "s", "^", "D", "v", "P"]
LTR = "\u200e"  # before a text of several parts, so that they stand from left to right, whatever their script
DPI = 150  # of PNG; characters are slightly narrower or wider at other resolutions
DEFAULT = "DejaVu Sans"  # font that comes with matplotlib
WIDTH = 6.6  # inches; a page shows it larger, and on a narrow screen smaller
LINE = 0.18  # inches, height of a line of text
MARGIN = 0.08  # space of an axis beyond its values, as a share of their range
VALUE_RATIO = 3.0  # minimum ratio of measured values for a log axis: larger values would flatten the rest
MAX = 1e250  # maximum value of an axis; beyond it margins and ticks overflow
OUTLIER = 100.0  # multiple of the median; larger values are drawn at the top of the picture

# Its first import reports that it lists the fonts, and the path if the home folder is read-only: useless to a user.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

# A base and its marks must be drawn by one font; some of their code points are never drawn.
_DRAWN = regex.compile(r"[^\p{Default_Ignorable_Code_Point}\p{C}\p{Z}]")
_NAMES = {value: name for name, value in LIGHT.items()}
_LOOK: dict[str, Any] = {
    "font.size": 9,
    "font.family": DEFAULT,
    "text.color": INK,
    "text.parse_math": False,  # dollar signs in words and names are not formulas
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "figure.titlesize": 9,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.7,
    "lines.markersize": 4,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "svg.fonttype": "none",  # text stays text: small, and it can be searched and copied
    "path.simplify_threshold": 0.2,
}


@contextmanager
def _look(**more: Any) -> Iterator[None]:
    from matplotlib import rc_context

    settings: Any = _LOOK | more  # matplotlib's own type lists every name
    with rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph ")  # a note has already been printed
        yield


@contextmanager
def new_figure(
    width: float, height: float, texts: Iterable[str], title: str = "", *, constrained: bool = True
) -> Iterator[Figure]:
    """Yield a figure of a size in inches to draw on, with the common looks. texts: drawn texts of any script. title:
    lines at the top, which make the figure higher; a long one is shortened at its end.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = title.splitlines()
    with _look(**{"font.family": families([*texts, title])}):
        size = width, height + LINE * len(lines)
        figure = Figure(figsize=size, dpi=DPI, layout="constrained" if constrained else None)
        FigureCanvasAgg(figure)
        if lines:
            lines = [shortened(figure, line, 0.97 * width, from_start=False) for line in lines]
            figure.suptitle("\n".join(lines), x=0.01, ha="left")
        yield figure
        if constrained:
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # laid out once for both PNG and SVG


def shortened(figure: Figure, name: str, width: float = 3.0, *, from_start: bool = True) -> str:
    """Return a text of at most a width in inches: an ellipsis replaces the characters at its end or start."""
    text, letters = figure.text(0, 0, name), letters_of(name)
    while letters and text.get_window_extent().width > width * figure.dpi:
        letters.pop(0 if from_start else -1)
        text.set_text("…" * from_start + "".join(letters) + "…" * (not from_start))
    text.remove()
    return str(text.get_text())


def as_png(figure: Figure) -> bytes:
    """Return a figure as the bytes of a PNG, on a light background."""
    target = io.BytesIO()
    with _look():
        figure.savefig(target, format="png", dpi=DPI, facecolor=LIGHT["page"])
    return target.getvalue()


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG, completely or not at all."""
    picture = as_png(figure)
    with atomic_write(path) as temporary:
        temporary.write_bytes(picture)


def as_svg(figure: Figure, name: str, description: str) -> str:
    """Return a figure as an `<svg>` element for a page whose style sheet defines the colors (`--ink` etc.).

    name: must be unique in the page, because ids are hashed with it. description: text for screen readers.
    """
    target = io.BytesIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with _look(**{"svg.hashsalt": name}):
        figure.savefig(target, format="svg", transparent=True, metadata=nothing)
    # matplotlib escapes <, > and &, but not control characters, which XML does not have.
    root = ET.fromstring(escape_controls(target.getvalue().decode("utf-8")))
    values = [value for element in root.iter() for value in element.attrib.values()]
    used = {value.removeprefix("url(").strip("#)") for value in values if value.startswith(("#", "url(#"))}
    for parent in root.iter():
        for child in [each for each in parent if each.tag.endswith(("}metadata", "}style"))]:
            parent.remove(child)  # it would apply to the whole page
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        kept = {key.rpartition("}")[2]: value for key, value in element.items() if key != "id" or value in used}
        if "style" in kept:
            kept["style"] = re.sub("#[0-9a-f]{6}", lambda color: f"var(--{_NAMES[color[0]]})", kept["style"])
        element.attrib = kept
    width, height = (float(size) for size in root.attrib["viewBox"].split()[2:])
    root.attrib = {
        "viewBox": f"0 0 {width:g} {height:g}",
        "style": f"--natural:{width * 4 / 3:.0f}px",  # a point is 4/3 of CSS's pixels
        "role": "img",
        "aria-label": escape_controls(description),
    }
    return ET.tostring(root, encoding="unicode")


def families(texts: Iterable[str]) -> list[str]:
    """Return the default font and installed fonts, Noto's first, that have its missing letters; note what none has."""
    from matplotlib import font_manager

    manager, found = font_manager.fontManager, [DEFAULT]
    missing = {letter for letter in letters_of("\n".join(texts)) if _DRAWN.search(letter)}
    # Han characters differ by country; kana and hangul indicate which.
    country = "JP" if any(regex.search(r"[\p{Hiragana}\p{Katakana}]", letter) for letter in missing) else "SC"
    country = "KR" if any(regex.search(r"\p{Hangul}", letter) for letter in missing) else country
    _cover(missing, [entry for entry in manager.ttflist if entry.name == DEFAULT], country)
    found += _cover(missing, manager.ttflist, country)
    if missing:  # matplotlib's list of fonts is not updated when fonts are installed
        for path in set(font_manager.findSystemFonts()) - {entry.fname for entry in manager.ttflist}:
            with suppress(NotImplementedError, OSError, RuntimeError):  # a font that matplotlib cannot draw
                manager.addfont(path)
        found += _cover(missing, manager.ttflist, country)
    if missing:
        drawn = [_DRAWN.findall(letter)[0] for letter in missing]
        common = regex.compile(r"\p{Common}")
        scripts = {"symbols" if common.match(a) else unicodedata.name(a, "UNKNOWN").split()[0] for a in drawn}
        note_once(
            f"pictures show boxes for letters that no installed font has ({', '.join(sorted(scripts)[:5])}): install a "
            "font of the script, e.g. of https://fonts.google.com/noto; Debian and Ubuntu have the packages "
            "fonts-noto-core, fonts-noto-cjk (Chinese, Japanese, Korean) and fonts-symbola (emoji)"
        )
    return found


def _cover(missing: set[str], entries: Iterable[Any], country: str) -> list[str]:
    """Return families with some of the missing characters, that with most first; remove these from `missing`."""
    from matplotlib.ft2font import FT2Font

    have: dict[str, set[str]] = {}
    for entry in entries if missing else ():
        if "last resort" not in entry.name.lower():  # draws a box for each character
            with suppress(OSError, RuntimeError):  # a font that no longer exists
                font = FT2Font(entry.fname)  # all faces of a collection have the same characters
                drawn = {each for each in missing if all(map(font.get_char_index, map(ord, _DRAWN.findall(each))))}
                have.setdefault(entry.name, set()).update(drawn)

    def rank(name: str) -> tuple[bool, int, bool, bool, str]:
        return not name.startswith("Noto Sans"), -len(have[name] & missing), "Mono" in name, country not in name, name

    found = []
    while useful := [name for name, letters in have.items() if letters & missing]:
        found.append(min(useful, key=rank))
        missing -= have[found[-1]]
    return found


def perplexity_text(value: float) -> str:
    """Return a perplexity with the digits that can be distinguished in a chart."""
    if value >= 1e6:
        return f"{value:.2g}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def top_of(values: Sequence[float]) -> float:
    """Return the upper end of an axis: the largest value that is at most OUTLIER times the median."""
    limit = OUTLIER * float(np.median(values))
    return max((value for value in values if value <= limit), default=max(values))


def are_geometric(values: Iterable[float]) -> bool:
    """Return whether settings are above 0 and far more evenly spaced on a log axis than on a linear one.

    >>> are_geometric([1, 2, 4, 8]), are_geometric([0.1, 1, 10, 100]), are_geometric([2, 3, 4, 5])
    (True, True, False)
    """
    ordered = sorted(set(values))
    if len(ordered) < 3 or ordered[0] <= 0:
        return False
    steps = [b - a for a, b in itertools.pairwise(ordered)]
    factors = [math.log(b) - math.log(a) for a, b in itertools.pairwise(ordered)]
    return 1.9 * max(factors) * min(steps) <= max(steps) * min(factors)


def number_axis(axes: Any, which: str, values: Sequence[float], *, log_ratio: float = math.inf) -> bool:
    """Scale the axis `x` or `y` for values, with a margin; return whether it is logarithmic.

    log_ratio: minimum ratio of the largest value to the smallest, above 0, for a log axis.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = max(min(values), -MAX), min(max(values), MAX)
    log = low > 0 and high > log_ratio * low
    if log:
        margin = (high / low) ** MARGIN
        low, high = low / margin, high * margin
        axes.set(**{f"{which}scale": "log"})
        steps = (1,) if high > 1000 * low else (1, 2, 5) if high > 10 * low else (1, 1.5, 2, 3, 4, 5, 7)
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_minor_locator(NullLocator())
    else:
        margin = MARGIN * (high - low) or max(abs(high) * MARGIN, 1e-9)
        low, high = low - margin, high + margin
    axes.set(**{f"{which}lim": (low, high)})
    axis.set_major_formatter("{x:,.7g}")
    return log


def write_names(figure: Any, drawn: Sequence[Any], title: str = "") -> None:
    """Write the labels of lines or bars, in their colors, below a title, at the right of a figure; if a label is long,
    below the figure, which becomes higher.
    """
    labels = [each.get_label() for each in drawn]
    below = any(shortened(figure, label, 1.9) != label for label in labels)
    if below:
        figure.set_figheight(figure.get_figheight() + LINE * (len(labels) + 1))
    look: dict[str, Any] = {"frameon": False, "handlelength": 1, "labelcolor": "linecolor", "alignment": "left"}
    look |= {"loc": "outside lower left" if below else "outside right center", "title": title or None}
    figure.legend(drawn, [shortened(figure, label, 0.9 * WIDTH) for label in labels], **look)
