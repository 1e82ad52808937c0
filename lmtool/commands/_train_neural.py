"""`lmtool train` of a neural model: from scratch, or resumed from a checkpoint, by one process or several."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from lmtool.commands._prepare_neural import Prepared, prepare
from lmtool.commands._settings import NetworkTrainingConfig
from lmtool.config.groups import EncoderConfig, is_tied
from lmtool.config.rules import size_in_bytes
from lmtool.config.training import Forms
from lmtool.data.corpus import Corpus
from lmtool.data.split import Split, StoredTokens
from lmtool.errors import UserError
from lmtool.evaluation.metrics import NEAR, cloze_results
from lmtool.neural.devices import choose_device, repeatable
from lmtool.neural.forms import only_plain
from lmtool.neural.model import NeuralModel
from lmtool.plots import can_plot
from lmtool.results import RateTest, TrainedRun
from lmtool.results.base import FULL_WINDOWS
from lmtool.runs.corpus import save_trained
from lmtool.runs.run import METRICS_FILE, RATES, Run, start_of
from lmtool.session import Session
from lmtool.system import parallel
from lmtool.system.files import read_json, write_json
from lmtool.system.lock import folder_lock
from lmtool.system.process import keep_freed_memory
from lmtool.system.schemas import RESULT
from lmtool.training.batches import make_batches
from lmtool.training.loop import train
from lmtool.training.optimizers import make_optimizers, range_test, use_gradients
from lmtool.training.plan import Plan
from lmtool.training.processes import Processes, joined_processes
from lmtool.training.reporting import Trackers, numbers_in


def train_neural(settings: NetworkTrainingConfig, model: EncoderConfig, session: Session) -> TrainedRun | RateTest:
    start = time.perf_counter()
    session.use_threads(settings.threads)  # torch's too, which has been imported now
    keep_freed_memory()
    device = choose_device(settings.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    repeating = repeatable(device, settings.training is not None and settings.training.deterministic)
    own_random = torch.random.fork_rng([device] if device.type == "cuda" else [])  # belong to the user in Python
    with own_random, repeating, joined_processes(device) as processes:
        session = replace(session, out=Path(processes.from_first(str(session.out))))
        if not processes.first:  # the first alone writes files and messages
            session = replace(session, quiet=True, notes=[], warnings=[])
        lock = folder_lock(session.out) if processes.first else nullcontext()
        with lock, prepare(settings, model, session, device, processes) as prepared:
            if settings.lr_range:
                train_split = _train_split(prepared.corpus, None, model)
                assert isinstance(train_split, Split), "it is kept in memory"
                return _try_rates(settings, prepared.network, train_split, session)
            run = _train(prepared, settings, model, session, processes, start)
        session.say(run.line())
        return run


def _train(
    prepared: Prepared,
    settings: NetworkTrainingConfig,
    model: EncoderConfig,
    session: Session,
    processes: Processes,
    start: float,
) -> TrainedRun:
    """Train and save the network. start: when the command began, by time.perf_counter."""
    training, optim, output, schedule = settings.training, settings.optim, settings.output, settings.schedule
    assert training is not None and optim is not None, "prepare has checked both"
    assert output is not None and schedule is not None, "each neural conf/model/*.yaml chooses both"
    out, corpus, network, checkpoint = session.out, prepared.corpus, prepared.network, prepared.checkpoint
    options = training.trackers if processes.first else []
    with Trackers(options, out, prepared.about, resumed=checkpoint is not None, warn=session.warn) as trackers:

        def on_evaluation(line: dict[str, Any]) -> object:
            trackers.tell(lambda each: each.log(numbers_in(line | {"step": None}), line["step"]))
            return session.on_evaluation(line) if session.on_evaluation is not None else None

        trained = train(
            network,
            _train_split(corpus, training.memory, model),
            corpus.split("valid").as_stream(network.across_sentences),
            Plan(training, optim, schedule, settings.seed, prepared.about),
            out,
            processes=processes,
            resume=checkpoint,
            progress=session.progress,
            on_evaluation=on_evaluation,
            cloze=partial(cloze_results, network, corpus, "valid"),
        )
        if checkpoint is not None and trained.steps == checkpoint.values["progress"]["step"]:
            session.note("the training budget is exhausted, nothing was trained: raise it, e.g. training.epochs=")
        if parallel.was_lowered():
            session.note(
                "some steps used fewer threads, as other processes used the cores: only the rounding of sums depends "
                "on it; threads=N always uses N, which takes longer on a busy machine"
            )
        run = TrainedRun(
            folder=out,
            store_dir=settings.store_dir,
            seconds=time.perf_counter() - start,
            options=session.choices,
            tied=is_tied(model, output),
            across_sentences=model.across_sentences or None,
            split=f"valid{FULL_WINDOWS}" if model.full_windows else None,
            keep_best=training.keep_best if training.keep_best == "cloze" else None,
            **asdict(trained),
        )
        if network.reads_near:
            session.note(NEAR)
        if run.across_sentences:
            session.say("valid was read as train was: contexts across sentences")
        if processes.first:
            _save(run, settings, prepared, session)
            if trackers.running and can_plot():
                _give_pictures(trackers, out, settings, session)
            trackers.end(run.as_json())
    return run


def _train_split(corpus: Corpus, memory: str | None, model: EncoderConfig) -> Split | StoredTokens:
    if model.recurrent:
        return corpus.split("train")  # Streams joins the sentences
    across, reset_share = bool(model.across_sentences), model.context_reset_prob
    memory = None if model.reads_near else memory
    if memory is not None and corpus.bytes_in_memory("train") > size_in_bytes(memory, "training.memory"):
        return corpus.stored("train", across_sentences=across, reset_share=reset_share)
    return corpus.split("train").as_stream(across, reset_share)


def _save(result: TrainedRun, settings: NetworkTrainingConfig, prepared: Prepared, session: Session) -> None:
    out, output = session.out, settings.output
    assert output is not None, "_train has checked it"
    if settings.resume is not None and (out / "result.json").exists():
        result.seconds += read_json(out / "result.json", "delete it", RESULT).get("seconds") or 0
    result.rank_by(settings.metric)
    session.save_result(result)
    save_trained(out, prepared.about, session.choices, prepared.corpus)
    if can_plot():
        from lmtool.plots.curves import read_history, training_curves
        from lmtool.plots.style import save_png
        from lmtool.report.reading import model_name

        title = f"{model_name(Run.open(out))}, data={settings.data.name}"
        history = read_history(out / METRICS_FILE, output.loss_is_log_prob, result.keep_best)
        save_png(training_curves(history, title), out / "curves.png")
    session.say(f"fast forms: {', '.join(result.forms)}" if result.forms else "computed by the plain formulas alone")


def _give_pictures(trackers: Trackers, out: Path, settings: NetworkTrainingConfig, session: Session) -> None:
    """Give the trackers the pictures of the run's report; if they cannot be drawn, print a warning."""
    from lmtool.commands import report, settings_for

    page = settings_for("report", paths=[str(out)], store_dir=settings.store_dir, threads=settings.threads)
    with TemporaryDirectory(prefix="lmtool-") as folder:
        try:
            report.run(page, Session(Path(folder), quiet=True))
        except UserError as error:
            session.warn(f"training.trackers: there are no pictures: {error}")
        for path in sorted(Path(folder).glob("*.png")):
            trackers.tell(methodcaller("picture", path.stem, path))


def _try_rates(settings: NetworkTrainingConfig, model: NeuralModel, train_split: Split, session: Session) -> RateTest:
    """Run the learning-rate range test (Smith 2017): propose a rate, and write lr_range.json and .png, but no model."""
    (low, high), training, optim = settings.lr_range_limits, settings.training, settings.optim
    assert training is not None and optim is not None, "prepare has checked both"
    if optim.per_example:
        raise UserError("lr_range=true tries rates of the mean gradient: set optim.per_example=false")
    use_gradients(model, training.embedding_gradients)
    batches = make_batches(train_split, training, model.encoder, settings.seed, model.device)
    with only_plain(training.forms is Forms.plain):
        test = range_test(
            model,
            make_optimizers(model, optim),
            iter(batches),
            limits=(low, high),
            steps=settings.lr_range_steps,
            max_grad_norm=training.max_grad_norm,
        )
    if len(test.rates) < 10:
        raise UserError(f"lr_range_limits={[low, high]}: the loss diverged within 10 steps; choose a lower first rate")
    write_json(session.out / RATES, asdict(test))
    result = RateTest(**asdict(test))
    session.say(f"{result.table_text()}\n\n{result.heading()}; in {session.out / RATES}")
    if test.doubt:
        session.note(f"lr_range_limits={[low, high]}: {test.doubt}")
    if can_plot():
        from lmtool.plots.charts import loss_against_rate
        from lmtool.plots.style import save_png

        title = f"optim={session.choices.get('optim', optim.kind)}, data={settings.data.name}"
        figure = loss_against_rate(test.rates, test.losses, test.smoothed, test.proposed, title, start_of(test.rates))
        save_png(figure, session.out / "lr_range.png")
        session.say(f"drawn in {session.out / 'lr_range.png'}")
    return result
