"""What the commands return: small typed objects, readable where they are printed and in notebooks."""

from lmtool.results.base import Result as Result
from lmtool.results.others import BuiltTree as BuiltTree
from lmtool.results.others import Written as Written
from lmtool.results.runs import MixedRun as MixedRun
from lmtool.results.runs import RateTest as RateTest
from lmtool.results.runs import SweepTable as SweepTable
from lmtool.results.runs import TrainedRun as TrainedRun
from lmtool.results.scores import Comparison as Comparison
from lmtool.results.scores import Evaluation as Evaluation
from lmtool.results.scores import Rescored as Rescored
from lmtool.results.texts import ScoredTexts as ScoredTexts

NOT_COMPARABLE = "do not compare this perplexity with others"
