"""Bytes that go where no case has been: the files of the campaign `text`, changed by libFuzzer through atheris, which
counts the branches that a reader takes.

It runs in a process of its own, whose modules are compiled with those counters (but for those of Numba's functions),
from the right files. A fault is written down, and the search goes on; a signal and what does not end, end the process.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fuzzing.campaign import Fault, Row, print_found

OF_ONE = 20  # seconds of one file
MOST = 1 << 14  # bytes of a file
ROOT = Path(__file__).resolve().parents[2]


COMMAND = [sys.executable, "-m", "fuzzing.guided"]


def run_campaign(
    top: Path, seconds: float, seed: int, most: int | None = None, *, command: Sequence[str] = COMMAND
) -> Row | None:
    """Search in a folder for so many seconds, or `most` files. Prints what is found; None without atheris.

    command: begins the process that searches.
    """
    row, start = Row("guided", seed=seed), time.monotonic()
    if find_spec("atheris") is None:
        print("guided: left out: it needs atheris, which is in the extra fuzz: pip install -e .[fuzz]")
        return None
    folder = top / "guided"
    folder.mkdir(exist_ok=True)
    limits = [f"-max_total_time={max(1, round(seconds))}", f"-seed={seed}", *([f"-runs={most}"] if most else [])]
    ended = subprocess.run(
        [*command, *limits], cwd=folder, capture_output=True, text=True, errors="replace", check=False
    )
    found = (folder / "found.jsonl").read_text().splitlines() if (folder / "found.jsonl").exists() else []
    for line in found:
        case, signature, report = json.loads(line)
        row.found[signature] = case, Fault(signature, report)
    for path in (path for path in folder.iterdir() if path.name.startswith(("crash-", "timeout-", "oom-", "leak-"))):
        kind = path.name.partition("-")[0]
        row.found[kind] = [file_of(path.read_bytes())], Fault(kind, ended.stderr[-2000:])
    if ended.returncode and not row.found:
        raise RuntimeError(f"the search did not begin: {ended.stderr[-3000:]}")
    counted = re.findall(r"^#(\d+)\s", ended.stderr, re.MULTILINE)
    row.cases, row.seconds = int(counted[-1]) if counted else 0, time.monotonic() - start
    for signature in row.found:
        print_found(row, signature, seed, of="text")
    return row


def file_of(raw: bytes) -> list[Any]:
    """A file as the campaign `text` has it: the number of its kind, its bytes, a variant."""
    from fuzzing.kinds import KINDS

    kind, variant = (*raw[:2], 0, 0)[:2]
    return [kind % len(KINDS), base64.b64encode(raw[2:]).decode(), variant & 15]


def search(limits: list[str], read: Callable[[list[Any], Path], None] | None = None) -> None:
    """The process that searches, in the folder that it is in. limits: words for libFuzzer. read: in place of text's."""
    import atheris

    compiled = [_name(path) for path in (ROOT / "lmtool").rglob("*.py") if "njit" in path.read_text(encoding="utf-8")]
    with atheris.instrument_imports(include=["lmtool"], exclude=compiled):
        import lmtool  # noqa: F401
        from fuzzing import readings, text

        text.prepare()
        read = read or text.read
    from fuzzing.kinds import KINDS, RIGHT

    seeds = Path("seeds")
    seeds.mkdir()
    for number, kind in enumerate(KINDS):
        for base, content in enumerate(kind.bases):
            if not content.startswith("@bomb"):
                _, raw = text.content_of([number, base, [], "", [], 0])
                for variant in (0, 1, 2, 8):
                    (seeds / f"{number}-{base}-{variant}").write_bytes(bytes([number, variant]) + raw)
    for name, right in RIGHT.items():
        Path(name).write_text(right, encoding="utf-8")
    known: set[str] = set()
    here = Path.cwd()

    def one(raw: bytes) -> None:
        file = file_of(raw)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)
                read(file, here)
        except Exception as error:
            signature = readings.signature_of(error)
            if signature not in known:
                known.add(signature)
                with (here / "found.jsonl").open("a", encoding="utf-8") as found:
                    found.write(json.dumps([[file], signature, traceback.format_exc()[-2500:]]) + "\n")

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    others = [f"-timeout={OF_ONE}", f"-max_len={MOST}", "-rss_limit_mb=6144"]
    atheris.Setup([sys.argv[0], "seeds", *limits, *others], one, internal_libfuzzer=True)
    atheris.Fuzz()


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


if __name__ == "__main__":
    search(sys.argv[1:])
