"""lmtool: train, evaluate, mix and compare the language models that came before Transformers.

`lmtool.load("runs/kn5")` loads the model of a finished run as a TextModel, which has `score`, `predict` and `generate`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lmtool.runs.load import load as load

__version__ = "0.6.0"


def __getattr__(name: str) -> Any:
    # Imported on first use: the command line's help must not wait for numpy.
    if name == "load":
        from lmtool.runs.load import load

        return load
    raise AttributeError(f"module 'lmtool' has no attribute {name!r}")
