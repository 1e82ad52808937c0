"""Run a verb with Python's values: what all functions of this folder share."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, cast

from lmtool.commands import bare_setting, settings_of, verb_setting_types
from lmtool.config.options import folder_in_use
from lmtool.config.request import OUT, Request
from lmtool.config.rules import require, require_flags, require_path
from lmtool.config.settings import data_settings
from lmtool.config.types import SettingType
from lmtool.errors import UserError, translate_path_errors
from lmtool.requests.compose import compose_request
from lmtool.requests.run import run_composed_command
from lmtool.requests.words import RESUME, resume_training_request
from lmtool.results.runs import MixedRun, RunResult, TrainedRun
from lmtool.session import IfRunExists, Session, on_terminal
from lmtool.system.files import make_folder
from lmtool.system.parallel import restore_threads
from lmtool.system.process import require_environment
from lmtool.system.terminal import in_notebook
from lmtool.text_model import TextModel

# Settings that name runs and models.
MODEL_SETTINGS = {"run", "runs", "run_out", "arpa", "ngrams_from", "paths", "resume"}
Option = str | Mapping[str, Any]  # name of an option, or its settings with the name under "kind"
RunLike = str | PathLike[str] | TrainedRun | MixedRun | TextModel
Callback = Callable[[dict[str, Any]], object]
T = TypeVar("T")


def as_text_model(run: RunLike, device: str, options: Any) -> TextModel:
    if isinstance(run, TextModel):
        return run
    from lmtool.runs.load import load

    return load(folder_of(run), device, options=options)


def run_verb(
    kind: type[T],
    verb: str,
    settings: Mapping[str, Any],
    out: str | PathLike[str] | None,
    progress: bool | None,
    *,
    callback: Callback | None = None,
    if_run_exists: IfRunExists = None,
    command: Callable[[Any, Session], object] | None = None,
) -> T:
    """Run a verb and return its result, of a kind. out: None: a new folder if it is kept, else a temporary one.
    if_run_exists: as in Session. command: what is run instead of the verb's own command, with its settings.
    """
    require_environment()
    out = output_folder(out)
    require(callback is None or callable(callback), "callback", f"{callback!r:.40}", "a function")
    with restore_threads(), ExitStack() as stack:
        stack.enter_context(folder_in_use(settings.get("options")))
        request = Request.from_arguments(verb, normalize_arguments(verb, settings))
        resumed = request.values.get(RESUME)
        if resumed and if_run_exists != "resume":  # else a cell that is run again names all
            request = resume_training_request(Path(resumed), request).updated(request)
        composition, composed_settings = compose_request(request)
        named_folder = out if out is not None else request.values.get(OUT)
        is_kept = named_folder is not None or keeps_output(verb, settings)
        if named_folder is not None:
            folder = Path(named_folder)
        elif is_kept:
            folder = new_folder("outputs", verb)
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lmtool-")))
        make_folder(folder)
        warning_texts: list[str] = []
        result = run_composed_command(
            composition,
            composed_settings,
            folder,
            command=command,
            progress=shows_progress(progress),
            on_evaluation=callback,
            if_run_exists=if_run_exists,
            quiet=True,
            keeps_output=is_kept,
            warnings=warning_texts,
        )
        for text in warning_texts:
            warnings.warn(text, stacklevel=3)  # by default shown once for a line of a program or of a notebook
        return cast(T, result)  # another one of the verb's results if a setting or preset asks for it


def output_folder(out: str | PathLike[str] | None) -> Path | None:
    """Return the output folder that an argument names; None for None. Raises UserError if it cannot be one."""
    require_path("out", out)
    if out is None:
        return None
    path = os.path.expanduser(out)
    if not str(out) or os.path.isfile(path):  # Path.is_file raises an error for a name that is too long
        raise UserError(f"out={str(out)!r}: {'is a file' if str(out) else 'names nothing'}: choose a folder")
    return Path(path)


def keeps_output(verb: str, settings: Mapping[str, Any]) -> bool:
    """Return whether the output folder is kept if nobody names it: it is the result, unless to= names a file."""
    return bool(settings_of(verb).makes) and settings.get("to") is None


def overwrite_mode(overwrite: bool, out: str | PathLike[str] | None, settings: Mapping[str, Any]) -> IfRunExists:
    """Return what to do if `out` holds a run. Raises UserError if one of the runs that are read would be replaced."""
    require_flags(overwrite=overwrite)
    if overwrite and out is not None:
        runs_read = [settings[key] for key in MODEL_SETTINGS if settings.get(key) is not None]
        sources = [each for value in runs_read for each in (value if _is_list(value) else [value])]
        if Path(out).resolve() in [folder_of(each).resolve() for each in sources]:
            raise UserError(f"out={out} is a run that is read: choose another folder to write to")
    return "overwrite" if overwrite else None


@contextmanager
def restore_logging() -> Iterator[None]:
    """Run the block without the root logger's handlers, as Hydra configures logging for its jobs, and restore them."""
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


def normalize_arguments(verb: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are not None, with paths instead of runs and models, and data= and store_dir= instead of
    a Corpus. run= may be a list where the verb has runs=, and a file where it has arpa=.
    """
    from lmtool.data.corpus import Corpus
    from lmtool.data.preprocess import settings_json

    values = {key: value for key, value in settings.items() if value is not None}
    verb_types, bare, run = verb_setting_types(verb), bare_setting(verb), values.get("run")
    if "runs" in verb_types and _is_list(run):
        values["runs"] = values.pop("run")
    if bare is not None and bare[1] and isinstance(values.get(bare[0]), str | PathLike | RunResult | TextModel):
        values[bare[0]] = [values[bare[0]]]
    for key, type_ in verb_types.items():
        if type_.item is not None and type_.rule is not None and type_.rule.prose and isinstance(values.get(key), str):
            values[key] = [values[key]]
    for key in (key for key in values if is_model_setting(key, verb_types)):
        given = values[key]
        if (listed := verb_types[key].item is not None) and not _is_list(given):
            raise UserError(f"{key}={given!r:.40}: give a list, e.g. [{given!r:.40}]")
        values[key] = [str(folder_of(each)) for each in given] if listed else str(folder_of(given))
    with translate_path_errors():
        if "arpa" in verb_types and "run" in values and Path(values["run"]).is_file():
            values["arpa"] = values.pop("run")
    if isinstance(run, RunResult) and run.store_dir:
        values.setdefault("store_dir", run.store_dir)
    text = verb_types.get("text", SettingType())
    reads_files = text.rule is None or not text.rule.prose
    if reads_files and not isinstance(value := values.get("text"), str | PathLike | None):
        raise UserError(f"text={value!r:.40}: must be the path of a file; evaluate and surprisal take sentences")
    corpus = values.get("data")
    if isinstance(corpus, Corpus):
        values["data"] = json.loads(settings_json(data_settings(corpus.provenance)))
        values["store_dir"] = str(corpus.path.parent)
    return values


def is_model_setting(key: str, verb_types: Mapping[str, SettingType]) -> bool:
    return key in MODEL_SETTINGS and key in verb_types and verb_types[key].may_be_text


def folder_of(run: RunLike) -> Path:
    """Return the folder or file of a run given in any form of RunLike."""
    if isinstance(run, RunResult):
        return run.folder
    if isinstance(run, TextModel):
        return Path(run.name)
    if isinstance(run, str | PathLike):
        return Path(run)
    raise UserError(f"{run!r:.40}: name a run by its folder, or pass the result of train, ensemble or load")


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def shows_progress(wanted: bool | None) -> bool:
    """Return whether to show progress bars: `wanted`, or if it is None, only on a terminal and in notebooks."""
    require_flags(progress=wanted is not None and wanted)
    return on_terminal() or in_notebook() if wanted is None else wanted


def new_folder(top: str, verb: str) -> Path:
    return Path(top) / verb / f"{datetime.now():%Y-%m-%d_%H-%M-%S.%f}"
