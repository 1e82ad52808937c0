"""Resolve runs and execute a command, for the functions of calls.py."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any

from lmtool.api.settings import compose, overrides_of
from lmtool.cli.arguments import CommandLine
from lmtool.cli.help_pages import config_dir_of
from lmtool.commands import command_of
from lmtool.config.model_verbs import SETTINGS
from lmtool.config.options import HOMES, folder_in_use
from lmtool.config.overrides import key_of, value_of
from lmtool.config.settings import data_settings, plain_values, typed
from lmtool.errors import UserError, of_paths
from lmtool.results import MixedRun, TrainedRun
from lmtool.runs.resume import TrainingStart
from lmtool.session import Session, on_terminal
from lmtool.system.files import make_folder
from lmtool.system.parallel import restore_threads
from lmtool.system.terminal import in_notebook
from lmtool.text_model import TextModel

RunLike = str | PathLike[str] | TrainedRun | MixedRun | TextModel
Callback = Callable[[dict[str, Any]], object]


def model_of(run: RunLike, device: str, store_dir: Any, options: Any) -> TextModel:
    """Return the model of a run given in any form of RunLike."""
    if isinstance(run, TextModel):
        return run
    from lmtool.runs.load import load

    return load(folder_of(run), device, store_dir=store_dir or store_dir_of(run), options=options)


def call(
    verb: str,
    settings: Mapping[str, Any],
    out: str | PathLike[str] | None,
    progress: bool | None,
    *,
    callback: Callback | None = None,
    keeps: bool = False,
) -> Any:
    """Run a command and return its result. keeps: whether its output folder is kept if `out` is None."""
    from lmtool.cli.line_checks import with_earlier_words
    from lmtool.cli.line_settings import with_current_names

    with of_paths(), restore_threads(), ExitStack() as stack:
        stack.enter_context(folder_in_use(settings.get("options")))
        line = with_current_names(with_earlier_words(CommandLine(verb, [], overrides_of(plain(settings)))))
        composed, choices = compose(line)
        config_dir = config_dir_of(line.flags)
        config = typed(composed, SETTINGS[verb], config_dir)
        resumed = next((value_of(word) for word in line.overrides if key_of(word) == "hydra.run.dir"), None)
        if out is not None or resumed is not None:
            folder = Path(out if out is not None else str(resumed))
        elif keeps:
            folder = new_folder("outputs", verb)
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lmtool-")))
        make_folder(folder)
        own = [word for word in line.overrides if key_of(word) != "hydra.run.dir"]
        session = Session(
            out=folder,
            begun=TrainingStart(own, None if config_dir is None else str(config_dir)),
            choices=choices,
            progress=shows_progress(progress),
            quiet=True,
            keeps=keeps or out is not None,
            on_evaluation=callback,
        )
        result = command_of(verb)(config, session)
        for warning in session.warnings:
            warnings.warn(warning, stacklevel=3)
        return result


@contextmanager
def logging_restored() -> Iterator[None]:
    """Restore Python's logging after the block, since Hydra configures it for its jobs."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        for handler in root.handlers:
            if handler not in handlers:
                handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are not None, with a Corpus replaced by the settings of its data and store_dir."""
    from lmtool.data.corpus import Corpus

    given = {key: value for key, value in settings.items() if value is not None}
    corpus = given.get("data")
    if isinstance(corpus, Corpus):
        given["data"] = plain_values(data_settings(corpus.provenance))
        given["store_dir"] = str(corpus.path.parent)
    return given


def is_option(key: str, value: Any) -> bool:
    return key in HOMES and isinstance(value, str)


def folder_of(run: RunLike) -> Path:
    """Return the folder or file of a run given in any form of RunLike."""
    if isinstance(run, TrainedRun | MixedRun):
        return run.folder
    if isinstance(run, TextModel):
        return Path(run.name)
    if isinstance(run, str | PathLike):
        return Path(run)
    raise UserError(f"{run!r}: name a run by its folder, or pass the result of train, ensemble or load")


def folders_of(runs: Sequence[RunLike]) -> list[str]:
    if isinstance(runs, str | PathLike) or not isinstance(runs, Sequence):
        raise UserError(f"runs={runs!r}: give a list, as [{runs!r}]")
    return [str(folder_of(run)) for run in runs]


def store_dir_of(run: RunLike) -> str | None:
    """Return the folder of the store that a run was made with, or None if it is unknown."""
    return run.store_dir if isinstance(run, TrainedRun | MixedRun) else None


def named_run(run: RunLike) -> dict[str, Any]:
    """Return the setting run=, and store_dir= if the folder of the run's store is known."""
    made_in = store_dir_of(run)
    return {"run": str(folder_of(run)), **({"store_dir": made_in} if made_in else {})}


def named_model(run: RunLike) -> dict[str, Any]:
    """Return the setting arpa= for a file, or else the settings of `named_run`."""
    path = folder_of(run)
    with of_paths():
        return {"arpa": str(path)} if path.is_file() else named_run(run)


def shows_progress(wanted: bool | None) -> bool:
    """Return whether to show progress bars: `wanted`, or if it is None, only on a terminal and in notebooks."""
    return on_terminal() or in_notebook() if wanted is None else wanted


def new_folder(top: str, verb: str) -> Path:
    """Return the path of a new folder, named as by the command line."""
    return Path(top) / verb / f"{datetime.now():%Y-%m-%d_%H-%M-%S.%f}"
