"""Pictures, drawn with matplotlib (the extra `plots`): as PNG files, and as SVG within a page."""

from __future__ import annotations

import importlib.util


def can_plot() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None
