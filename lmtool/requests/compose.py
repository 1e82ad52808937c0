"""Compose the settings of a request, or of the jobs of a sweep; errors name what the user wrote."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

from omegaconf import DictConfig

from lmtool.commands import verb_setting_types
from lmtool.config.composition import Composition
from lmtool.config.grammar import sweep_values
from lmtool.config.options import EXPERIMENT
from lmtool.config.request import Request
from lmtool.config.settings import SettingError
from lmtool.config.yaml_files import complete_choices, require_bounded_aliases
from lmtool.errors import UserError
from lmtool.requests import mistakes
from lmtool.requests.allowed import require_allowed_settings


def compose_options(request: Request, *, may_leave_out: bool = False) -> Composition:
    """Compose the options of a request. may_leave_out: whether choices of groups that are not used are left out."""
    for path in mistakes.user_yaml_files(request):
        require_bounded_aliases(path)
    try:
        return _compose_once(request)
    except UserError:
        unused = _unused_groups(request)
        if not unused:
            raise
    choices = {group: option for group, option in request.choices.items() if group not in unused}
    composition = _compose_once(replace(request, choices=choices))
    if not may_leave_out:
        raise UserError(mistakes.describe_unknown_key(unused[0], [composition]))
    return composition


def _compose_once(request: Request) -> Composition:
    """Compose the options of a request. Raises UserError for a mistake."""
    try:
        return Composition(request, verb_setting_types(request.verb))
    except Exception as error:
        user_error = mistakes.explain_compose_error(error, request)
        if user_error is None:
            raise
        raise user_error from error


def _unused_groups(request: Request) -> list[str]:
    """Return the chosen groups that the defaults lists do not use; none if an option does not exist."""
    with suppress(UserError):
        used = complete_choices(request.verb, request.choices, request.folders)
        return [group for group in request.choices if not is_special(group) and group not in used]
    return []


def is_special(group: str) -> bool:
    """Return whether a group is Hydra's own, in another package or an experiment."""
    return re.search(r"[/@+]", group) is not None


def compose_jobs(request: Request, optional_keys: Collection[str] = ()) -> list[Composition]:
    """Compose as many of a sweep's jobs as it takes to have each option that any of its jobs uses; the first job first.

    A choice of a group that a job does not use is left out of it. optional_keys: groups that no job needs to have.
    """
    experiment = f"+{EXPERIMENT}"
    names = sweep_values(EXPERIMENT, request.choices.get(experiment, ""), request.folders) or []
    requests = [replace(request, choices=request.choices | {experiment: name}) for name in names] or [request]
    may_leave_out = bool(names or optional_keys)
    jobs = [job for each in requests for job in _compose_job_of_each_option(each, may_leave_out)]
    for group in request.choices:
        if not (is_special(group) or group in optional_keys or any(group in job.choices for job in jobs)):
            raise UserError(mistakes.describe_unknown_key(group, jobs))
    return jobs


def _compose_job_of_each_option(request: Request, may_leave_out: bool) -> list[Composition]:
    """Compose a job with the first option of each group, and one for each other option of a group that a job uses."""
    values = {group: sweep_values(group.lstrip("+"), text, request.folders) for group, text in request.choices.items()}
    options = {group: names for group, names in values.items() if names}
    choices_of_jobs = [request.choices | {group: names[0] for group, names in options.items()}]

    def compose(choices: dict[str, str]) -> Composition:
        return compose_options(replace(request, choices=choices), may_leave_out=may_leave_out or bool(options))

    jobs = [compose(choices_of_jobs[0])]
    waiting = {group: names[1:] for group, names in options.items()}
    for job, choices in zip(jobs, choices_of_jobs, strict=False):  # which grow by the other options of each group
        for group in list(waiting):
            if group in job.choices or "/" in group:  # in the first job that has the group
                others = [choices | {group: name} for name in waiting.pop(group)]
                choices_of_jobs += others
                jobs += map(compose, others)
    return jobs


def compose_request(request: Request) -> tuple[Composition, DictConfig]:
    """Compose a request: its options, and its settings with all values. Raises UserError for a mistake."""
    composition = compose_options(request)
    try:
        settings = composition.settings()
        if request.is_untrusted:
            require_allowed_settings(composition, settings)
        return composition, settings
    except SettingError as error:
        raise UserError(mistakes.prefix_place(str(error), error.key, composition)) from error
    except Exception as error:
        user_error = mistakes.explain_values_error(error, composition)
        if user_error is None:
            raise
        raise user_error from error
