"""What the verbs that use a model share: which run, the lines of standard input, a neural model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lmtool.errors import UserError
from lmtool.runs.run import newest

if TYPE_CHECKING:
    from lmtool.neural.model import NeuralModel
    from lmtool.text_model import TextModel


def run_folder(named: str | None) -> Path:
    """The run folder of `run=`, or the newest one. Raises UserError where there is none."""
    return Path(named) if named else newest()


def input_lines(example: str) -> list[str]:
    """The lines of standard input, without their ends.

    Raises UserError, with the example of a command line, where it is a terminal or has no line.
    """
    missing = UserError(f"text has no value: give one, as {example}, or one a line on standard input")
    if sys.stdin is None or sys.stdin.isatty():
        raise missing
    try:
        lines = [line.rstrip("\r\n") for line in sys.stdin]
    except UnicodeDecodeError as error:
        raise UserError(f"standard input is no UTF-8 text ({error.reason} at byte {error.start})") from None
    if not lines:
        raise missing
    return lines


def neural_model(loaded: TextModel, folder: Path) -> NeuralModel:
    """The neural model of a run. Raises UserError where it is none."""
    from lmtool.neural.model import NeuralModel

    if not isinstance(loaded.model, NeuralModel):
        raise UserError(f"{folder} is no neural model: words have no vectors in it; name one with run=PATH")
    return loaded.model
