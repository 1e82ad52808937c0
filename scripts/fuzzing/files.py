"""Files of lmtool's own, damaged in every way, each read by something that uses it: the right numbers or one line.

Bits flipped, bytes put in, left out, doubled or zeroed, cut, empty, missing, of another run, a folder or a link in its
place. Several cases run in one child.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzzing import commands
from fuzzing.campaign import Fault
from fuzzing.child import forked
from fuzzing.commands import NEURAL, SHARED

LIMIT = 60.0  # seconds for the cases of one child
TEXT = "the cat sat on the mat"
# The files, each with what reads it, and the file of another run that takes its place. STORE: the toy's.
STORE, OTHER_WEIGHTS = "stores/toy.h5", "net2/checkpoint.safetensors"
FILES: dict[str, tuple[list[str], str]] = {
    "kn/model.h5": (["score kn", "eval kn", "arpa kn", "verify kn"], "kn2/model.h5"),
    "kn/vocabulary.txt": (["score kn", "eval kn", "verify kn"], "other/vocabulary.txt"),
    "kn/run.json": (["score kn", "eval kn", "verify kn", "score mix", "report kn"], "kn2/run.json"),
    "kn/result.json": (["report kn", "verify kn"], "other/result.json"),
    "net/checkpoint.safetensors": (
        ["score net", "eval net", "verify net", "export net"],
        "net2/checkpoint.safetensors",
    ),
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
UNLISTED = ("net/state.safetensors", "scores/scores.h5")
DAMAGES = ["flip", "flip", "flip", "bytes", "zeros", "cut", "delete", "double", "insert", "append"]
WHOLE_FILE = ["empty", "missing", "other", "folder", "link", "loop"]


@st.composite
def damaged_files(draw: st.DrawFn) -> list[Any]:
    """A file, what reads it, and its damages, each with a place and a size from 0 to 1."""
    name = draw(st.sampled_from(sorted(FILES)))
    use = draw(st.sampled_from(FILES[name][0]))
    if draw(st.integers(0, 7)) == 0:
        return [name, use, [[draw(st.sampled_from(WHOLE_FILE)), 0.0, 0.0]]]
    share = st.floats(0, 1, exclude_max=True, width=32)
    damage = st.tuples(st.sampled_from(DAMAGES), share, share).map(list)
    return [name, use, draw(st.lists(damage, min_size=1, max_size=3))]


CASES = st.lists(damaged_files(), min_size=1, max_size=40)
_right: dict[str, Any] = {}


def count(case: list[Any]) -> int:
    """The damaged files of a case."""
    return len(case)


def prepare() -> None:
    """Make the runs whose files are damaged, and what each use of them gives."""
    commands.prepare()
    os.chdir(SHARED)
    if not Path("q16").exists():
        store = next(Path("stores").glob("toy-*.h5"))
        for words in (
            ["train", "data=toy", "model=ngram", "model.order=2", "threads=1", "hydra.run.dir=kn2"],
            [
                "train",
                "data=text",
                "data.train=train.txt",
                "data.valid=valid.txt",
                "model=ngram",
                "hydra.run.dir=other",
            ],
            ["train", "model=nplm", *NEURAL, "seed=2", "hydra.run.dir=net2"],
            ["train", "model=hsoftmax", *NEURAL, "hydra.run.dir=hs"],
            ["train", "model=hsoftmax", "tree=random", *NEURAL, "hydra.run.dir=hs2"],
            ["train", "model=class_ngram", "model.classes=4", "data=toy", "threads=1", "hydra.run.dir=classes"],
            ["convert", "run=kn", "quantize=8", "hydra.run.dir=q8"],
            ["convert", "run=net", "quantize=16", "hydra.run.dir=q16"],
            ["eval", "run=kn", "hydra.run.dir=scores"],
        ):
            commands.quietly(lambda words=words: commands.main(words))
        other = next(path for path in Path("stores").glob("*.h5") if path.name.startswith("text"))
        shutil.copy(other, "stores/other.h5")
        shutil.copy(store, STORE)
    for use in sorted({use for uses, _ in FILES.values() for use in uses}):
        _right[use] = _in_a_copy(use)
    os.chdir("..")


def check(case: list[Any], place: Path) -> None:
    """Damage and read files in a child. Raises Fault."""
    outcome = forked(
        lambda: int(any(map(_wrong, case))),
        _linked(place / "work", place.parent / SHARED),
        limit=LIMIT,
        environment={"HOME": str(place), "TMPDIR": str(place)},
    )
    said = outcome.err[-3000:]
    last = outcome.out.strip().splitlines()[-1] if outcome.out.strip() else ""
    if outcome.code is None:
        raise Fault(f"it does not end: {last}", said)
    if outcome.code < 0:
        raise Fault(f"signal {-outcome.code}: {last}", said)
    if outcome.code:
        raise Fault(said.strip().splitlines()[-1] if said.strip() else f"exit code {outcome.code}", said)


def _linked(folder: Path, shared: Path) -> Path:
    """A folder with a link to what is shared, from which each damaged file's runs are copied."""
    folder.mkdir()
    (folder / SHARED).symlink_to(shared)
    return folder


def _in_a_copy(use: str) -> Any:
    """What a use gives in a copy of what is shared."""
    before, folder = Path.cwd(), Path(tempfile.mkdtemp())
    shutil.copytree(before, folder / "copy")
    os.chdir(folder / "copy")
    try:
        return _use(use)
    finally:
        os.chdir(before)
        shutil.rmtree(folder)


def _wrong(case: list[Any]) -> int:
    """Damage one file and read it in this process; 0 where the answer or the message is right."""
    from lmtool.errors import UserError

    name, use, damages = case
    print(f"{use} with {name}: {damages}", flush=True)
    folder = Path(tempfile.mkdtemp(dir="."))
    before = Path.cwd()
    for path in Path(SHARED).iterdir():  # what is neither damaged nor changed is only linked to
        if path.name in (Path(name).parts[0], use.partition(" ")[2]):
            shutil.copytree(path, folder / path.name)
        else:
            (folder / path.name).symlink_to(path.resolve())
    os.chdir(folder)
    try:
        content = Path(name).read_bytes()
        _damage(Path(name), damages)
        same = Path(name).is_file() and not Path(name).is_symlink() and Path(name).read_bytes() == content
        answer = _use(use)
        if use.startswith("verify"):
            # A space more in JSON is no damage, and what should be there, run.json says of the model's files alone.
            unlisted = damages[0][0] in ("other", "missing", "folder") and name in UNLISTED
            if not same and not unlisted and not name.endswith(".json"):
                return _said(f"verify does not notice: {name}")
        elif answer != _right[use] and not _may_differ(name, use, damages):
            return _said(f"a wrong answer: {use} with {name}", f"{answer!r}, not {_right[use]!r}")
    except UserError as error:
        if "\n" in str(error) or not str(error):
            return _said(f"not one line: {use} with {name}", str(error))
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/lmtool/" in frame.filename]
        where = f"{frames[-1].filename.partition('/lmtool/')[2]}:{frames[-1].name}" if frames else use
        return _said(f"{type(error).__name__} from {where}")
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _may_differ(name: str, use: str, damages: list[Any]) -> bool:
    """Whether a use may give something else: a page without what is missing, a file that another run's replaces whole,
    and a training that is resumed from the checkpoint before.
    """
    kinds = {kind for kind, _, _ in damages}
    if use.startswith(("report", "resume")):
        return True
    return (kinds == {"other"} and name.endswith((".json", STORE))) or (kinds == {"other"} and use == "scores scores")


def _said(signature: str, report: str = "") -> int:
    print(f"{report}\n{signature}", file=sys.stderr)
    return 1


def _damage(path: Path, damages: list[Any]) -> None:
    """Damage a file in place."""
    content = bytearray(path.read_bytes())
    for kind, place, size in damages:
        at = int(place * len(content))
        some = 1 + int(size * size * min(len(content), 5000))
        match kind:
            case "flip" if content:
                content[at] ^= 1 << int(size * 8)
            case "bytes" if content:
                content[at : at + some] = bytes((at * 31 + k * 17) % 256 for k in range(some))
            case "zeros":
                content[at : at + some] = bytes(len(content[at : at + some]))
            case "cut":
                del content[at:]
            case "delete":
                del content[at : at + some]
            case "double":
                content[at:at] = content[at : at + some]
            case "insert":
                content[at:at] = bytes(some)
            case "append":
                content += bytes(range(256))[: some % 256]
            case "empty":
                content.clear()
    path.unlink()
    kind = damages[0][0]
    match kind:
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
        case _:
            path.write_bytes(content)


def _use(use: str) -> Any:
    """What a use of the files in this folder gives, as plain values. Raises UserError where the tool says it."""
    import numpy as np

    import lmtool
    from lmtool.errors import UserError
    from lmtool.evaluation.token_scores import TokenScores

    kind, _, run = use.partition(" ")
    uses: dict[str, Callable[[], Any]] = {
        "score": lambda: np.asarray(lmtool.load(run).score(TEXT)).tolist(),
        "eval": lambda: lmtool.evaluate(run, "valid").perplexity,
        "scores": lambda: TokenScores.open(Path(run) / "scores.h5").log_prob.tolist(),
        "store": _store,
        "train": lambda: lmtool.train("ngram", lmtool.Corpus.open(STORE), out="new").valid_perplexity,
        "arpa": lambda: _written(["convert", f"run={run}", "to=new.arpa"], "new.arpa"),
        "export": lambda: _written(["export", f"run={run}", "to=new.txt"], "new.txt"),
        "verify": lambda: _command(["verify", run]),
        "report": lambda: _command(["report", run, "map=none", "resamples=100", "hydra.run.dir=page"]),
        "resume": lambda: _command(["train", f"resume={run}", "training.epochs=2"]),
    }
    try:
        return uses[kind]()
    except ValueError as error:
        raise UserError(str(error)) from error


def _store() -> Any:
    import lmtool

    with lmtool.Corpus.open(STORE) as corpus:
        parts = [corpus.split(name) for name in corpus.splits]
        return [[part.ids.tolist(), part.offsets.tolist()] for part in parts], corpus.vocabulary.words


def _written(words: list[str], path: str) -> str:
    _command(words)
    return Path(path).read_text()


def _command(words: list[str]) -> None:
    """Run a command line. Raises UserError where its exit code is 2, RuntimeError where it is another."""
    import io
    from contextlib import redirect_stderr, redirect_stdout

    from lmtool.errors import UserError

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = commands.main([*words, "threads=1"])
    lines = err.getvalue().splitlines()  # a warning about one checkpoint may come before the line about both
    if code == 2 and 1 <= len(lines) <= 2 and lines[-1].startswith("lmtool: "):
        raise UserError(lines[-1])
    if code:
        raise RuntimeError(f"exit code {code}: {err.getvalue()[-2000:]}")
