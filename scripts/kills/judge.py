"""What must hold of a disturbed command: files with final names are whole; run again, it ends with the right bits, or
with one line.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fuzzing.campaign import Fault
from fuzzing.child import End, damaged, quietly

from kills.commands import COMMANDS, NEURAL, TEXT, Command

SHARED = "prepared"
# Files that only say where a command was: its line and its checkpoints.
NOT_COMPARED = re.compile(r"state.*|begun\.json|sweep\.json|multirun\.yaml|\..*\.tmp|\.tmp.*")
LOGS = re.compile(r".*\.log|\.hydra|.*\.lock|\.lock|sweep\.(md|csv)|events\..*")
# JSON keys whose values differ between runs, or say what existed already; checksums are of the times, too.
CLOCK = re.compile(r"second|time|version|created|resumed|checksums?$")


class Undisturbed(NamedTuple):
    """What an undisturbed command makes: the bits that are compared, the sizes of all its files, and its seconds."""

    bits: dict[str, bytes]
    sizes: list[int]
    seconds: float


_undisturbed: dict[str, Undisturbed] = {}


@dataclass
class Case:
    """One disturbance of a command in its folder. about: says in a report what was done. refused: its single lines."""

    command: Command
    work: Path
    wanted: Undisturbed
    rng: random.Random
    about: str = ""
    refused: list[str] = field(default_factory=list)

    def check_whole(self, end: End | None = None, *, cached: bool = True) -> None:
        """Check every file that has its final name. cached: also cached counts, which are not synced."""
        reason = not_whole(self.work, cached=cached)
        self.require(reason is None, f"not whole: {reason}", end)

    def check_end(self, end: End) -> None:
        """Check the end of the command that was run again."""
        finished = self.command.whole_with is not None and (self.work / self.command.whole_with).exists()
        problem = None
        if end.code == 0 or (end.refusal is not None and finished):
            problem = different(self.wanted.bits, bits(self.command, self.work))
        if end.code == 0:
            self.require(problem is None, f"other bits: it {problem}", end)
            left = sorted([*self.work.rglob(".*.tmp"), *self.work.rglob(".tmp*")])  # nothing will remove them
            self.require(not left, f"left behind: {left and left[0].relative_to(self.work)}", end)
        else:
            self.require(end.refusal is not None, f"exit code {end.code}: {end.last_line}", end)
            self.require(problem is None, f"finished, but not whole: it {problem}", end)
            self.note_refusal(end)

    def note_refusal(self, end: End) -> bool:
        """Count an end with one line; return whether it is one."""
        self.refused += [end.refusal] if end.refusal is not None else []
        return end.refusal is not None

    def require(self, holds: bool, signature: str, end: End | None = None) -> None:
        if not holds:
            signature = re.sub(r"/\S*/|0x[0-9a-f]+|\b\d{3,}\b", "_", signature)[:160]  # without what differs each time
            raise Fault(signature, f"{' '.join(self.command.words)}\n{self.about}\n{end or ''}")


def prepare(name: str) -> Undisturbed:
    """Make what commands start from, import and compile what a command uses, and run it twice, undisturbed.

    Raises RuntimeError if it fails or the two differ: then there is nothing to compare.
    """
    os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1", LMTOOL_DATA="", MPLCONFIGDIR=str(Path.cwd()))
    if not Path(SHARED).exists():
        _prepare_shared()
    if name not in _undisturbed:
        command, place = COMMANDS[name], Path("case").resolve()
        short = ["training.steps=5"] if any(word.startswith("training.epochs") for word in command.words) else []
        with chdir(fresh(command, place)):
            quietly([*command.words, *short])
        outcomes, seconds, sizes = [], [], []
        for _ in range(2):
            work = fresh(command, place)
            begun = time.monotonic()
            end = command.run(command.words, work)
            seconds.append(time.monotonic() - begun)
            if end.code != 0:
                raise RuntimeError(f"{' '.join(command.words)}: {end}")
            outcomes.append(bits(command, work))
            sizes = sorted(path.stat().st_size for path in work.rglob("*") if path.is_file())
        shutil.rmtree(place)
        problem = different(*outcomes)
        if problem is not None or not outcomes[0]:
            raise RuntimeError(f"{' '.join(command.words)}, undisturbed: the second {problem or 'has made nothing'}")
        _undisturbed[name] = Undisturbed(outcomes[0], sizes, min(seconds))
    return _undisturbed[name]


def _prepare_shared() -> None:
    Path(SHARED).mkdir()
    with chdir(SHARED):
        rng = random.Random(1)
        words, weights = [f"w{k}" for k in range(800)], [1 / (k + 1) for k in range(800)]  # Zipf's distribution
        for name, lines in (("train.txt", 3000), ("valid.txt", 300)):
            sentences = [rng.choices(words, weights, k=rng.randint(1, 20)) for _ in range(lines)]
            Path(name).write_text("".join(f"{' '.join(sentence)}\n" for sentence in sentences), encoding="utf-8")
        quietly(["preprocess", *TEXT])
        for name, order in (("kn", 3), ("kn2", 2)):
            quietly(["train", *TEXT, "model=ngram", f"model.order={order}", "threads=1", f"hydra.run.dir={name}"])
        quietly(["preprocess", *(word for word in NEURAL if word.startswith("data"))])
        shutil.rmtree("outputs", ignore_errors=True)


def fresh(command: Command, place: Path) -> Path:
    """Make the work folder of a command in a place from scratch, as it is beforehand."""
    shutil.rmtree(place / "work", ignore_errors=True)
    ignored = shutil.ignore_patterns(*command.without)
    return Path(shutil.copytree(SHARED, place / "work", ignore=ignored))


def _files(folder: Path) -> Iterator[Path]:
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
    """Return the first file with a final name that cannot be read to its end, and why, or None if all can.

    cached: also check cached counts; they are not synced, as damaged ones are counted again.
    """
    for path in _files(work):
        # The last line of .jsonl may be cut off.
        skipped = path.name.startswith(".") or path.suffix == ".jsonl"
        if not skipped and (cached or not path.name.startswith("counts-")) and (reason := damaged(path)):
            return f"{path.relative_to(work)}: {reason}"
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
