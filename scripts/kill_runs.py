#!/usr/bin/env python3
"""./scripts/measure kills, or this file with a number: trainings killed at random moments resume to the same bits.

With `chosen` in place of the number: two trainings killed at the two worst moments, which the test suite does.

Each of so many trainings (200 unless said), of five kinds in turn, is ended at a random moment by SIGKILL, SIGINT or
SIGTERM, perhaps a second time after it was resumed, then resumed to its end. After every kill each file in its folder
must be whole; at the end weights and metrics must be those of the training that nobody disturbed. The exit code is 1
where one is not.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

COMMON = ["train", "data=synthetic", "data.types=200", "data.tokens=20000", "data.valid_tokens=2000", "threads=1"]
COMMON += ["data.test_tokens=100", "model.embedding_dim=8", "training.minutes=null", "training.save_every=0.0005"]
COMMON += ["training.evaluate_every=0.25", "training.epochs=0.75", "training.batch_size=256", "training.accuracy_on=64"]
KINDS = [
    ["model=nplm", "model.hidden_dim=16"],
    ["model=hsoftmax", "model.hidden_dim=16", "optim=adagrad", "schedule=plateau", "training.max_norm=1"],
    ["model=nce", "model.hidden_dim=16", "output.noise=20", "optim=sgd", "optim.momentum=0.5"],
    ["model=nplm", "model.hidden_dim=16", "training.memory=64KiB", "schedule=inverse", "optim=adam"],  # streamed
    ["model=lbl", "output=adaptive", "output.cutoffs=[50,100]", "output.div_value=2", "schedule=linear"],
]
SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM]
EXPECTED = {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 130, signal.SIGTERM: 143}


def kill_at(moment: str) -> None:
    """End this process by SIGKILL at its third checkpoint of the optimiser: "unnamed", where it is written and the one
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


def start(words: list[str], moment: str | None = None) -> int:
    """A command line in a child of this process, which has the libraries already; it kills itself at a moment."""
    child = os.fork()
    if child:
        return child
    if moment is not None:
        kill_at(moment)
    log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    from lmtool.cli.command_line import main

    code = main(words)
    sys.stdout.flush()
    os._exit(code)


def ended(child: int) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code


def outcome(folder: Path) -> tuple[dict[str, bytes], list[dict[str, float]]]:
    """The weights, byte by byte, and the metrics without the times."""
    from safetensors.numpy import load_file

    weights = {name: array.tobytes() for name, array in load_file(folder / "checkpoint.safetensors").items()}
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return weights, [{k: v for k, v in line.items() if "second" not in k} for line in lines]


def check_whole(folder: Path) -> None:
    """Every file that has its final name can be read."""
    from lmtool.runs.run import STATE, STATE_BEFORE, Run
    from lmtool.runs.weights import read_notes
    from lmtool.training.state import read_state

    for name in (STATE, STATE_BEFORE):
        if (folder / name).exists():
            read_state(folder / name)
    if (folder / "checkpoint.safetensors").exists():
        read_notes(folder / "checkpoint.safetensors")
    if (folder / "run.json").exists():
        Run.open(folder)


def chosen() -> int:
    """Two kinds of training, each killed at a moment of its own, then resumed."""
    os.chdir(tempfile.mkdtemp(prefix="kills-"))
    from lmtool.cli.command_line import main as lmtool
    from lmtool.commands import train_neural

    train_neural.can_plot = lambda: False
    short = ["training.epochs=0.3", "training.evaluate_every=0.1"]
    assert lmtool([*COMMON, *KINDS[0], "training.steps=2", "hydra.run.dir=warm"]) == 0
    for moment, kind in (("unnamed", KINDS[0]), ("named", KINDS[2])):
        words = [*COMMON, *short, *kind]
        assert ended(start([*words, f"hydra.run.dir=whole-{moment}"])) == 0, Path("log.txt").read_text()
        folder = Path(moment)
        code = ended(start([*words, f"hydra.run.dir={folder}"], moment))
        assert code == -signal.SIGKILL, f"{moment}: exit code {code}\n{Path('log.txt').read_text()}"
        assert (folder / "state.safetensors").exists() == (moment == "named")
        check_whole(folder)
        assert ended(start(["train", f"resume={folder}"])) == 0, Path("log.txt").read_text()
        if outcome(folder) != outcome(Path(f"whole-{moment}")):
            print(f"{moment} ({' '.join(kind)}) ended with other bits")
            return 1
    print("2 of 2 runs, killed where they write a checkpoint, resumed to the same bits")
    return 0


def main() -> int:
    if sys.argv[1:] == ["chosen"]:
        return chosen()
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    os.chdir(tempfile.mkdtemp(prefix="kills-"))
    from lmtool.cli.command_line import main as lmtool
    from lmtool.commands import train_neural

    # Here, where threads=1 starts no thread that would not come along: the children then have all that it takes.
    train_neural.can_plot = lambda: False  # the curves take longer than the training
    assert all(
        lmtool([*COMMON, *kind, "training.steps=5", f"hydra.run.dir=warm{k}"]) == 0 for k, kind in enumerate(KINDS)
    )
    wanted, seconds = [], []
    for number, kind in enumerate(KINDS):
        begun = time.perf_counter()
        assert ended(start([*COMMON, *kind, f"hydra.run.dir=whole{number}"])) == 0, Path("log.txt").read_text()
        seconds.append(time.perf_counter() - begun)
        wanted.append(outcome(Path(f"whole{number}")))
    same, kills, before = 0, 0, 0
    for number in range(runs):
        kind = number % len(KINDS)
        folder = Path(f"run{number}")
        words = [*COMMON, *KINDS[kind], f"hydra.run.dir={folder}"]
        for _ in range(rng.choice([1, 1, 2])):
            child = start(words)
            time.sleep(rng.uniform(0.02, seconds[kind]))
            which = rng.choice(SIGNALS)
            os.kill(child, which)
            code = ended(child)
            # Outside of the training itself SIGTERM ends the process as it ends any other.
            if code not in (0, EXPECTED[which], -which):
                print(f"run {number}: exit code {code} after signal {which}\n{Path('log.txt').read_text()[-2000:]}")
                return 1
            kills += code != 0
            check_whole(folder)
            if (folder / ".hydra" / "overrides.yaml").exists():
                words = ["train", f"resume={folder}"]
            before += not (folder / "state.safetensors").exists()
        assert ended(start(words)) == 0, Path("log.txt").read_text()[-2000:]
        if outcome(folder) != wanted[kind]:
            print(f"run {number} ({' '.join(KINDS[kind])}) ended with other bits")
            return 1
        same += 1
    print(
        f"{same} of {runs} runs, ended early {kills} times ({before} times before the first checkpoint), "
        f"resumed to the same bits; seconds of one undisturbed: {np.mean(seconds):.2f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
