"""The words of a command line as a request, which may continue an earlier one."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lmtool.commands import verb_setting_types
from lmtool.config.composition import Composition
from lmtool.config.grammar import override_key, parse_value, sweep_values
from lmtool.config.options import EXPERIMENT, GROUP_MODULES, yaml_files
from lmtool.config.request import OUT, OUT_KEYS, RUN_DIR, SWEEP_DIR, Request, is_run_control_key
from lmtool.config.rules import format_value, require_folder
from lmtool.config.types import SettingType
from lmtool.config.yaml_files import read_option, require_experiment
from lmtool.errors import UserError
from lmtool.requests.allowed import require_allowed_request
from lmtool.requests.arguments import CommandLine
from lmtool.requests.compose import compose_jobs
from lmtool.requests.mistakes import describe_unknown_key
from lmtool.requests.values import SWEEP_NEEDS_M, WORD, Word, read_sweep, read_text, read_value, unreadable_word_error
from lmtool.runs.resume import saved_request
from lmtool.sweeps.sweep import read_sweep_request

RESUME = "resume"


def parse_request(line: CommandLine, optional_keys: Collection[str] | None = None) -> Request:
    """Return the request of a command line. optional_keys: of a job of a sweep, keys that are left out if its
    options lack them; None for the user's own line.
    """
    assert line.verb is not None, "a line without a verb requests nothing"
    verb_types = verb_setting_types(line.verb)
    resumed = _resumed_request(line)
    start = (resumed or Request(line.verb)).updated(Request(line.verb, config_dir=_config_dir(line)))
    start, folders = replace(start, sweep=line.multirun), start.folders
    words = [_split_word(word, verb_types) for word in line.overrides]
    words = [word for word in words if resumed is None or word.key != RESUME]
    choice_words = [word for word in words if is_group(word.key, verb_types, folders) and not word.text.startswith("{")]
    if line.multirun and line.flags.keys() & {"--cfg", "--info"}:
        raise UserError("--cfg and --info show the settings of one job: leave out -m")
    choices = dict(_read_choice(word, line.multirun, folders) for word in choice_words)
    with_choices = start.updated(Request(line.verb, choices))
    jobs = compose_jobs(with_choices, optional_keys or ())
    if optional_keys is None:
        modes = [word.text for word in words if word.key == "hydra.mode"] or [str(jobs[0].composed.hydra.mode)]
        with_mode = replace(with_choices, sweep=line.multirun or modes[-1].endswith("MULTIRUN"))
    else:
        with_mode = replace(jobs[0].request, sweep=False)
    lacking = [word for word in words if word.key in (optional_keys or ()) and jobs[0].type_of(word.key) is None]
    value_words = [word for word in words if word not in choice_words + lacking]
    values = dict(_read_setting(word, jobs, with_mode.sweep) for word in value_words)
    keys = with_mode.choices | values
    if OUT in keys and {RUN_DIR, SWEEP_DIR} & keys.keys():
        raise UserError(f"out={keys[OUT]}: is {RUN_DIR}=, in a sweep {SWEEP_DIR}=: write one of them")
    order = [key for word in words for key in (f"+{word.key}", word.key) if key in keys]
    return with_mode.updated(Request(line.verb, values=values, order=order))


def add_sweep_parameters(request: Request, parameters: Mapping[str, Any]) -> Request:
    """Return the request of a sweep with the parameters of its sweeper, which its own choices and values replace."""
    folders, verb_types = request.folders, verb_setting_types(request.verb)
    words = [_split_word(f"{key}={format_value(value)}", verb_types) for key, value in parameters.items()]
    groups = [word for word in words if is_group(word.key, verb_types, folders)]
    choices = dict(_read_choice(word, True, folders) for word in groups) | request.choices
    jobs = compose_jobs(replace(request, choices=choices))
    values = dict(_read_setting(word, jobs, True) for word in words if word not in groups)
    return replace(request, choices=choices, values=values | request.values)


def _config_dir(line: CommandLine) -> str | None:
    """Return the folder of --config-dir. Raises UserError if it is missing."""
    config_dir = line.flags.get("--config-dir")
    if config_dir is None:
        return None
    require_folder("--config-dir", config_dir)
    if not Path(config_dir).is_dir():
        raise UserError(f"--config-dir {config_dir}: no such folder; name one that holds GROUP/NAME.yaml")
    return os.path.abspath(config_dir)


def _resumed_request(line: CommandLine) -> Request | None:
    """Return the request that started the run or sweep that is resumed, in its folder; None without resume=.

    Its --config-dir is used again; a folder of options, whose Python files are run, must be named again. Raises
    UserError if the folder holds nothing to resume, and for words that contradict resume=.
    """
    text = (line.last_override(RESUME) or "").partition("=")[2]
    folder = read_text(os.path.expanduser(text), null=True) if text else None
    if not folder or line.verb is None:
        return None
    given_keys = [override_key(word) for word in line.overrides]
    if line.multirun:
        kept = ("options", RESUME)
        changed = [word for word in line.overrides if not is_run_control_key(word) and override_key(word) not in kept]
        if changed:
            remedy = f"-m resume={folder} reuses the settings of that sweep; leave it out"
            if changed[0].startswith("metric="):
                remedy += f"; lmtool report {folder} {changed[0]} draws its finished jobs by another metric"
            raise UserError(f"{' '.join(changed)}: {remedy}")
        earlier = _restrict_saved_request(read_sweep_request(line.verb, Path(folder)), folder, given_keys)
    else:
        given = {override_key(word): word.partition("=")[2] for word in line.overrides}
        earlier = resume_training_request(Path(folder), Request(line.verb, given, given))
    if {*OUT_KEYS} & {*given_keys}:
        raise UserError(f"resume={folder}: it continues in that folder; remove out=")
    return earlier


def resume_training_request(folder: Path, request: Request) -> Request:
    """Return the request that started the training in a run folder, which it resumes, without the values of an option
    that the new request replaces.
    """
    earlier = _restrict_saved_request(saved_request(folder), str(folder), list(request.values))
    chosen = {group: option for group, option in request.choices.items() if group in GROUP_MODULES}
    replaced = {group for group, option in chosen.items() if option[:1] != "{" and earlier.choices.get(group) != option}
    earlier = earlier.without(*(key for key in earlier.values if key.partition(".")[0] in replaced))
    return earlier.updated(Request(earlier.verb, values={RESUME: str(folder)}))


def _restrict_saved_request(earlier: Request, folder: str, given_keys: Collection[str]) -> Request:
    """Return an untrusted saved request, once it is checked, with its folder. given_keys: of the new command line."""
    earlier = replace(earlier, user_keys=frozenset()).without(RESUME, *OUT_KEYS)
    require_allowed_request(earlier, given_keys)
    return earlier.with_out(folder)


def _read_setting(word: Word, jobs: list[Composition], is_sweep: bool) -> tuple[str, Any]:
    """Return the key and the value that a word sets. Raises UserError for an unknown key or a wrong form."""
    key, is_hydra_setting = word.key, is_run_control_key(word.key)
    if any(key == f"{group}.kind" for job in jobs for group in job.choices):
        raise UserError(f"{word.written}: choose an option by {key.removesuffix('.kind')}={word.text}")
    type_ = next((job_type for job in jobs if (job_type := job.type_of(key)) is not None), None)
    if type_ is None:
        raise UserError(describe_unknown_key(key, jobs))
    name = "+" * bool(word.mark and is_hydra_setting) + key
    return name, read_sweep(word, type_) if is_sweep and not is_hydra_setting else read_value(word, type_)


def is_group(key: str, verb_types: Mapping[str, Any], folders: list[Path]) -> bool:
    """Return whether a key is a group (Hydra's too) and not a setting."""
    if key in verb_types or key == OUT:
        return False
    return "/" in key or "@" in key or bool(yaml_files(key, folders))


def _split_word(word: str, verb_types: Mapping[str, SettingType]) -> Word:
    match = WORD.fullmatch(word)
    if word.startswith("~"):
        key = word[1:].partition("=")[0]
        raise UserError(f"~{key}: a setting cannot be left out; give it another value, e.g. {key}=...")
    if match is None:
        if "=" in word:
            raise unreadable_word_error(word)
        is_run = os.path.isdir(word) and "run" in verb_types
        hint = f"run={word}" if is_run else "key=value, without spaces around ="
        raise UserError(f"{word!r} is not a setting: write {hint}")
    mark, key, text = match["mark"], match["key"], match["value"]
    if key != key.strip():
        raise UserError(f"{word!r}: write {mark}{key.strip()}={text.strip()}, without spaces around =")
    return Word(mark, key, text, word)


def _read_choice(word: Word, multirun: bool, folders: list[Path]) -> tuple[str, str]:
    """Return the group and the option that a word chooses."""
    override, group, text = parse_value(word.text), word.key, word.text.strip("'\"")
    if group == EXPERIMENT and not word.mark:
        raise UserError(f"{word.written}: an experiment is appended: write +{word.written}")
    if override is not None and isinstance(override.value(), list):
        raise UserError(f"{word.written}: choose one option; to try several, -m {group}={word.text[1:-1]}")
    if override is not None and override.is_sweep_override() and not multirun:
        raise UserError(f"{word.written}: {SWEEP_NEEDS_M}")
    options = sweep_values(group, word.text, folders)
    if options == []:
        raise UserError(f"{word.written}: nothing to try: glob() matches options of a group")
    options = options or [text]
    for option in options if not ("/" in group or "@" in group) else []:
        read_option(group, option, folders)
        if group == EXPERIMENT:
            require_experiment(yaml_files(group, folders)[option])
    return "+" * bool(word.mark) + group, text
