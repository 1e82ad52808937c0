"""Run a command line: once, as a sweep, or only to show its settings."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile

from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lmtool.config.composition import hydra_words, run_hydra_app, verb_settings
from lmtool.config.request import Request
from lmtool.config.settings import describe_config_error
from lmtool.errors import UserError, first_line
from lmtool.requests.arguments import CommandLine
from lmtool.requests.compose import compose_request
from lmtool.requests.run import resolve_hydra_by, run_once
from lmtool.requests.run_sweep import run_sweep
from lmtool.requests.words import parse_request
from lmtool.session import processes_started
from lmtool.system.process import require_environment
from lmtool.system.terminal import write_out


def run_line(line: CommandLine) -> int:
    """Run a command line and return its exit code."""
    logging.raiseExceptions = False  # no traceback for logging to a closed terminal or pipe
    require_environment()
    request = parse_request(line)
    if processes_started() > 1:
        _require_one_training(request)
        request = request_of_rank(request)
    part, info = line.flags.get("--cfg"), line.flags.get("--info")
    if info is not None:
        if part is not None:
            raise UserError("--info: show one thing at a time, without --cfg")
        _show_info(request, info)
    elif part is not None:
        _show_settings(request, part, resolve="--resolve" in line.flags)
    elif request.sweep:
        return run_sweep(request)
    else:
        run_once(request)
    return 0


def _show_info(request: Request, info: str) -> None:
    """Print what Hydra's --info shows of a request. info: one of its values, e.g. defaults."""
    compose_request(request)  # which checks what Hydra will read
    try:
        run_hydra_app(request, [f"--info={info}"], hydra_words(request), lambda _: None)
    except (ValueError, OSError, HydraException, OmegaConfBaseException) as error:
        raise UserError(f"--info: {first_line(error)}") from error


def _show_settings(request: Request, part: str, *, resolve: bool) -> None:
    """Print composed settings in YAML. part: job, hydra or all."""
    settings = compose_request(request)[1]
    shown = verb_settings(settings) if part == "job" else settings
    if part == "hydra":
        shown = OmegaConf.masked_copy(settings, ["hydra"])
    with resolve_hydra_by(settings):
        try:
            write_out(OmegaConf.to_yaml(shown, resolve=resolve))
        except OmegaConfBaseException as error:
            raise UserError(f"--cfg {part}: {describe_config_error(error)}") from error


def _require_one_training(request: Request) -> None:
    """Raise UserError for a request that several processes of torchrun cannot run together."""
    if request.verb != "train" or request.sweep:
        raise UserError(
            "torchrun starts several processes, which can only train one model together: run this command without "
            "torchrun"
        )


def request_of_rank(request: Request) -> Request:
    """Return this process's request; higher ranks get a temporary output folder, removed when the process ends."""
    if os.environ.get("RANK", "0") == "0":
        return request
    folder = tempfile.mkdtemp(prefix="lmtool-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return request.with_out(folder).updated(Request(request.verb, values={"hydra.output_subdir": None}))
