"""`lmtool` and `python -m lmtool`"""

import gc
import sys
from typing import NoReturn

from lmtool.cli.command_line import main


def run() -> NoReturn:
    """Run the command line of this process and end the process with its exit code."""
    # Importing the libraries creates hundreds of thousands of objects that live to the end: searching them for garbage
    # after every few hundred allocations takes a tenth of a short command's time.
    gc.set_threshold(200_000, 10, 10)
    code = main()
    gc.freeze()  # nor are they searched when the process ends
    sys.exit(code)


if __name__ == "__main__":
    run()
