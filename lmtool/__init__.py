"""lmtool: train, evaluate, mix and compare the language models that came before Transformers.

`lmtool.train`, `evaluate`, `ensemble`, `compare`, `sweep` ... do in Python what the commands do, and return small typed
objects; `lmtool.load("runs/kn5")` loads the model of a finished run as a TextModel, which has `score`, `predict` and
`generate`; `lmtool.Corpus.from_texts` takes text from Python instead of files.
"""

from typing import TYPE_CHECKING

from lmtool.system.lazy_names import lazy_names
from lmtool.system.process import use_writable_cache

if TYPE_CHECKING:
    from lmtool.api.calls import compare as compare
    from lmtool.api.calls import ensemble as ensemble
    from lmtool.api.calls import evaluate as evaluate
    from lmtool.api.calls import pairs as pairs
    from lmtool.api.calls import preprocess as preprocess
    from lmtool.api.calls import rescore as rescore
    from lmtool.api.calls import sweep as sweep
    from lmtool.api.calls import train as train
    from lmtool.api.calls import tree as tree
    from lmtool.api.texts import score_texts as score_texts
    from lmtool.api.texts import surprisal as surprisal
    from lmtool.api.writing import convert as convert
    from lmtool.api.writing import distill as distill
    from lmtool.api.writing import export as export
    from lmtool.api.writing import merge as merge
    from lmtool.api.writing import push as push
    from lmtool.api.writing import report_page as report_page
    from lmtool.data.corpus import Corpus as Corpus
    from lmtool.errors import UserError as UserError
    from lmtool.runs.load import load as load
    from lmtool.states import State as State
    from lmtool.states import States as States
    from lmtool.text_model import TextModel as TextModel

__version__ = "0.7.0.dev0"

use_writable_cache()

# Imported on first use: the command line's help must not wait for numpy.
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "api.calls": "compare ensemble evaluate pairs preprocess rescore sweep train tree",
        "api.texts": "score_texts surprisal",
        "api.writing": "convert distill export merge push report_page",
        "data.corpus": "Corpus",
        "errors": "UserError",
        "runs.load": "load",
        "states": "State States",
        "text_model": "TextModel",
    },
)
