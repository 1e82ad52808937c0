"""The commands that are killed: their lines, how they are run again, and which files must have the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Words = list[str]
TEXT = ["data=text", "data.name=own", "data.train=train.txt", "data.valid=valid.txt"]
NGRAM = ["train", *TEXT, "threads=1", "hydra.run.dir=out"]
SWEEP = ["train", "-m", *TEXT, "threads=1", "model=ngram", "model.order=1,2,3", "hydra.sweep.dir=out"]
NEURAL = ["train", "data=synthetic", "data.types=200", "data.tokens=20000", "data.valid_tokens=2000", "threads=1"]
NEURAL += ["data.test_tokens=100", "model.embedding_dim=8", "training.minutes=null", "training.save_every=0.0005"]
NEURAL += ["training.evaluate_every=0.25", "training.epochs=0.75", "training.batch_size=256", "training.accuracy_on=64"]
NEURAL += ["hydra.run.dir=out"]
NETWORKS = {
    "nplm": ["model=nplm", "model.hidden_dim=16"],
    "hsoftmax": ["model=hsoftmax", "model.hidden_dim=16", "optim=adagrad", "schedule=plateau", "training.max_norm=1"],
    "nce": ["model=nce", "model.hidden_dim=16", "output.noise=20", "optim=sgd", "optim.momentum=0.5"],
    "streamed": ["model=nplm", "model.hidden_dim=16", "training.memory=64KiB", "schedule=inverse", "optim=adam"],
    "adaptive": ["model=lbl", "output=adaptive", "output.cutoffs=[50,100]", "output.div_value=2", "schedule=linear"],
}


def same_line(words: Words, work: Path) -> Words:
    """The same line again."""
    return words


def resumed(words: Words, work: Path) -> Words:
    """By resume=, as soon as there is a training to resume."""
    begun = any((work / "out" / name).exists() for name in ("begun.json", ".hydra/overrides.yaml"))
    return ["train", "resume=out"] if begun else words


def resumed_sweep(words: Words, work: Path) -> Words:
    """By -m resume=, as soon as there is a sweep to resume."""
    return ["train", "-m", "resume=out"] if (work / "out" / "multirun.yaml").exists() else words


@dataclass(frozen=True)
class Command:
    """A command line in a folder where `place.prepare` has put texts, stores and runs.

    again: the line after a kill. made: the files and folders that it makes. whole_with: the file that completes them,
    if there is one: where it is, they must be as those of a run that nobody disturbed. without: folders there that it
    does not start from. ranks: processes that train together. is_slow: whether it starts processes of its own.
    """

    name: str
    words: Words
    made: tuple[str, ...] = ("out",)
    again: Callable[[Words, Path], Words] = same_line
    whole_with: str | None = None
    without: tuple[str, ...] = ()
    ranks: int = 1
    is_slow: bool = False


def _ngram(name: str, *words: str, **more: str) -> Command:
    return Command(name, [*NGRAM, "model=ngram", *words], whole_with="out/run.json", **more)  # type: ignore[arg-type]


COMMANDS = [
    Command("preprocess", ["preprocess", *TEXT, "hydra.run.dir=out"], ("out", "stores"), without=("stores",)),
    _ngram("counts", "model.order=4", "counts.memory=1MiB"),
    _ngram("estimation", "model.order=3", "prune=[0,0,1]", "quantize=8"),
    _ngram("tuning", "model.order=3", "smoother=jelinek_mercer", "smoother.tune_on=valid"),
    *(Command(name, [*NEURAL, *words], again=resumed, whole_with="out/run.json") for name, words in NETWORKS.items()),
    Command("torchrun", [*NEURAL, *NETWORKS["nplm"]], again=resumed, whole_with="out/run.json", ranks=2),
    Command("eval", ["eval", "run=kn", "accuracy=true", "threads=1", "hydra.run.dir=out"]),
    Command("ensemble", ["ensemble", "runs=[kn,kn2]", "threads=1", "hydra.run.dir=out"], whole_with="out/run.json"),
    Command("convert", ["convert", "run=kn", "to=kn.arpa", "hydra.run.dir=out"], ("out", "kn.arpa")),
    Command(
        "merge",
        ["convert", "runs=[kn,kn2]", "weights=[.6,.4]", "threads=1", "hydra.run.dir=out"],
        whole_with="out/run.json",
    ),
    Command("tree", ["tree", *TEXT, "tree=brown", "to=tree.txt", "hydra.run.dir=out"], ("out", "tree.txt")),
    Command(
        "score", ["score", "run=kn", "text=train.txt", "to=scores.tsv", "hydra.run.dir=out"], ("out", "scores.tsv")
    ),
    Command("report", ["report", "kn", "kn2", "hydra.run.dir=out"]),
    Command("sweep", SWEEP, again=resumed_sweep),
    Command(
        "joblib",
        [*SWEEP, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"],
        again=resumed_sweep,
        is_slow=True,
    ),
    Command(
        "submitit",
        [*SWEEP, "hydra/launcher=submitit_local", "hydra.launcher.timeout_min=2"],
        again=resumed_sweep,
        is_slow=True,
    ),
]
