"""Several processes of one command line, as torchrun starts them: only the first of them writes."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from lmtool.errors import UserError


def only_the_first_writes(words: list[str], verb: str) -> list[str]:
    """The overrides of this process: one of a higher rank has an output folder of its own that goes with it.

    Raises UserError for what several processes cannot do together.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return words
    if verb != "train" or any(word in ("-m", "--multirun") for word in words):
        raise UserError("torchrun starts several processes, which can only train one model together: leave it out")
    if os.environ.get("RANK", "0") == "0":
        return words
    folder = tempfile.mkdtemp(prefix="lmtool-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    kept = [word for word in words if not word.startswith("hydra.run.dir=")]
    return [*kept, f"hydra.run.dir={folder}", "hydra.output_subdir=null"]
