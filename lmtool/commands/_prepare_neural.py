"""Prepare the training of a neural model: checkpoint, store, complete settings, tree and network."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from lmtool.commands._settings import NetworkTrainingConfig
from lmtool.config.groups import EncoderConfig
from lmtool.config.settings import settings_as_json
from lmtool.config.training import BATCH_SIZE, ROWS, Precision, default_batch_size
from lmtool.data.corpus import Corpus
from lmtool.data.oov import report_splits
from lmtool.data.preprocess import preprocess
from lmtool.data.text_files import also_below
from lmtool.errors import UserError
from lmtool.evaluation.metrics import require_questions
from lmtool.neural.build import build_neural
from lmtool.neural.devices import has_bf16
from lmtool.neural.model import NeuralModel
from lmtool.neural.outputs.options import DrawnOutput
from lmtool.results.base import CLOZE_METRIC
from lmtool.runs.corpus import require_splits
from lmtool.runs.load import tree_words
from lmtool.runs.resume import find_changes, require_same, restore_settings, save_request, saved_request
from lmtool.runs.run import Run, has_state
from lmtool.runs.weights import TREE, load_tree, save_tree
from lmtool.session import Session
from lmtool.training.plan import budget_done, learning_rate
from lmtool.training.processes import Processes
from lmtool.training.state import TrainingState, load_state, remove_unfinished
from lmtool.trees.tree import Tree

# Settings of the invocation rather than of the training, which a checkpoint does not keep.
UNSAVED_SETTINGS = {"resume", "metric", "lr_range", "lr_range_limits", "lr_range_steps", "store_dir", "options"}


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a training needs besides its settings.

    about: plain values that identify the model and the data.
    checkpoint: the state to resume from; None: the training starts from scratch.
    """

    corpus: Corpus
    network: NeuralModel
    about: dict[str, Any]
    checkpoint: TrainingState | None


@contextmanager
def prepare(
    settings: NetworkTrainingConfig,
    model: EncoderConfig,
    session: Session,
    device: torch.device,
    processes: Processes,
) -> Iterator[Prepared]:
    """Load the checkpoint, complete the settings and build the network. The corpus is open until the block ends."""
    training = settings.training
    assert training is not None, "each neural conf/model/*.yaml chooses one"
    checkpoint = _load_checkpoint(settings, session, processes)
    if training.precision is Precision.bf16 and not has_bf16(device):
        session.note(f"training.precision=bf16: this {device.type} has no bf16 units; fp32 may be faster")
    last_request = saved_request(session.out) if settings.resume is not None else None
    started_in = "" if last_request is None else last_request.started_in
    if started_in:
        session = replace(session, request=replace(session.request, started_in=started_in))
    with also_below(started_in), _corpus(settings, session, processes) as corpus:
        require_splits(corpus, "train", "valid")
        if training.keep_best == "cloze":
            require_questions(corpus, "valid", "training.keep_best=cloze")
        if settings.metric == CLOZE_METRIC:
            require_questions(corpus, "valid", f"metric={CLOZE_METRIC}")
        if checkpoint is not None:
            # Settings that were removed from a cell that is run again are compared, not restored.
            removed = last_request.settings if last_request is not None and session.if_run_exists == "resume" else {}
            given = {**removed, **session.request.settings}
            restore_settings(settings, checkpoint.values["about"]["settings"], given)
        begun = {} if checkpoint is None else checkpoint.values["about"]["settings"]
        new_schedule = begun.get("schedule") != settings_as_json(settings)["schedule"]
        _complete_settings(settings, model, corpus, session, new_schedule=new_schedule)
        values = {key: value for key, value in settings_as_json(settings).items() if key not in UNSAVED_SETTINGS}
        about = {"settings": values, "store": corpus.fingerprint, "changes": []}
        if checkpoint is not None:
            _compare_with_checkpoint(checkpoint, about, settings, corpus, session)
        if processes.first and not settings.lr_range:
            _begin_run(session)
        tree = _tree(settings, corpus, session, processes, resumed=checkpoint is not None)
        torch.manual_seed(settings.seed)
        assert settings.output is not None, "_complete_settings has checked it"
        network = build_neural(model, settings.output, corpus.vocabulary, tree).to(device)
        if not settings.lr_range:
            sizes = network.parameter_sizes()
            parts = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
            session.say(f"parameters: {parts}; {sum(sizes.values()):,} in all")
        yield Prepared(corpus, network, about, checkpoint)


def _load_checkpoint(settings: NetworkTrainingConfig, session: Session, processes: Processes) -> TrainingState | None:
    """Load the checkpoint to resume from; None: train from scratch."""
    checkpoint, out = None, session.out
    if processes.first:
        remove_unfinished(out)
        if settings.lr_range and settings.resume is not None:
            raise UserError("lr_range=true tries rates on a new model: leave resume out")
        if settings.resume is None:
            session.require_new()
        if settings.resume is not None or (session.in_sweep and has_state(out)):
            checkpoint = load_state(out)
            if checkpoint is None:
                session.note(f"{out} has no checkpoint yet; its training starts from scratch")
            else:
                session.say(f"resuming {out} from step {checkpoint.values['progress']['step']:,}")
    checkpoint_of_all: TrainingState | None = processes.from_first(checkpoint)
    return checkpoint_of_all


def _corpus(settings: NetworkTrainingConfig, session: Session, processes: Processes) -> Corpus:
    if not processes.first:
        return Corpus.open(processes.from_first(""))
    first_dir = Path(session.request.started_in, settings.store_dir)
    store_dir = first_dir if settings.resume is not None and first_dir.is_dir() else settings.store_dir
    store = preprocess(settings.data, store_dir, progress=session.progress)
    processes.from_first(str(store.path))
    return Corpus(store)


def _complete_settings(
    settings: NetworkTrainingConfig, model: EncoderConfig, corpus: Corpus, session: Session, *, new_schedule: bool
) -> None:
    """Fill in the settings that depend on the text, and print notes on them. new_schedule: none of a checkpoint."""
    training, optim, output, schedule = settings.training, settings.optim, settings.output, settings.schedule
    assert training is not None and optim is not None and output is not None, "each conf/model/*.yaml chooses them"
    tokens, vocabulary = corpus.tokens("train"), corpus.vocabulary
    if vocabulary.sentences and vocabulary.eos is None:  # nothing in a context would say where a sentence begins
        if model.across_sentences:
            raise UserError("data.sentence_end=false: contexts stay within sentences; set model.across_sentences=false")
        model.across_sentences = False
    model.fill_in(settings.data.vocabulary.unit, tokens)
    if model.full_windows:
        across, valid = bool(model.across_sentences), corpus.split("valid")
        text = corpus.split("train").as_stream(across, model.context_reset_prob)
        whole = len(text.full_windows(model.context_size))
        scored = len(valid.as_stream(across).full_windows(model.context_size, "valid"))
        session.note(
            f"full windows: {whole:,} of the {tokens:,} tokens of train are examples, and valid perplexity is of "
            f"{scored:,} of {valid.tokens:,} tokens; lmtool eval scores all tokens"
        )
        tokens = whole
    optim.fill_in(output)
    if isinstance(output, DrawnOutput) and (fewer := output.fill_in(len(vocabulary) - 1)):
        session.note(fewer)
    report_splits(corpus, session.say, session.note, session.warn)
    usual, length = (ROWS, training.bptt) if model.recurrent else (BATCH_SIZE, 1)
    chosen = training.batch_size
    batch_size = chosen or default_batch_size(tokens, maximum=usual, length=length)
    training.batch_size, examples = batch_size, batch_size * length
    if new_schedule and not settings.lr_range and schedule is not None:
        if training.steps is not None:
            schedule.require_steps(training.steps, f"training.steps={training.steps}")
        if training.epochs is not None:
            # An upper bound: a split that is read in blocks has incomplete batches at their ends.
            steps = math.ceil(training.epochs * max(1, tokens // examples))
            budget = f"training.epochs={training.epochs:g} has {steps:,} steps of training.batch_size={examples}"
            schedule.require_steps(steps, budget)
    if examples > tokens:
        session.note(
            f"training.batch_size={batch_size}: train has {tokens:,} examples, all in one batch, so an epoch is "
            "one step, which learns little; training.batch_size=null chooses a size for short text"
        )
    elif chosen is None and batch_size < usual:
        session.note(
            f"training.batch_size={batch_size}, not {usual}, as train has only {tokens:,} examples: an epoch "
            f"has {tokens // examples} steps"
        )


def _compare_with_checkpoint(
    checkpoint: TrainingState, now: dict[str, Any], settings: NetworkTrainingConfig, corpus: Corpus, session: Session
) -> None:
    """Record and print the changes since a checkpoint; raise UserError for another store or one that is not allowed."""
    before, progress = checkpoint.values["about"], checkpoint.values["progress"]
    if before["store"] != now["store"]:
        raise UserError(
            f"{session.out} was trained on a different store from {corpus.path}: use the same data, or train from "
            "scratch in another folder"
        )
    by_hand = session.if_run_exists != "resume"
    require_same(before["settings"], now["settings"], session.out, by_hand=by_hand)
    training, optim, schedule = settings.training, settings.optim, settings.schedule
    assert training is not None and optim is not None and schedule is not None, "each conf/model/*.yaml chooses them"
    epochs, steps = checkpoint.values["batch"]["epoch"], progress["step"]
    done = budget_done(training, epochs=epochs, steps=steps, seconds=progress["clock"])
    if done >= 1 or (training.patience is not None and progress["waited"] >= training.patience):
        now.update(before)  # nothing will be trained
        return
    changes, notes = find_changes(before["settings"], now["settings"], steps)
    now["changes"] = before.get("changes", []) + changes
    session.note(*notes)
    rate = learning_rate(schedule, optim.lr, done=done, steps=steps, drops=progress["drops"])
    if changes and schedule.kind != "constant" and rate != optim.lr:
        session.note(
            f"the learning rate of the next step is {rate:.3g}: optim.lr is the highest rate of "
            f"schedule={schedule.kind}; schedule=constant keeps optim.lr"
        )


def _begin_run(session: Session) -> None:
    """Write the request, and mark a finished run in the folder as unfinished."""
    session.begin_writing()
    save_request(session.out, session.request)
    if (session.out / "run.json").exists():
        with suppress(UserError):  # a damaged file, which the end of the training replaces
            Run.open(session.out).save(unfinished=True)


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
