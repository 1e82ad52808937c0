"""Run a command line: once, as a sweep, or only to show its settings."""

from __future__ import annotations

import logging
from typing import Any

from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lmtool.cli.arguments import CommandLine
from lmtool.cli.running import compose_request, discard_output_of_higher_ranks, resolve_hydra_by, run_once
from lmtool.cli.sweeping import run_hydra_app, run_sweep
from lmtool.cli.words import parse_request
from lmtool.config.compose import hydra_words, verb_settings
from lmtool.config.request import Request
from lmtool.config.settings import describe_config_error
from lmtool.errors import UserError, first_line
from lmtool.system.process import require_environment
from lmtool.system.terminal import write_out


def run_line(line: CommandLine) -> int:
    """Run a command line and return its exit code.

    Raises UserError for a mistake in the settings, and whatever the command raises.
    """
    logging.raiseExceptions = False  # no traceback for logging to a closed terminal or pipe
    require_environment()
    request = discard_output_of_higher_ranks(parse_request(line))
    part, info = line.flags.get("--cfg"), line.flags.get("--info")
    if info is not None:
        if part is not None:
            raise UserError("--info: show one thing at a time, without --cfg")
        compose_request(request)  # which checks what Hydra will read
        try:
            run_hydra_app(request, [f"--info={info}"], hydra_words(request), lambda _: None)
        except (ValueError, OSError, HydraException, OmegaConfBaseException) as error:
            raise UserError(f"--info: {first_line(error)}") from error
        return 0
    if part is not None:
        return _show_settings(request, part, line.flags.get("--package"), resolve="--resolve" in line.flags)
    if request.sweep:
        return run_sweep(request)
    run_once(request)
    return 0


def _show_settings(request: Request, part: str, package: str | None, *, resolve: bool) -> int:
    """Print composed settings in YAML. part: job, hydra or all."""
    settings = compose_request(request)[1]
    shown: Any = verb_settings(settings) if part == "job" else settings
    if part == "hydra":
        shown = OmegaConf.masked_copy(settings, ["hydra"])
    with resolve_hydra_by(settings):
        try:
            if package is not None:
                shown = OmegaConf.select(shown, package)
            text = OmegaConf.to_yaml(shown, resolve=resolve) if OmegaConf.is_config(shown) else f"{shown}\n"
        except OmegaConfBaseException as error:
            raise UserError(f"--cfg {part}: {describe_config_error(error)}") from error
    if package is not None and shown is None:
        raise UserError(f"--package {package}: no such settings")
    write_out((f"# @package {package}\n" if package else "") + text)
    return 0
