"""`lmtool train` of a neural model: from scratch, or resumed from a checkpoint, by one process or several."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from operator import methodcaller
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from lmtool.commands._settings import NetworkTrainingConfig
from lmtool.config.groups import EncoderConfig, is_tied
from lmtool.config.rules import size_in_bytes
from lmtool.config.settings import settings_as_json
from lmtool.config.training import BATCH_SIZE, ROWS, Forms, Precision, default_batch_size
from lmtool.data.corpus import Corpus
from lmtool.data.oov import report_splits
from lmtool.data.preprocess import preprocess
from lmtool.data.split import Split, StoredTokens
from lmtool.data.text_files import also_below
from lmtool.errors import UserError
from lmtool.neural.build import build_neural
from lmtool.neural.devices import choose_device, has_bf16, repeatable
from lmtool.neural.forms import only_plain
from lmtool.neural.model import NeuralModel
from lmtool.neural.outputs.options import DrawnOutput
from lmtool.plots import can_plot
from lmtool.results import RateTest, TrainedRun
from lmtool.runs.corpus import require_splits, save_trained
from lmtool.runs.load import tree_words
from lmtool.runs.resume import require_same, restore_settings, save_request, saved_request
from lmtool.runs.run import METRICS, RATES, Run, has_state, start_of
from lmtool.runs.weights import TREE, load_tree, save_tree
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
from lmtool.training.state import TrainingState, load_state, remove_unfinished
from lmtool.trees.tree import Tree

# Settings of the invocation rather than of the training, which a checkpoint does not keep.
UNSAVED_SETTINGS = {"resume", "lr_range", "lr_range_limits", "lr_range_steps", "store_dir", "options"}


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
        out = Path(processes.from_first(str(session.out)))
        with folder_lock(out) if processes.first else nullcontext():
            if processes.first:
                remove_unfinished(out)
            return _run(settings, model, replace(session, out=out), device, processes, start)


def _run(
    settings: NetworkTrainingConfig,
    model: EncoderConfig,
    session: Session,
    device: torch.device,
    processes: Processes,
    start: float,
) -> TrainedRun | RateTest:
    training, out = settings.training, session.out
    assert training is not None, "each neural conf/model/*.yaml chooses one"
    state = _state_to_resume(settings, session, processes)
    if training.precision is Precision.bf16 and not has_bf16(device) and processes.first:
        session.note(f"training.precision=bf16: this {device.type} has no bf16 units; fp32 may be faster")
    begun = saved_request(out) if settings.resume is not None else None
    started_in = "" if begun is None else begun.started_in
    if started_in:
        session = replace(session, request=replace(session.request, started_in=started_in))
    with also_below(started_in), _corpus(settings, session, processes) as corpus:
        require_splits(corpus, "train", "valid")
        if state is not None:
            # Settings that were removed from a cell that is run again are compared, not restored.
            earlier = begun.settings if begun is not None and session.if_run_exists == "resume" else {}
            restore_settings(settings, state.values["about"]["settings"], {**earlier, **session.request.settings})
        tokens = corpus.tokens("train")
        model.fill_in(settings.data.vocabulary.unit, tokens)
        usual, length = (ROWS, training.bptt) if model.recurrent else (BATCH_SIZE, 1)
        batch_size = training.batch_size or default_batch_size(tokens, maximum=usual, length=length)
        optim, output, schedule = settings.optim, settings.output, settings.schedule
        assert optim is not None and output is not None, "each neural conf/model/*.yaml chooses both"
        optim.fill_in(output)
        fewer = output.fill_in(len(corpus.vocabulary) - 1) if isinstance(output, DrawnOutput) else ""
        training.batch_size, unchosen = batch_size, training.batch_size is None
        values = {key: value for key, value in settings_as_json(settings).items() if key not in UNSAVED_SETTINGS}
        if processes.first:
            session.note(*[fewer] if fewer else [])
            report_splits(corpus, session.say, session.note, session.warn)
        if state is None and not settings.lr_range and training.epochs is not None and schedule is not None:
            # An upper bound: a split that is read in blocks has incomplete batches at their ends.
            each = batch_size * length
            steps = math.ceil(training.epochs * max(1, tokens // each))
            budget = f"training.epochs={training.epochs:g} has {steps:,} steps of training.batch_size={each}"
            schedule.require_steps(steps, budget)
        if processes.first and batch_size * length > tokens:
            session.note(
                f"training.batch_size={batch_size}: train has {tokens:,} examples, all in one batch, so an epoch is "
                "one step, which learns little; training.batch_size=null chooses a size for short text"
            )
        elif processes.first and unchosen and batch_size < usual:
            session.note(
                f"training.batch_size={batch_size}, not {usual}, as train has only {tokens:,} examples: an epoch "
                f"has {tokens // (batch_size * length)} steps"
            )
        if state is not None:
            about = state.values["about"]
            if about["store"] != corpus.fingerprint:
                raise UserError(
                    f"{out} was trained on another store than {corpus.path}: use the same data, or train from scratch "
                    "in another folder"
                )
            session.note(*(require_same(about["settings"], values, out) if processes.first else []))
        if processes.first and not settings.lr_range:
            session.begin_writing()
            save_request(out, session.request)
            if (out / "run.json").exists():
                with suppress(UserError):  # a damaged file, which the end of the training replaces
                    Run.open(out).save(unfinished=True)
        tree = _tree(settings, corpus, session, processes, resumed=state is not None)
        torch.manual_seed(settings.seed)
        network = build_neural(model, output, corpus.vocabulary, tree).to(device)
        if processes.first and not settings.lr_range:
            sizes = {name: weight.numel() for name, weight in network.named_parameters()}
            parts = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
            session.say(f"parameters: {parts}; {sum(sizes.values()):,} in all")
        if settings.lr_range:
            train_split = _train_split(corpus, None, model)
            assert isinstance(train_split, Split), "it is kept in memory"
            return _try_rates(settings, network, train_split, session)
        assert schedule is not None, "each neural conf/model/*.yaml chooses one"
        about = {"settings": values, "store": corpus.fingerprint}
        options = training.trackers if processes.first else []
        with Trackers(options, out, about, resumed=state is not None, warn=session.warn) as trackers:

            def on_evaluation(line: dict[str, Any]) -> object:
                trackers.tell(lambda each: each.log(numbers_in(line | {"step": None}), line["step"]))
                return session.on_evaluation(line) if session.on_evaluation is not None else None

            trained = train(
                network,
                _train_split(corpus, training.memory, model),
                corpus.split("valid").as_stream(network.across_sentences),
                Plan(training, optim, schedule, settings.seed, about),
                out,
                processes=processes,
                resume=state,
                progress=session.progress,
                on_evaluation=on_evaluation,
            )
            if processes.first and state is not None and trained.steps == state.values["progress"]["step"]:
                session.note("the training budget is exhausted, nothing was trained: raise it, e.g. training.epochs=")
            if parallel.was_lowered():
                session.note(
                    "other processes needed the cores: some steps used fewer threads, so sums round differently than "
                    "in a run without them; threads=N keeps N threads, which takes longer on a busy machine"
                )
            run = TrainedRun(
                folder=out,
                store_dir=settings.store_dir,
                seconds=time.perf_counter() - start,
                options=session.choices,
                tied=is_tied(model, output),
                across_sentences=model.across_sentences or None,
                **asdict(trained),
            )
            if processes.first:
                if run.across_sentences:
                    session.say("valid was read as train was: contexts across sentences")
                _save(run, settings, values, corpus, session)
                if trackers.running and can_plot():
                    _give_pictures(trackers, out, settings, session)
                trackers.end(run.as_json())
    if processes.first:
        session.say(run.line())
    return run


def _state_to_resume(settings: NetworkTrainingConfig, session: Session, processes: Processes) -> TrainingState | None:
    state, out = None, session.out
    if processes.first:
        if settings.lr_range and settings.resume is not None:
            raise UserError("lr_range=true tries rates on a new model: leave resume out")
        if settings.resume is None:
            session.require_new()
        if settings.resume is not None or (session.in_sweep and has_state(out)):
            state = load_state(out)
            if state is None:
                session.note(f"{out} has no checkpoint yet; its training starts from scratch")
            else:
                session.say(f"resuming {out} from step {state.values['progress']['step']:,}")
    state_of_all: TrainingState | None = processes.from_first(state)
    return state_of_all


def _corpus(settings: NetworkTrainingConfig, session: Session, processes: Processes) -> Corpus:
    if not processes.first:
        return Corpus.open(processes.from_first(""))
    earlier = Path(session.request.started_in, settings.store_dir)
    store_dir = earlier if settings.resume is not None and earlier.is_dir() else settings.store_dir
    store = preprocess(settings.data, store_dir, progress=session.progress)
    processes.from_first(str(store.path))
    return Corpus(store)


def _tree(
    settings: NetworkTrainingConfig, corpus: Corpus, session: Session, processes: Processes, *, resumed: bool
) -> Tree | None:
    """Return the tree of the settings, or the tree that the resumed training was started with."""
    if settings.tree is None:
        return None
    if processes.first and not resumed:
        start = time.perf_counter()
        tree = settings.tree.build(tree_words(corpus))
        save_tree(tree, session.out / TREE)
        seconds = time.perf_counter() - start
        session.say(f"tree={settings.tree.kind}: {tree.words:,} words, {tree.nodes:,} nodes, {seconds:.1f} s")
    tree_of_all: Tree = processes.from_first(load_tree(session.out / TREE) if processes.first else None)
    return tree_of_all


def _train_split(corpus: Corpus, memory: str | None, model: EncoderConfig) -> Split | StoredTokens:
    if model.recurrent:
        return corpus.split("train")  # Streams joins the sentences
    across, reset_share = bool(model.across_sentences), model.context_reset_prob
    if memory is not None and corpus.bytes_in_memory("train") > size_in_bytes(memory, "training.memory"):
        return corpus.stored("train", across_sentences=across, reset_share=reset_share)
    return corpus.split("train").as_stream(across, reset_share)


def _save(
    result: TrainedRun, settings: NetworkTrainingConfig, values: dict[str, Any], corpus: Corpus, session: Session
) -> None:
    out, output = session.out, settings.output
    assert output is not None, "_run has checked it"
    if settings.resume is not None and (out / "result.json").exists():
        result.seconds += read_json(out / "result.json", "delete it", RESULT).get("seconds") or 0
    write_json(out / "result.json", result.as_json())
    save_trained(out, values, session.choices, corpus)
    if can_plot():
        from lmtool.plots.curves import read_history, training_curves
        from lmtool.plots.style import save_png
        from lmtool.report.reading import model_name

        title = f"{model_name(Run.open(out))}, data={settings.data.name}"
        history = read_history(out / METRICS, output.loss_is_log_prob)
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
    assert training is not None and optim is not None, "_run has checked both"
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
