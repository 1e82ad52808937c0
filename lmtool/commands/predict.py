"""`lmtool predict`: run + text -> the most probable next words."""

from __future__ import annotations

import math
import sys

from omegaconf import DictConfig

from lmtool.config.model_verbs import PredictConfig
from lmtool.config.settings import typed
from lmtool.errors import UserError
from lmtool.runs.run import run_folder
from lmtool.session import output_dir, use_threads
from lmtool.system.files import write_json


def run(composed: DictConfig) -> float | None:
    """Print the most probable words after a text, or after each line of standard input."""
    config = typed(composed, PredictConfig)
    from lmtool.data.text_form import visible
    from lmtool.runs.load import load
    from lmtool.system.tables import text_table

    use_threads(config.threads)
    out = output_dir()
    texts = [config.text] if config.text is not None else input_lines('lmtool predict "the cat sat on"')
    folder = run_folder(config.run)
    model = load(folder, config.device, store_dir=config.store_dir)
    print(f"run {folder}")
    answers = []
    for number, text in enumerate(texts, start=1):
        try:
            predicted = model.predict(text, config.top, sentence_start=config.sentence_start, oov=config.oov.value)
        except UserError as error:
            raise UserError(f"line {number}: {error}" if config.text is None else str(error)) from None
        rows = [(word, p, math.log10(p)) for word, p in predicted]
        if config.text is None:
            print(f"\n{text}")
        print(
            text_table(
                ["rank", "word", "probability", "log10 p"], [[k, visible(w), *n] for k, (w, *n) in enumerate(rows, 1)]
            )
        )
        answers.append({"text": text, "words": [{"word": w, "probability": p, "log10": log} for w, p, log in rows]})
    if not model.model.normalised:
        print("note: these scores do not sum to one")
    write_json(out / "result.json", {"run": str(folder), "contexts": answers})
    return None


def input_lines(example: str) -> list[str]:
    """The lines of standard input, without their line ends. example: a command line for the error message.

    Raises UserError where standard input is a terminal, has no line, or is not UTF-8.
    """
    missing = UserError(f"text has no value: give one, as {example}, or one a line on standard input")
    if sys.stdin is None or sys.stdin.isatty():
        raise missing
    try:
        lines = [line.rstrip("\r\n") for line in sys.stdin]
    except UnicodeDecodeError as error:
        raise UserError(f"standard input is not UTF-8 text ({error.reason} at byte {error.start})") from None
    if not lines:
        raise missing
    return lines
