"""Work on several threads: for compiled functions, which let go of Python's lock."""

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
    """Use that many threads from now on, or one for each core that this process may use; returns how many."""
    global _threads
    _threads = count or cores()
    return _threads


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """How many threads are used."""
    return _threads or use(None)


def cut_evenly(total: int, pieces: int | None = None) -> list[tuple[int, int]]:
    """`total` things in about equal consecutive pieces, one a thread if not said, as (first, last + 1)."""
    count = pieces or threads()
    ends = [total * piece // count for piece in range(count + 1)]
    return list(itertools.pairwise(ends))


def run(calls: Iterable[Call]) -> list[Any]:
    """The results of calls `(function, *arguments)`, made side by side; the first error among them is raised.

    The caller's thread does its share. To hand over and to wait takes some hundredths of a millisecond, less than with
    the standard library's pools: the compiled loops of a step of training are not much longer than that.
    """
    waiting = list(calls)
    used = min(threads(), len(waiting))
    if used <= 1 or getattr(_here, "working", False):
        return [function(*arguments) for function, *arguments in waiting]
    shares = [waiting[place::used] for place in range(used)]
    answers: list[SimpleQueue[Any]] = [SimpleQueue() for _ in shares]
    for worker, share, answer in zip(_some_workers(used - 1), shares[1:], answers[1:], strict=True):
        worker.put((share, answer))
    found = [_made(shares[0]), *(answer.get() for answer in answers[1:])]
    results: list[Any] = [None] * len(waiting)
    for place, made in enumerate(found):
        if isinstance(made, BaseException):
            raise made
        results[place::used] = made
    return results


def _made(calls: list[Call]) -> list[Any] | BaseException:
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
        answer.put(_made(share))
        del share, answer  # what they hold is not kept until the next task


if hasattr(os, "register_at_fork"):  # the threads do not come along
    os.register_at_fork(after_in_child=_workers.clear)
