"""`lmtool train lr_range=true`: learning rates are tried, drawn and one is proposed; nothing is kept of the model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from lmtool.config.verbs import TrainConfig
from lmtool.data.corpus import Split
from lmtool.data.windows import StoredTokens
from lmtool.errors import UserError
from lmtool.neural.model import NeuralModel
from lmtool.plots import can_plot
from lmtool.system.files import write_json
from lmtool.system.tables import text_table
from lmtool.training.batches import Batches
from lmtool.training.lr_range_test import range_test
from lmtool.training.optimisers import make_optimisers

SHOWN = 12  # rows of the table


def try_rates(config: TrainConfig, model: NeuralModel, train_split: Split | StoredTokens, out: Path) -> None:
    """Run the range test of the settings; writes lr_range.json and, with matplotlib, lr_range.png."""
    assert config.training is not None and config.optim is not None, "each neural conf/model/*.yaml chooses them"
    low, high = config.lr_range_limits
    batches = Batches(train_split, config.training.batch_size, model.context_size, config.seed, device=model.device)
    found = range_test(
        model,
        make_optimisers(model, config.optim),
        iter(batches),
        limits=(low, high),
        steps=config.lr_range_steps,
        clip_norm=config.training.clip_norm,
    )
    if len(found.rates) < 10:
        raise UserError(f"lr_range_limits={[low, high]}: the loss was lost within 10 steps; begin lower")
    write_json(out / "lr_range.json", asdict(found))
    every = max(1, len(found.rates) // SHOWN)
    rows = [[rate, loss] for rate, loss in zip(found.rates[::every], found.smoothed[::every], strict=True)]
    print(text_table(["optim.lr", "loss, smoothed"], rows))
    print(
        f"\nproposed: optim.lr={found.proposed:.2g}, a tenth of where the loss was lowest; in {out / 'lr_range.json'}"
    )
    if can_plot():
        from lmtool.plots.lr_range import loss_against_rate
        from lmtool.plots.style import save_png

        title = f"optim={config.optim.kind}, data={config.data.name}"
        drawn = loss_against_rate(found.rates, found.losses, found.smoothed, found.proposed, title)
        save_png(drawn, out / "lr_range.png")
        print(f"drawn in {out / 'lr_range.png'}")
