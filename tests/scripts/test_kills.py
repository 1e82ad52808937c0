"""./scripts/fuzz kills: what a power cut may leave, worked out by hand; a campaign finds what is planted; what the
campaigns found stays mended (the rest of that is beside the code it is about).
"""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lmtool.system.files import cannot_write
from tests.conftest import ROOT, Run

SCRIPTS = ROOT / "scripts"
NGRAM = ["train", "model=ngram", "data=toy", "threads=1", "hydra.run.dir=out"]


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from fuzzing import campaign, child
    from kills import commands, judge, power

    return SimpleNamespace(campaign=campaign, child=child, commands=commands, states=power, judge=judge)


def history(kills: Any, *, syncs_folder: bool) -> Any:
    """Return steps in which model.h5 is written, synced and named, and then run.json, which names it."""
    states = kills.states
    steps = [
        states.Names(((0, ".model.tmp", 1),)),
        states.Write(1, 0, b"model"),
        states.Sync(1),
        states.Names(((0, ".model.tmp", None), (0, "model.h5", 1))),
        states.Sync(0),
        states.Names(((0, "run.json", 2),)),
        states.Write(2, 0, b"{"),
        states.Write(2, 1, b"}"),
    ]
    if not syncs_folder:
        steps.remove(states.Sync(0))
    return states.History(steps=steps)


def test_what_a_power_cut_may_leave(kills: Any) -> None:
    whole = history(kills, syncs_folder=True)
    assert whole.undisturbed() == {"model.h5": b"model", "run.json": b"{}"}
    assert whole.uncertain(8) == [5] and whole.uncertain(4) == [0, 3]
    # Nothing but what was synced: the model, whose name is certain since its folder was synced.
    assert whole.after(8, lambda _: False, lambda _: 0) == {"model.h5": b"model"}
    assert whole.after(8, lambda _: True, lambda _: 0)["run.json"] == b""
    assert whole.after(8, lambda _: True, lambda _: 1)["run.json"] == b"{"
    assert whole.after(8, lambda _: True, lambda _: None)["run.json"] == b"\0\0"
    # The content of the model was synced before its name was made.
    assert whole.after(4, lambda number: number == 3, lambda _: 0) == {"model.h5": b"model"}
    careless = history(kills, syncs_folder=False)
    assert careless.uncertain(7) == [0, 3, 4]
    assert careless.after(7, lambda number: number == 4, len) == {"run.json": b"{}"}, "run.json without its model"
    states = [tuple(kills.states.some_crash(one, random.Random(k))[1]) for one in (whole, careless) for k in range(200)]
    assert ("run.json",) not in states[:200] and ("run.json",) in states[200:]


def test_a_state_is_laid_out_over_what_is_there(kills: Any, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("a/b/gone", "a/same", "other"):
        (tmp_path / name).write_text("x")
    os.utime(tmp_path / "a" / "same", (1, 1))
    kills.states.lay_out({"a": None, "a/same": b"x", "other": b"y", "c": None, "c/d": b"z"}, tmp_path)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["a", "a/same", "c", "c/d", "other"]
    assert (tmp_path / "other").read_text() == "y" and (tmp_path / "a" / "same").stat().st_mtime == 1


def test_what_a_command_does_is_recorded(kills: Any, tmp_path: Path) -> None:
    """Every file at the end of a training is in its history, and what its names promise holds after any power cut."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "before.txt").write_text("it stays")
    end, seen = kills.states.recorded(NGRAM, work)
    assert end.code == 0, str(end)
    found = {str(path.relative_to(work)): None if path.is_dir() else path.read_bytes() for path in work.rglob("*")}
    assert seen.undisturbed() == found and {"before.txt", "out/run.json", "out/model.h5"} <= found.keys()
    # Whatever a power cut removes: if run.json exists, the files that it names exist and are complete.
    whole = seen.undisturbed()
    rng = random.Random(1)
    finished = 0
    for _ in range(300):
        about, state = kills.states.some_crash(seen, rng)
        if state.get("out/run.json") == whole["out/run.json"]:
            finished += 1
            for name in ("out/model.h5", "out/vocabulary.txt", "out/result.json"):
                assert state.get(name) == whole[name], about
    assert finished > 10


def test_a_campaign_tells_a_good_end_from_a_bad_one(kills: Any, tmp_path: Path) -> None:
    command = kills.commands.Command(["train"], whole_with="out/run.json")
    (tmp_path / "out").mkdir()
    wanted = kills.judge.Undisturbed({"out/run.json": b'{"a": 1}'}, [8], 1.0)
    end = kills.child.End

    def judged(check: Callable[[Any], None], content: str) -> tuple[str, list[str]]:
        case = kills.judge.Case(command, tmp_path, wanted, random.Random(1))
        (tmp_path / "out" / "run.json").write_text(content)
        try:
            check(case)
        except kills.campaign.Fault as fault:
            return fault.signature, case.refused
        return "", case.refused

    for outcome, whole, found in (
        (end(0, "", ""), True, ""),
        (end(2, "", "lmtool: no\n"), True, ""),
        (end(2, "", "lmtool: no\nmore\n"), True, "exit code 2: more"),
        (end(1, "", "Traceback\nKeyError: 1\n"), True, "exit code 1: KeyError: 1"),
        (end(0, "", ""), False, "other bits: it differs in out/run.json"),
        (end(2, "", "lmtool: no\n"), False, "finished, but not whole: it differs in out/run.json"),
    ):
        content = '{"a": 1, "seconds": 2}' if whole else '{"a": 2}'
        refused = ["lmtool: no"] if outcome.code == 2 and not found else []
        assert judged(lambda case, end=outcome: case.check_end(end), content) == (found, refused), outcome
    (tmp_path / "out" / ".tmpab12CD").write_text("")
    left = judged(lambda case: case.check_end(end(0, "", "")), '{"a": 1}')
    assert left[0] == "left behind: out/.tmpab12CD"
    assert judged(lambda case: case.check_whole(), '{"a": ')[0].startswith("not whole: out/run.json")
    assert judged(lambda case: case.check_whole(), "{}")[0] == ""
    (tmp_path / "counts-own.h5").write_bytes(b"\x89HDF")
    for cached in (False, True):
        signature, _ = judged(lambda case, cached=cached: case.check_whole(cached=cached), "{}")
        assert signature.startswith("not whole") == cached


def test_every_kind_has_a_command(kills: Any) -> None:
    from kills.kinds import CAMPAIGNS

    assert {"nce", "power-tree", "size-nplm", "memory-counts"} < CAMPAIGNS.keys()


def test_a_full_disk_where_hydra_writes(tmp_path: Path) -> None:
    """One line, before lmtool has written anything itself."""

    def as_child() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))  # Hydra's YAML files are larger

    done = subprocess.run(
        [sys.executable, "-m", "lmtool", *NGRAM], capture_output=True, text=True, cwd=tmp_path, preexec_fn=as_child,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    line = "lmtool: cannot use the output folder: File too large; choose another folder, e.g. out=FOLDER\n"
    assert done.stderr == line


def test_too_little_memory_is_neither_a_damaged_file_nor_a_full_disk(
    lmtool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = cannot_write(Path("x.h5"), OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)))
    assert str(said) == "cannot write x.h5: Cannot allocate memory; give this process more memory, or set counts.memory"
    lmtool(*NGRAM)
    from lmtool.ngram.files import hdf5

    def no_space(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(hdf5.np, "memmap", no_space)
    with monkeypatch.context():
        said_now = lmtool("eval", "run=out", code=2)
    assert said_now.startswith("lmtool: not enough memory") and "train the model again" not in said_now


def test_what_was_killed_after_it_had_its_store_leaves_nothing(lmtool: Run) -> None:
    from lmtool.system.files import process_tag

    lmtool("preprocess", "data=toy")
    stale = Path("stores", f".toy.h5.train.{process_tag().partition('.')[0]}.99999999.ids.tmp")
    stale.write_text("ids")
    assert "nothing to do" in lmtool("preprocess", "data=toy")
    assert not stale.exists()
