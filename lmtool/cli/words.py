"""The words of a command line as a request, which may continue an earlier one."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lmtool.cli.allowed import require_allowed_request
from lmtool.cli.arguments import CommandLine
from lmtool.cli.jobs import jobs_of
from lmtool.cli.unknown_keys import unknown_key
from lmtool.cli.values import SWEEP, WORD, Word, read_text, sweep_text, unreadable, value_of
from lmtool.commands import own_types
from lmtool.config.compose import Composition
from lmtool.config.grammar import escaped, key_of, parsed, swept
from lmtool.config.options import EXPERIMENT, yaml_files
from lmtool.config.request import OUT, SEARCH_PATH, Request, is_hydras
from lmtool.config.rules import as_written, require_folder
from lmtool.config.types import SettingType
from lmtool.config.yaml_files import option_file, require_experiment
from lmtool.errors import UserError
from lmtool.runs.resume import saved_request
from lmtool.sweeps.restart import saved_sweep

RESUME = "resume"
ONE_JOB = {"--cfg", "--info"}  # flags that show the settings of one job


def requested(line: CommandLine, optional: Collection[str] | None = None) -> Request:
    """Return the request of a command line. optional: of a job of a sweep, keys that are left out if its options lack
    them; None for a line that is typed.

    Raises UserError for a word that is not a setting, an unknown key or option, a value of a form that its setting
    cannot have, and a folder that cannot be used.
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
    _require_search_path(words)
    if line.multirun and ONE_JOB & line.flags.keys():
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
    given = request.choices | values
    if OUT in given and {"hydra.run.dir", "hydra.sweep.dir"} & given.keys():
        raise UserError(f"out={given[OUT]}: is hydra.run.dir=, in a sweep hydra.sweep.dir=: write one of them")
    order = [key for word in words for key in (f"+{word.key}", word.key) if key in given]
    return request.updated(Request(line.verb, values=values, order=order))


def _require_removable(keys: list[str], request: Request, own: Mapping[str, SettingType]) -> None:
    """Raise UserError unless each key is a setting of Hydra's or an item of a dictionary."""
    for key in keys:
        parent = jobs_of(request, own)[0].type_of(key.rpartition(".")[0]) if "." in key else None
        if not is_hydras(key) and not (parent is not None and parent.names and parent.is_free):
            raise UserError(f"~{key}: a setting cannot be left out; give it another value, e.g. {key}=...")


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


def _places_of(line: CommandLine) -> dict[str, Any]:
    """Return the folder and the name that the flags of a line give. Raises UserError for a missing folder."""
    beside = line.flags.get("--config-dir")
    if beside is not None:
        require_folder("--config-dir", beside)
        if not Path(beside).is_dir():
            raise UserError(f"--config-dir {beside}: no such folder; name one that holds GROUP/NAME.yaml")
        beside = os.path.abspath(beside)
    return {"config_dir": beside, "config_name": line.flags.get("--config-name")}


def _require_search_path(words: list[Word]) -> None:
    """Raise UserError for a missing folder of hydra.searchpath, of which Hydra only warns."""
    for word in words:
        override = parsed(word.text) if word.key == SEARCH_PATH else None
        for entry in override.value() if override is not None and isinstance(override.value(), list) else []:
            scheme, _, rest = str(entry).rpartition("://")
            if scheme in ("", "file") and "${" not in rest and not Path(rest).is_dir():
                remedy = "name one that holds GROUP/NAME.yaml, as file://FOLDER"
                raise UserError(f"{word.written}: no such folder {rest}; {remedy}")


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
            said = f"-m resume={folder} reuses the settings of that sweep; leave it out"
            raise UserError(f"{' '.join(changed)}: {said}")
        earlier = _of_somebody(saved_sweep(line.verb, Path(folder)), folder, typed)
    else:
        earlier = earlier_run(Path(folder), Request(line.verb, values=dict.fromkeys(typed)))
    if {OUT, "hydra.run.dir", "hydra.sweep.dir"} & {*typed}:
        raise UserError(f"resume={folder}: it continues in that folder; leave out= out")
    return earlier


def earlier_run(folder: Path, request: Request) -> Request:
    """Return the request that started the training in a run folder, which it resumes. request: the new one.

    Raises UserError if it holds no request, and for settings that somebody else's run folder may not set.
    """
    earlier = _of_somebody(saved_request(folder), str(folder), list(request.values))
    return earlier.updated(Request(earlier.verb, values={RESUME: str(folder)}))


def _of_somebody(earlier: Request, folder: str, typed: Collection[str]) -> Request:
    earlier = replace(earlier, config_name=None, typed=frozenset())  # its --config-dir is used again
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
    name = "+" * bool(word.mark and hydras) + key
    return name, sweep_text(word, type_) if is_sweep and not hydras else value_of(word, type_)


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
    return "+" * bool(word.mark) + group, text
