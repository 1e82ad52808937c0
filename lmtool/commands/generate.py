"""`lmtool generate`: run -> sampled texts."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from lmtool.config.data import Oov
from lmtool.config.rules import MISSING, setting
from lmtool.config.verbs import ModelUserConfig, Sampling
from lmtool.results import base
from lmtool.session import Session


@dataclass(slots=True)
class Settings(ModelUserConfig, Sampling):
    text: str = setting(prose=True, bare=True)
    count: int = setting(min=1)
    length: int = setting(min=1)
    seed: int | None = setting(min=0)
    sentence_start: bool = MISSING
    oov: Oov = MISSING


@dataclass(repr=False)
class GenerateResult(base.Result):
    """The result of `generate`: texts, sampled from a run with a seed."""

    title = "run {0.run}, seed={0.seed}"

    run: str
    seed: int
    texts: list[str]

    def table_text(self) -> str:
        return ("\n\n" if any("\n" in text for text in self.texts) else "\n").join(self.texts)

    def as_table(self) -> base.Table:
        return ["text"], [[text] for text in self.texts]


def run(settings: Settings, session: Session) -> GenerateResult:
    """Sample texts from the model of a run, and print them.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> lmtool.generate("the", run, count=2, seed=1).texts
    ['the cat', 'the cat sat']
    """
    from lmtool.runs.load import load_named

    model = load_named(settings.run, settings.arpa, settings.device)
    seed = secrets.randbelow(1 << 31) if settings.seed is None else settings.seed
    texts = model.generate(
        settings.text,
        count=settings.count,
        length=settings.length,
        temperature=settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
        seed=seed,
        sentence_start=settings.sentence_start,
        oov=settings.oov.value,
    )
    result = GenerateResult(model.name, seed, texts)
    session.say(f"{result.heading()}\n")
    session.say(result.table_text(), exact=True)
    session.save_result(result)
    return result
