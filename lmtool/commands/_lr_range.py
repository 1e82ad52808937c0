"""`lmtool train lr_range=true`: the learning-rate range test (Smith 2017); the model is not saved."""

from __future__ import annotations

from dataclasses import asdict

from lmtool.config.training import Forms
from lmtool.config.verbs import TrainConfig
from lmtool.data.split import Split, StoredTokens
from lmtool.errors import UserError
from lmtool.neural.forms import only_plain
from lmtool.neural.model import NeuralModel
from lmtool.plots import can_plot
from lmtool.results import RateTest
from lmtool.runs.run import RATES, start_of
from lmtool.session import Session
from lmtool.system.files import write_json
from lmtool.training.batches import Batches
from lmtool.training.lr_range_test import range_test
from lmtool.training.optimizers import make_optimizers, use_gradients


def try_rates(config: TrainConfig, model: NeuralModel, train_split: Split | StoredTokens, session: Session) -> RateTest:
    """Run the range test and propose a rate; write lr_range.json and, with matplotlib, lr_range.png.

    Raises UserError if the loss diverges within 10 steps.
    """
    assert config.training is not None and config.optim is not None, "each neural conf/model/*.yaml chooses them"
    low, high = config.lr_range_limits
    use_gradients(model, config.training.embedding_gradients)
    batches = Batches(train_split, config.training.batch_size, model.context_size, config.seed, device=model.device)
    with only_plain(config.training.forms is Forms.plain):
        test = range_test(
            model,
            make_optimizers(model, config.optim),
            iter(batches),
            limits=(low, high),
            steps=config.lr_range_steps,
            max_grad_norm=config.training.max_grad_norm,
        )
    if len(test.rates) < 10:
        raise UserError(f"lr_range_limits={[low, high]}: the loss diverged within 10 steps; choose a lower first rate")
    out = session.out
    write_json(out / RATES, asdict(test))
    result = RateTest(test.rates, test.losses, test.smoothed, test.proposed, notes=session.notes)
    session.say(f"{result.table_text()}\n\n{result.heading()}; in {out / RATES}")
    if test.doubt:
        session.note(f"lr_range_limits={[low, high]}: {test.doubt}")
    if can_plot():
        from lmtool.plots.charts import loss_against_rate
        from lmtool.plots.style import save_png

        title = f"optim={config.optim.kind}, data={config.data.name}"
        figure = loss_against_rate(test.rates, test.losses, test.smoothed, test.proposed, title, start_of(test.rates))
        save_png(figure, out / "lr_range.png")
        session.say(f"drawn in {out / 'lr_range.png'}")
    return result
