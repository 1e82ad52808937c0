"""`lmtool generate`: run -> texts sampled from it."""

from __future__ import annotations

from lmtool.config.model_verbs import GenerateConfig
from lmtool.session import Session
from lmtool.system.files import write_json

SETTINGS = GenerateConfig


def run(config: GenerateConfig, session: Session) -> None:
    """Print texts sampled from the model of a run, one a line, or separated by empty lines where texts have several."""
    from lmtool.runs.load import load_named
    from lmtool.text_model import random_seed

    session.use_threads(config.threads)
    model = load_named(config.run, config.arpa, config.device, config.store_dir)
    seed = random_seed() if config.seed is None else config.seed
    texts = model.generate(
        config.text,
        count=config.count,
        length=config.length,
        temperature=config.temperature,
        top_k=config.top_k,
        top_p=config.top_p,
        seed=seed,
        sentence_start=config.sentence_start,
        oov=config.oov.value,
    )
    session.say(f"run {model.name}, seed={seed}\n")
    session.say(("\n\n" if any("\n" in text for text in texts) else "\n").join(texts), exact=True)
    write_json(session.out / "result.json", {"run": model.name, "seed": seed, "texts": texts})
