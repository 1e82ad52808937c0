"""How a set of words is divided in two by their vectors; plain types, for settings and for the loops that divide."""

from __future__ import annotations

from enum import Enum

from lmtool.config.rules import require
from lmtool.errors import UserError


class Division(Enum):
    """Ways to divide a set of words in two."""

    balanced = "balanced"
    adaptive = "adaptive"


class Method(Enum):
    """Models of the two halves of a set of words."""

    kmeans = "kmeans"
    gaussians = "gaussians"


def require_division(split: str, method: str, epsilon: float) -> None:
    """Raise UserError for settings of tree=clusters that are unknown, out of range, or contradict each other."""
    require(split in Division.__members__, "tree.split", split, f"one of {', '.join(Division.__members__)}")
    require(method in Method.__members__, "tree.method", method, f"one of {', '.join(Method.__members__)}")
    require(0 <= epsilon < 0.5, "tree.epsilon", epsilon, "from 0 to below 0.5")
    if epsilon and (split, method) != ("adaptive", "gaussians"):
        raise UserError(
            f"tree.epsilon={epsilon}: several codes per word need tree.split=adaptive and tree.method=gaussians; "
            "choose these, or tree.epsilon=0"
        )
