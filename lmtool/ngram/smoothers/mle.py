"""Maximum likelihood: p(w|h) = c(hw) / c(h.) (Chen & Goodman 1998, eq. 3).

What was never seen after a context that was has probability zero; for a context that was never seen there is no
estimate, and the shorter context's is taken.
"""

from __future__ import annotations

from lmtool.ngram.estimate import Smoother


class MaximumLikelihood(Smoother):
    """No parameters: share(hw) = c(hw) / c(h.), and weight 0."""
