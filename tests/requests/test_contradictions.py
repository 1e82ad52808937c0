"""Settings that contradict each other, the data or the machine: one line that names them, and code 2."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from lmtool.commands import verb_setting_types
from lmtool.config.composition import Composition
from lmtool.config.request import Request
from lmtool.config.training import default_batch_size
from lmtool.errors import UserError
from lmtool.requests import mistakes
from tests.conftest import Run

TRAIN = Composition(Request("train"), verb_setting_types("train"))

# Each line, and words that its one line of error must hold.
AGAINST_EACH_OTHER = [
    ("train model.tied=true model.projection_dim=4", ["model.projection_dim=4", "model.tied=true", "128"]),
    ("train model.tied=true output=hierarchical", ["model.tied=true", "output=hierarchical"]),
    (
        "train schedule=steps schedule.milestones=[10000] training.steps=5000",
        ["schedule.milestones=[10000]", "training.steps=5000"],
    ),
    (
        "train schedule=steps schedule.milestones=[51] training.epochs=3",
        ["schedule.milestones=[51]", "training.epochs=3", "51 steps", "e.g. schedule.milestones=[0.5,0.75]"],
    ),
    ("train schedule=steps schedule.milestones=[0.5,2000]", ["[0.5, 2000", "below 1", "or numbers of steps"]),
    ("train lr_range=true model=ngram", ["lr_range=true", "model=ngram"]),
    ("train lr_range=true resume=run", ["resume=run"]),
    ("train model=ngram data.vocabulary.file=words", ["data.vocabulary.file=words", "data.kind=toy"]),
    ("preprocess data=hw3 data.vocabulary.size=9", ["data.vocabulary.size=9", "data.vocabulary.file=hw3/words.dict"]),
    ("preprocess data=synthetic data.vocabulary.size=9", ["data.vocabulary.size=9", "data.types"]),
    ("preprocess data=names data.test=x", ["data.test=x", "data.split"]),
    (
        "preprocess data=text data.train=x data.cloze_valid_answers=y",
        ["data.cloze_valid_answers=y", "data.cloze_valid"],
    ),
    ("train model=ngram prune_counts=[]", ["prune_counts=[]", "0 for order 1"]),
    ("train training.memory=nonsense", ["training.memory=nonsense", "512MiB"]),
    ("train device=cuda:99", ["device=cuda:99", "device=auto"]),
    ("train resume=nowhere", ["resume=nowhere", "run folder"]),
    ("train output=nce output.num_noise=100", ["output.num_noise=100", "from 1 to 23"]),
    ("train output=adaptive output.cutoffs=[100]", ["output.cutoffs=[100]", "at most 22"]),
    ("train model=ngram smoother=laplace smoother.alpha=tuned smoother.tune_on=dev", ["smoother.tune_on=dev", "valid"]),
    ("train model.hidden_dim=10000000000", ["model.hidden_dim=10000000000", "parameters", "GiB", "24 words"]),
    ("train model=lbl model.embedding_dim=10000000", ["model.embedding_dim=10000000", "parameters", "GiB"]),
    ("train model=cbow model.context_size=100000000000000", ["not enough memory (", "model.context_size"]),
    (
        "preprocess data=synthetic data.tokens=1000000000000000000",
        ["train 1000000000000000000", "do not fit", "draw fewer"],
    ),
]


@pytest.mark.parametrize(("line", "words"), AGAINST_EACH_OTHER, ids=[line for line, _ in AGAINST_EACH_OTHER])
def test_a_contradiction_is_one_line_and_code_2(line: str, words: list[str], lmtool: Run, tmp_path: Path) -> None:
    verb, *settings = line.split()
    data = [] if any(word.startswith("data=") for word in settings) else ["data=toy"]
    said = lmtool(verb, *data, *settings, "hydra.run.dir=run", code=2)
    assert said.startswith("lmtool: ") and said.count("\n") == 1, said
    for word in words:
        assert word in said
    kept = {path.name for path in (tmp_path / "run").glob("[!.]*")}
    assert kept <= {f"{verb}.log", "begun.json"}, "something is left behind"


def test_runs_that_cannot_be_gone_on_with(lmtool: Run) -> None:
    lmtool("train", "data=toy", "model=ngram", "model.order=2", "hydra.run.dir=ngram")
    assert "model=ngram is estimated in one pass" in lmtool("train", "resume=ngram", code=2)
    assert "lr_range=true" in lmtool("train", "resume=ngram", "lr_range=true", code=2)
    said = lmtool("ensemble", "runs=[ngram,ngram]", "fit_split=dev", code=2)
    assert "fit_split=dev" in said and "valid" in said


def test_steps_within_what_minutes_alone_may_have_time_for(lmtool: Run) -> None:
    small = ["data=toy", "model.hidden_dim=4", "model.embedding_dim=4"]
    budget = ["training.epochs=null", "training.minutes=0.0001"]
    assert "valid perplexity" in lmtool("train", *small, *budget, "schedule=steps", "schedule.milestones=[2000]")


def test_steps_by_default_fit_any_text(lmtool: Run) -> None:
    small = ["data=toy", "model.hidden_dim=4", "model.embedding_dim=4", "training.epochs=4"]
    lmtool("train", *small, "schedule=steps", "optim.lr=1e-3", "training.batch_size=137", "hydra.run.dir=steps")
    lines = Path("steps/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["lr"] for line in lines] == pytest.approx([1e-3, 1e-3, 1e-4, 1e-5])


def test_the_batch_size_follows_a_short_text(lmtool: Run) -> None:
    line = ["train", "data=toy", "model.hidden_dim=4", "model.embedding_dim=4", "training.epochs=1"]
    assert "note: training.batch_size=8, not 512, as train has only 137 examples" in lmtool(*line, "hydra.run.dir=own")
    assert json.loads(Path("own/run.json").read_text())["config"]["training"]["batch_size"] == 8
    said = lmtool("train", "resume=own", "training.epochs=2")
    assert "not 512" not in said and len(Path("own/metrics.jsonl").read_text().splitlines()) > 3
    said = lmtool(*line, "training.batch_size=512", "hydra.run.dir=whole")
    assert "note: training.batch_size=512: train has 137 examples, all in one batch" in said
    assert "note: training.batch_size" not in lmtool(*line, "training.batch_size=137", "hydra.run.dir=fits")


@pytest.mark.parametrize(("tokens", "size"), [(1, 1), (137, 8), (8_191, 256), (8_192, 512), (929_589, 512)])
def test_the_default_batch_size_by_hand(tokens: int, size: int) -> None:
    assert default_batch_size(tokens) == size  # 137 / 16 is 8.6


@pytest.mark.parametrize(
    ("error", "amount"),
    [
        (MemoryError(), ""),
        (MemoryError("Unable to allocate 128. GiB for an array with shape (1,)"), "128 GiB"),
        (RuntimeError("can't allocate memory: you tried to allocate 21474836480 bytes."), "20.0 GiB"),
        (RuntimeError("unable to mmap 50920 bytes from file </x/state.safetensors>: Cannot allocate memory (12)"), ""),
        (RuntimeError("can't allocate memory: you tried to allocate 50920 bytes."), r"49\.7 KiB more were needed"),
        (RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has"), "20.00 GiB"),
    ],
)
def test_too_little_memory_on_the_way(error: Exception, amount: str) -> None:
    said = pytest.raises(UserError, match=f"not enough memory.*{amount}.*training.batch_size")
    with said, mistakes.translate_errors(TRAIN):
        raise error


def test_a_full_disk_between_the_jobs_of_a_sweep() -> None:
    """Hydra writes its files for each job, when others have run already."""
    request = Request("train", sweep=True)
    full = mistakes.explain_sweep_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), request)
    assert str(full) == "cannot use the output folder: No space left on device; choose another folder, e.g. out=FOLDER"
    other = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "x")
    assert mistakes.explain_sweep_error(other, request) is None


def test_other_faults_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="a bug"), mistakes.translate_errors(TRAIN):
        raise RuntimeError("a bug")
