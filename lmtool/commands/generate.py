"""`lmtool generate`: run -> texts sampled from it."""

from __future__ import annotations

from omegaconf import DictConfig

from lmtool.config.model_verbs import GenerateConfig
from lmtool.config.settings import typed
from lmtool.runs.run import run_folder
from lmtool.session import output_dir, use_threads
from lmtool.system.files import write_json


def run(composed: DictConfig) -> float | None:
    """Print texts sampled from the model of a run, one a line, or separated by empty lines where texts have several."""
    config = typed(composed, GenerateConfig)
    from lmtool.runs.load import load

    use_threads(config.threads)
    out = output_dir()
    folder = run_folder(config.run)
    model = load(folder, config.device, store_dir=config.store_dir)
    texts = model.generate(
        config.text,
        count=config.count,
        length=config.length,
        temperature=config.temperature,
        top_k=config.top_k,
        top_p=config.top_p,
        seed=config.seed,
        sentence_start=config.sentence_start,
        oov=config.oov.value,
    )
    print(f"run {folder}\n")
    print(("\n\n" if any("\n" in text for text in texts) else "\n").join(texts))
    write_json(out / "result.json", {"run": str(folder), "seed": config.seed, "texts": texts})
    return None
