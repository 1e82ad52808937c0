"""The jobs of a sweep: the options of each, composed."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from lmtool.cli import mistakes
from lmtool.cli.unknown_keys import unused
from lmtool.config.compose import Composition
from lmtool.config.grammar import swept
from lmtool.config.options import EXPERIMENT
from lmtool.config.request import Request
from lmtool.config.types import SettingType
from lmtool.errors import UserError


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
