"""The commands: the function `run` of the module with the verb's name, or the function with its name in ask.py."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from lmtool.system.terminal import first_use_announced, only_table


def run_command(verb: str, config: Any, session: Any) -> Any:
    """Run a verb with its settings in a session, with its number of threads, and return the result."""
    for key in ("run", "runs", "run_out", "like", "paths"):
        given = getattr(config, key, None)
        if given is not None and "hub:" in str(given):
            from lmtool.runs.hub import local_run

            setattr(config, key, local_run(given) if isinstance(given, str) else [local_run(each) for each in given])
    module, name = ("ask", verb) if verb in ("predict", "generate", "neighbors") else (verb, "run")
    session.use_threads(config.threads)  # before numpy and numba, which read it when they are imported
    command = getattr(import_module(f"lmtool.commands.{module}"), name)
    shown = session.progress and "numba" in sys.modules
    written = {getattr(config, key, None) for key in ("to", "filter")}
    with first_use_announced(shown=shown), only_table("-" if "-" in written else None):
        return command(config, session)
