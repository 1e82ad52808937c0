"""Witten-Bell smoothing (Witten & Bell 1991, method C; Chen & Goodman 1998, eq. 17).

    interpolated   p(w|h) = (c(hw) + N1+(h.) p(w|h')) / (c(h.) + N1+(h.))
    backed off     p(w|h) = c(hw) / (c(h.) + N1+(h.)) where hw was seen, else backoff(h) p(w|h')

N1+(h.) is the number of different words after h: as often was the next word a new one.
"""

from __future__ import annotations

from typing import Any

from lmtool.ngram.estimate import Contexts, Form, Smoother


class WittenBell(Smoother):
    """No parameters."""

    def __init__(self, order: int, *, interpolate: bool = True) -> None:
        Smoother.__init__(self, order)
        self.form = Form.interpolated if interpolate else Form.backed_off

    def norm(self, k: int, h: Contexts) -> Any:
        """c(h.) + N1+(h.)"""
        return h.total + h.types

    def weight(self, k: int, h: Contexts) -> Any:
        """N1+(h.) / (c(h.) + N1+(h.))"""
        return h.types / (h.total + h.types)
