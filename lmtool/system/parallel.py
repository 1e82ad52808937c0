"""Run calls on several threads, for compiled functions, which release Python's global lock.

If torch is in use, they are the threads of its OpenMP team, which spin for a short time between calls and would compete
with other threads for the cores. Otherwise they are lmtool's own threads."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

Call = tuple[Any, ...]  # a function and its arguments
# Seconds between two looks at the load: shorter intervals would follow each program that starts and ends. At the start,
# the time of the imports is enough; a look that is too old says nothing of the load now.
LOOK_EVERY, LOOK_FIRST, TOO_OLD = 2.0, 0.4, 20.0
_threads = 0  # number chosen last, used by threads that have not chosen; 0 = not chosen yet
_workers: list[SimpleQueue[tuple[list[Call], SimpleQueue[Any]]]] = []
_is_fork = False  # whether this process was forked from one that may have had threads
_WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Here(threading.local):
    """State of one thread: calls in several threads of a program may use different numbers of threads."""

    threads = max_threads = 0  # in use; the number follow_load returns to when cores are free (0: no-op)
    lowered = working = False  # by follow_load; while this thread works on a share of `run`
    torch_threads: int | None = None  # torch's number before set_torch_threads


_here = _Here()


def use(count: int | None, *, follow: bool = False) -> int:
    """Set the number of threads, None for one per core that this process may use, and return it.

    follow: whether to use fewer while other processes need the cores, at once and whenever follow_load is called.
    """
    global _threads
    _here.threads = _threads = count or cores()
    _here.max_threads, _here.lowered = (_threads if follow else 0), False
    follow_load(LOOK_FIRST)
    return _here.threads


def follow_load(after: float | None = None) -> None:
    """Use only as many threads as other processes leave cores for; to be called between steps of long work.

    Threads that wait for one another advance at the pace of the slowest: if another process takes its core, each
    operation may take a time slice of the scheduler (milliseconds). Measures the load if the last measurement is
    `after` seconds ago (None: LOOK_EVERY), on Linux; no-op unless `use` was called with follow.
    """
    global _threads, _seen
    if not _here.max_threads or not (seconds := time.monotonic() - _seen[0]) > (LOOK_EVERY if after is None else after):
        return
    before, _seen = _seen, _times()
    if seconds > TOO_OLD:
        return
    busy, own = _seen[1] - before[1], _seen[2] - before[2]
    count = max(1, min(_here.max_threads, int(cores() - max(0.0, busy - own) / seconds + 0.5)))
    if count != _here.threads:
        _here.lowered = _here.lowered or count < _here.threads
        _here.threads = _threads = count
        set_torch_threads()


def was_lowered() -> bool:
    """Return whether follow_load has lowered the number of threads since `use`."""
    return _here.lowered


def _times() -> tuple[float, float, float]:
    """Return the current time and the core seconds used by processes of ordinary priority and by this process.

    Processes of lower priority (nice) yield by themselves and are not counted. Both numbers are 0 without /proc/stat.
    """
    now, used = time.monotonic(), 0
    try:
        mine = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
            name, *ticks = line.split()
            if name in mine:
                user, _nice, system, _idle, _waiting, irq, softirq, stolen, *_ = map(int, ticks)
                used += user + system + irq + softirq + stolen
    except (OSError, AttributeError, ValueError):
        return now, 0.0, 0.0
    own = os.times()
    return now, used / os.sysconf("SC_CLK_TCK"), own.user + own.system


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """Return the number of threads in use."""
    return _here.threads or _threads or cores()


def set_torch_threads() -> None:
    """Make torch's operations use the chosen number of threads, if any; to be called after torch is imported.

    It is 1 in a forked child, which has no OpenMP team: waiting for it would be a deadlock.
    """
    torch: Any = sys.modules.get("torch")
    if (_threads or _is_fork) and hasattr(torch, "set_num_threads"):  # torch may be half imported
        _here.torch_threads = _here.torch_threads or torch.get_num_threads()
        torch.set_num_threads(1 if _is_fork else threads())


@contextmanager
def restore_threads() -> Iterator[None]:
    """Restore the numbers of threads, torch's too, when the block ends: they belong to the user's program."""
    global _threads
    before = _here.threads, _here.max_threads, _here.torch_threads
    _here.torch_threads = None  # for this block; torch has a number per thread
    try:
        yield
    finally:
        if _here.torch_threads is not None:
            sys.modules["torch"].set_num_threads(_here.torch_threads)
        _here.threads, _here.max_threads, _here.torch_threads = before
        _threads = _here.threads


def cut_evenly(total: int, pieces: int | None = None) -> list[tuple[int, int]]:
    """Return consecutive pieces of range(total) of about equal size, by default one per thread: (first, last + 1)."""
    count = pieces or threads()
    ends = [total * piece // count for piece in range(count + 1)]
    return list(itertools.pairwise(ends))


def run_pieces(function: Any, arguments: Iterable[Any], total: int, most: int) -> list[Any]:
    """Run function(*arguments, first, last) over range(total), in at most `most` pieces, those worth a thread."""
    pieces = max(1, min(threads(), most))
    return run((function, *arguments, first, last) for first, last in cut_evenly(total, pieces))


def run(calls: Iterable[Call]) -> list[Any]:
    """Run calls `(function, *arguments)` in parallel and return their results; the first error is raised.

    The caller's thread takes a share. Handing over and waiting takes almost 0.1 ms, as the threads take turns with
    Python's lock until they are in compiled code; the standard library's pools take longer.
    """
    waiting = list(calls)
    used = min(threads(), len(waiting))
    if used <= 1 or _here.working:
        return [function(*arguments) for function, *arguments in waiting]
    shares = [waiting[place::used] for place in range(used)]
    team = _team() if _has_team() else None
    outcomes = _of_workers(shares) if team is None else _of_team(team, shares)
    results: list[Any] = [None] * len(waiting)
    for place, outcome in enumerate(outcomes):
        if isinstance(outcome, BaseException):
            raise outcome
        results[place::used] = outcome
    return results


def _has_team() -> bool:
    """Return whether this thread's OpenMP team also runs torch's calls. Each thread that calls OpenMP has a team."""
    return "torch" in sys.modules and not _is_fork and threading.current_thread() is threading.main_thread()


def _of_workers(shares: list[list[Call]]) -> list[list[Any] | BaseException]:
    answers: list[SimpleQueue[Any]] = [SimpleQueue() for _ in shares[1:]]
    while len(_workers) < len(answers):
        tasks: SimpleQueue[tuple[list[Call], SimpleQueue[Any]]] = SimpleQueue()
        threading.Thread(target=_work, args=(tasks,), name=f"lmtool-{len(_workers)}", daemon=True).start()
        _workers.append(tasks)
    for worker, share, answer in zip(_workers, shares[1:], answers, strict=False):
        worker.put((share, answer))
    return [_results(shares[0]), *(answer.get() for answer in answers)]


def _of_team(team: ctypes.CDLL, shares: list[list[Call]]) -> list[list[Any] | BaseException]:
    outcomes: list[Any] = [None] * len(shares)

    def work(_: object) -> None:
        mine = range(team.omp_get_thread_num(), len(shares), team.omp_get_num_threads())  # the team may be smaller
        for place in mine:
            outcomes[place] = _results(shares[place])

    team.GOMP_parallel(_WORK(work), None, len(shares), 0)
    if any(outcome is None for outcome in outcomes):  # an exception between two calls, which ctypes drops
        raise KeyboardInterrupt
    return outcomes


@functools.cache
def _team() -> ctypes.CDLL | None:
    """Load the OpenMP library that torch is linked with, to be called by GCC's binary interface.

    None if torch is built with another one. Symbols are looked up through torch's library, which finds them in its
    dependencies, whatever their file names.
    """
    try:
        library = ctypes.CDLL(str(Path(sys.modules["torch"].__path__[0]) / "lib" / "libtorch_cpu.so"))
        library.GOMP_parallel.argtypes = _WORK, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint
        library.GOMP_parallel.restype = None
        return library if library.omp_get_thread_num() == 0 and library.omp_get_num_threads() == 1 else None
    except (OSError, AttributeError):
        return None


_seen = _times()  # at the last measurement


def _results(calls: list[Call]) -> list[Any] | BaseException:
    _here.working = True
    try:
        return [function(*arguments) for function, *arguments in calls]
    except BaseException as error:
        return error
    finally:
        _here.working = False


def _work(tasks: SimpleQueue[tuple[list[Call], SimpleQueue[Any]]]) -> None:
    while True:
        share, answer = tasks.get()
        answer.put(_results(share))
        del share, answer  # so that their arrays are freed before the next task


def _forked() -> None:
    """Reset the threads in a forked child, which has none of them; OpenMP does not notice the fork."""
    global _is_fork
    _is_fork = True
    _workers.clear()
    set_torch_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


Item = TypeVar("Item")


def read_ahead(items: Iterator[Item], *, waits: bool = True) -> Iterator[Item]:
    """Yield items, which must not be None; a second thread produces the next item while one is in use.

    waits: whether a loop that ends early waits for that thread; False if the next item may never come (a pipe).
    """
    asked, made = SimpleQueue[bool](), SimpleQueue[Any]()

    def work() -> None:
        while asked.get():
            try:
                made.put(next(items, None))
            except BaseException as error:
                made.put(error)

    reader = threading.Thread(target=work, daemon=True)
    reader.start()
    asked.put(True)
    try:
        while (item := made.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            asked.put(True)
            yield item
    finally:
        asked.put(False)
        if waits:
            reader.join()
