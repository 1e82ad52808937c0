"""The command line: `lmtool <verb> [overrides] [-m]`.

Nothing here imports torch or numpy, and the help pages do not import Hydra either, so that they appear without delay.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from lmtool.cli import help_pages
from lmtool.commands import verbs
from lmtool.config.options import folder_in_use
from lmtool.errors import Interrupted, UserError, escape_controls, translate_path_errors
from lmtool.requests.arguments import split_line
from lmtool.system.process import StopRequest, preserve_interrupts
from lmtool.system.terminal import discard_output, write_out


def main(arguments: list[str] | None = None, command: Callable[[list[str]], int] | None = None) -> int:
    """Run one command line, of lmtool or of `command`; return its exit code: 0 done, 2 user error, 1 anything else."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with preserve_interrupts() as interrupts:
        return _run_and_report(words, command or _dispatch, interrupts)


def _run_and_report(words: list[str], command: Callable[[list[str]], int], interrupts: StopRequest) -> int:
    try:
        with translate_path_errors():
            code = command(words)
        write_out()
        return code
    except UserError as error:
        print(f"lmtool: {error}", file=sys.stderr)
        with suppress(UserError, BrokenPipeError):
            write_out()
        return 2
    except BrokenPipeError:
        # The reader of the output (a pager, head) closed it: not an error, but Python must not write to it on exit.
        discard_output()
        return 0
    except Interrupted as end:
        print(f"lmtool: {escape_controls(str(end))}", file=sys.stderr)
        return 128 + end.signal
    except KeyboardInterrupt:
        return _report_interrupt()
    except MemoryError:  # before the command, in the imports of libraries
        print("lmtool: not enough memory: end other programs, or allow this process more", file=sys.stderr)
        return 2
    except Exception:
        if interrupts.signal:  # a library's own error if its C code did not pass on the exception
            return _report_interrupt()
        traceback.print_exc()
        return 1


def _report_interrupt() -> int:
    print("lmtool: interrupted", file=sys.stderr)
    return 130


def _dispatch(words: list[str]) -> int:
    verb = next((word for word in words if not word.startswith("-")), None)
    if verb == "completion":  # followed by another line or part of one
        from lmtool.cli import completion

        return completion.run(words[words.index(verb) + 1 :])
    line = split_line(words)
    if line.verb is None:
        if "--version" in line.flags:
            print(help_pages.version_page())
        elif not words or "--help" in line.flags:
            print(help_pages.overview())
        else:
            raise UserError(f"no verb in {' '.join(words)!r}: choose one of {', '.join(verbs())}")
        return 0
    options = line.last_override("options")
    with folder_in_use(options.partition("=")[2].strip("'") or None if options else None):
        if line.verb == "help" and line.overrides:
            line = replace(line, verb=line.overrides[0], flags={**line.flags, "--help": ""})
        if line.verb == "help" or "--help" in line.flags:
            print(escape_controls(help_pages.overview() if line.verb == "help" else help_pages.verb_page(line)))
            return 0
        from lmtool.cli.run_line import run_line

        return run_line(line)
