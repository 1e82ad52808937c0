"""`lmtool` and `python -m lmtool`"""

import gc
import logging
import os
import sys
from contextlib import suppress
from typing import NoReturn

from lmtool.cli.command_line import main


def run() -> NoReturn:
    """Run the command line of this process and end the process with its exit code."""
    # Importing the libraries makes hundreds of thousands of objects that stay: looking for garbage among them each time
    # a few hundred more are there takes a tenth of a short command's time.
    gc.set_threshold(200_000, 10, 10)
    code = main()
    logging.shutdown()
    with suppress(OSError):  # the reader of our output may have gone
        sys.stdout.flush()
        sys.stderr.flush()
    # At once: every file is closed, and taking the libraries down in good order takes a fifth of a second or more.
    os._exit(code)


if __name__ == "__main__":
    run()
