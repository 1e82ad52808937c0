"""`python -m lmtool`"""

import sys

from lmtool.cli import main

if __name__ == "__main__":
    sys.exit(main())
