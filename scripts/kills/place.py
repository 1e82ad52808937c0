"""The folder that a command works in: what it holds beforehand, and what must be in it afterwards."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

from fuzzing.child import damaged, quietly

from kills.commands import NEURAL, TEXT, Command

SHARED, WORK = "shared", "work"
# Files that only say where a command was: its line and its checkpoints.
NOT_COMPARED = re.compile(r"state.*|begun\.json|\.?multirun\.yaml|\..*\.tmp|\.tmp.*")
LOGS = re.compile(r".*\.log|\.hydra|\.submitit|\.slurm|.*\.lock|\.lock|sweep\.(md|csv)|events\..*")
# JSON keys whose values differ between runs, or say what existed already; checksums are of the times, too.
CLOCK = re.compile(r"second|time|version|created|resumed|checksums?$")


def prepare(commands: list[Command]) -> None:
    """Make texts, a store and two runs in the folder `shared`; import and compile what the commands use."""
    os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1", LMTOOL_DATA="", MPLCONFIGDIR=str(Path.cwd()))
    Path(SHARED).mkdir()
    with chdir(SHARED):
        Path("train.txt").write_text(text(3000, 1), encoding="utf-8")
        Path("valid.txt").write_text(text(300, 2), encoding="utf-8")
        quietly(["preprocess", *TEXT])
        for name, order in (("kn", 3), ("kn2", 2)):
            quietly(["train", *TEXT, "model=ngram", f"model.order={order}", "threads=1", f"hydra.run.dir={name}"])
        quietly(["preprocess", *(word for word in NEURAL if word.startswith("data"))])
        shutil.rmtree("outputs", ignore_errors=True)
    for command in commands:
        if not command.is_slow and command.ranks == 1:
            short = ["training.steps=5"] if any(word.startswith("training.epochs") for word in command.words) else []
            with chdir(fresh(command)):
                quietly([*command.words, *short])


def text(lines: int, seed: int) -> str:
    """Return lines of words of a Zipf distribution."""
    rng = random.Random(seed)
    words = [f"w{k}" for k in range(800)]
    weights = [1 / (k + 1) for k in range(800)]
    return "".join(f"{' '.join(rng.choices(words, weights, k=rng.randint(1, 20)))}\n" for _ in range(lines))


def fresh(command: Command, top: Path | None = None) -> Path:
    """Make the work folder of a command from scratch in `top` (default: this folder), as it is beforehand."""
    work = (top or Path.cwd()) / WORK
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(Path.cwd() / SHARED, work, ignore=shutil.ignore_patterns(*command.without))
    return work


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, except logs."""
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not LOGS.fullmatch(name)]
        yield from (Path(base) / name for name in sorted(names))


def bits(command: Command, work: Path) -> dict[str, bytes]:
    """Return the files that a command has made, by path, without logs and the times that some files hold."""
    found = {name: _content(work / name) for name in command.made if (work / name).is_file()}
    for path in (path for name in command.made for path in _files(work / name)):
        if not LOGS.fullmatch(path.name) and not NOT_COMPARED.fullmatch(path.name):
            found[str(path.relative_to(work))] = _content(path)
    return found


def different(wanted: dict[str, bytes], found: dict[str, bytes]) -> str | None:
    """Return which files differ, in words, or None."""
    other = [path for path in wanted.keys() & found.keys() if wanted[path] != found[path]]
    changes = {"lacks": wanted.keys() - found.keys(), "has also": found.keys() - wanted.keys(), "differs in": other}
    return "; ".join(f"{what} {', '.join(sorted(paths))}" for what, paths in changes.items() if paths) or None


def not_whole(work: Path, *, cached: bool = True) -> str | None:
    """Return the first file with a final name that cannot be read to its end, and why; None if there is none.

    cached: also check cached counts; they are not synced, as damaged ones are counted again.
    """
    for path in _files(work):
        # The last line of .jsonl may be cut off.
        skipped = path.name.startswith(".") or path.suffix == ".jsonl"
        if not skipped and (cached or not path.name.startswith("counts-")):
            reason = damaged(path) or _damaged_state(path)
            if reason is not None:
                return f"{path.relative_to(work)}: {reason}"
    return None


def left_behind(work: Path) -> str | None:
    """Return a temporary file that nothing will remove, or None."""
    found = sorted([*work.rglob(".*.tmp"), *work.rglob(".tmp*")])
    return str(found[0].relative_to(work)) if found else None


def _damaged_state(path: Path) -> str | None:
    if not path.name.startswith("state") or path.suffix != ".safetensors":
        return None
    from lmtool.training.state import read_state

    try:
        read_state(path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _content(path: Path) -> bytes:
    """Return the bytes of a file without times and what else may differ between runs."""
    content = path.read_bytes()
    match path.suffix:
        case ".json":
            value = _timeless(json.loads(content))
            if path.name == "job.json":  # a job that was killed behind its last file has not said how many it used
                value = {key: item for key, item in value.items() if key not in ("threads", "devices")}
            return json.dumps(value).encode()
        case ".jsonl":
            return b"\n".join(json.dumps(_timeless(json.loads(line))).encode() for line in content.splitlines())
        case ".safetensors":  # the order of the keys of its notes differs between processes
            from safetensors.numpy import load_file

            return b"".join(name.encode() + array.tobytes() for name, array in sorted(load_file(path).items()))
        case ".html":
            return re.sub(rb"\d{4}-\d\d-\d\d \d\d:\d\d", b"", content)
    return content


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if not CLOCK.search(key)}
    return [_timeless(item) for item in value] if isinstance(value, list) else value
