"""Files of lmtool's own, damaged in every way, each read by something that uses it: the right numbers or one line.

`files` damages bytes, or whole files: empty, missing, of another run, a folder or a link. `strange-files` changes
values and writes the checksums that belong to them: one line or some answer. Several cases run in one child.
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
from fuzzing.damage import PLACES, WHOLE, damage, damages
from fuzzing.parts import VALUES, change_values
from lmtool.errors import UserError
from lmtool.evaluation.token_scores import TokenScores
from lmtool.system.checksums import checksum_of
from lmtool.system.files import read_json, write_json

LIMIT = 30  # seconds of one file
TEXT = "the cat sat on the mat"
STORE = "stores/toy.h5"  # the toy's
# fmt: off
USES = ["score", "eval", "verify", "report", "predict", "ensemble", "compare", "card"]
OF_RESULTS = ["report", "compare", "card", "verify"]
# The files, each with what reads it, and the file of another run that takes its place.
FILES: dict[str, tuple[list[str], str]] = {
    "kn/model.h5": ([*USES, "arpa"], "kn2/model.h5"),
    "kn/vocabulary.txt": (USES, "other/vocabulary.txt"),
    "kn/run.json": ([*USES, "arpa"], "kn2/run.json"),
    "kn/result.json": (OF_RESULTS, "other/result.json"),
    "net/checkpoint.safetensors": ([*USES, "neighbors", "export"], "net2/checkpoint.safetensors"),
    "net/run.json": ([*USES, "neighbors", "export", "resume"], "hs/run.json"),
    "net/result.json": ([*OF_RESULTS, "resume"], "hs/result.json"),
    "net/metrics.jsonl": (["report", "resume"], "hs/metrics.jsonl"),
    "net/state.safetensors": (["resume", "verify"], "hs/state.safetensors"),
    "net/begun.json": (["resume", "verify"], "hs/begun.json"),
    "hs/run.json": (USES, "net/run.json"),
    "hs/tree.safetensors": ([*USES, "resume"], "hs2/tree.safetensors"),
    "mix/run.json": (USES, "kn/run.json"),
    "mix/result.json": (OF_RESULTS, "kn/result.json"),
    "classes/classes.txt": (USES, "kn/vocabulary.txt"),
    "classes/model.h5": (USES, "kn/model.h5"),
    "q8/model.h5": (USES, "kn/model.h5"),
    "q16/checkpoint.safetensors": (USES, "net/checkpoint.safetensors"),
    "scores/result.json": (["report", "compare"], "kn/result.json"),
    "scores/scores.h5": (["scores", "compare", "report", "ensemble", "verify"], STORE),
    STORE: (["store", "train", "eval kn"], "stores/other.h5"),
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
UNLISTED = ("net/state.safetensors", "net/metrics.jsonl", "scores/scores.h5")  # files that run.json does not list
_right: dict[str, Any] = {}  # what each use that returns numbers gives


@st.composite
def damaged_files(draw: st.DrawFn, how: st.SearchStrategy[Any]) -> list[Any]:
    """Draw a file, what reads it, and its damages."""
    name = draw(st.sampled_from(sorted(FILES)))
    return [name, draw(st.sampled_from(uses_of(name))), draw(how)]


def uses_of(name: str) -> list[str]:
    return [used if " " in used or name == STORE else f"{used} {Path(name).parent}" for used in FILES[name][0]]


def prepare() -> None:
    commands.prepare()
    with chdir(SHARED):
        if not Path("q16").exists():
            for name, words in RUNS.items():
                quietly([*words, f"hydra.run.dir={name}"])
            shutil.copy(next(Path("stores").glob("text*.h5")), "stores/other.h5")
            shutil.copy(next(Path("stores").glob("toy-*.h5")), STORE)
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(Path.cwd(), f"{folder}/copy")
            with chdir(f"{folder}/copy"):
                for used in sorted({used for name in FILES for used in uses_of(name)}):
                    if used.split()[0] in ("score", "eval", "scores", "store", "train", "arpa", "export"):
                        _right[used] = use(used)


def check(case: list[Any], place: Path) -> list[str]:
    """Damage and read files in a child, beside a link to what is shared; return the refusals. Raises Fault."""
    shared = place.parent / SHARED
    return try_all(
        case, _use_damaged, place, seconds=LIMIT, name=lambda item: f"{item[1]} with {item[0]}",
        make=lambda folder: (folder / SHARED).symlink_to(shared),
    )  # fmt: skip


def _use_damaged(item: list[Any]) -> None:
    """Damage one file and use it in this process. Raises UserError as the tool does, or Wrong."""
    name, used, changes = item
    path, run = Path(name), Path(name).with_name("run.json")
    with copies(path.parts[0], used.partition(" ")[2]):
        if changes[0][0] == "value":
            if change_values(path, changes):
                if run != path and run.is_file() and path.name in (saved := read_json(run, "-"))["checksums"]:
                    write_json(run, saved | {"checksums": saved["checksums"] | {path.name: checksum_of(path)}})
                use(used)
            return
        content = path.read_bytes()
        damage(path, changes, Path(FILES[name][1]))
        same = path.is_file() and not path.is_symlink() and path.read_bytes() == content
        answer = use(used)
    is_other = changes == [["other"]]
    if used.startswith("verify"):
        # Another space in JSON is no damage, and run.json lists only the model's files.
        unlisted = changes[0][0] in ("other", "missing", "folder") and name in UNLISTED
        if not same and not unlisted and not name.endswith((".json", ".jsonl")):
            raise Wrong(f"verify does not notice {name}")
    elif answer != _right.get(used) and not (is_other and name.endswith((".json", STORE, "scores.h5"))):
        raise Wrong(f"a wrong answer of {used} with {name}: {answer!r}, not {_right.get(used)!r}")


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


def _cases(how: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(damaged_files(how), min_size=1, max_size=40)


BYTES = damages(units=["byte"], whole=[*WHOLE, "other"])
STRANGE = st.lists(st.tuples(st.just("value"), PLACES, st.sampled_from(VALUES)), min_size=1, max_size=2)
CAMPAIGNS = {
    "files": Generator(_cases(BYTES), check, prepare, len),
    "strange-files": Generator(_cases(STRANGE), check, prepare, len),
}
