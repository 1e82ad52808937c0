"""The only module that replaces a submitit method: `AutoExecutor.map_array`, which Hydra's plugin calls.

The plugin waits for its jobs one by one, stops at the first whose process died, and cancels none when it is
interrupted; it has no setting or hook for either case. So while a sweep is launched, the executor's jobs are recorded
and wrapped. If submitit changes the method's signature, nothing is replaced, a note is logged and a test fails.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger(__name__)


def is_known() -> bool:
    """Return whether the method has the signature wrapped here: map_array(self, fn, *iterables) -> list of jobs."""
    import submitit

    method = getattr(submitit.AutoExecutor, "map_array", None)
    if method is None:
        return False
    kinds = [parameter.kind for parameter in inspect.signature(method).parameters.values()]
    return kinds[:3] == [
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    ]


@contextmanager
def jobs_wrapped(wrapper: type) -> Iterator[list[Any]]:
    """Wrap every job that submitit starts in this block with `wrapper`; yield the list of unwrapped jobs."""
    import submitit

    jobs: list[Any] = []
    if not is_known():
        log.warning("note: unknown version of submitit: a job whose process dies will end the sweep")
        yield jobs
        return
    original = submitit.AutoExecutor.map_array

    def map_array(self: Any, function: Any, *arguments: Any) -> list[Any]:
        started = original(self, function, *arguments)
        jobs.extend(started)
        return [wrapper(job) for job in started]

    submitit.AutoExecutor.map_array = map_array  # type: ignore[assignment,method-assign]
    try:
        yield jobs
    finally:
        submitit.AutoExecutor.map_array = original  # type: ignore[method-assign]
