"""`lmtool predict`: run + text -> the most probable next words."""

from __future__ import annotations

import math
import sys

from lmtool.config.model_verbs import PredictConfig
from lmtool.errors import UserError
from lmtool.session import Session
from lmtool.system.files import write_json

SETTINGS = PredictConfig


def run(config: PredictConfig, session: Session) -> None:
    """Print the most probable words after a text, or after each line of standard input."""
    from lmtool.data.text_form import visible
    from lmtool.runs.load import load_named
    from lmtool.system.terminal import text_table

    session.use_threads(config.threads)
    texts = [config.text] if config.text is not None else input_lines('lmtool predict "the cat sat on"')
    model = load_named(config.run, config.arpa, config.device, config.store_dir)
    session.say(f"run {model.name}")
    answers = []
    for number, text in enumerate(texts, start=1):
        try:
            predicted = model.predict(text, config.top, sentence_start=config.sentence_start, oov=config.oov.value)
        except UserError as error:
            raise UserError(f"line {number}: {error}" if config.text is None else str(error)) from None
        rows = [(word, p, math.log10(p)) for word, p in predicted]
        if config.text is None:
            session.say(f"\n{text}")
        session.say(
            text_table(
                ["rank", "word", "probability", "log10 p"], [[k, visible(w), *n] for k, (w, *n) in enumerate(rows, 1)]
            )
        )
        answers.append({"text": text, "words": [{"word": w, "probability": p, "log10": log} for w, p, log in rows]})
    if not model.model.normalised:
        session.note("these scores do not sum to one")
    write_json(session.out / "result.json", {"run": model.name, "contexts": answers})


def input_lines(example: str) -> list[str]:
    """Return the lines of standard input, without their line ends. example: a command line for the error message.

    Raises UserError if standard input is a terminal, has no line, or is not UTF-8.
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
