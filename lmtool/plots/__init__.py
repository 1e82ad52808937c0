"""Pictures, for those who have matplotlib (the extra `plots`): as PNG files, and as SVG inside a page."""

from __future__ import annotations

import importlib.util


def can_plot() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None
