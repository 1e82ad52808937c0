"""The commands that are disturbed: their lines, how they run, and how they are run again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fuzzing import child
from fuzzing.child import Child, End

LIMIT = 120.0  # seconds, of one or two that a command takes, after which it hangs
Words = list[str]
TEXT = ["data=text", "data.name=own", "data.train=train.txt", "data.valid=valid.txt"]
NGRAM = ["train", *TEXT, "threads=1", "hydra.run.dir=out"]
SWEEP = ["train", "-m", *TEXT, "threads=1", "model=ngram", "model.order=1,2,3", "hydra.sweep.dir=out"]
NEURAL = ["train", "data=synthetic", "data.types=200", "data.tokens=20000", "data.valid_tokens=2000", "threads=1"]
NEURAL += ["data.test_tokens=100", "model.embedding_dim=8", "training.minutes=null", "training.save_every=0.0005"]
NEURAL += ["training.evaluate_every=0.25", "training.epochs=0.75", "training.batch_size=256"]
NEURAL += ["training.accuracy_tokens=64", "hydra.run.dir=out"]
NETWORKS = {
    "nplm": ["model=nplm", "model.hidden_dim=16"],
    "hsoftmax": [
        *("model=hsoftmax", "model.hidden_dim=16", "optim=adagrad", "schedule=plateau"),
        "training.embedding_max_norm=1",
    ],
    "nce": ["model=nce", "model.hidden_dim=16", "output.num_noise=20", "optim=sgd", "optim.momentum=0.5"],
    "streamed": ["model=nplm", "model.hidden_dim=16", "training.memory=64KiB", "schedule=inverse", "optim=adam"],
    "adaptive": ["model=lbl", "output=adaptive", "output.cutoffs=[50,100]", "output.div_value=2", "schedule=linear"],
}


def same_line(words: Words, work: Path) -> Words:
    return words


def resumed(words: Words, work: Path) -> Words:
    """Return the line with resume=, or the first one if there is no training to resume yet."""
    begun = any((work / "out" / name).exists() for name in ("begun.json", ".hydra/request.json"))
    return ["train", "resume=out"] if begun else words


def resumed_sweep(words: Words, work: Path) -> Words:
    """Return the line with -m resume=, or the first one if there is no sweep to resume yet."""
    return ["train", "-m", "resume=out"] if (work / "out" / "sweep.json").exists() else words


@dataclass(frozen=True)
class Command:
    """A command line in a folder that `place.prepare` has filled with texts, stores and runs.

    again: the line after a kill. made: the files and folders that it makes. whole_with: the file that completes them:
    once it exists, they must equal those of an undisturbed run. without: prepared folders that it starts without.
    """

    words: Words
    made: tuple[str, ...] = ("out",)
    again: Callable[[Words, Path], Words] = same_line
    whole_with: str | None = None
    without: tuple[str, ...] = ()

    def run(self, words: Words, work: Path) -> End:
        return start(words, work).end(LIMIT)

    def run_again(self, work: Path) -> End:
        """Run the line after a kill to its end."""
        return self.run(self.again(self.words, work), work)


FINISHED = "out/run.json"
# fmt: off
COMMANDS = {
    "preprocess": Command(["preprocess", *TEXT, "hydra.run.dir=out"], ("out", "stores"), without=("stores",)),
    "counts": Command([*NGRAM, "model=ngram", "model.order=4", "counts.memory=1MiB"], whole_with=FINISHED),
    "estimation": Command([*NGRAM, "model=ngram", "model.order=3", "prune_counts=[0,0,1]", "quantize=8"],
                          whole_with=FINISHED),
    "tuning": Command([*NGRAM, "model=ngram", "model.order=3", "smoother=jelinek_mercer", "smoother.tune_on=valid"],
                      whole_with=FINISHED),
    **{name: Command([*NEURAL, *words], again=resumed, whole_with=FINISHED) for name, words in NETWORKS.items()},
    "eval": Command(["eval", "run=kn", "accuracy=true", "threads=1", "hydra.run.dir=out"]),
    "ensemble": Command(["ensemble", "runs=[kn,kn2]", "threads=1", "hydra.run.dir=out"], whole_with=FINISHED),
    "convert": Command(["convert", "run=kn", "to=kn.arpa", "hydra.run.dir=out"], ("out", "kn.arpa")),
    "merge": Command(["convert", "runs=[kn,kn2]", "weights=[.6,.4]", "threads=1", "hydra.run.dir=out"],
                     whole_with=FINISHED),
    "tree": Command(["tree", *TEXT, "tree=brown", "to=tree.txt", "hydra.run.dir=out"], ("out", "tree.txt")),
    "score": Command(["score", "run=kn", "text=train.txt", "to=scores.tsv", "hydra.run.dir=out"],
                     ("out", "scores.tsv")),
    "report": Command(["report", "kn", "kn2", "hydra.run.dir=out"]),
    "sweep": Command(SWEEP, again=resumed_sweep),
}
# fmt: on


def start(words: Words, work: Path, before: Callable[[], None] | None = None) -> Child:
    return child.start(lambda: child.command_line(words), work, before=before)
