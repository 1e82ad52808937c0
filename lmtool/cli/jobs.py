"""Compose the options of a request: of one run, or of the jobs of a sweep."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from lmtool.cli.mistakes import explain_compose_error, user_yaml_files
from lmtool.cli.unknown_keys import describe_unused_group
from lmtool.commands import verb_setting_types
from lmtool.config.compose import Composition, compose_usable
from lmtool.config.grammar import sweep_values
from lmtool.config.options import EXPERIMENT
from lmtool.config.request import Request
from lmtool.config.yaml_files import require_bounded_aliases
from lmtool.errors import UserError


def compose_options(request: Request) -> Composition:
    """Compose the options of a request. Raises UserError for a mistake in a choice or in a YAML file."""
    for path in user_yaml_files(request):
        require_bounded_aliases(path)
    try:
        composition = Composition(request, verb_setting_types(request.verb))
        composition.groups  # noqa: B018  # raises for a configuration that is not made of settings
        return composition
    except Exception as error:
        user_error = explain_compose_error(error, request)
        if user_error is None:
            raise
        raise user_error from error


def compose_jobs(request: Request, optional: Collection[str] = ()) -> list[Composition]:
    """Compose as many of a sweep's jobs as it takes to have each option that any of its jobs uses; the first job first.

    A choice of a group that a job does not use is left out of it. optional: groups that no job needs to have. Raises
    UserError for options that do not go together, and for a group that no job uses.
    """
    experiment = f"+{EXPERIMENT}"
    names = sweep_values(EXPERIMENT, request.choices.get(experiment, ""), request.folders) or []
    requests = [replace(request, choices=request.choices | {experiment: name}) for name in names] or [request]
    may_leave_out = bool(names or optional)
    jobs = [job for each in requests for job in _compose_job_of_each_option(each, may_leave_out)]
    for group in request.choices:
        if not (re.search(r"[/@+]", group) or group in optional or any(group in job.groups for job in jobs)):
            raise UserError(describe_unused_group(group, request.choices[group], jobs[0]))
    return jobs


def _compose_job_of_each_option(request: Request, may_leave_out: bool) -> list[Composition]:
    """Compose a job with the first option of each group, and one for each other option of a group that a job uses."""
    values = {group: sweep_values(group.lstrip("+"), text, request.folders) for group, text in request.choices.items()}
    options = {group: names for group, names in values.items() if names}
    may_leave_out = may_leave_out or bool(options)
    choices_of_jobs = [request.choices | {group: names[0] for group, names in options.items()}]
    jobs = [_compose_job(replace(request, choices=choices_of_jobs[0]), may_leave_out)]
    waiting = {group: names[1:] for group, names in options.items()}
    for job, choices in zip(jobs, choices_of_jobs, strict=False):  # which grow by the other options of each group
        for group in list(waiting):
            if group in job.groups or "/" in group:  # in the first job that has the group
                others = [choices | {group: name} for name in waiting.pop(group)]
                choices_of_jobs += others
                jobs += [_compose_job(replace(request, choices=other), may_leave_out) for other in others]
    return jobs


def _compose_job(request: Request, may_leave_out: bool) -> Composition:
    """Compose a job. may_leave_out: whether a group that it does not use is left out, since others may use it."""
    try:
        return compose_options(request)
    except UserError:
        if not may_leave_out:
            raise
        job, unusable = compose_usable(request, verb_setting_types(request.verb))
        if any(re.search(r"[/@+]", group) or group in job.groups for group in unusable):
            raise
        return job
