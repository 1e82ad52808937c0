"""`lmtool` and `python -m lmtool`"""

import gc
import io
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from lmtool.cli.command_line import main

# Rounds of a loop in which a thread of OpenMP waits before it sleeps. libgomp's own 300,000 are milliseconds, spent at
# each operation where another process has displaced one of the threads.
SPIN_COUNT = "3000"


def open_standard_streams() -> None:
    """Open the standard streams that a shell closed (`>&-`): the next file opened would be written as the stream."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            if number:
                setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def run(command: Callable[[list[str]], int] | None = None) -> NoReturn:
    """Run the command line of this process and end the process with its exit code. command: as in `main`."""
    # Importing the libraries creates hundreds of thousands of objects that live to the end: searching them for garbage
    # even once takes a tenth of a short command's time.
    gc.set_threshold(1_000_000, 10, 10)
    open_standard_streams()
    if "OMP_WAIT_POLICY" not in os.environ:  # read by libgomp when torch is imported
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
    if isinstance(sys.stdout, io.TextIOWrapper):  # words of other scripts where the locale has no UTF-8
        sys.stdout.reconfigure(errors="backslashreplace")
    code = main(command=command)
    gc.freeze()  # nor are they searched when the process ends
    sys.exit(code)


if __name__ == "__main__":
    run()
