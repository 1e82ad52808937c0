"""Work on several threads: for compiled functions, which let go of Python's lock."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_threads = 0
_pool: ThreadPoolExecutor | None = None


def use(count: int | None) -> int:
    """Use that many threads from now on, or one for each core that this process may use; returns how many."""
    global _threads, _pool
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    _threads = count or cores or 1
    _pool = None
    return _threads


def threads() -> int:
    """How many threads are used."""
    return _threads or use(None)


def cut_evenly(total: int, pieces: int | None = None) -> list[tuple[int, int]]:
    """`total` things in about equal consecutive pieces, one a thread if not said, as (first, last + 1)."""
    count = pieces or threads()
    ends = [total * piece // count for piece in range(count + 1)]
    return list(itertools.pairwise(ends))


def run(calls: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The results of calls `(function, *arguments)`, made side by side."""
    waiting = list(calls)
    if threads() == 1 or len(waiting) <= 1:
        return [function(*arguments) for function, *arguments in waiting]
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(threads(), thread_name_prefix="lmtool")
    running = [_pool.submit(_call, function, arguments) for function, *arguments in waiting[1:]]
    function, *arguments = waiting[0]  # for this thread itself
    first = function(*arguments)
    return [first, *(done.result() for done in running)]


def _call(function: Callable[..., Any], arguments: list[Any]) -> Any:
    return function(*arguments)


def _forget_pool() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):  # the threads do not come along
    os.register_at_fork(after_in_child=_forget_pool)
