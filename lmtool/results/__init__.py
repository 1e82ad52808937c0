"""Results of the commands: small typed objects, readable when printed and in notebooks."""

from typing import TYPE_CHECKING

from lmtool.system.lazy_names import lazy_names

if TYPE_CHECKING:
    from lmtool.results.base import NOT_COMPARABLE as NOT_COMPARABLE
    from lmtool.results.base import SUM_UNKNOWN as SUM_UNKNOWN
    from lmtool.results.base import Result as Result
    from lmtool.results.base import Written as Written
    from lmtool.results.base import sizes_text as sizes_text
    from lmtool.results.runs import MixedRun as MixedRun
    from lmtool.results.runs import RateTest as RateTest
    from lmtool.results.runs import SweepTable as SweepTable
    from lmtool.results.runs import TrainedRun as TrainedRun
    from lmtool.results.scores import Evaluation as Evaluation
    from lmtool.results.scores import ScoredTexts as ScoredTexts

# Imported on first use: help pages import the results of a verb, and must not wait for OmegaConf.
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lmtool.results.base": "NOT_COMPARABLE SUM_UNKNOWN Result Written sizes_text",
        "lmtool.results.runs": "MixedRun RateTest SweepTable TrainedRun",
        "lmtool.results.scores": "Evaluation ScoredTexts",
    },
)
