"""Output for the user: tables in text, Markdown, LaTeX, CSV and HTML, progress bars, hints for misspelled words."""

from __future__ import annotations

import difflib
import heapq
import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from contextvars import ContextVar
from importlib import import_module
from itertools import pairwise
from typing import IO, Any

from lmtool.errors import UserError, escape_controls, escape_unprintable

log = logging.getLogger(__name__)
_noted: set[tuple[str, str]] = set()
_table_output: ContextVar[IO[bytes] | None] = ContextVar("_table_output", default=None)
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # first characters of a formula or of the white space before it
Cell = str | int | float | None


@contextmanager
def only_table(to: object) -> Iterator[None]:
    """Redirect prints in the block to standard error if `to` is -; standard output is for `table_output` then."""
    token = _table_output.set(sys.stdout.buffer if to == "-" else None)
    try:
        with redirect_stdout(sys.stderr) if to == "-" else nullcontext():
            yield
    finally:
        _table_output.reset(token)


def table_output() -> IO[bytes]:
    return _table_output.get() or sys.stdout.buffer


def note_once(text: str) -> None:
    """Log a note for the user, unless this process has logged it in the same working folder before."""
    if (os.getcwd(), text) not in _noted:
        _noted.add((os.getcwd(), text))
        log.warning("note: %s", text)


# Columns of a terminal: none for marks and for what joins a character or emoji before it; two for wide characters.
_JOINED = (
    r"(?![\xad\ufe0f])[\p{Mn}\p{Me}\p{Cf}\p{hst=V}\p{hst=T}]|(?<=\u200d)\p{Extended_Pictographic}"
    r"|\p{Emoji_Modifier}|(?<=[\p{ea=W}\p{ea=F}])\ufe0f"
)
_WIDE = r"[\p{ea=W}\p{ea=F}]"


def columns(text: str) -> int:
    """Return the number of terminal columns of a text: two for a Chinese character, none for a combining mark."""
    if text.isascii():
        return len(text)
    import regex  # slow to import, which would delay help pages

    alone = regex.sub(_JOINED, "", text)
    return len(alone) + len(regex.findall(_WIDE, alone))


def letters_of(text: str) -> list[str]:
    """Return the grapheme clusters of a text, each a character with its marks; none begins with a mark."""
    import regex

    return [found[0] for found in regex.finditer(r"\X\p{M}*", text)]


def text_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return a table in plain text: text flush left, numbers flush right, `-` for None, controls escaped."""
    header = [escape_controls(name) for name in header]
    shown = [[escape_controls(cell_text(cell)) for cell in row] for row in rows]
    widths = [max(columns(line[k]) for line in [header, *shown]) for k in range(len(header))]
    right = [
        bool(rows) and all(isinstance(row[k], int | float) or row[k] is None for row in rows)
        for k in range(len(header))
    ]

    def line(cells: Sequence[str]) -> str:
        spaces = [" " * (width - columns(cell)) for cell, width in zip(cells, widths, strict=True)]
        return "  ".join(s + c if r else c + s for c, s, r in zip(cells, spaces, right, strict=True)).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, shown)])


def markdown(text: str) -> str:
    """Return a text on one line, escaped so that Markdown shows it verbatim, without markup, HTML, links or cells."""
    return re.sub(r"[\\`*\[\]<>|#&~!$]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", escape_unprintable(text))


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cells)} |"

    shown = ([markdown(cell_text(cell)) for cell in row] for row in rows)
    return "\n".join([line(map(markdown, header)), line(["---"] * len(header)), *map(line, shown)])


def cell_text(cell: Cell) -> str:
    """Return a cell as text: integers with separators, other numbers with five or more digits, `-` for None."""
    if cell is None:
        return "-"
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return str(cell)
    if isinstance(cell, int):
        return f"{cell:,}"
    if abs(cell) >= 100_000:
        return f"{cell:,.0f}"
    return f"{cell:.4f}" if 0.01 <= abs(cell) < 10_000 else f"{cell:.5g}"


def size_text(size: int) -> str:
    """Return a number of bytes in the largest unit that gives a value of one or more, e.g. 49.7 KiB."""
    power = min(max(size.bit_length() - 1, 0) // 10, 3)
    return f"{size / 1024**power:,.{min(power, 1)}f} {('bytes', 'KiB', 'MiB', 'GiB')[power]}"


def csv_text(rows: Sequence[Sequence[Cell]]) -> str:
    """Return rows as CSV; a text that a spreadsheet would take for a formula gets a `'` before it (OWASP)."""
    import csv

    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([[_without_formula(cell) for cell in row] for row in rows])
    return written.getvalue()


def _without_formula(cell: Cell) -> Cell:
    """Return a cell, with `'` before a text that a spreadsheet takes for a formula; numbers are not formulas."""
    text = str(cell).lstrip("'")
    if not isinstance(cell, str) or text[:1] not in FORMULA:
        return cell
    try:
        float(text)
    except ValueError:
        return f"'{cell}"
    return f"'{cell}" if "_" in text else cell  # a number for Python, not for spreadsheets


def html_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return a table in HTML for notebooks: everything escaped, numbers flush right."""
    from html import escape

    def line(tag: str, cells: Sequence[Cell]) -> str:
        def side(cell: Cell) -> str:
            return "right" if isinstance(cell, int | float) else "left"

        return "".join(
            f'<{tag} dir="auto" style="text-align:{side(cell)}">{escape(cell_text(cell))}</{tag}>' for cell in cells
        )

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{line('th', header)}</tr></thead><tbody>{body}</tbody></table>"


_TEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}"}
)


def latex_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return a table in LaTeX for the package booktabs: everything escaped, numbers flush right."""
    right = [bool(rows) and not any(isinstance(row[k], str) for row in rows) for k in range(len(header))]
    lines = [
        " & ".join(escape_unprintable(cell_text(cell)).translate(_TEX) for cell in line) + r" \\"
        for line in (header, *rows)
    ]
    columns = "".join("r" if number else "l" for number in right)
    head = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", lines[0], r"\midrule"]
    return "\n".join([*head, *lines[1:], r"\bottomrule", r"\end{tabular}"])


def progress_bar(**options: Any) -> Any:
    """Return a tqdm bar, which disappears at its end: a widget in a notebook with ipywidgets, else text."""
    if "IPython" in sys.modules:
        from tqdm import TqdmWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TqdmWarning)  # text, without ipywidgets
            from tqdm.auto import tqdm
    else:
        from tqdm import tqdm
    return tqdm(leave=False, **options)


def token_bar(total: int | None, *, shown: bool) -> Any:
    """Return a bar that counts tokens, `total` if it is known; a bar that is not shown does nothing."""
    return progress_bar(total=total, unit=" tokens", unit_scale=True, disable=not shown)


@contextmanager
def hub_bars(*, shown: bool | None = None) -> Iterator[None]:
    """Show or hide huggingface_hub's progress bars in the block; None: show them on a terminal and in notebooks."""
    from huggingface_hub import constants

    utils: Any = import_module("huggingface_hub.utils")
    if shown is None:
        shown = in_notebook() or (sys.stderr is not None and sys.stderr.isatty())
    if shown or constants.HF_HUB_DISABLE_PROGRESS_BARS is not None or utils.are_progress_bars_disabled():
        yield
        return
    utils.disable_progress_bars()
    try:
        yield
    finally:
        utils.enable_progress_bars()


def write_above(bar: Any, text: str) -> None:
    """Print a line above a bar: on standard error, which a notebook shows as an error, or there on standard output."""
    bar.write(text, file=sys.stdout if in_notebook() else sys.stderr)


@contextmanager
def first_use_announced(*, shown: bool) -> Iterator[None]:
    """Print a line if Numba compiles a loop in the block because it is not in the cache yet."""
    if not shown:
        yield
        return
    from numba.core import event
    from tqdm import tqdm

    class Announced(event.Listener):
        first = True

        def on_start(self, event: object) -> None:
            if self.first:
                self.first = False
                write_above(tqdm, "first use: compiling loops for this processor takes some seconds, once")

        def on_end(self, event: object) -> None:
            pass

    with event.install_listener("numba:compile", Announced()):
        yield


def in_notebook() -> bool:
    """Return whether this process belongs to a notebook; that IPython is imported is not enough."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return "ipykernel" in sys.modules and shell is not None and shell() is not None


def write_out(text: str = "", *, end: str | None = None) -> None:
    """Print a text. end: what follows it; None for nothing, and to flush the output.

    Raises UserError if it cannot be written, e.g. on a full disk, and BrokenPipeError if the reader is gone.
    """
    if sys.stdout is None:
        return
    try:
        print(text, end=end or "", flush=end is None)
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        raise UserError(f"cannot write standard output: {error.strerror}") from error


def discard_output() -> None:
    """Redirect standard output to the null device, so that Python does not try again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


COMPARED = 300  # maximum number of words that difflib compares character by character, about 0.03 ms each


def close_words(word: str, candidates: Sequence[str], count: int = 3) -> list[str]:
    """Return at most `count` known words that are similar to `word`, the same word in another case first.

    Among more than COMPARED words, only those of about the same length with the same first or last character count.
    """
    cases = [form for form in (word.lower(), word.capitalize(), word.upper()) if form != word]
    compared: Iterable[str] = candidates
    if len(candidates) > COMPARED:
        shortest, longest, head, tail = len(word) - 2, len(word) + 2, word[:1], word[-1:]
        near = [w for w in candidates if shortest <= len(w) <= longest and (w[:1] == head or w[-1:] == tail)]
        letters, pairs = set(word), [a + b for a, b in pairwise(word)]

        def shared(known_word: str) -> int:
            return len(letters.intersection(known_word)) + sum(pair in known_word for pair in pairs)

        compared = heapq.nlargest(COMPARED, near, key=shared)
    present = set(cases).intersection(candidates)
    close = difflib.get_close_matches(word, compared, n=count, cutoff=0.6)
    return list(dict.fromkeys([*(form for form in cases if form in present), *close]))[:count]


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the end of an error message with the names similar to `word`, or all names if none is similar."""
    names = sorted(known)
    close = close_words(word, names)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; there are {', '.join(names)}" if names else ""
