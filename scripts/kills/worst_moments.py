"""Trainings killed at the two worst moments: where a checkpoint is written and has no name yet, and right after it has
one. The test suite runs this; the other campaigns kill at random.
"""

from __future__ import annotations

import os
import signal
import tempfile
from contextlib import chdir
from pathlib import Path

from kills import place
from kills.child import End, command_line, run
from kills.commands import NETWORKS, NEURAL, Command, resumed

SHORT = ["training.epochs=0.3", "training.evaluate_every=0.1"]


def kill_at(moment: str) -> None:
    """End this process by SIGKILL at its third checkpoint of the optimizer: "unnamed", where it is written and the one
    before it has been put aside, or "named", right after it has its name.
    """
    replace, seen = Path.replace, [0]

    def replaced(source: Path, target: str | Path) -> Path:
        last = Path(target).name == "state.safetensors"
        seen[0] += last
        if last and seen[0] == 3 and moment == "unnamed":
            os.kill(os.getpid(), signal.SIGKILL)
        moved = replace(source, target)
        if last and seen[0] == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return moved

    Path.replace = replaced  # type: ignore[method-assign]


def chosen() -> int:
    """Two kinds of training, each killed at a moment of its own, then resumed; the exit code."""
    with tempfile.TemporaryDirectory(prefix="kills-") as folder, chdir(folder):
        return _chosen(Path(folder).resolve())


def _chosen(top: Path) -> int:
    assert command_line([*NEURAL, *NETWORKS["nplm"], "training.steps=2", "hydra.run.dir=warm"]) == 0
    for moment, network in (("unnamed", "nplm"), ("named", "nce")):
        command = Command(network, [*NEURAL, *SHORT, *NETWORKS[network]], again=resumed)
        work = top / moment
        work.mkdir()
        _expect(0, run(command.words, work))
        wanted = place.bits(command, work)
        (work / "out").rename(work / "whole")
        _expect(-signal.SIGKILL, run(command.words, work, before=lambda moment=moment: kill_at(moment)))
        assert (work / "out" / "state.safetensors").exists() == (moment == "named")
        assert place.not_whole(work) is None, place.not_whole(work)
        _expect(0, run(command.again(command.words, work), work))
        problem = place.different(wanted, place.bits(command, work))
        if problem is not None:
            print(f"{moment} ({' '.join(command.words)}): it {problem}")
            return 1
    print("2 of 2 runs, killed where they write a checkpoint, resumed to the same bits")
    return 0


def _expect(code: int, end: End) -> None:
    assert end.code == code, str(end)
