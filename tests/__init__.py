"""The tests of lmtool."""

import os

# Read by torch's OpenMP when it is first imported, here and in the processes that tests start: its idle threads sleep,
# where they would spin on the cores that the other worker of pytest-xdist needs.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
