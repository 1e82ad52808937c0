"""Command lines as cases: what they share, how one runs, and what must hold of it."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

from fuzzing.campaign import PACKAGE, Fault, is_of_lmtool, without_names
from fuzzing.child import End, command_line, damaged, files_of, forked, quietly

LIMIT = 12.0  # seconds, of some tenths that a case takes, until SIGINT, which must end it
GRACE = 8.0  # seconds from SIGINT until it must have ended
SHARED = "shared"  # the folder of the files that all cases start from
NEURAL = ["data=toy", "model.embedding_dim=4", "model.hidden_dim=4", "model.context_size=2", "training.epochs=1"]
NEURAL += [
    "training.batch_size=64",
    "training.accuracy_tokens=4",
    "optim.lr=0.02",
    "training.minutes=null",
    "threads=1",
]
TEXTS = {
    "train.txt": "the cat sat on the mat\na dog sat in the sun\nthe dog ran to the cat\nthe bird flew ünï a\n" * 3,
    "valid.txt": "the cat ran to the mat\na bird sat\n",
    "words.txt": "the\na\ncat\n<unk>\n",
    "empty.txt": "",
    "pairs.jsonl": '{"sentence_good": "the cat sat", "sentence_bad": "the sat cat"}\n',
    "lists.txt": "0 ||| the cat sat ||| lm: 1 ||| -3\n0 ||| the dog sat ||| lm: 2 ||| -4\n",
}
PREPARED = [
    ["preprocess", "data=text", "data.train=train.txt", "data.valid=valid.txt"],
    ["train", "data=toy", "model=ngram", "model.order=3", "threads=1", "hydra.run.dir=kn"],
    ["train", "model=nplm", *NEURAL, "hydra.run.dir=net"],
    ["ensemble", "runs=[kn,net]", "threads=1", "hydra.run.dir=mix"],
    ["convert", "run=kn", "to=kn.arpa"],
    ["tree", "data=toy", "tree=huffman", "to=tree.txt", "hydra.run.dir=tree"],
    # The rest is run for what it imports and compiles.
    ["train", "-m", "data=toy", "model=ngram", "model.order=1,2", "threads=1"],
    ["train", "model=hsoftmax", *NEURAL],
    ["train", "model=ngram", "modle=3"],
    ["eval", "run=kn", "text=valid.txt", "detail=true"],
    ["score", "run=kn", "text=valid.txt", "to=scores.tsv"],
    ["compare", "runs=[kn,mix]", "resamples=100"],
    ["predict", "the", "run=net"],
    ["train", "--help"],
]
OF_LAUNCHER = re.compile(r"Launching \d+ jobs locally|\t#\d+ : ")  # what Hydra says of a sweep


def prepare() -> None:
    """Make texts, stores and runs in the folder `shared`; import and compile what commands use."""
    os.environ.update(OMP_NUM_THREADS="1", MPLCONFIGDIR=str(Path.cwd()), LMTOOL_DATA="")
    if Path(SHARED).exists():
        return
    Path(SHARED).mkdir()
    with chdir(SHARED):
        for name, text in TEXTS.items():
            Path(name).write_text(text, encoding="utf-8")
        for words in PREPARED:
            quietly(words, codes=(0, 2))
        for name in ("outputs", "multirun", "scores.tsv"):
            shutil.rmtree(name, ignore_errors=True)
    # Nothing that exists now is garbage of a child: looking for it would copy every page that the two share.
    gc.collect()
    gc.freeze()
    gc.disable()


def run(words: list[str], place: Path) -> End:
    """Run a command line in the folder `work` of a place, with its own home and folder for temporary files."""
    environment = {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp")}

    def work() -> int:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if hasattr(os, "sched_setaffinity"):  # OpenMP's threads do not survive a fork: no second thread
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
        return command_line(words)

    return forked(work, place / "work", limit=LIMIT, grace=GRACE, environment=environment)


def share(place: Path) -> None:
    """Make a place with copies of the shared files, a home and a folder for temporary files."""
    shutil.copytree(place.parent / SHARED, place / "work")
    for name in ("home", "tmp"):
        (place / name).mkdir()


def checked(words: list[str], place: Path, make: Callable[[Path], None] | None = None) -> list[str]:
    """Run a command line beside copies of the shared files, and check everything that must hold; return its refusal.
    Raises Fault.

    make: puts more files into its folder.
    """
    share(place)
    if make is not None:
        make(place / "work")
    outside, before = _outside(place), files_of(place / "work")
    end = run(words, place)
    if problem := wrong_end(end):
        raise Fault(*problem)
    if changed := set(outside.items()) ^ set(_outside(place).items()):
        raise Fault("a file outside the case's folder", str(changed))
    if not any("~" in word for word in words) and (strange := files_of(place / "home")):
        raise Fault("a file in the home folder", str(strange))
    if left := files_of(place / "tmp"):
        raise Fault("a temporary file is left behind", str(left))
    for name, facts in sorted(files_of(place / "work").items()):
        path = place / "work" / name
        if before.get(name) != facts and path.is_file() and (reason := damaged(path)):
            raise Fault(f"{path.name} is not whole", f"{name}: {reason}\n{end}")
    return [end.refusal] if end.refusal is not None else []


def _outside(place: Path) -> dict[str, tuple[int, int]]:
    return {path: facts for path, facts in files_of(place.parent).items() if not path.startswith(place.name)}


def wrong_end(end: End) -> tuple[str, str] | None:
    """Return what is wrong with how a command ended, as the signature of the fault and a report; None if nothing is."""
    lines = end.err.splitlines()
    sweep = "also in" in end.out and end.code in (1, 2)
    signature = None
    if end.code is None:
        signature = "it does not end, nor by SIGINT"
    elif end.code < 0:
        signature = f"signal {-end.code} {last_frame(end.err)}"
    elif "Traceback (most recent call last)" in end.err:
        signature = f"traceback {last_frame(end.err)}"
    elif end.code == 130 and end.interrupted:
        if len([line for line in lines if not OF_LAUNCHER.match(line)]) > 2:
            signature = "interrupted, with more than one line"
    elif end.code not in (0, 2) and not sweep:
        signature = f"exit code {end.code}"
    elif end.code == 2 and not sweep and end.refusal is None:
        signature = f"not one line: {without_names(end.err)}"
    elif end.code == 0 and (warnings := [line for line in lines if re.search(r"\w*(Warning|Error)\b", line)]):
        signature = f"a warning: {without_names(warnings[0])}"
    return (signature, str(end)) if signature else None


def last_frame(text: str) -> str:
    """Return the last line of lmtool's in a traceback, and the type of the exception."""
    frames = [(name, line) for name, line in re.findall(r'File "([^"]+)", line (\d+)', text) if is_of_lmtool(name)]
    kinds = re.findall(r"^(\w[\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\w*)", text, re.MULTILINE)
    place = f"{Path(frames[-1][0]).resolve().relative_to(PACKAGE.parent)}:{frames[-1][1]}" if frames else ""
    return f"{place} {kinds[-1] if kinds else ''}".strip()


if sys.platform == "darwin":  # its system libraries do not survive a fork that is not followed by exec
    os.environ.setdefault("OBJC_DISABLE_INITIALIZE_FORK_SAFETY", "YES")
