"""The command line: `lmtool <verb> [overrides] [-m]`.

It takes the verb off the line and hands the rest to Hydra. Nothing here imports torch or numpy, and
the help pages do not import Hydra either, so that they appear at once.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lmtool import __version__
from lmtool.cli import help_pages
from lmtool.cli.arguments import as_settings, is_flag
from lmtool.errors import Interrupted, UserError

# Hydra's flags that take a value of their own; the next word on the line is not an override.
FLAGS_WITH_VALUE = {"--cfg", "-c", "--package", "-p", "--config-dir", "-cd", "--config-name", "-cn", "--info"}


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code: 0 done, 2 the user's mistake, 1 anything else."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _dispatch(words)
    except UserError as error:
        print(f"lmtool: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of our output (a pager, head) has gone: not an error; keep Python's exit quiet too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Interrupted as end:
        print(f"lmtool: {end}", file=sys.stderr)
        return 128 + end.signal
    except KeyboardInterrupt:
        print("lmtool: interrupted", file=sys.stderr)
        return 130
    except Exception:
        traceback.print_exc()
        return 1


def _dispatch(words: list[str]) -> int:
    verb, rest = split_verb(words)
    if verb is None:
        if "--version" in rest:
            print(f"lmtool {__version__}")
        elif not rest or "--help" in rest or "-h" in rest:
            print(help_pages.overview())
        else:
            raise UserError(f"no verb in {' '.join(rest)!r}: choose one of {', '.join(help_pages.VERBS)}")
        return 0
    if verb == "completion":
        from lmtool.cli import completion

        return completion.run(rest)
    if verb == "help" or "--help" in rest or "-h" in rest:
        page = rest[0] if verb == "help" and rest else verb
        print(help_pages.overview() if page == "help" else help_pages.verb_page(page, rest))
        return 0
    return run_verb(verb, rest)


def split_verb(words: list[str]) -> tuple[str | None, list[str]]:
    """The verb, which is the first word that is no flag and no override, and what else there is.

    Flags are put in front of the overrides, which is the only order that Hydra's own parser takes; so
    `-m` can stand anywhere. What a verb takes without a key has its key afterwards. Raises UserError for a word that
    is no verb.
    """
    verb: str | None = None
    flags: list[str] = []
    overrides: list[str] = []
    takes_value = False
    for word in words:
        if takes_value:
            flags.append(word)
            takes_value = False
        elif is_flag(word):
            flags.append(word)
            takes_value = word in FLAGS_WITH_VALUE
        elif verb is None and "=" not in word and word[0:1] not in ("+", "~"):
            verb = word
        else:
            overrides.append(word)
    known = (*help_pages.VERBS, "help", "completion")
    if verb is not None and verb not in known:
        raise UserError(f"no verb {verb!r}{help_pages.nearest(verb, known)}; see lmtool --help")
    return verb, [*flags, *(as_settings(verb, overrides) if verb else overrides)]


def run_verb(verb: str, rest: list[str]) -> int:
    """Compose the verb's configuration with Hydra and run its command, once or as a sweep."""
    import hydra

    from lmtool import config
    from lmtool.cli import hydra_errors, torchrun
    from lmtool.runs import resume
    from lmtool.sweeps import restart, sweep

    config.register()
    rest = restart.words_of(verb, rest)
    command = importlib.import_module(f"lmtool.commands.{help_pages.VERBS[verb].module}")
    failed: list[Exception] = []
    task = _as_task(command.run, failed)
    before = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    rest = torchrun.only_the_first_writes(resume.with_earlier_words(rest), verb)
    sys.argv = ["lmtool", *rest]
    # Hydra then raises its errors instead of printing several lines and leaving with code 1.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    with sweep.watched() as watched:
        try:
            with _composing_once(rest):
                hydra.main(version_base="1.3", config_path=str(help_pages.conf_dir()), config_name=verb)(task)()
        except sweep.Refused as refused:
            raise refused.reason from None
        except Exception as error:
            fault = hydra_errors.as_user_error(error, verb, rest)
            if fault is not None:
                raise fault from error
            if watched.cut_off(error):
                return 1
            raise
        finally:
            sys.argv = before[0]
            if before[1] is None:
                del os.environ["HYDRA_FULL_ERROR"]
            else:
                os.environ["HYDRA_FULL_ERROR"] = before[1]
        if failed:
            raise failed[0]
        return watched.end()


@contextmanager
def _composing_once(rest: list[str]) -> Iterator[None]:
    """Spare Hydra 1.3 composing everything twice: it does so only to see whether hydra.mode is set, which it is not.

    A fifth of a second of every command.
    """
    from hydra._internal.hydra import Hydra

    own = Hydra.get_mode
    if not any("hydra.mode" in word or "hydra/" in word for word in rest):
        Hydra.get_mode = lambda *_, **__: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Hydra.get_mode = own  # type: ignore[method-assign]


def _as_task(run: Callable[[Any], float | None], failed: list[Exception]) -> Callable[[Any], float | None]:
    """The command as Hydra's task.

    In a sweep a failure is kept for the table and the sweep goes on. In a single run it is put into
    `failed`, past Hydra, which would print a line of its own about it.
    """
    from lmtool.cli import hydra_errors

    within = hydra_errors.within_memory(run)

    def task(composed: Any) -> float | None:
        from hydra.core.hydra_config import HydraConfig
        from hydra.types import RunMode

        from lmtool.sweeps import job

        if HydraConfig.get().mode == RunMode.MULTIRUN:
            return job.guarded(within, composed)
        try:
            return within(composed)
        except Exception as error:
            failed.append(error)
            return None

    return task
