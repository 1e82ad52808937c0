"""Resolve runs and settings and execute a command, for the functions of calls.py."""

from __future__ import annotations

import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, cast

from lmtool.cli.running import composed, run_command_of
from lmtool.cli.words import RESUME, earlier_run
from lmtool.config.options import folder_in_use
from lmtool.config.request import OUT, Request
from lmtool.config.rules import require, require_flags, require_path
from lmtool.config.settings import data_settings
from lmtool.errors import UserError, of_paths
from lmtool.results import MixedRun, TrainedRun
from lmtool.session import Again, Session, on_terminal
from lmtool.system.files import make_folder
from lmtool.system.parallel import restore_threads
from lmtool.system.process import require_environment
from lmtool.system.terminal import in_notebook
from lmtool.text_model import TextModel

RunLike = str | PathLike[str] | TrainedRun | MixedRun | TextModel
Callback = Callable[[dict[str, Any]], object]
T = TypeVar("T")
_shown: set[tuple[str, str]] = set()


def model_of(run: RunLike, device: str, store_dir: Any, options: Any) -> TextModel:
    """Return the model of a run given in any form of RunLike."""
    if isinstance(run, TextModel):
        return run
    from lmtool.runs.load import load

    return load(folder_of(run), device, store_dir=store_dir or store_dir_of(run), options=options)


def call(
    kind: type[T],
    verb: str,
    settings: Mapping[str, Any],
    out: str | PathLike[str] | None,
    progress: bool | None,
    *,
    callback: Callback | None = None,
    keeps: bool = False,
    again: Again = None,
    command: Callable[[Any, Session], object] | None = None,
) -> T:
    """Run a command and return its result, of a kind. keeps: whether its output folder is kept if `out` is None. again:
    as in Session. command: what is run instead of the verb's own command, with its settings.
    """
    require_environment()
    require_path("out", out)
    if not isinstance(given := settings.get("text"), str | PathLike | None):
        raise UserError(f"text={given!r:.40}: must be the path of a file; evaluate and surprisal take sentences")
    require(callback is None or callable(callback), "callback", f"{callback!r:.40}", "a function")
    with restore_threads(), ExitStack() as stack:
        stack.enter_context(folder_in_use(settings.get("options")))
        request = Request.of_arguments(verb, plain(settings))
        if again != "resume" and (resumed := request.values.get(RESUME)):  # else a cell that is run again names all
            request = earlier_run(Path(resumed), request).updated(request)
        composition, composed_settings = composed(request)
        where = out if out is not None else request.values.get(OUT)
        if where is not None:
            folder = Path(where)
        elif keeps:
            folder = new_folder("outputs", verb)
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lmtool-")))
        make_folder(folder)
        warned: list[str] = []
        of_session: dict[str, Any] = {"progress": shows_progress(progress), "on_evaluation": callback, "again": again}
        result = run_command_of(
            composition,
            composed_settings,
            folder,
            command=command,
            quiet=True,
            keeps=keeps or out is not None,
            warnings=warned,
            **of_session,
        )
        warn_once(warned, [settings.get(name) for name in ("run", "runs", "arpa", "data", "text")])
        return cast(T, result)  # another one of the verb's results if a setting or preset asks for it


def warn_once(texts: Iterable[str], about: object, stacklevel: int = 4) -> None:
    """Show warnings that were not shown yet in this process of the same models and texts, as each cell of a notebook
    is a place of its own to Python. about: the models and texts.
    """
    for text in texts:
        if (text, str(about)) not in _shown:
            warnings.warn(text, stacklevel=stacklevel)
            _shown.add((text, str(about)))  # not if warnings are errors


def replacing(overwrite: bool, out: str | PathLike[str] | None, sources: Sequence[Path]) -> Again:
    """Return what to do if `out` holds a run. Raises UserError if one of the runs that are read would be replaced."""
    require_flags(overwrite=overwrite)
    if overwrite and out is not None and Path(out).resolve() in [path.resolve() for path in sources]:
        raise UserError(f"out={out} is a run that is read: choose another folder to write to")
    return "overwrite" if overwrite else None


@contextmanager
def logging_restored() -> Iterator[None]:
    """Run the block without the root logger's handlers, and restore them, as Hydra configures logging for its jobs: a
    handler of an earlier run may write into a folder that is gone.
    """
    root, raising = logging.getLogger(), logging.raiseExceptions
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        yield
    finally:
        for handler in root.handlers:
            if handler not in handlers:
                handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.raiseExceptions = raising


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are not None, with a Corpus replaced by the settings of its data and store_dir."""
    from lmtool.data.corpus import Corpus
    from lmtool.data.preprocess import settings_json

    given = {key: value for key, value in settings.items() if value is not None}
    corpus = given.get("data")
    if isinstance(corpus, Corpus):
        given["data"] = json.loads(settings_json(data_settings(corpus.provenance)))
        given["store_dir"] = str(corpus.path.parent)
    return given


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


def named_models(runs: RunLike | Sequence[RunLike]) -> dict[str, Any]:
    """Return the settings of one model, or runs= for a list of several."""
    if isinstance(runs, Sequence) and not isinstance(runs, str):
        return {"runs": folders_of(runs)}
    return named_model(runs)


def shows_progress(wanted: bool | None) -> bool:
    """Return whether to show progress bars: `wanted`, or if it is None, only on a terminal and in notebooks."""
    require_flags(progress=wanted is not None and wanted)
    return on_terminal() or in_notebook() if wanted is None else wanted


def new_folder(top: str, verb: str) -> Path:
    """Return the path of a new folder, named as by the command line."""
    return Path(top) / verb / f"{datetime.now():%Y-%m-%d_%H-%M-%S.%f}"
