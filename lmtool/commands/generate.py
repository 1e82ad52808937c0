"""`lmtool generate`: run -> sampled texts."""

from __future__ import annotations

from dataclasses import dataclass

from lmtool.config.data import Oov
from lmtool.config.rules import MISSING, setting
from lmtool.config.verbs import ModelUserConfig, Sampling
from lmtool.session import Session
from lmtool.system.files import write_json


@dataclass(slots=True)
class Settings(ModelUserConfig, Sampling):
    """Settings of `lmtool generate`."""

    text: str = setting(prose=True, bare=True)
    count: int = setting(min=1)
    length: int = setting(min=1)
    seed: int | None = setting(min=0)
    sentence_start: bool = MISSING
    oov: Oov = MISSING


def run(settings: Settings, session: Session) -> None:
    """Print texts sampled from the model of a run, one a line, or separated by empty lines if texts have several."""
    from lmtool.runs.load import load_named
    from lmtool.text_model import random_seed

    model = load_named(settings.run, settings.arpa, settings.device)
    seed = random_seed() if settings.seed is None else settings.seed
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
    session.say(f"run {model.name}, seed={seed}\n")
    session.say(("\n\n" if any("\n" in text for text in texts) else "\n").join(texts), exact=True)
    write_json(session.out / "result.json", {"run": model.name, "seed": seed, "texts": texts})
