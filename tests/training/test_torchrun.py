"""The temporary folder of a process of higher rank goes with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import os
from lmtool.cli.running import discard_output_of_higher_ranks
from lmtool.config.request import Request

folder = discard_output_of_higher_ranks(Request("train", values={"out": "given"})).values["out"]
assert folder != "given" and os.path.isdir(folder) and os.listdir(os.environ["TMPDIR"])
open(os.path.join(folder, "train.log"), "w").close()
raise SystemExit(3)
"""


def test_a_process_of_rank_1_leaves_no_folder(tmp_path: Path) -> None:
    environment = os.environ | {"WORLD_SIZE": "2", "RANK": "1", "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, timeout=60, check=False)
    assert done.returncode == 3 and not list(tmp_path.iterdir())


def test_nor_does_a_command_that_fails(tmp_path: Path) -> None:
    environment = os.environ | {"WORLD_SIZE": "2", "RANK": "1", "TMPDIR": str(tmp_path)}
    line = [sys.executable, "-m", "lmtool", "train", "data=toy", "model.layers=-1"]
    done = subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "model.layers=-1" in done.stderr
    assert not list(tmp_path.iterdir())
