"""What a power cut may leave of a folder, of what was done in it.

The model is that of Pillai et al. 2014 (All file systems are not created equal, OSDI), with the least that POSIX
promises: what was written into a file is certain once that file was synced, a name (a file made, renamed or removed)
once its folder was synced. Of all else any part may be lost, in any order, but a renaming is whole or not there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Write:
    """Bytes of a file from an offset on; data None: the file has `at` bytes from then on."""

    file: int
    at: int
    data: bytes | None


@dataclass(frozen=True)
class Names:
    """Entries of folders that change at once: (folder, name) -> a file or folder by its number, None for none."""

    entries: tuple[tuple[int, str, int | None], ...]


@dataclass(frozen=True)
class Sync:
    """A file or folder is on the disk as it is now."""

    of: int


Step = Write | Names | Sync
ROOT = 0  # the number of the folder


@dataclass
class History:
    """What was there at first, and the steps that followed. folders: the numbers of those that are folders.

    names: by folder and name; contents: by file.
    """

    folders: set[int] = field(default_factory=lambda: {ROOT})
    names: dict[tuple[int, str], int] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def tree(self, names: dict[tuple[int, str], int], contents: dict[int, bytes]) -> dict[str, bytes | None]:
        """The paths that can be reached, with the contents of files; None for folders."""
        found: dict[str, bytes | None] = {}
        waiting = [(ROOT, "")]
        while waiting:
            folder, path = waiting.pop()
            for (parent, name), number in names.items():
                if parent == folder:
                    if number in self.folders:
                        found[path + name] = None
                        waiting.append((number, f"{path}{name}/"))
                    else:
                        found[path + name] = contents.get(number, b"")
        return found

    def undisturbed(self, steps: int | None = None) -> dict[str, bytes | None]:
        """The folder after so many steps, all by default, where nothing is lost."""
        return self.after(len(self.steps) if steps is None else steps, lambda _: True, len)

    def after(
        self, steps: int, keeps: Callable[[int], bool], kept_writes: Callable[[list[Write]], int | None]
    ) -> dict[str, bytes | None]:
        """The folder as a power cut after so many steps leaves it.

        keeps: whether a change of names that is not certain, by the number of its step, is there. kept_writes: how
        many of the writes of a file that are not certain, in their order, are there; None for a file that has its new
        size and zeros in place of what was written.
        """
        names, contents = dict(self.names), dict(self.contents)
        synced = {step.of: number for number, step in enumerate(self.steps[:steps]) if isinstance(step, Sync)}
        loose: dict[int, list[Write]] = {}
        for number, step in enumerate(self.steps[:steps]):
            if isinstance(step, Names):
                certain = any(synced.get(folder, -1) > number for folder, _, _ in step.entries)
                if certain or keeps(number):
                    for folder, name, target in step.entries:
                        if target is None:
                            names.pop((folder, name), None)
                        else:
                            names[folder, name] = target
            elif isinstance(step, Write):
                if synced.get(step.file, -1) > number:
                    contents[step.file] = written(contents.get(step.file, b""), step)
                else:
                    loose.setdefault(step.file, []).append(step)
        for file, writes in loose.items():
            kept = kept_writes(writes)
            for step in writes[:kept]:
                data = step.data if kept is not None or step.data is None else bytes(len(step.data))
                contents[file] = written(contents.get(file, b""), Write(file, step.at, data))
        return self.tree(names, contents)

    def uncertain(self, steps: int) -> list[int]:
        """The changes of names that a power cut after so many steps may undo, by the numbers of their steps."""
        synced = {step.of: number for number, step in enumerate(self.steps[:steps]) if isinstance(step, Sync)}
        return [
            number
            for number, step in enumerate(self.steps[:steps])
            if isinstance(step, Names) and all(synced.get(folder, -1) <= number for folder, _, _ in step.entries)
        ]


def written(content: bytes, step: Write) -> bytes:
    """A file's content after a write."""
    if step.data is None:
        return content[: step.at].ljust(step.at, b"\0")
    return content[: step.at].ljust(step.at, b"\0") + step.data + content[step.at + len(step.data) :]


def some_crash(history: History, rng: random.Random) -> tuple[str, dict[str, bytes | None]]:
    """A state that a power cut may leave, drawn at random, with what it is in words."""
    # Names are what later commands go by: a third of the cuts come right after one, a fifth at the end.
    named = [number + 1 for number, step in enumerate(history.steps) if isinstance(step, Names)]
    anywhere = rng.randint(1, len(history.steps))
    steps = rng.choices([anywhere, rng.choice(named or [anywhere]), len(history.steps)], [7, 5, 3])[0]
    loose = history.uncertain(steps)
    what = rng.choice(["all", "none", "first", "all but one", "one", "some"])
    kept = set(loose) if what in ("all", "all but one") else set()
    if loose and what == "first":
        kept = set(loose[: rng.randint(0, len(loose))])
    elif loose and what == "all but one":
        kept.discard(rng.choice(loose))
    elif loose and what == "one":
        kept = {rng.choice(loose)}
    elif what == "some":
        kept = {number for number in loose if rng.random() < 0.5}
    data = rng.choice(["all", "none", "first", "zeros"])

    def kept_writes(writes: list[Write]) -> int | None:
        counts = {"all": len(writes), "none": 0, "first": rng.randint(0, len(writes)), "zeros": None}
        return counts[data]

    about = f"power cut after {steps} of {len(history.steps)} steps; of names not synced {what} kept, of writes {data}"
    return about, history.after(steps, lambda number: number in kept, kept_writes)


def lay_out(tree: dict[str, bytes | None], folder: Path) -> None:
    """Make a folder of a state; what is there already with the same content stays as it is, with its time."""
    for path in sorted(folder.rglob("*"), reverse=True):
        name = str(path.relative_to(folder))
        if path.is_dir():
            if name not in tree:
                path.rmdir()
        elif tree.get(name) is None:
            path.unlink()
    for name, content in sorted(tree.items()):
        path = folder / name
        if content is None:
            path.mkdir(exist_ok=True)
        elif not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
