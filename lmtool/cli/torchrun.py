"""Several processes of one command line, started by torchrun: only the first of them writes."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from dataclasses import replace

from lmtool.cli.arguments import CommandLine
from lmtool.config.overrides import key_of, quoted
from lmtool.errors import UserError


def only_the_first_writes(line: CommandLine) -> CommandLine:
    """Return this process's line; higher ranks get a temporary output folder, removed when the process ends.

    Raises UserError for commands that several processes cannot run together.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return line
    if line.verb != "train" or line.multirun:
        raise UserError("torchrun starts several processes, which can only train one model together: leave it out")
    if os.environ.get("RANK", "0") == "0":
        return line
    folder = tempfile.mkdtemp(prefix="lmtool-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    overrides = [word for word in line.overrides if key_of(word) != "hydra.run.dir"]
    return replace(line, overrides=[*overrides, f"hydra.run.dir={quoted(folder)}", "hydra.output_subdir=null"])
