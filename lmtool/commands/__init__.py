"""The commands: the function `run` of the module with the verb's name, or the function with its name in ask.py."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def command_of(verb: str) -> Callable[..., Any]:
    """Return the function that runs a verb with its settings and a session."""
    module, name = ("ask", verb) if verb in ("predict", "generate", "neighbors") else (verb, "run")
    command: Callable[..., Any] = getattr(import_module(f"lmtool.commands.{module}"), name)
    return command
