"""Find options, which users choose by name, e.g. `smoother=witten_bell`; each has a settings class and a YAML file.

An option of a group lives in one of three places:

- in lmtool: the settings class in a module of the group (GROUP_MODULES), the YAML file in conf/GROUP/;
- in an installed package that the entry-point group `lmtool.options` names: PACKAGE/GROUP/NAME.py and NAME.yaml;
- in a folder given by `options=FOLDER`: FOLDER/GROUP/NAME.py and NAME.yaml.

A YAML file's `kind` names the settings class; presets are further YAML files with the same kind. The settings class of
lmtool's own option NAME is the one with `kind: str = "NAME"` in a module of GROUP_MODULES, which imports nothing heavy
at its top (torch, numpy, numba), or the only one of NAME.py beside such a module.

The documentation page of an option takes its formula, `Source:` and `Complexity:` from the docstring of the settings
class if it contains `Source:`, else from the docstring of its file. The Python file of an external option is imported
only when the option is chosen.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from lmtool.config.groups import BASES
from lmtool.config.rules import require_path
from lmtool.errors import UserError
from lmtool.system.terminal import nearest

ENTRY_POINTS = "lmtool.options"
GROUP_MODULES: dict[str, tuple[str, ...]] = {
    "data": ("lmtool.data.sources.builtin",),
    "model": ("lmtool.ngram.models.options", "lmtool.neural.encoders.options"),
    "output": ("lmtool.neural.outputs.options",),
    "tree": ("lmtool.trees.options",),
    "smoother": tuple(
        f"lmtool.ngram.smoothers.{name}" for name in ("relative_frequencies", "interpolation", "absolute_discounting")
    ),
    "counts": ("lmtool.ngram.counting.options",),
    "optim": ("lmtool.training.optim",),
    "schedule": ("lmtool.training.schedules",),
    "tracker": ("lmtool.training.trackers",),
    "segmenter": ("lmtool.data.segmenters",),
}
GROUP_SETTINGS = {"tracker": "training.trackers", "segmenter": "data.segmenter"}  # settings that name options
EXPERIMENT = "experiment"  # the group of complete settings, +experiment=NAME
# Options of Hydra's plugins, each with lmtool's extra that installs it.
PLUGINS: dict[str, dict[str, str | None]] = {
    "hydra/launcher": {"basic": None, "joblib": "joblib", "submitit_local": "submitit", "submitit_slurm": "submitit"},
    "hydra/sweeper": {"basic": None, "optuna": "optuna"},
}


@dataclass(frozen=True, slots=True)
class OptionSource:
    """A package or folder with external options. package: its name, or None for a folder."""

    folder: Path
    package: str | None

    def __str__(self) -> str:
        return f"the package {self.package}" if self.package else f"the folder {self.folder}"


@cache
def conf_dir() -> Path:
    """Return the folder of lmtool's YAML files: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "train.yaml").is_file():
            return folder
    raise UserError(f"conf/ is missing beside {package}: install lmtool again")


def _has_entry_points() -> bool:
    """Return whether an installed package names the entry-point group. Searching the files is faster than importing
    importlib.metadata, which each help page and each completion would wait for.
    """
    for file in (file for folder in sys.path for file in Path(folder).glob("*.*-info/entry_points.txt")):
        with suppress(OSError):  # a file that may not be read
            if f"[{ENTRY_POINTS}]".encode() in file.read_bytes():
                return True
    return False


@cache
def installed_option_sources() -> tuple[OptionSource, ...]:
    """Return the packages of the entry-point group, sorted by the name of the entry point."""
    if not _has_entry_points():
        return ()
    from importlib.metadata import entry_points

    option_sources = []
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        spec = importlib.util.find_spec(entry.value)
        if spec is None or not spec.submodule_search_locations:
            raise UserError(
                f"{ENTRY_POINTS}: the entry point {entry.name}={entry.value} is not a package: reinstall it"
            )
        source = OptionSource(Path(spec.submodule_search_locations[0]), entry.value)
        _require_new_names(source)
        option_sources.append(source)
    return tuple(option_sources)


_folders: ContextVar[tuple[OptionSource, ...]] = ContextVar("folders", default=())  # given by options= in this thread


def _require_new_names(source: OptionSource) -> None:
    """Raise UserError if an option of a source has the name of one of lmtool's own, which would hide it."""
    for group in GROUP_MODULES:
        for path in sorted((source.folder / group).glob("*.yaml")):
            if (conf_dir() / group / path.name).is_file():
                raise UserError(f"{path}: {group}/{path.stem} is the name of lmtool's own option; choose another")


@contextmanager
def folder_in_use(folder: str | Path | None) -> Iterator[None]:
    """Add the options of a folder for the duration of the block, in this thread; None adds none."""
    require_path("options", folder)
    before = _folders.get()
    if folder is not None:
        path = Path(os.path.expanduser(folder))  # Path.expanduser raises an error for an unknown ~NAME
        with suppress(ValueError):  # an invalid file name, e.g. with half a surrogate pair, is not a folder
            path = path.resolve()
        if not os.path.isdir(path):  # Path.is_dir raises an error for a name that is too long
            raise UserError(f"options={folder}: no such folder; name one that holds GROUP/NAME.yaml and GROUP/NAME.py")
        _require_new_names(source := OptionSource(path, None))
        _folders.set((*before, source) if source not in before else before)
    try:
        yield
    finally:
        _folders.set(before)


def option_sources() -> tuple[OptionSource, ...]:
    """Return the packages and folders with external options that are in use."""
    return (*installed_option_sources(), *_folders.get())


def yaml_files(group: str, folders: Sequence[Path] = ()) -> dict[str, Path]:
    """Return the YAML file of each option and preset of a group, by name. folders: further ones, e.g. --config-dir."""
    files: dict[str, Path] = {}
    for folder in (conf_dir(), *(source.folder for source in option_sources()), *folders):
        for path in _list_yaml(folder / group):
            files.setdefault(path.stem, path)
    return dict(sorted(files.items()))


def _list_yaml(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob("[!.]*.yaml"))  # hidden ones are not options
    except (OSError, ValueError):  # not a valid folder name
        return []


def kinds(group: str) -> list[str]:
    """Return the names of the options of a group, without presets: each YAML file named after a settings class."""
    return [name for name in yaml_files(group) if own_class(group, name) or external_file(group, name)]


def settings_class(group: str, kind: str, *, came_from: str | None = None) -> type:
    """Import the Python file of an option and return its settings dataclass.

    came_from: where a run's option came from, for the error message.
    """
    if (own := own_class(group, kind)) is not None:
        return own
    external = external_file(group, kind)
    if external is None and came_from is not None:
        remedy = "name it with options=FOLDER" if came_from.startswith("the folder") else "install it"
        raise UserError(f"{group}={kind} came from {came_from}, which is not in use here: {remedy}")
    if external is None:
        near = nearest(kind, kinds(group))
        raise UserError(f"{group}.kind={kind}: this is not an option{near}; Python files need options=FOLDER")
    source, path = external
    try:
        module = _import_option(source, path, group, kind)
    except UserError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"{path} cannot be imported ({reason}): correct it, or choose another option") from error
    found = _find_class(module, group, kind)
    if found is None:
        raise UserError(f"{path}: an option of {group}= has one dataclass below {BASES[group].__name__}")
    return found


@cache
def own_class(group: str, kind: str) -> type | None:
    """Return the settings class of lmtool's own option, or None if there is no such option."""
    if not kind.isidentifier() or not (conf_dir() / group / f"{kind}.yaml").is_file():
        return None
    for name in GROUP_MODULES[group]:
        if (found := _find_class(import_module(name), group, kind, by_name=True)) is not None:
            return found
    for package in {name.rpartition(".")[0] for name in GROUP_MODULES[group]}:
        if (Path(str(import_module(package).__file__)).parent / f"{kind}.py").is_file():
            return _find_class(import_module(f"{package}.{kind}"), group, kind)
    return None


def external_file(group: str, kind: str) -> tuple[OptionSource, Path] | None:
    """Return the source and the Python file of an external option, which is not imported; None if there is none."""
    files = [(source, source.folder / group / f"{kind}.py") for source in option_sources() if kind.isidentifier()]
    return next(((source, path) for source, path in files if path.is_file()), None)


def _import_option(source: OptionSource, path: Path, group: str, kind: str) -> ModuleType:
    if source.package is not None:
        return import_module(f"{source.package}.{group}.{kind}")
    name = f"lmtool_options_{zlib.crc32(str(path).encode()):08x}.{group}.{kind}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "it is a Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look it up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _find_class(module: ModuleType, group: str, kind: str, *, by_name: bool = False) -> type | None:
    """Return the settings dataclass of a module with an option's name as `kind`; unless by_name, else its only one."""
    classes = [
        item
        for item in vars(module).values()
        if isinstance(item, type) and issubclass(item, BASES[group]) and is_dataclass(item)
    ]
    classes = [item for item in classes if item.__module__ == module.__name__]
    named = [item for item in classes if fields(item)[0].default == kind]
    return named[0] if named else classes[0] if len(classes) == 1 and not by_name else None
