"""Progress bars: text on a terminal, a widget in a notebook that has ipywidgets."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

GAP = "  "  # between two parts of a line


def progress_bar(**options: Any) -> Any:
    """tqdm's bar with these options, which disappears at its end: a widget in a notebook, text elsewhere and where
    ipywidgets is not installed.
    """
    if "IPython" in sys.modules:
        from tqdm import TqdmWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TqdmWarning)  # without ipywidgets tqdm.auto is text, with a warning
            from tqdm.auto import tqdm
    else:
        from tqdm import tqdm
    return tqdm(leave=False, **options)


def token_bar(total: int | None, *, shown: bool) -> Any:
    """A bar that counts tokens, `total` of them where that is known; one that is not shown does nothing."""
    return progress_bar(total=total, unit=" tokens", unit_scale=True, disable=not shown)


def write_above(bar: Any, text: str) -> None:
    """Print a line above a bar: on standard error, which a notebook would show as an error, and there on standard
    output.
    """
    bar.write(text, file=sys.stdout if in_notebook() else sys.stderr)


def in_notebook() -> bool:
    """Whether this is a notebook's process; its packages alone may be there because a library has imported them."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return "ipykernel" in sys.modules and shell is not None and shell() is not None


def fitting(parts: Sequence[tuple[str, int]], columns: int | None) -> str:
    """Parts, each with its rank, in one line of at most that many columns; those of the highest ranks are left out."""
    kept: list[tuple[str, int]] = []
    for part in sorted(parts, key=lambda part: part[1]):
        if columns is None or len(GAP.join(text for text, _ in [*kept, part])) <= columns:
            kept.append(part)
    return GAP.join(part[0] for part in parts if part in kept)
