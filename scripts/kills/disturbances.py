"""Kinds of disturbances, each a function of a Case: kills, power cuts, full disks, short memory, read-only folders and
wrong clocks. Then the same command runs without them.
"""

from __future__ import annotations

import math
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from fuzzing.campaign import LeftOut
from fuzzing.child import End, more_memory
from hypothesis import reject

from kills import power
from kills.commands import LIMIT, Words, resumed, run_ranks, start
from kills.judge import Case, fresh
from kills.system_calls import watched

AT_ONCE = 8
LEAST_MEMORY, MOST_MEMORY = 1 << 16, 1 << 29  # bytes of address space beyond those of an idle child
DISK = 1 << 30  # bytes of the file system in memory while it is not full


def killed(case: Case) -> None:
    """Kill a command one to four times, each time it is run again, then let it finish."""
    moments: list[float] = []

    def end_of(words: Words) -> End:
        moments.append(round(case.rng.uniform(0.01, case.wanted.seconds), 3))
        case.about = f"killed after {moments} seconds"
        if case.command.ranks > 1:
            return run_ranks(
                words, case.work, case.command.ranks, (case.rng.randrange(case.command.ranks), moments[-1])
            )
        child = start(words, case.work)
        time.sleep(moments[-1])
        if not case.command.is_slow:
            child.kill()
        else:  # one of its processes
            with suppress(ProcessLookupError):
                os.kill(case.rng.choice([child.number, *_descendants(child.number)]), signal.SIGKILL)
        return child.end(LIMIT)

    _killed_again_and_again(case, end_of, case.rng.choice([1, 2, 3, 4]))


def killed_at_a_checkpoint(case: Case) -> None:
    """Kill a training right before or right after one of its checkpoints gets its name, then resume it."""
    number, is_named = case.rng.randint(1, 3), case.rng.random() < 0.5
    case.about = f"killed {'after' if is_named else 'before'} checkpoint {number} was renamed"

    def replaced(source: Path, target: str | Path) -> Path:
        nonlocal number
        number -= Path(target).name == "state.safetensors"
        is_now = number == 0 and Path(target).name == "state.safetensors"
        if is_now and not is_named:
            os.kill(os.getpid(), signal.SIGKILL)
        os.replace(source, target)
        if is_now:
            os.kill(os.getpid(), signal.SIGKILL)
        return Path(target)

    def patch() -> None:
        Path.replace = replaced  # type: ignore[method-assign]

    _killed_again_and_again(case, lambda words: start(words, case.work, before=patch).end(LIMIT), 1)


def _killed_again_and_again(case: Case, end_of: Callable[[Words], End], times: int) -> None:
    words = case.command.words
    for _ in range(times):
        end = end_of(words)
        if end.code == -signal.SIGKILL or (end.code == 1 and case.command.is_slow):  # 1: one job of a sweep was killed
            case.check_whole(end)
        elif end.code != 0:
            case.check_end(end)
            return
        words = case.command.again(case.command.words, case.work)
    case.check_end(case.command.run(words, case.work))


def _descendants(process: int) -> list[int]:
    """Return the processes that a process has started, and theirs."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
    found = [process]
    for each in found:  # grows
        found += parents.get(each, [])
    return found[1:]


def eight_at_once(case: Case) -> None:
    """Start eight runs that share a store which does not exist yet, or eight times one sweep; kill some; run again."""
    command, is_sweep = case.command, "-m" in case.command.words

    def line(number: int) -> Words:
        folder = "out" if is_sweep else f"out{number}"
        return [f"hydra.run.dir={folder}" if word.startswith("hydra.run.dir=") else word for word in command.words]

    if not is_sweep:
        shutil.rmtree(case.work / "stores")
    children = [start(line(number), case.work) for number in range(AT_ONCE)]
    doomed = case.rng.sample(range(AT_ONCE), case.rng.choice([0, 0, 1, 3]))
    for number in doomed:
        time.sleep(case.rng.uniform(0, case.wanted.seconds))
        children[number].kill()
    case.about = f"eight at once, {len(doomed)} of them killed"
    ends = [child.end(LIMIT) for child in children]
    case.check_whole()
    for number, end in enumerate(ends):
        if case.note_refusal(end):
            continue
        case.require(end.code in (0, -signal.SIGKILL), f"exit code {end.code}", end)
        if not is_sweep:
            again = end if end.code == 0 else command.run(line(number), case.work)
            shutil.rmtree(case.work / "out", ignore_errors=True)
            if (case.work / f"out{number}").exists():  # judged as if it had been the only one
                (case.work / f"out{number}").rename(case.work / "out")
            case.check_end(again)
    if is_sweep:
        case.check_end(command.run_again(case.work))


_histories: dict[str, power.History] = {}
_seen: set[int] = set()  # states


def power_cut(case: Case) -> None:
    """Cut the power of a command at a random moment, then run it again."""
    line = " ".join(case.command.words)
    if line not in _histories:
        end, _histories[line] = watched(case.command.words, case.work)
        if end.code != 0:
            raise RuntimeError(f"{line} under strace: {end}")
    history = _histories[line]
    case.about, tree = power.some_crash(history, case.rng)
    if (key := hash((line, *sorted(tree.items())))) in _seen:
        reject()  # Hypothesis draws another one
    _seen.add(key)
    power.lay_out(tree, case.work)
    before = history.undisturbed(0)
    new = [f"{path} ({len(data)})" for path, data in sorted(tree.items()) if path not in before and data]
    case.about += f"\nthere: {', '.join(new)}"
    case.check_whole(cached=False)
    case.check_end(case.command.run_again(case.work))


def need_strace() -> None:
    """Raise LeftOut unless strace is installed."""
    if shutil.which("strace") is None:
        raise LeftOut("strace is not installed")


def limited_file_sizes(case: Case) -> None:
    """Limit the size of files to a random number: a write beyond it fails, as on a full disk."""
    sizes = [size for size in case.wanted.sizes if size]
    size = case.rng.choice(sizes) - 1 if case.rng.random() < 0.3 else _log_uniform(case, 1, max(sizes) + 1)
    case.about = f"files of at most {size} bytes"

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails with EFBIG
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    _limited(case, lambda words: start(words, case.work, before=limit).end(LIMIT))


def full_disk(case: Case) -> None:
    """Run in a file system in memory that is full after a random number of bytes."""
    disk, page = case.work.parent, resource.getpagesize()
    needed = sum(case.wanted.sizes) - sum(path.stat().st_size for path in case.work.rglob("*") if path.is_file())

    def end_of(words: Words) -> End:
        free = case.rng.randint(0, max(needed, 1 << 16) // 4096) * 4096
        case.about = f"{free} bytes free"
        _resize(disk, -(-(shutil.disk_usage(disk).used + free) // page) * page)
        try:
            return start(words, case.work).end(LIMIT)
        finally:
            _resize(disk, DISK)

    with _mounted("-t", "tmpfs", "-o", f"size={DISK}", "none", str(disk)):
        fresh(case.command, disk)
        _limited(case, end_of)


def _resize(disk: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


def short_memory(case: Case) -> None:
    """Limit the address space to a random number of bytes beyond what the process has at its start."""
    more = _log_uniform(case, LEAST_MEMORY, MOST_MEMORY)
    case.about = f"{more} bytes more of address space"
    _limited(case, lambda words: start(words, case.work, before=lambda: more_memory(more)).end(LIMIT))


def _limited(case: Case, end_of: Callable[[Words], End]) -> None:
    """Run a command within a limit, some trainings from a checkpoint, then without the limit if it was refused."""
    words = case.command.words
    if case.command.again is resumed and case.rng.random() < 0.5:
        child = start(words, case.work)
        time.sleep(case.rng.uniform(0.3, 0.9) * case.wanted.seconds)
        child.kill()
        child.end(LIMIT)
        words = case.command.again(words, case.work)
    step = _last_step(case.work)
    end = end_of(words)
    case.check_whole(end)
    case.require(_last_step(case.work) >= step, "an earlier checkpoint is lost", end)
    case.check_end(case.command.run_again(case.work) if case.note_refusal(end) else end)


def _last_step(work: Path) -> int:
    """Return the step of the last readable checkpoint, or -1 if no checkpoint is readable."""
    from lmtool.training.state import read_state

    steps = [-1]
    for path in (work / "out").glob("state*.safetensors"):
        with suppress(Exception):  # a damaged one is found elsewhere
            steps.append(int(read_state(path).values["progress"]["step"]))
    return max(steps)


def _log_uniform(case: Case, least: int, most: int) -> int:
    return int(math.exp(case.rng.uniform(math.log(least), math.log(most))))


def read_only(case: Case) -> None:
    """Make the run folder, the stores, or both read-only; then run the same command with write access."""
    folder = case.work / case.rng.choice([".", "out", "stores"])
    folder.mkdir(exist_ok=True)
    case.about = f"read-only: {folder.name}"
    with _mounted("--bind", str(folder), str(folder)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True, capture_output=True)
        end = start(case.command.words, case.work).end(LIMIT)
    case.check_whole(end)
    if end.refusal is not None:
        case.require("read-only" in end.refusal.lower(), f"a refusal without the reason: {end.refusal}", end)
    case.check_end(case.command.run(case.command.words, case.work) if case.note_refusal(end) else end)


@contextmanager
def _mounted(*words: str) -> Iterator[None]:
    """Mount something for this block. Raises LeftOut if that is not possible here."""
    if subprocess.run(["mount", *words], capture_output=True).returncode != 0:
        raise LeftOut("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", words[-1]], check=True)


def need_mounts() -> None:
    """Raise LeftOut unless this process may mount."""
    with _mounted("--bind", ".", "."):
        pass


def wrong_clock(case: Case) -> None:
    """Give files times in the future and before 1970, or let the clock jump back and forth at every look."""
    how = case.rng.choice(["future", "before 1970", "any", "jumps"])
    case.about = f"clock: {how}"
    now, real, jumps = time.time(), time.time, random.Random(case.rng.random())
    times = {"future": [now + 1e8], "before 1970": [-1e8], "any": [-1e8, 0, 1, now, now + 3600, now + 1e9]}
    for path in case.work.rglob("*") if how in times else ():
        moment = case.rng.choice(times[how])
        os.utime(path, (moment, moment))

    def let_jump() -> None:  # by up to a year
        if how == "jumps":
            time.time = lambda: real() + jumps.uniform(-3e7, 3e7)
            time.time_ns = lambda: int(time.time() * 1e9)

    end = start(case.command.words, case.work, before=let_jump).end(LIMIT)
    case.check_whole(end)
    if how != "jumps":  # a store records when its files were last changed
        case.command = replace(case.command, made=tuple(name for name in case.command.made if name != "stores"))
        bits = {path: bits for path, bits in case.wanted.bits.items() if not path.startswith("stores/")}
        case.wanted = case.wanted._replace(bits=bits)
    case.check_end(end)
