"""lmtool's models in EleutherAI's lm-evaluation-harness, as `--model lmtool`; the extra `harness` installs it.

The harness does not find models of other packages: `python -m lmtool.harness` is its command `lm_eval` with this model.
Lines are sentences, each read alone: of the context, only the last line is read. `</s>` is scored after each line of a
continuation that a newline ends, and after the last one if the context is empty, as for whole sentences (BLiMP); blank
lines have none, unless they are sentences in the run's data.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np

from lmtool.commands import settings_for
from lmtool.config.rules import require
from lmtool.data.oov import text_warning
from lmtool.data.printed_words import sentence_cutter
from lmtool.data.split import Split
from lmtool.errors import UserError, escape_controls, prefix_user_errors
from lmtool.evaluation.metrics import require_no_cache
from lmtool.runs.load import load_each
from lmtool.system.arrays import IntArray

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError:
    REMEDY = 'lmtool.harness needs lm-eval: pip install "lmtool[harness]"'
    if __name__ == "__main__":
        print(f"lmtool: {REMEDY}", file=sys.stderr)
        sys.exit(2)
    raise UserError(REMEDY) from None

MAX_NEW_TOKENS = 256  # of generate_until, unless the task says otherwise


@register_model("lmtool")
class LmtoolLM(LM):  # type: ignore[misc]
    """A run or an ARPA file as a model of the harness.

    eos: whether `</s>` is scored after a continuation; "auto": after an empty context. batch_size, max_batch_size: of
    the harness, not used. settings: of `lmtool pairs`: run, arpa, words, keep_punctuation, lowercase, device,
    store_dir.
    """

    def __init__(
        self, eos: bool | str = "auto", batch_size: Any = None, max_batch_size: Any = None, **settings: Any
    ) -> None:
        """Raises UserError for a mistake in a setting, and for a model with a cache."""
        super().__init__()
        require(eos in (True, False, "auto"), "eos", eos, "True, False or auto")
        config = settings_for("pairs", **settings)
        _, model = next(load_each(config))
        self.text_model, self._eos, self._seeds = model, eos, count()
        require_no_cache(model.model, model.name)
        self._cut = sentence_cutter(model.form, config.words, keep_punctuation=config.keep_punctuation)

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Return natural log p of each continuation after its context, and whether its tokens are the most likely,
        which a word outside the vocabulary never is. Raises UserError, naming the request, for `<s>` and `</s>` in it.
        """
        text, totals, tokens = self._scores([request.args for request in requests])
        found = list(zip(totals, self._are_greedy(text, tokens), strict=True))
        for request, answer in zip(requests, found, strict=True):
            self.cache_hook.add_partial("loglikelihood", request.args, answer)
        return found

    def _scores(self, requests: list[tuple[str, str]]) -> tuple[Split, list[float], list[list[int]]]:
        """Return contexts and continuations as a text, and of each continuation log p and the places of its tokens."""
        sentences: list[list[str]] = []
        scored: list[tuple[int, int, int]] = []  # request, and the limits of the scored tokens in its sentence
        for number, (context, continuation) in enumerate(requests):
            with prefix_user_errors(f"request {number:,}, {continuation[:40]!r}"):
                for words, first, last in self._sentences(context, continuation):
                    sentences.append(words)
                    scored.append((number, first, last))
        text, sizes = self.text_model.encoded(sentences)
        log_probs = self.text_model.model.score_text(text) if text.tokens else np.empty(0)
        about = len(text.oov_positions), text.tokens, text.oov_words or [], self.text_model.vocabulary
        for warning in text_warning("the requests", *about):
            warnings.warn(warning, stacklevel=3)
        totals = np.zeros(len(requests))
        tokens: list[list[int]] = [[] for _ in requests]  # their places in the text
        for (number, first, last), start in zip(scored, np.cumsum([0, *sizes]).tolist(), strict=False):
            totals[number] += log_probs[start + first : start + last].sum()
            tokens[number] += range(start + first, start + last)
        return text, totals.tolist(), tokens

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Return natural log p of each text, with a `</s>` after each line, like `lmtool score`."""
        return self._scores([("", request.args[0].removesuffix("\n") + "\n") for request in requests])[1]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Return the most likely continuation of each context, word by word, or a sample with `do_sample` (by `seed`,
        else a different one each time), up to the end of the sentence, one of the texts of `until`, or `max_gen_toks`
        tokens: words, pieces or characters. A new word after a context begins with a space.
        """
        model, texts = self.text_model, []
        for number, (context, settings) in enumerate(request.args for request in requests):
            with prefix_user_errors(f"request {number:,}, {context[-40:]!r}"):
                before = self._cut(self._last_line(context))
                (text,) = model.generate(
                    before,
                    count=1,
                    length=int(settings.get("max_gen_toks", MAX_NEW_TOKENS)),
                    temperature=float(settings.get("temperature", 1)) if settings.get("do_sample") else 0.0,
                    seed=next(self._seeds) if settings.get("seed") is None else int(settings["seed"]),
                    oov="unk",
                )
                text = text.removeprefix(model.form.join(model.ids(before, "unk").tolist()))
            text = text if model.form.chars or context[-1:].strip() else text.removeprefix(" ")
            until = settings.get("until") or []
            for end in [until] if isinstance(until, str) else until:
                text = text.partition(end)[0] if end else text
            texts.append(text)
        return texts

    def _last_line(self, context: str) -> str:
        return context if not self.text_model.vocabulary.sentences else context.rpartition("\n")[2]

    def _sentences(self, context: str, continuation: str) -> list[tuple[list[str], int, int]]:
        """Return the words of each sentence to score, and the limits of the tokens of the continuation in it."""
        form, last_line = self.text_model.form, self._last_line(context)
        has_end = form.vocabulary.eos is not None
        before = form.words(self._cut(last_line))
        lines = continuation.split("\n") if form.vocabulary.sentences else [continuation]
        lines[0] = lines[0] if before else lines[0].lstrip()
        ended = (not context.strip() if self._eos == "auto" else bool(self._eos)) and has_end
        if len(lines) > 1 and not lines[-1].strip():  # the newline has ended the line before
            lines, ended = lines[:-1], has_end
        found = []
        for number, line in enumerate(lines, start=1):
            words = before + form.words(self._cut(line))
            first, last = len(form.tokens(before)), len(form.tokens(words))
            if words or form.blank_lines or "\n" not in continuation:
                found.append((words, first, last + ((has_end and number < len(lines)) or ended)))
            before = []
        return found

    def _are_greedy(self, text: Split, tokens: list[list[int]]) -> list[bool]:
        """Return whether all tokens of each request are the most likely ones, and none an OOV: the next token is looked
        at only if all before are, so that a distribution is computed for few contexts.
        """
        unknown, position = set(text.oov_positions.tolist()), 0
        greedy = [bool(places) and unknown.isdisjoint(places) for places in tokens]
        while at := [number for number, places in enumerate(tokens) if greedy[number] and position < len(places)]:
            contexts, targets = self.text_model.model.contexts_of(text, np.array([tokens[n][position] for n in at]))
            unique, place = np.unique(contexts, axis=0, return_inverse=True)
            best: IntArray = self.text_model.model.argmax(unique)[place.reshape(-1)]
            for number, is_best in zip(at, (best == targets).tolist(), strict=True):
                greedy[number] = is_best
            position += 1
        return greedy


def main() -> int:
    """Run the command of lm-eval; a UserError is one line and exit code 2."""
    from lm_eval.__main__ import cli_evaluate

    try:
        cli_evaluate()
    except UserError as error:
        print(escape_controls(f"lmtool: {error}"), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
