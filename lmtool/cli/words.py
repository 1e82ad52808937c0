"""The words of a command line as a request: choices of options, and values by the types of their settings.

`text=ünï.txt`, `text=x=y.txt` and `text=a,b.txt` are paths, `runs=a,b` is a list; what Hydra's grammar reads as a value
of the setting is that value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from numbers import Number
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep

from lmtool.cli import mistakes
from lmtool.cli.allowed import require_allowed_files, require_allowed_request
from lmtool.cli.arguments import CommandLine
from lmtool.cli.unknown_keys import unknown_key, unused
from lmtool.commands import own_types
from lmtool.config.compose import SEARCH_PATH, Composition
from lmtool.config.grammar import escaped, in_quotes, key_of, parsed, split, swept
from lmtool.config.options import EXPERIMENT, yaml_files
from lmtool.config.request import HYDRA_TEXTS, OUT, Request, is_hydras
from lmtool.config.rules import as_written, require_folder, require_text
from lmtool.config.types import SettingType
from lmtool.config.yaml_files import option_file, require_experiment
from lmtool.errors import UserError
from lmtool.runs.resume import saved_request
from lmtool.sweeps.restart import saved_sweep

RESUME = "resume"
WORD = re.compile(r"(?P<mark>\+{0,2})(?P<key>[^+~=][^=]*)=(?P<value>.*)", re.DOTALL)
INTERPOLATION = re.compile(r"\$\{[^}]+\}")
SPAN = re.compile(r"(?P<first>-?\d+) *(\.{2,3}|-|:|to) *(?P<last>-?\d+)")  # how other tools write a range
SWEEP = "a sweep over several values needs -m"
ONE_JOB = ("--cfg", "-c", "--info", "-i")  # flags that show the settings of one job


@dataclass(frozen=True, slots=True)
class Word:
    """A word `key=text`. mark: `+` or `++` before the key. written: the whole word."""

    mark: str
    key: str
    text: str
    written: str


def requested(line: CommandLine, optional: Collection[str] | None = None) -> Request:
    """Return the request of a command line. optional: of a job of a sweep, keys that are left out if its options lack
    them; None for a line that is typed.

    Raises UserError for what is no setting, an unknown key or option, a value of a form that its setting cannot have,
    and a folder that cannot be used.
    """
    assert line.verb is not None, "a line without a verb requests nothing"
    own = own_types(line.verb)
    earlier = _earlier(line)
    request = (earlier or Request(line.verb)).updated(Request(line.verb, **_places_of(line)))
    request, folders = replace(request, sweep=line.multirun), request.folders
    removed = [word[1:].partition("=")[0] for word in line.overrides if word.startswith("~")]
    words = [_word(word, own, folders) for word in line.overrides if not word.startswith("~")]
    words = [word for word in words if earlier is None or word.key != RESUME]
    groups = [word for word in words if is_group(word.key, own, folders) and not word.text.startswith("{")]
    typed = [word.key for word in words if word not in groups and not word.text.startswith("{")]
    require_allowed_files(_yaml_folders(request, words), typed)
    if line.multirun and any(line.has_flag(flag) for flag in ONE_JOB):
        for word in words:
            if swept(word.key, word.text, folders):
                raise UserError(f"{word.written}: --cfg and --info show one job: choose one value")
    chosen = {word: _choice(word, line.multirun, folders) for word in groups}
    added = [word for word in groups if word.mark and word.key != EXPERIMENT]
    request = request.updated(Request(line.verb, dict(chosen[word] for word in groups if word not in added)))
    _require_not_chosen(added, request, own)
    _require_removable(removed, request, own)
    request = request.updated(Request(line.verb, dict(chosen.values()), removed=removed))
    jobs = jobs_of(request, own, optional or ())
    modes = [word.text for word in words if word.key == "hydra.mode"] or [str(jobs[0].options.hydra.mode)]
    is_sweep = line.multirun or modes[-1].endswith("MULTIRUN")
    request = replace(request, sweep=is_sweep) if optional is None else replace(jobs[0].request, sweep=False)
    lacking = [word for word in words if word.key in (optional or ()) and jobs[0].type_of(word.key) is None]
    values = dict(_value(word, jobs, request.sweep) for word in words if word not in groups + lacking)
    return request.updated(Request(line.verb, values=values))


def _require_removable(keys: list[str], request: Request, own: Mapping[str, SettingType]) -> None:
    """Raise UserError unless each key is a setting of Hydra's or an item of a dictionary."""
    for key in keys:
        parent = jobs_of(request, own)[0].type_of(key.rpartition(".")[0]) if "." in key else None
        if not is_hydras(key) and not (parent is not None and parent.names and parent.is_free):
            raise UserError(f"~{key}: a setting cannot be left out; give it another value, as {key}=...")


def _require_not_chosen(words: list[Word], request: Request, own: Mapping[str, SettingType]) -> None:
    """Raise UserError for a group that a word adds, but that has an option already."""
    for word in words:
        option = jobs_of(request, own)[0].groups.get(word.key)
        if option is not None:
            raise UserError(f"{word.written}: {word.key}={option} is chosen already: write {word.written.lstrip('+')}")


def with_parameters(request: Request, parameters: Mapping[str, Any], own: Mapping[str, SettingType]) -> Request:
    """Return the request of a sweep with the parameters of its sweeper, which its own choices and values replace."""
    folders = request.folders
    words = [_word(f"{key}={as_written(value)}", own, folders) for key, value in parameters.items()]
    groups = [word for word in words if is_group(word.key, own, folders)]
    choices = dict(_choice(word, True, folders) for word in groups) | request.choices
    jobs = jobs_of(replace(request, choices=choices), own)
    values = dict(_value(word, jobs, True) for word in words if word not in groups)
    return replace(request, choices=choices, values=values | request.values)


def flags_of(request: Request) -> list[str]:
    """Return the flags of a request."""
    names = ("config_dir", "config_name", "config_path")
    return [f"--{name.replace('_', '-')}={value}" for name in names if (value := getattr(request, name))]


def _places_of(line: CommandLine) -> dict[str, Any]:
    """Return the folders and the name that the flags of a line give. Raises UserError for a missing folder."""
    beside, folder = line.flag("--config-dir", "-cd"), line.flag("--config-path", "-cp")
    if beside is not None:
        require_folder("--config-dir", beside)
        if not Path(beside).is_dir():
            raise UserError(f"--config-dir {beside}: no such folder; name one that holds GROUP/NAME.yaml")
    named = {"config_dir": beside, "config_path": folder}
    found = {key: None if value is None else os.path.abspath(value) for key, value in named.items()}
    return found | {"config_name": line.flag("--config-name", "-cn")}


def _yaml_folders(request: Request, words: list[Word]) -> list[Path]:
    """Return the folders of YAML files that the user names. Raises UserError for a missing one of hydra.searchpath, of
    which Hydra only warns.
    """
    folders = request.folders
    for word in words:
        override = parsed(word.text) if word.key == SEARCH_PATH else None
        for entry in override.value() if override is not None and isinstance(override.value(), list) else []:
            scheme, _, rest = str(entry).rpartition("://")
            if scheme in ("", "file") and "${" not in rest:
                if not Path(rest).is_dir():
                    remedy = "name one that holds GROUP/NAME.yaml, as file://FOLDER"
                    raise UserError(f"{word.written}: no such folder {rest}; {remedy}")
                folders.append(Path(rest))
    return folders


def _earlier(line: CommandLine) -> Request | None:
    """Return the request that started the run or sweep that is resumed, in its folder; None without resume=.

    Its --config-dir is used again; a folder of options, whose Python files are run, must be named again. Raises
    UserError if the folder holds nothing to resume, and for words that contradict resume=.
    """
    text = (line.given(RESUME) or "").partition("=")[2]
    folder = read_text(os.path.expanduser(text), null=True) if text else None
    if not folder or line.verb is None:
        return None
    typed = [key_of(word) for word in line.overrides]
    if line.multirun:
        changed = [word for word in line.overrides if not is_hydras(word) and key_of(word) not in ("options", RESUME)]
        if changed:
            said = f"-m resume={folder} takes the settings of the sweep there; leave it out"
            raise UserError(f"{' '.join(changed)}: {said}")
        earlier = saved_sweep(line.verb, Path(folder))
    else:
        earlier = earlier_run(Path(folder), Request(line.verb, values=dict.fromkeys(typed)))
        if OUT in typed or "hydra.run.dir" in typed:
            raise UserError(f"resume={folder}: the training continues in that folder; leave out= out")
        return earlier
    return _of_somebody(earlier, folder, typed)


def earlier_run(folder: Path, request: Request) -> Request:
    """Return the request that started the training in a run folder, which it resumes. request: the new one.

    Raises UserError if there is none, and for what somebody else's run folder may not set.
    """
    earlier = _of_somebody(saved_request(folder), str(folder), list(request.values))
    if earlier.config_dir is not None:
        require_allowed_files([Path(earlier.config_dir)], list(request.values))
    return earlier.updated(Request(earlier.verb, values={RESUME: str(folder)}))


def _of_somebody(earlier: Request, folder: str, typed: Collection[str]) -> Request:
    earlier = replace(earlier, config_name=None, config_path=None)  # only its --config-dir is used again
    earlier = earlier.without(OUT, RESUME, "hydra.run.dir", "hydra.sweep.dir")
    require_allowed_request(earlier, typed)
    return earlier.updated(Request(earlier.verb, values={OUT: escaped(folder)}))


def _value(word: Word, jobs: list[Composition], is_sweep: bool) -> tuple[str, Any]:
    """Return the key and the value that a word sets. Raises UserError for an unknown key or a wrong form."""
    key, hydras = word.key, is_hydras(word.key)
    if any(key == f"{group}.kind" for job in jobs for group in job.groups):
        raise UserError(f"{word.written}: choose an option by {key.removesuffix('.kind')}={word.text}")
    type_ = next((found for job in jobs if (found := job.type_of(key)) is not None), None)
    if type_ is None:
        raise UserError(unknown_key(key, word.text, jobs))
    return "+" * bool(word.mark and hydras) + key, (
        sweep_text(word, type_) if is_sweep and not hydras else value_of(word, type_)
    )


def is_group(key: str, own: Mapping[str, Any], folders: list[Path]) -> bool:
    """Return whether a key is a group (Hydra's too) and not a setting."""
    if key in own or key == OUT:
        return False
    return "/" in key or "@" in key or bool(yaml_files(key, folders))


def _word(word: str, own: Mapping[str, SettingType], folders: list[Path]) -> Word:
    match = WORD.fullmatch(word)
    if match is None:
        if "=" in word:
            raise unreadable(word)
        raise UserError(f"{word!r} is no setting: write {_as_setting(word, own, folders)}")
    mark, key, text = match["mark"], match["key"], match["value"]
    if key != key.strip():
        raise UserError(f"{word!r}: write {mark}{key.strip()}={text.strip()}, without spaces around =")
    return Word(mark, key, text, word)


def _as_setting(word: str, own: Mapping[str, SettingType], folders: list[Path]) -> str:
    """Return how to write a word without a key as a setting; a folder is probably a run."""
    if os.path.isdir(word) and "run" in own:
        return f"run={word}"
    if os.path.isdir(word) and "runs" in own:
        return f"runs={word},..."
    known = os.sep not in word and (word in own or is_group(word, own, folders))
    return f"{word if known else 'key'}=value, without spaces around ="


def _choice(word: Word, multirun: bool, folders: list[Path]) -> tuple[str, str]:
    """Return the group and the option that a word chooses. Raises UserError for several options without a sweep, for an
    unknown option, and for an experiment that is not appended.
    """
    override, group, text = parsed(word.text), word.key, word.text.strip("'\"")
    if group == EXPERIMENT and not word.mark:
        raise UserError(f"{word.written}: an experiment is appended: write +{word.written}")
    if override is not None and isinstance(override.value(), list):
        raise UserError(f"{word.written}: choose one option; to try several, -m {group}={word.text[1:-1]}")
    if override is not None and override.is_sweep_override() and not multirun:
        raise UserError(f"{word.written}: {SWEEP}")
    options = swept(group, word.text, folders)
    if options == []:
        raise UserError(f"{word.written}: nothing to try: glob() matches options of a group")
    options = options or [text]
    for option in options if not ("/" in group or "@" in group) else []:
        option_file(group, option, folders)
        if group == EXPERIMENT:
            require_experiment(yaml_files(group, folders)[option], ())
    return ("+" if word.mark else "") + group, text


def jobs_of(request: Request, own: Mapping[str, SettingType], optional: Collection[str] = ()) -> list[Composition]:
    """Compose as many of a sweep's jobs as it takes to have each option that any of its jobs uses; the first job first.

    A choice of a group that a job does not use is left out of it. optional: groups that no job needs to have. Raises
    UserError for options that do not go together, and for a group that no job uses.
    """
    experiment = f"+{EXPERIMENT}"
    names = swept(EXPERIMENT, request.choices.get(experiment, ""), request.folders)
    several = [replace(request, choices=request.choices | {experiment: name}) for name in names or []]
    jobs = [job for each in several or [request] for job in _jobs(each, own, bool(several or optional))]
    for group in request.choices:
        if not (re.search(r"[/@+]", group) or group in optional or any(group in job.groups for job in jobs)):
            raise UserError(unused(group, request.choices[group], jobs[0]))
    return jobs


def _jobs(request: Request, own: Mapping[str, SettingType], several: bool) -> list[Composition]:
    tried = {group: swept(group.lstrip("+"), text, request.folders) for group, text in request.choices.items()}
    options = {group: names for group, names in tried.items() if names}
    several = several or bool(options)
    asked = [request.choices | {group: names[0] for group, names in options.items()}]
    jobs = [_job_of(replace(request, choices=asked[0]), own, several)]
    waiting = {group: names[1:] for group, names in options.items()}
    for job, choices in zip(jobs, asked, strict=False):  # which grow by the other options of each group
        for group in list(waiting):
            if group in job.groups or "/" in group:  # in the first job that has the group
                others = [choices | {group: name} for name in waiting.pop(group)]
                asked += others
                jobs += [_job_of(replace(request, choices=other), own, several) for other in others]
    return jobs


def _job_of(request: Request, own: Mapping[str, SettingType], several: bool) -> Composition:
    """Compose a job. several: whether it may be one of several, so that groups that it does not use are left out."""
    try:
        return mistakes.composed(request, own)
    except UserError:
        if not several:
            raise
        usable, left = mistakes.usable(request, own)
        if any(re.search(r"[/@+]", group) or group in usable.groups for group in left):
            raise
        return usable


def value_of(word: Word, type_: SettingType) -> Any:
    """Return the value of a setting of one type. Raises UserError for several values that are neither a list nor text,
    and for a list that is not closed.
    """
    key, text = word.key, word.text
    _require_form(word, type_)
    is_prose = type_.rule is not None and type_.rule.prose  # text to read, not a path
    if not is_prose:
        require_text(key, text)
        text = os.path.expanduser(text)
        if key in (*HYDRA_TEXTS, OUT):
            _require_folder(word, text)
        if type_.may_be_text and os.path.exists(text) and (INTERPOLATION.search(text) or not type_.is_text):
            return escaped(text)
    if type_.is_text:
        return read_text(text, null=True)
    override = parsed(text)
    if override is not None and override.value() is None:
        return None
    if (type_.item is not None or type_.is_free) and text.startswith("[") and text.endswith("]"):
        return _items(word, text[1:-1], type_.item)
    simple = override is not None and isinstance(sweep := override.value(), ChoiceSweep) and sweep.simple_form
    if override is None and text.startswith(("[", "{")):
        raise unreadable(word.written)
    if type_.item is not None or (type_.is_free and simple):
        return _items(word, text, type_.item)
    if override is not None and override.is_sweep_override():
        raise UserError(f"{word.written}: {SWEEP}")
    return read_text(text, null=False) if override is None else _plain(override.value())


def _items(word: Word, text: str, item: SettingType | None) -> list[Any]:
    """Return the values of a list, of comma-separated items of a type."""
    items: list[Any] = []
    for part in map(os.path.expanduser, split(text) if text.strip() else []):
        override = parsed(part)
        if (item is not None and item.is_text) or override is None:
            items.append(read_text(part, null=False))
        elif override.is_sweep_override():
            raise UserError(f"{word.written}: {SWEEP}")
        else:
            items.append(_plain(override.value()))
    return items


def read_text(text: str, *, null: bool = False) -> str | None:
    """Return text as it is meant: quotes, escapes and interpolations are Hydra's, all else stays as it is written.

    null: whether null means None.
    """
    override = parsed(text)
    value: Any = None if override is None else override.value()
    if override is not None and value is None and null:
        return None
    if isinstance(value, str) and not (override is not None and override.is_sweep_override()):
        return str(_plain(value))
    return text if INTERPOLATION.search(text) else escaped(text)


def _plain(value: Any) -> Any:
    """Return a value of Hydra's parser as a plain one."""
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | Number) else str(value)


def sweep_text(word: Word, type_: SettingType) -> str:
    """Return a sweep's values in Hydra's grammar, with quotes around those that it cannot read."""
    _require_form(word, type_)
    text = word.text
    if type_.rule is None or not type_.rule.prose:
        require_text(word.key, text)
        text = ",".join(map(os.path.expanduser, split(text)))
    if parsed(text) is not None:
        return text
    if "," not in text and text.startswith(("[", "{")):
        raise unreadable(word.written)
    return ",".join(_readable(part) for part in split(text))


def _readable(text: str) -> str:
    if parsed(text) is not None:
        return text
    if text.startswith("[") and text.endswith("]"):
        return f"[{','.join(map(_readable, split(text[1:-1])))}]"
    return in_quotes(text if INTERPOLATION.search(text) else escaped(text))


def _require_form(word: Word, type_: SettingType) -> None:
    """Raise UserError for a value whose form the setting cannot have."""
    key, text, written = word.key, word.text, word.written
    if any(name.startswith(f"{key}.") for name in HYDRA_TEXTS) and not text.startswith("{"):
        raise UserError(f"{written}: write out=FOLDER")
    if type_.is_free or text.startswith("$"):
        return
    if text.casefold() == "null":
        if "None" not in type_.names and key not in (*HYDRA_TEXTS, OUT):
            raise UserError(f"{written}: {key} cannot be null")
    elif type_.fields and not text.startswith("{"):
        raise UserError(f"{written}: give {key}.NAME=... a value, NAME being {', '.join(type_.fields)}")
    elif type_.item is not None and not text.strip():
        raise UserError(f"{written}: write a list, as {key}=a,b")
    elif not (type_.fields or type_.item or type_.may_be_text):
        span = SPAN.fullmatch(text)
        low, high = sorted((int(span["first"]), int(span["last"]))) if span else (0, 0)
        several = text[1:-1] if text.startswith("[") else span and f"range({low},{high + 1})"
        if several:
            raise UserError(f"{written}: must be {type_.words}; to try several, -m {key}={several}")


def _require_folder(word: Word, text: str) -> None:
    if not (text := str(read_text(text, null=False))) or word.text == "null":
        raise UserError(f"{word.written}: name a folder; . is the one you are in")
    if "${" in text:
        return  # known once it is composed
    path = Path(text)
    try:
        existing = next(parent for parent in (path, *path.parents) if parent.exists())
        is_folder = existing.is_dir()
    except OSError as error:
        raise UserError(f"{word.key}={text}: {error.strerror}: choose another folder") from error
    if not is_folder:
        raise UserError(f"{word.key}={text}: {existing} is a file: choose another folder")


def unreadable(word: str) -> UserError:
    """Return the error for a word that is not a setting."""
    _, _, value = word.partition("=")
    if value.startswith("{") and value.endswith("}"):
        return UserError(f"cannot read {word!r}: quote paths with brackets, commas or colons, as {{a: 'x[01].txt'}}")
    return UserError(f"cannot read {word!r}: write key=value, and a list as key=[a,b]")
