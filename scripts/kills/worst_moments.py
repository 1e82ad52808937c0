"""Trainings killed at the two worst moments: when a checkpoint is written but has no name yet, and right after it has.

The test suite runs this; the other campaigns kill at random.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from fuzzing.campaign import temporary_folder
from fuzzing.child import quietly

from kills import place
from kills.commands import LIMIT, NETWORKS, NEURAL, Command, resumed, start

SHORT = ["training.epochs=0.3", "training.evaluate_every=0.1"]


def kill_at(moment: str) -> None:
    """Arrange for this process to end by SIGKILL at its third checkpoint: before ("unnamed") or after it is renamed."""
    replace, seen = Path.replace, [0]

    def replaced(source: Path, target: str | Path) -> Path:
        is_state = Path(target).name == "state.safetensors"
        seen[0] += is_state
        if is_state and seen[0] == 3 and moment == "unnamed":
            os.kill(os.getpid(), signal.SIGKILL)
        moved = replace(source, target)
        if is_state and seen[0] == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return moved

    Path.replace = replaced  # type: ignore[method-assign]


def chosen() -> int:
    """Kill two kinds of training, each at its own moment, and resume them; return the exit code."""
    with temporary_folder("kills-") as top:
        quietly([*NEURAL, *NETWORKS["nplm"], "training.steps=2", "hydra.run.dir=warm"])
        for moment, network in (("unnamed", "nplm"), ("named", "nce")):
            command = Command([*NEURAL, *SHORT, *NETWORKS[network]], again=resumed)
            work = top / moment
            work.mkdir()
            whole = command.run(command.words, work)
            assert whole.code == 0, str(whole)
            wanted = place.bits(command, work)
            (work / "out").rename(work / "whole")
            killed = start(command.words, work, before=lambda moment=moment: kill_at(moment)).end(LIMIT)
            assert killed.code == -signal.SIGKILL, str(killed)
            assert (work / "out" / "state.safetensors").exists() == (moment == "named")
            assert place.not_whole(work) is None, place.not_whole(work)
            again = command.run_again(work)
            assert again.code == 0, str(again)
            problem = place.different(wanted, place.bits(command, work))
            if problem is not None:
                print(f"{moment} ({' '.join(command.words)}): it {problem}")
                return 1
    print("2 of 2 runs, killed while writing a checkpoint, resumed to the same bits")
    return 0
