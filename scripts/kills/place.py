"""The folder that a command works in: what is in it before, and what must be in it afterwards."""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from fuzzing.child import damaged

from kills.child import command_line
from kills.commands import NEURAL, TEXT, Command

SHARED, WORK = "shared", "work"
# What only says where a command was: its line, and its checkpoints.
NOT_COMPARED = re.compile(r"state.*|begun\.json|\.?multirun\.yaml|\..*\.tmp|\.tmp.*")
# Keys of JSON whose values differ from run to run, or say what was there already.
CLOCK = re.compile(r"second|time|version|created|resumed")
LOGS = re.compile(r".*\.log|\.hydra|\.submitit|\.slurm|.*\.lock|\.lock|sweep\.(md|csv)|events\..*")


def prepare(commands: list[Command]) -> None:
    """Make texts, a store and two runs in the folder `shared`, and import and compile what the commands use."""
    os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1", LMTOOL_DATA="", MPLCONFIGDIR=str(Path.cwd()))
    top, shared = Path.cwd(), Path(SHARED)
    shared.mkdir()
    os.chdir(shared)
    Path("train.txt").write_text(text(3000, 1), encoding="utf-8")
    Path("valid.txt").write_text(text(300, 2), encoding="utf-8")
    quietly(["preprocess", *TEXT])
    for name, order in (("kn", 3), ("kn2", 2)):
        quietly(["train", *TEXT, "model=ngram", f"model.order={order}", "threads=1", f"hydra.run.dir={name}"])
    quietly(["preprocess", *(word for word in NEURAL if word.startswith("data"))])
    shutil.rmtree("outputs", ignore_errors=True)
    os.chdir(top)
    for command in commands:
        if not command.is_slow and command.ranks == 1:
            os.chdir(fresh(command))
            short = ["training.steps=5"] if any(word.startswith("training.epochs") for word in command.words) else []
            quietly([*command.words, *short])
            os.chdir(top)


def text(lines: int, seed: int) -> str:
    """Lines of words of a Zipf distribution, the same for the same seed."""
    rng = random.Random(seed)
    words = [f"w{k}" for k in range(800)]
    weights = [1 / (k + 1) for k in range(800)]
    return "".join(f"{' '.join(rng.choices(words, weights, k=rng.randint(1, 20)))}\n" for _ in range(lines))


def quietly(words: list[str]) -> None:
    """Run a command line in this process. Raises RuntimeError with what it says unless it ends with 0."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = command_line(words)
    if code != 0:
        raise RuntimeError(f"{' '.join(words)}\n{said.getvalue()}")


def fresh(command: Command, top: Path | None = None) -> Path:
    """The work folder of a command in `top`, this folder unless given, as it is before: made again."""
    top = top or Path.cwd()
    work = top / WORK
    shutil.rmtree(work, ignore_errors=True)
    leave = shutil.ignore_patterns(*command.without) if command.without else None
    shutil.copytree(Path.cwd() / SHARED, work, ignore=leave)
    return work


def bits(command: Command, work: Path) -> dict[str, bytes]:
    """The files that a command has made, by path, without logs and without the times that some hold."""
    found: dict[str, bytes] = {}
    for name in command.made:
        path = work / name
        if path.is_file():
            found[name] = _content(path)
        for base, folders, names in os.walk(path):
            folders[:] = [folder for folder in folders if not LOGS.fullmatch(folder)]
            for file in names:
                if not LOGS.fullmatch(file) and not NOT_COMPARED.fullmatch(file):
                    place = Path(base) / file
                    found[str(place.relative_to(work))] = _content(place)
    return found


def different(wanted: dict[str, bytes], found: dict[str, bytes]) -> str | None:
    """Which files differ, in words; None where none does."""
    lacking, more = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    other = sorted(path for path in wanted.keys() & found.keys() if wanted[path] != found[path])
    changes = {"lacks": lacking, "has also": more, "differs in": other}
    parts = [f"{what} {', '.join(paths)}" for what, paths in changes.items() if paths]
    return "; ".join(parts) or None


def not_whole(work: Path, *, cached: bool = True) -> str | None:
    """The first file with a final name that cannot be read to its end, and why; None where there is none.

    cached: whether to look at cached counts, which are not synced, as they are counted again where they are damaged.
    """
    for base, folders, names in os.walk(work):
        folders[:] = [folder for folder in folders if not LOGS.fullmatch(folder)]
        for name in sorted(names):
            path = Path(base) / name
            if name.startswith(".") or name.endswith(".jsonl"):  # its last line may be cut off
                continue
            if name.startswith("counts-") and not cached:
                continue
            reason = damaged(path) or _damaged_weights(path)
            if reason is not None:
                return f"{path.relative_to(work)}: {reason}"
    return None


def left_behind(work: Path) -> str | None:
    """A temporary file that nobody will remove; None where there is none."""
    for path in sorted([*work.rglob(".*.tmp"), *work.rglob(".tmp*")]):
        return str(path.relative_to(work))
    return None


def _damaged_weights(path: Path) -> str | None:
    if not path.name.startswith("state") or path.suffix != ".safetensors":
        return None
    from lmtool.training.state import read_state

    try:
        read_state(path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".json":
        value = _timeless(json.loads(content))
        if path.name == "job.json":  # a job that was killed behind its last file has not said how many it used
            value = {key: item for key, item in value.items() if key not in ("threads", "devices")}
        return json.dumps(value).encode()
    if path.suffix == ".jsonl":
        return b"\n".join(json.dumps(_timeless(json.loads(line))).encode() for line in content.splitlines())
    if path.suffix == ".safetensors":  # the order of the keys of its notes is not that of another process
        from safetensors.numpy import load_file

        return b"".join(name.encode() + array.tobytes() for name, array in sorted(load_file(path).items()))
    if path.suffix == ".html":
        return re.sub(rb"\d{4}-\d\d-\d\d \d\d:\d\d", b"", content)
    return content


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        # Checksums are of the times too, and of the notes of safetensors files, whose order is not the same each time.
        compared = (key for key in value if not CLOCK.search(key) and key not in ("checksum", "checksums"))
        return {key: _timeless(value[key]) for key in compared}
    return [_timeless(item) for item in value] if isinstance(value, list) else value
