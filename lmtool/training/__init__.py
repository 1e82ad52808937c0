"""Neural training: the loop, what it is made of, and the checkpoints it can be resumed from."""

from lmtool.training.batches import Batches
from lmtool.training.loop import Plan, Trained, train
from lmtool.training.optim import make_optimisers
from lmtool.training.reporting import METRICS
from lmtool.training.schedules import budget_done, learning_rate

__all__ = ["METRICS", "Batches", "Plan", "Trained", "budget_done", "learning_rate", "make_optimisers", "train"]
