"""lmtool: train, evaluate, mix and compare the language models that came before Transformers.

`lmtool.train`, `evaluate`, `ensemble`, `compare`, `sweep` ... do in Python what the commands do, and return small typed
objects; `lmtool.load("runs/kn5")` loads the model of a finished run as a TextModel, which has `score`, `predict` and
`generate`; `lmtool.Corpus.from_texts` takes text from Python instead of files.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from lmtool.system.lazy_names import lazy_names
from lmtool.system.process import use_writable_cache

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmtool import results
    from lmtool.api.calls import evaluate as evaluate
    from lmtool.api.calls import score_texts as score_texts
    from lmtool.api.calls import surprisal as surprisal
    from lmtool.api.calls import sweep as sweep
    from lmtool.api.calls import train as train
    from lmtool.api.calls import tree as tree
    from lmtool.commands import check as _check
    from lmtool.commands import compare as _compare
    from lmtool.commands import generate as _generate
    from lmtool.commands import neighbors as _neighbors
    from lmtool.commands import pairs as _pairs
    from lmtool.commands import predict as _predict
    from lmtool.commands import rescore as _rescore
    from lmtool.commands import unlikely as _unlikely
    from lmtool.commands import verify as _verify
    from lmtool.data.corpus import Corpus as Corpus
    from lmtool.errors import UserError as UserError
    from lmtool.runs.load import load as load
    from lmtool.states import State as State
    from lmtool.states import States as States
    from lmtool.text_model import TextModel as TextModel

    check: Callable[..., _check.CheckResult]
    compare: Callable[..., _compare.CompareResult]
    convert: Callable[..., results.Written]
    distill: Callable[..., results.TrainedRun]
    ensemble: Callable[..., results.MixedRun]
    export: Callable[..., results.Written]
    generate: Callable[..., _generate.GenerateResult]
    neighbors: Callable[..., _neighbors.NeighborsResult]
    pairs: Callable[..., _pairs.PairsResult]
    predict: Callable[..., _predict.PredictResult]
    preprocess: Callable[..., Corpus]
    push: Callable[..., results.Written]
    rescore: Callable[..., _rescore.RescoreResult]
    report_page: Callable[..., results.Written]
    score: Callable[..., results.ScoredTexts]
    unlikely: Callable[..., _unlikely.UnlikelyResult]
    verify: Callable[..., _verify.VerifyResult]

__version__ = "0.7.0.dev0"

use_writable_cache()

# Imported on first use: the command line's help must not wait for numpy. Every verb is a function: of api.calls if it
# takes other arguments than the verb's settings or has another name, else made of the settings by api.verbs.
_written = ("eval", "report", "surprisal", "train", "tree")
_verbs = [path.stem for path in (Path(__file__).parent / "commands").glob("[!_]*.py") if path.stem not in _written]
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lmtool.api.verbs": " ".join(["report_page", *_verbs]),
        "lmtool.api.calls": "evaluate score_texts surprisal sweep train tree",
        "lmtool.data.corpus": "Corpus",
        "lmtool.errors": "UserError",
        "lmtool.runs.load": "load",
        "lmtool.states": "State States",
        "lmtool.text_model": "TextModel",
    },
)
