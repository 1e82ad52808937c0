"""`lmtool` and `python -m lmtool`"""

import gc
import sys
from typing import NoReturn

from lmtool.cli.command_line import main


def run() -> NoReturn:
    """Run the command line of this process and end the process with its exit code."""
    # Importing the libraries makes hundreds of thousands of objects that stay: looking for garbage among them each time
    # a few hundred more are there takes a tenth of a short command's time.
    gc.set_threshold(200_000, 10, 10)
    code = main()
    gc.freeze()  # nor is there garbage to look for among them when the process ends
    sys.exit(code)


if __name__ == "__main__":
    run()
