"""lmtool: train, evaluate, mix and compare the language models that came before Transformers.

`lmtool.train`, `evaluate`, `ensemble`, `compare`, `sweep` ... do in Python what the commands do, and return small typed
objects; `lmtool.load("runs/kn5")` loads the model of a finished run as a TextModel, which has `score`, `predict` and
`generate`; `lmtool.Corpus.from_texts` takes text from Python instead of files.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lmtool.system.process import use_writable_cache

if TYPE_CHECKING:
    from lmtool.api.calls import compare as compare
    from lmtool.api.calls import convert as convert
    from lmtool.api.calls import distil as distil
    from lmtool.api.calls import distill as distill
    from lmtool.api.calls import ensemble as ensemble
    from lmtool.api.calls import evaluate as evaluate
    from lmtool.api.calls import export as export
    from lmtool.api.calls import merge as merge
    from lmtool.api.calls import mix as mix
    from lmtool.api.calls import preprocess as preprocess
    from lmtool.api.calls import report_page as report_page
    from lmtool.api.calls import rescore as rescore
    from lmtool.api.calls import sweep as sweep
    from lmtool.api.calls import train as train
    from lmtool.api.calls import tree as tree
    from lmtool.api.texts import score_texts as score_texts
    from lmtool.data.corpus import Corpus as Corpus
    from lmtool.errors import UserError as UserError
    from lmtool.runs.load import load as load
    from lmtool.states import State as State
    from lmtool.states import States as States
    from lmtool.text_model import TextModel as TextModel

__version__ = "0.7.0"

use_writable_cache()

CALLS = "compare convert distill ensemble evaluate export merge preprocess report_page rescore sweep train tree"
OLDER_NAMES = "distil mix"
# Imported on first use: the command line's help must not wait for numpy.
HOMES = {
    **dict.fromkeys([*CALLS.split(), *OLDER_NAMES.split()], "lmtool.api.calls"),
    "Corpus": "lmtool.data.corpus",
    "UserError": "lmtool.errors",
    "State": "lmtool.states",
    "States": "lmtool.states",
    "load": "lmtool.runs.load",
    "score_texts": "lmtool.api.texts",
    "TextModel": "lmtool.text_model",
}


def __getattr__(name: str) -> Any:
    if name in HOMES:
        return getattr(import_module(HOMES[name]), name)
    raise AttributeError(f"module 'lmtool' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])
