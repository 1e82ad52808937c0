"""Command lines as cases: what they share, how one runs, and what must hold of it."""

from __future__ import annotations

import gc
import io
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from fuzzing.campaign import Fault
from fuzzing.child import Outcome, damaged, files_of, forked

LIMIT = 12.0  # seconds, of some tenths that a case takes; then SIGINT, which must end it
GRACE = 8.0  # seconds until it has
NEURAL = ["data=toy", "model.embedding_dim=4", "model.hidden_dim=4", "model.context_size=2", "training.epochs=1"]
NEURAL += ["training.batch_size=64", "training.accuracy_on=4", "optim.lr=0.02", "training.minutes=null", "threads=1"]
SHARED = "shared"  # the folder of what all cases start from

TRAIN = "the cat sat on the mat\na dog sat in the sun\nthe dog ran to the cat\nthe bird flew ünï a\n" * 3
VALID = "the cat ran to the mat\na bird sat\n"
OF_LAUNCHER = re.compile(r"Launching \d+ jobs locally|\t#\d+ : ")  # what Hydra says of a sweep
# What a run folder may hold after an exit code that is not 0; Hydra's own files begin with a dot.
LEFT = re.compile(r"(\w+\.log|begun\.json|metrics\.jsonl|state.*\.safetensors|job\.json|error\.txt|sweep.*)")


def count(case: object) -> int:
    """Each is one."""
    return 1


def prepare() -> None:
    """Make texts, stores and runs in the folder `shared`, and import and compile what commands use."""
    os.environ.update(OMP_NUM_THREADS="1", MPLCONFIGDIR=str(Path.cwd()), LMTOOL_DATA="")
    shared = Path(SHARED)
    if shared.exists():
        return
    shared.mkdir()
    os.chdir(shared)
    texts = {"train.txt": TRAIN, "valid.txt": VALID, "words.txt": "the\na\ncat\n<unk>\n", "empty.txt": ""}
    texts["lists.txt"] = "0 ||| the cat sat ||| lm: 1 ||| -3\n0 ||| the dog sat ||| lm: 2 ||| -4\n"
    for name, text in texts.items():
        Path(name).write_text(text, encoding="utf-8")
    for words in (
        ["preprocess", "data=text", "data.train=train.txt", "data.valid=valid.txt"],
        ["train", "data=toy", "model=ngram", "model.order=3", "threads=1", "hydra.run.dir=kn"],
        ["train", "model=nplm", *NEURAL, "hydra.run.dir=net"],
        ["ensemble", "runs=[kn,net]", "threads=1", "hydra.run.dir=mix"],
        ["convert", "run=kn", "to=kn.arpa"],
        ["tree", "data=toy", "tree=huffman", "to=tree.txt", "hydra.run.dir=tree"],
        # The rest is for what it imports and compiles.
        ["train", "-m", "data=toy", "model=ngram", "model.order=1,2", "threads=1"],
        ["train", "model=hsoftmax", *NEURAL],
        ["train", "model=ngram", "modle=3"],
        ["eval", "run=kn", "text=valid.txt", "detail=true"],
        ["score", "run=kn", "text=valid.txt", "to=scores.tsv"],
        ["compare", "runs=[kn,mix]", "resamples=100"],
        ["predict", "the", "run=net"],
        ["train", "--help"],
    ):
        quietly(lambda words=words: main(words))
    for name in ("outputs", "multirun", "scores.tsv"):
        shutil.rmtree(name, ignore_errors=True)
    os.chdir("..")
    # Nothing that exists now is garbage of a child: looking for it would copy every page that the two share.
    gc.collect()
    gc.freeze()
    gc.disable()


def main(words: list[str]) -> int:
    """The command line, without pictures, which would take longer than all else."""
    from lmtool.cli.command_line import main
    from lmtool.commands import train_neural

    train_neural.can_plot = lambda: False
    return main(words)


def quietly(run: Callable[[], int]) -> None:
    """Run something whose output nobody wants. Raises RuntimeError with it where its exit code is neither 0 nor 2."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = run()
    if code not in (0, 2):
        raise RuntimeError(said.getvalue())


def run(words: list[str], place: Path) -> Outcome:
    """A command line in the folder `work` of a place, with a home and a folder for temporary files of its own."""
    environment = {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp")}

    def work() -> int:
        tempfile.tempdir = None
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if hasattr(os, "sched_setaffinity"):  # OpenMP's team of the parent is not there after a fork: no second thread
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
        return main(words)

    return forked(work, place / "work", limit=LIMIT, grace=GRACE, environment=environment)


def checked(words: list[str], place: Path, make: Callable[[Path], None] | None = None) -> Outcome:
    """Run a command line beside copies of what is shared, and look at all that must hold. Raises Fault.

    make: what puts more files into its folder.
    """
    shared = place.parent / SHARED
    shutil.copytree(shared, place / "work")
    for name in ("home", "tmp"):
        (place / name).mkdir()
    if make is not None:
        make(place / "work")
    outside = {path: facts for path, facts in files_of(place.parent).items() if not path.startswith(place.name)}
    before = files_of(place / "work")
    outcome = run(words, place)
    problem = wrong_end(outcome)
    if problem is not None:
        raise Fault(*problem)
    after = {path: facts for path, facts in files_of(place.parent).items() if not path.startswith(place.name)}
    if outside != after:
        raise Fault("a file outside the case's folder", str(set(outside.items()) ^ set(after.items())))
    if not any("~" in word for word in words) and (strange := files_of(place / "home")):
        raise Fault("a file in the home folder", str(strange))
    if left := files_of(place / "tmp"):
        raise Fault("a temporary file is left behind", str(left))
    new = {path for path, facts in files_of(place / "work").items() if before.get(path) != facts}
    for path in sorted(new):
        reason = damaged(place / "work" / path) if (place / "work" / path).is_file() else None
        if reason is not None:
            raise Fault(f"{Path(path).name} is not whole", f"{path}: {reason}\nexit code {outcome.code}\n{outcome.err}")
    return outcome


def wrong_end(outcome: Outcome) -> tuple[str, str] | None:
    """What is wrong with how a command ended: the signature of the fault and a report; None where nothing is."""
    said = f"exit code {outcome.code}\n{outcome.err[-3000:]}"
    if outcome.code is None:
        return "it does not end, nor by SIGINT", said
    if outcome.code < 0:
        return f"signal {-outcome.code} {_last_frame(outcome.err)}", said
    if "Traceback (most recent call last)" in outcome.err:
        return f"traceback {_last_frame(outcome.err)}", said
    lines = outcome.err.splitlines()
    if outcome.code == 130 and outcome.interrupted:
        lines = [line for line in lines if not OF_LAUNCHER.match(line)]
        return None if len(lines) <= 2 else ("interrupted, with more than one line", said)
    sweep = "also in" in outcome.out and outcome.code in (1, 2)
    if outcome.code not in (0, 2) and not sweep:
        return f"exit code {outcome.code}", said
    if outcome.code == 2 and not sweep and (len(lines) != 1 or not lines[0].startswith("lmtool: ")):
        return f"not one line: {without_names(outcome.err)}", said
    if outcome.code == 0 and (warnings := [line for line in lines if re.search(r"\w*(Warning|Error)\b", line)]):
        return f"a warning: {without_names(warnings[0])}", said
    return None


def _last_frame(text: str) -> str:
    """The last line of lmtool's own in a traceback, and the type of the exception."""
    frames = re.findall(r'File "[^"]*?(lmtool/[^"]+)", line (\d+)', text)
    kinds = re.findall(r"^(\w[\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\w*)", text, re.MULTILINE)
    place = ":".join(frames[-1]) if frames else ""
    return f"{place} {kinds[-1] if kinds else ''}".strip()


def without_names(text: str) -> str:
    """The beginning of a message without what differs from case to case."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|[\d.]+|/\S+", "_", text)[:80]


if sys.platform == "darwin":  # its system libraries do not survive a fork that is not followed by exec
    os.environ.setdefault("OBJC_DISABLE_INITIALIZE_FORK_SAFETY", "YES")
