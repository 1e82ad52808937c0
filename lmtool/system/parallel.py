"""Calls on several threads, for compiled functions, which release Python's global lock."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable
from queue import SimpleQueue
from typing import Any

Call = tuple[Any, ...]  # a function and its arguments
_threads = 0
_workers: list[SimpleQueue[tuple[list[Call], SimpleQueue[Any]]]] = []
_here = threading.local()


def use(count: int | None) -> int:
    """Set the number of threads, by default one for each core that this process may use; returns it."""
    global _threads
    _threads = count or cores()
    return _threads


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """The number of threads in use."""
    return _threads or use(None)


def cut_evenly(total: int, pieces: int | None = None) -> list[tuple[int, int]]:
    """range(total) in consecutive pieces of about equal size, as (first, last + 1); by default one per thread."""
    count = pieces or threads()
    ends = [total * piece // count for piece in range(count + 1)]
    return list(itertools.pairwise(ends))


def run(calls: Iterable[Call]) -> list[Any]:
    """Run calls `(function, *arguments)` in parallel and return their results; the first error is raised.

    The caller's thread takes a share. Handing over and waiting takes some hundredths of a millisecond, less than with
    the standard library's pools, and the compiled loops of a training step take not much longer.
    """
    waiting = list(calls)
    used = min(threads(), len(waiting))
    if used <= 1 or getattr(_here, "working", False):
        return [function(*arguments) for function, *arguments in waiting]
    shares = [waiting[place::used] for place in range(used)]
    answers: list[SimpleQueue[Any]] = [SimpleQueue() for _ in shares]
    for worker, share, answer in zip(_some_workers(used - 1), shares[1:], answers[1:], strict=True):
        worker.put((share, answer))
    outcomes = [_results(shares[0]), *(answer.get() for answer in answers[1:])]
    results: list[Any] = [None] * len(waiting)
    for place, outcome in enumerate(outcomes):
        if isinstance(outcome, BaseException):
            raise outcome
        results[place::used] = outcome
    return results


def _results(calls: list[Call]) -> list[Any] | BaseException:
    try:
        return [function(*arguments) for function, *arguments in calls]
    except BaseException as error:
        return error


def _some_workers(count: int) -> list[SimpleQueue[tuple[list[Call], SimpleQueue[Any]]]]:
    while len(_workers) < count:
        tasks: SimpleQueue[tuple[list[Call], SimpleQueue[Any]]] = SimpleQueue()
        threading.Thread(target=_work, args=(tasks,), name=f"lmtool-{len(_workers)}", daemon=True).start()
        _workers.append(tasks)
    return _workers[:count]


def _work(tasks: SimpleQueue[tuple[list[Call], SimpleQueue[Any]]]) -> None:
    _here.working = True
    while True:
        share, answer = tasks.get()
        answer.put(_results(share))
        del share, answer  # so that their arrays are freed before the next task


if hasattr(os, "register_at_fork"):  # a forked child has no such threads
    os.register_at_fork(after_in_child=_workers.clear)
