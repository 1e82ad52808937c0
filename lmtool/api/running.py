"""Resolve runs and settings and execute a command, for the functions of calls.py."""

from __future__ import annotations

import json
import logging
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, cast

from lmtool.cli.arguments import CommandLine
from lmtool.cli.help_pages import EXPERIMENT, config_dir_of
from lmtool.commands import run_command
from lmtool.config.model_verbs import SETTINGS
from lmtool.config.options import HOMES, conf_dir, folder_in_use
from lmtool.config.overrides import key_of, quoted, value_of
from lmtool.config.rules import as_written, require, require_flags, require_path, require_text
from lmtool.config.settings import choices_of, data_settings, typed
from lmtool.errors import UserError, of_paths
from lmtool.results import MixedRun, TrainedRun
from lmtool.runs.resume import TrainingStart
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
NAME = re.compile(r"[\w.-]+")
FOLDER = re.compile(r"(?P<command>lmtool \w+(?: -\S+| [^\s=]+=\S+)+)|hydra\.(?:run|sweep)\.dir\b")
ARGUMENT = re.compile(r"no key '(\w+)'; did you mean (\w+)\.(\w+)(?:, with \w+=\w+)?\?")
MAPPINGS = {"data.train", "data.downloads", "data.segmenter", "smoother.source_weights"}  # may have custom keys


def model_of(run: RunLike, device: str, options: Any) -> TextModel:
    """Return the model of a run given in any form of RunLike."""
    if isinstance(run, TextModel):
        return run
    from lmtool.runs.load import load

    return load(folder_of(run), device, options=options)


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
    from lmtool.cli.line_checks import with_earlier_words

    require_environment()
    require_path("out", out)
    if not isinstance(given := settings.get("text"), str | PathLike | None):
        raise UserError(f"text={given!r:.40}: must be the path of a file; evaluate and surprisal take sentences")
    require(callback is None or callable(callback), "callback", f"{callback!r:.40}", "a function")
    with of_paths(), said_in_python(), restore_threads(), ExitStack() as stack:
        stack.enter_context(folder_in_use(settings.get("options")))
        line = line_of(verb, [], settings)  # whole, if the cell that started a training is run again
        line = line if again == "resume" else with_earlier_words(line)
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
            again=again,
        )
        result = run_command(verb, config, session) if command is None else command(config, session)
        warn_once(session.warnings, [settings.get(name) for name in ("run", "runs", "arpa", "data", "text")])
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
def said_in_python() -> Iterator[None]:
    """Give errors about the folder of a command line Python's name for it, except in commands that they recommend, and
    hide the errors that caused them.
    """
    try:
        yield
    except UserError as error:
        message, *rest = error.args
        message = ARGUMENT.sub(r"no key '\1'; did you mean \2={..., '\3': ...}?", message)
        error.args = (FOLDER.sub(lambda found: found["command"] or "out", message), *rest)
        raise error from None


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


def line_of(verb: str, flags: list[str], settings: Mapping[str, Any]) -> CommandLine:
    """Return settings as a command line. Raises UserError for an unknown name with an empty dictionary, which has no
    override to be refused.
    """
    from lmtool.cli.line_settings import LineSettings
    from lmtool.cli.suggestions import unknown_key

    line = CommandLine(verb, flags, overrides_of(plain(settings)))
    known = LineSettings(line)
    for key, value in settings.items():
        if isinstance(value, Mapping) and not value and not (key in known.top or known.is_group(key)):
            raise UserError(unknown_key(f"{key}=", known))
    return line


def overrides_of(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as Hydra overrides: the record from which `resume` starts, also on the command line.

    For a group of options, a string is the option's name and a dictionary its settings, with the name under "kind";
    other dictionaries are settings by name, at any depth. None is left out at the top and is null within a dictionary.
    Raises UserError for a value that is not a plain value.
    """
    words = [word for key, value in settings.items() if value is not None for word in _words(key, value)]
    # Choices of options precede changes of their settings, whatever the order of the arguments.
    return sorted(words, key=lambda word: word.partition("=")[0].lstrip("+") not in (*HOMES, EXPERIMENT))


def _words(key: str, value: Any) -> Iterator[str]:
    if key == EXPERIMENT and not isinstance(value, str):
        raise UserError(f"{key}={value!r:.40}: must be the name of a YAML file in conf/experiment")
    if key in HOMES and isinstance(value, list | tuple):
        text = "lmtool.Corpus.from_texts(train=..., valid=0.1)" if key == "data" else "a name or a dictionary"
        raise UserError(f"{key}={value!r:.40}: must be an option of {key}=, not a {type(value).__name__}: pass {text}")
    if not isinstance(value, Mapping) or key in MAPPINGS or (not value and "." in key):
        yield f"{'++' * (key == 'data.downloads')}{word_of(key, value)}"  # an empty mapping takes no keys otherwise
        return
    for name, item in value.items():
        if name == "kind" and key in HOMES:
            yield word_of(key, str(item))
        else:
            yield from _words(f"{key}.{name}", item)


def word_of(key: str, value: Any) -> str:
    """Return the override of one setting, or of a group by the name of its option."""
    if key == EXPERIMENT:
        return f"+{key}={_name(value)}"
    return f"{key}={_name(value) if key in HOMES and isinstance(value, str) else literal(value, key)}"


def _name(value: str) -> str:
    return value if NAME.fullmatch(value) else quoted(value)


def literal(value: Any, key: str) -> str:
    """Return a plain value in Hydra's grammar; text is always quoted. Raises UserError for any other value."""
    if isinstance(value, Enum):
        value = value.value
    elif not isinstance(value, str | int | float | list | tuple) and getattr(value, "ndim", None) == 0:
        value = value.item()  # a NumPy or torch scalar
    if value is None or isinstance(value, bool):
        return as_written(value)
    if isinstance(value, int | float):
        return repr(float(value) if isinstance(value, float) else int(value))
    if isinstance(value, str | Path):
        require_text(key, value)
        return quoted(str(value))
    if isinstance(value, list | tuple | range):
        return f"[{','.join(literal(item, key) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{_name(str(name))}:{literal(item, key)}' for name, item in value.items())}}}"
    kind = type(value).__name__
    remedy = "; pass it as data=" if kind == "Corpus" else ""
    raise UserError(f"{key}={value!r}: settings are text, numbers, lists and dictionaries, not {kind}{remedy}")


def compose(line: CommandLine) -> tuple[Any, dict[str, str]]:
    """Compose a command line with Hydra; return the configuration without Hydra's part, and the option of each group.

    This also works within a Hydra application and in threads. Raises UserError, naming the key, for a mistake in the
    line.
    """
    from hydra.types import RunMode
    from omegaconf import OmegaConf

    from lmtool.cli import hydra_errors
    from lmtool.cli.hydra_run import checked_application, hydra_state

    assert line.verb is not None, "the callers name it"
    try:
        with hydra_state():
            loader = checked_application(line, str(conf_dir())).config_loader
            whole = loader.load_configuration(line.verb, line.overrides, RunMode.RUN, from_shell=False)
    except Exception as error:
        fault = hydra_errors.as_user_error(error, line)
        if fault is None:
            raise
        raise fault from error
    return OmegaConf.masked_copy(whole, [str(key) for key in whole if key != "hydra"]), choices_of(whole.hydra)


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


def named_run(run: RunLike) -> dict[str, Any]:
    """Return the setting run=, and store_dir= if the folder of the run's store is known."""
    made_in = run.store_dir if isinstance(run, TrainedRun | MixedRun) else None
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
