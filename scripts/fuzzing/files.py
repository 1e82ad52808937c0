"""Files of lmtool's own, damaged in every way, each read by something that uses it: the right numbers or one line.

Bytes are changed, inserted, left out, doubled, swapped or zeroed; files are cut, empty, missing, of another run, or a
folder or a link instead. Several cases run in one child.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import lmtool
from fuzzing import commands
from fuzzing.campaign import Generator, Wrong, try_all
from fuzzing.child import PROGRESS, command_line, quietly
from fuzzing.commands import NEURAL, SHARED
from fuzzing.damage import edited, edits
from lmtool.errors import UserError
from lmtool.evaluation.token_scores import TokenScores

LIMIT = 30  # seconds of one file
TEXT = "the cat sat on the mat"
STORE = "stores/toy.h5"  # the toy's
# fmt: off
# The files, each with what reads it, and the file of another run that takes its place.
FILES: dict[str, tuple[list[str], str]] = {
    "kn/model.h5": (["score kn", "eval kn", "arpa kn", "verify kn"], "kn2/model.h5"),
    "kn/vocabulary.txt": (["score kn", "eval kn", "verify kn"], "other/vocabulary.txt"),
    "kn/run.json": (["score kn", "eval kn", "verify kn", "score mix", "report kn"], "kn2/run.json"),
    "kn/result.json": (["report kn", "verify kn"], "other/result.json"),
    "net/checkpoint.safetensors": (["score net", "eval net", "verify net", "export net"],
                                   "net2/checkpoint.safetensors"),
    "net/run.json": (["score net", "verify net"], "hs/run.json"),
    "net/state.safetensors": (["resume net", "verify net"], "hs/state.safetensors"),
    "net/begun.json": (["resume net", "verify net"], "hs/begun.json"),
    "hs/tree.safetensors": (["score hs", "verify hs", "resume hs"], "hs2/tree.safetensors"),
    "mix/run.json": (["score mix", "verify mix"], "kn/run.json"),
    "classes/classes.txt": (["score classes", "verify classes"], "kn/vocabulary.txt"),
    "classes/model.h5": (["score classes", "verify classes"], "kn/model.h5"),
    "q8/model.h5": (["score q8", "verify q8"], "kn/model.h5"),
    "q16/checkpoint.safetensors": (["score q16", "verify q16"], "net/checkpoint.safetensors"),
    "scores/scores.h5": (["scores scores", "verify scores"], STORE),
    STORE: (["store", "train"], "stores/other.h5"),
}
RUNS = {
    "kn2": ["train", "data=toy", "model=ngram", "model.order=2", "threads=1"],
    "other": ["train", "data=text", "data.train=train.txt", "data.valid=valid.txt", "model=ngram"],
    "net2": ["train", "model=nplm", *NEURAL, "seed=2"],
    "hs": ["train", "model=hsoftmax", *NEURAL],
    "hs2": ["train", "model=hsoftmax", "tree=random", *NEURAL],
    "classes": ["train", "model=class_ngram", "model.classes=4", "data=toy", "threads=1"],
    "q8": ["convert", "run=kn", "quantize=8"],
    "q16": ["convert", "run=net", "quantize=16"],
    "scores": ["eval", "run=kn"],
}
# fmt: on
UNLISTED = ("net/state.safetensors", "scores/scores.h5")  # files that run.json does not list
WHOLE_FILE = ["empty", "missing", "other", "folder", "link", "loop"]


@st.composite
def damaged_files(draw: st.DrawFn) -> list[Any]:
    """Draw a file, what reads it, and its damages."""
    name = draw(st.sampled_from(sorted(FILES)))
    use = draw(st.sampled_from(FILES[name][0]))
    whole = st.sampled_from(WHOLE_FILE).map(lambda kind: [[kind]])
    return [name, use, draw(whole if draw(st.integers(0, 7)) == 0 else edits(units=["byte"], least=1))]


_right: dict[str, Any] = {}  # what each use gives


def prepare() -> None:
    """Make the runs whose files are damaged, and what each use of them gives."""
    commands.prepare()
    with chdir(SHARED):
        if not Path("q16").exists():
            for name, words in RUNS.items():
                quietly([*words, f"hydra.run.dir={name}"])
            shutil.copy(next(Path("stores").glob("text*.h5")), "stores/other.h5")
            shutil.copy(next(Path("stores").glob("toy-*.h5")), STORE)
        here = Path.cwd()
        for name in sorted({name for uses, _ in FILES.values() for name in uses}):
            with tempfile.TemporaryDirectory() as folder:
                shutil.copytree(here, f"{folder}/copy")
                with chdir(f"{folder}/copy"):
                    _right[name] = use(name)


def check(case: list[Any], place: Path) -> list[str]:
    """Damage and read files in a child, beside a link to what is shared; return the refusals. Raises Fault."""
    shared = place.parent / SHARED

    def link(folder: Path) -> None:
        (folder / SHARED).symlink_to(shared)

    return try_all(case, _use_damaged, place, seconds=LIMIT, name=lambda item: f"{item[1]} with {item[0]}", make=link)


def _use_damaged(item: list[Any]) -> None:
    """Damage one file and use it in this process. Raises UserError as the tool does, or Wrong."""
    name, used, damages = item
    with copies(Path(name).parts[0], used.partition(" ")[2]):
        content = Path(name).read_bytes()
        _damage(Path(name), damages)
        same = Path(name).is_file() and not Path(name).is_symlink() and Path(name).read_bytes() == content
        answer = use(used)
    if used.startswith("verify"):
        # Another space in JSON is no damage, and run.json lists only the model's files.
        unlisted = damages[0][0] in ("other", "missing", "folder") and name in UNLISTED
        if not same and not unlisted and not name.endswith(".json"):
            raise Wrong(f"verify does not notice {name}")
    elif answer != _right[used] and not _may_differ(name, used, damages):
        raise Wrong(f"a wrong answer of {used} with {name}: {answer!r}, not {_right[used]!r}")


@contextmanager
def copies(*names: str) -> Iterator[None]:
    """Work in a new folder with copies of these shared runs, and links to all others, until the block ends."""
    folder = Path(tempfile.mkdtemp(dir="."))
    for path in Path(SHARED).iterdir():
        if path.name in names:
            shutil.copytree(path, folder / path.name)
        else:
            (folder / path.name).symlink_to(path.resolve())
    try:
        with chdir(folder):
            yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _may_differ(name: str, use: str, damages: list[Any]) -> bool:
    """Return whether a use may give something else: a page without what is missing, a training resumed from the
    checkpoint before, and files that are whole but another run's.
    """
    other = damages == [["other"]] and (name.endswith((".json", STORE)) or use == "scores scores")
    return use.startswith(("report", "resume")) or other


def _damage(path: Path, damages: list[Any]) -> None:
    """Damage a file in place."""
    content = path.read_bytes()
    path.unlink()
    match damages[0][0]:
        case "missing":
            return
        case "other":
            shutil.copy(FILES[str(path)][1], path)
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to("nowhere")
        case "loop":
            path.symlink_to(path.name)
        case "empty":
            path.touch()
        case _:
            path.write_bytes(edited(content, damages))


def use(name: str) -> Any:
    """Return what a use of the files in this folder gives, as plain values. Raises UserError if the tool says so."""
    kind, _, run = name.partition(" ")
    uses: dict[str, Callable[[], Any]] = {
        "score": lambda: np.asarray(lmtool.load(run).score(TEXT)).tolist(),
        "eval": lambda: lmtool.evaluate(run, "valid").perplexity,
        "scores": lambda: TokenScores.open(Path(run) / "scores.h5").log_prob.tolist(),
        "store": _store,
        "train": lambda: lmtool.train("ngram", lmtool.Corpus.open(STORE), out="new").valid_perplexity,
        "arpa": lambda: _command("convert", f"run={run}", "to=new.arpa") or Path("new.arpa").read_text(),
        "export": lambda: _command("export", f"run={run}", "to=new.txt") or Path("new.txt").read_text(),
        "verify": lambda: _command("verify", run),
        "report": lambda: _command("report", run, "map=none", "resamples=100", "hydra.run.dir=page"),
        "resume": lambda: _command("train", f"resume={run}", "training.epochs=2"),
        "predict": lambda: _command("predict", "the", f"run={run}"),
        "neighbors": lambda: _command("neighbors", "the", f"run={run}"),
        "ensemble": lambda: _command("ensemble", f"runs=[{run},kn2]"),
        "compare": lambda: _command("compare", f"runs=[{run},kn2]", "resamples=100"),
        "card": lambda: _command("export", f"run={run}", "to=card"),
    }
    try:
        return uses[kind]()
    except ValueError as error:
        raise UserError(str(error)) from error


def _store() -> Any:
    with lmtool.Corpus.open(STORE) as corpus:
        parts = [corpus.split(name) for name in corpus.splits]
        return [[part.ids.tolist(), part.offsets.tolist()] for part in parts], corpus.vocabulary.words


def _command(*words: str) -> None:
    """Run a command line. Raises UserError if its exit code is 2, Wrong if it is another one."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = command_line([*words, "threads=1"])
    lines = [line for line in err.getvalue().splitlines() if not PROGRESS.match(line)]
    # A warning about one checkpoint may come before the line about both.
    if code == 2 and 1 <= len(lines) <= 2 and lines[-1].startswith("lmtool: "):
        raise UserError(lines[-1])
    if code:
        where = commands.last_frame(err.getvalue()).replace("/", ".").replace(":", ".")
        raise Wrong(f"{words[0]} ends with {code} {where}: {err.getvalue()[-2000:]}")


CASES = st.lists(damaged_files(), min_size=1, max_size=40)
CAMPAIGNS = {"files": Generator(CASES, check, prepare, len)}
