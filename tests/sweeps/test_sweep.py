"""Sweeps: each launcher and the search, what a table says, and what is done again and what is not."""

from __future__ import annotations

import csv
import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from lmtool import session
from lmtool.cli import command_line
from lmtool.sweeps import launchers, result_table
from lmtool.system import parallel
from lmtool.system.lock import folder_lock
from tests.conftest import Run

NGRAM = ("train", "-m", "model=ngram", "data=toy")
DIR = "hydra.sweep.dir=sweep"
JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")


def table(name: str = "sweep/sweep.csv") -> list[dict[str, str]]:
    return list(csv.DictReader(Path(name).read_text().splitlines()))


def status(job: int | str, folder: str = "sweep") -> dict[str, Any]:
    return json.loads(Path(folder, str(job), "job.json").read_text())


def stamps() -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in Path("sweep").glob("*/job.json")}


def test_a_sweep_ends_with_a_table_best_first(lmtool: Run) -> None:
    printed = lmtool(*NGRAM, "model.order=1,3", DIR)
    rows = table()
    assert list(rows[0]) == ["job", "model.order", "valid_perplexity", "seconds", "status"]
    assert [(row["job"], row["model.order"], row["status"]) for row in rows] == [("1", "3", "done"), ("0", "1", "done")]
    assert float(rows[0]["valid_perplexity"]) < float(rows[1]["valid_perplexity"])
    assert printed.index("\n1    3") < printed.index("\n0    1")
    lines = Path("sweep/sweep.md").read_text().splitlines()
    assert lines[0] == "    lmtool train -m model=ngram data=toy model.order=1,3"
    assert lines[2:5][:2] == ["| job | model.order | valid_perplexity | seconds | status |", "| --- " * 5 + "|"]
    assert lines[4].startswith("| 1 | 3 | ") and lines[4].endswith(" | done |")
    assert status(1)["value"] == float(rows[0]["valid_perplexity"]) and status(1)["threads"] == parallel.cores()
    assert not Path("sweep/sweep-seeds.csv").exists()

    # Started again, the short way: nothing is left to do.
    before = stamps()
    assert "2 of these were finished before and not run again" in lmtool("train", "resume=sweep", "-m")
    assert stamps() == before and [row["status"] for row in table()] == ["done", "done"]
    # Another sweep is not let in.
    said = lmtool(*NGRAM, "model.order=1,2,3", DIR, code=2)
    assert "sweep holds another sweep (lmtool train -m model=ngram data=toy model.order=1,3)" in said
    assert said.count("\n") == 1 and "choose another out=" in said
    with folder_lock(Path("sweep")):
        assert f"sweep is in use by process {os.getpid()}" in lmtool("train", "-m", "resume=sweep", code=2)
    assert "leave it out" in lmtool("train", "-m", "resume=sweep", "model.order=3", code=2)
    other = "metric=cloze_perplexity"
    assert f"; lmtool report sweep {other} draws" in lmtool("train", "-m", "resume=sweep", other, code=2)
    assert "a sweep of lmtool train" in lmtool("eval", "-m", "resume=sweep", code=2)
    assert "holds no sweep" in lmtool("train", "-m", "resume=sweep/0", code=2)
    Path("sweep/multirun.yaml").write_text("hydra: [")  # Hydra's own is not read
    assert "2 of these were finished before and not run again" in lmtool("train", "resume=sweep", "-m")
    Path("sweep/sweep.json").write_text("{")
    assert "sweep.json is damaged" in lmtool("train", "-m", "resume=sweep", code=2)


def test_started_again_what_is_whole_stays_and_the_rest_is_done(lmtool: Run) -> None:
    assert "model=xx" in lmtool(*NGRAM[:2], "model=xx", DIR, code=2)  # no job ran: the folder is still free
    line = (*NGRAM, "model.order=2,0,3,4", DIR)
    assert "model.order=0: must be" in lmtool(*line, code=2)
    assert [row["model.order"] for row in table()] == ["3", "4", "2", "0"]
    assert table()[-1]["status"].startswith("model.order=0: must be from 1 to 16")
    before, values = stamps(), {job: status(job)["value"] for job in (0, 2, 3)}
    Path("sweep/0/result.json").write_text("{")  # damaged
    Path("sweep/2/run.json").unlink()  # cut off before its last file; 3 after it, before its note
    for cut_off in (2, 3):
        record = status(cut_off)
        started = {"request": record["request"], "status": "running"}
        Path(f"sweep/{cut_off}/job.json").write_text(json.dumps(started))
    models = [Path(f"sweep/{job}/model.h5").stat().st_mtime_ns for job in (0, 2, 3)]
    lmtool(*line, code=2)
    after = stamps()
    assert all(after[job] > before[job] for job in ("0", "1", "2", "3"))
    assert {job: status(job)["value"] for job in (0, 2, 3)} == values
    made = [Path(f"sweep/{job}/model.h5").stat().st_mtime_ns for job in (0, 2, 3)]
    assert made[0] > models[0] and made[1] > models[1] and made[2] == models[2]
    assert [row["status"] for row in table()][:3] == ["done"] * 3


NETWORK = ("training.epochs=1", "training.batch_size=64", "model.hidden_dim=4")


def test_a_setting_that_some_options_lack_is_left_out_there(lmtool: Run) -> None:
    line = ("train", "-m", "data=toy", "model=nplm,ngram", *NETWORK, "smoother=laplace", "model.order=1,2", DIR)
    printed = lmtool(*line)
    assert "note: - is a setting that the job's options do not have; it was left out there" in printed
    keys = ("job", "model", "training.epochs", "smoother", "model.order")
    rows = sorted([row[key] for key in keys] for row in table())
    assert rows == [["0", "nplm", "1", "", ""], ["2", "ngram", "", "laplace", "1"], ["3", "ngram", "", "laplace", "2"]]
    assert "3 of these were finished before" in lmtool("train", "-m", "resume=sweep")
    # What no option has is refused before any job; the options may come from glob() or from a YAML file too.
    some = ("train", "-m", "data=toy", "model=glob(*ngram)", "hydra.sweep.dir=other")
    assert "no key 'optim.lr'; it is a key of model=" in lmtool(*some, "optim.lr=1", code=2)
    assert "'trainin.epochs'; did you mean training.epochs?" in lmtool(*line[:-1], "trainin.epochs=1", code=2)
    Path("own/experiment").mkdir(parents=True)
    Path("own/experiment/e.yaml").write_text(
        "# @package _global_\nhydra: {mode: MULTIRUN, sweeper: {params: {model: 'ngram,lbl', model.order: 1}}}\n"
    )
    words = ("+experiment=e", "data=toy", *NETWORK[:2], "hydra.sweep.dir=e")
    lmtool("train", "--config-dir", "own", *words)
    assert {(row["model"], row["model.order"]) for row in table("e/sweep.csv")} == {("ngram", "1"), ("lbl", "")}


def test_a_sweep_none_of_whose_jobs_began_leaves_its_folder(lmtool: Run) -> None:
    assert "model.order=99: must be" in lmtool(*NGRAM, "model.order=0,98,99", DIR, code=2)
    lmtool(*NGRAM, "model.order=1,0", DIR, code=2)
    assert [row["status"][:4] for row in table()] == ["done", "mode"]
    assert "holds another sweep" in lmtool(*NGRAM, "model.order=1,2", DIR, code=2)


def test_a_word_that_no_job_allows_is_refused_before_the_folder_is_made(lmtool: Run) -> None:
    wrong = "metric=cloze_accuracy"
    assert f"{wrong}: must be perplexity or cloze_perplexity" in lmtool(*NGRAM, "model.order=1,2", wrong, DIR, code=2)
    assert not Path("sweep").exists()


def test_jobs_that_write_elsewhere_occupy_the_folder_of_their_sweep(lmtool: Run) -> None:
    lmtool("train", "model=ngram", "data=toy", "hydra.run.dir=run")
    line = ("convert", "-m", "run=run", DIR)
    assert "run=none" in lmtool(*line[:2], "run=none", DIR, "to=1.arpa,2.arpa", code=2)
    lmtool(*line, "to=1.arpa,2.arpa")
    before = status(0)
    assert "sweep holds another sweep (lmtool convert -m" in lmtool(*line, "to=1.arpa,3.arpa", code=2)
    for cut_off in ({"status": "running"}, {"status": "failed", "value": None, "error": "KeyError()", "code": 1}):
        for job in (0, 1):
            record = {"request": before["request"]} | cut_off
            Path(f"sweep/{job}/job.json").write_text(json.dumps(record))
        assert "sweep holds another sweep" in lmtool(*line, "to=1.arpa,3.arpa", code=2)
    assert not Path("3.arpa").exists()


def test_jobs_do_not_share_a_file(lmtool: Run) -> None:
    lmtool("train", "model=ngram", "data=toy", "hydra.run.dir=run")
    said = lmtool("convert", "-m", "run=run", "prune_to=10,20", DIR, "to=small.arpa", code=2)
    assert "to=small.arpa: all jobs of the sweep would write this file; run the command once for each" in said
    assert not Path("small.arpa").exists()


def test_jobs_do_not_share_a_folder(lmtool: Run) -> None:
    said = lmtool(*NGRAM, "model.order=1,2", DIR, "hydra.sweep.subdir=one", code=2)
    assert "sweep/one holds another job (model=ngram data=toy model.order=1)" in said and status("one")["request"][
        "values"
    ] == {"model.order": 1}
    assert table()[0]["status"] == "done" and "another job" in table()[1]["status"]
    assert len(table()) == 2
    # A job that outlived the process that started it.
    Path("other/1").mkdir(parents=True)
    asked = {"verb": "train", "choices": {"model": "ngram", "data": "toy"}, "values": {"model.order": 2}}
    begun = {"request": asked, "status": "running"}
    Path("other/1/job.json").write_text(json.dumps(begun))
    with folder_lock(Path("other/1"), ".job.lock"):
        lmtool(*NGRAM, "model.order=1,2", "hydra.sweep.dir=other", code=2)
    assert [row["status"].partition(" by ")[0] for row in table("other/sweep.csv")] == [
        "done",
        str(Path("other/1").resolve()) + " is in use",
    ]


def test_failures_of_our_own_give_code_1_and_ctrl_c_stops_all(
    lmtool: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from lmtool.commands import train
    from lmtool.commands.train import Settings as TrainSettings
    from lmtool.results import RateTest

    def run(config: TrainSettings, session: session.Session) -> RateTest:
        if config.seed == 2:
            raise failure
        return RateTest([], [], [], 0.0)  # whose metric is not a number

    monkeypatch.setattr(train, "run", run)
    failure: BaseException = RuntimeError("not the user's")
    assert command_line.main([*NGRAM, "seed=1,2", DIR]) == 1
    assert "RuntimeError: not the user's" in capfd.readouterr().err
    assert [status(job)["status"] for job in (0, 1)] == ["done", "failed"]
    assert status(1)["error"].startswith("not the user's (RuntimeError): a fault of") and status(0)["value"] is None
    failure = KeyboardInterrupt()
    said = lmtool(*NGRAM, "seed=2,1", "hydra.sweep.dir=stopped", code=130)
    assert "resume it with: lmtool train -m resume=stopped" in said
    assert status(0, "stopped")["status"] == "running" and not Path("stopped/1").exists()


def test_other_verbs_are_swept_too(lmtool: Run) -> None:
    lmtool(*NGRAM, "model.order=1,2", DIR)
    lmtool("eval", "-m", "run=sweep/0,sweep/1", "hydra.sweep.dir=evals")
    rows = table("evals/sweep.csv")
    assert list(rows[0])[1:4] == ["run", "split", "perplexity"] and rows[0]["run"] == "sweep/1"
    lmtool("ensemble", "-m", "runs=[sweep/0,sweep/1]", "hydra.sweep.dir=mixed")
    assert [(row["status"], float(row["perplexity"]) > 1) for row in table("mixed/sweep.csv")] == [("done", True)]


def job(folder: Path, number: int, value: float | None, **settings: object) -> None:
    """Write the folder of a job, finished if it has a value."""
    place = folder / str(number)
    place.mkdir()
    record: dict[str, Any] = {"request": {"verb": "train", "values": settings}}
    done = value is not None
    record |= {"status": "done", "made": ["result.json"]} if done else {"status": "failed", "error": "no", "code": 1}
    (place / "job.json").write_text(json.dumps(record))
    if done:
        (place / "result.json").write_text(json.dumps({"valid_perplexity": value, "seconds": 1.5}))


def test_mean_and_spread_over_seeds(tmp_path: Path) -> None:
    for number, (lr, seed, value) in enumerate(
        [(1, 1, 10.0), (1, 2, 14.0), (2, 1, 1.0), (2, 2, 2.0), (2, 3, 6.0), (3, 1, 5.0), (3, 2, None), (4, 1, None)]
    ):
        job(tmp_path, number, value, data="toy", lr=lr, seed=seed)
    rows = result_table.read_rows(tmp_path)
    assert [row.job for row in rows] == ["2", "3", "5", "4", "0", "1", "6", "7"]
    assert result_table.exit_code(rows) == 1
    # Of 1, 2, 6: mean 3, squared deviations 4 + 1 + 9 over n - 1 = 2. Of 10, 14: mean 12, (4 + 4) / 1.
    assert result_table.seeds_table(rows) == (
        ["lr", "seeds", "mean valid_perplexity", "standard deviation"],
        [
            [2, 3, 3.0, pytest.approx(math.sqrt(7))],
            [3, 1, 5.0, None],
            [1, 2, 12.0, pytest.approx(math.sqrt(8))],
            [4, 0, None, None],
        ],
    )
    assert result_table.seeds_table([row for row in rows if row.settings["seed"] == 1]) is None
    assert result_table.seeds_table([row for row in rows if row.job in ("0", "3")]) is None  # lr differs too


def test_seeds_and_two_jobs_at_once_with_joblib(lmtool: Run) -> None:
    printed = lmtool(*NGRAM, "model.order=2,0", "seed=1,2", DIR, *JOBLIB, code=2)
    assert "model.order=0: must be" in printed
    assert [row["status"][:4] for row in table()] == ["done", "done", "mode", "mode"]
    assert {status(job)["threads"] for job in (0, 1)} == {max(1, parallel.cores() // 2)}
    (two, none) = table("sweep/sweep-seeds.csv")
    assert (two["model.order"], two["seeds"], float(two["standard deviation"])) == ("2", "2", 0.0)
    assert float(two["mean valid_perplexity"]) == pytest.approx(status(0)["value"])
    assert (none["model.order"], none["seeds"], none["mean valid_perplexity"]) == ("0", "0", "")
    assert "| 2 | 2 | " in Path("sweep/sweep.md").read_text()


def test_submitit(lmtool: Run) -> None:
    # Submitit's processes share only the given arguments with this process.
    launcher = ("hydra/launcher=submitit_local", "hydra.launcher.cpus_per_task=3", "hydra.launcher.timeout_min=2")
    printed = lmtool(*NGRAM, "model.order=1,2", DIR, *launcher)
    assert "\n1    2" in printed
    assert [(status(job)["status"], status(job)["threads"]) for job in (0, 1)] == [("done", 3)] * 2
    # The launcher is not part of a job's identity.
    assert "2 of these were" in lmtool(*NGRAM, "model.order=1,2", DIR)
    if not shutil.which("sbatch"):
        assert "no sbatch on this machine" in lmtool(*NGRAM, "seed=1,2", "hydra/launcher=submitit_slurm", code=2)


def test_optuna_with_a_seed_comes_again(lmtool: Run) -> None:
    search = ("smoother=laplace", "smoother.alpha=tag(log, interval(1e-3, 1))", "hydra/sweeper=optuna")
    line = (*NGRAM, "model.order=1", *search, "hydra.sweeper.n_jobs=1", DIR)
    seeded = (*line, "hydra.sweeper.sampler.seed=1")
    lmtool(*seeded, "hydra.sweeper.n_trials=2")
    rows = table()
    assert len(rows) == 2 and all(0.001 <= float(row["smoother.alpha"]) <= 1 for row in rows)
    best = Path("sweep/optimization_results.yaml").read_text()
    assert rows[0]["smoother.alpha"] in best and rows[0]["valid_perplexity"] in best
    before = stamps()
    assert "2 of these were" in lmtool("train", "-m", "resume=sweep", "hydra.sweeper.n_trials=3")
    assert len(stamps()) == 3 and stamps() == before | {"2": stamps()["2"]}
    assert "holds another sweep" in lmtool(*line, "hydra.sweeper.sampler.seed=2", code=2)
    assert "SQLAlchemy 1.4" in lmtool(*line[:-1], "hydra.sweeper.storage=sqlite:///x.db", code=2)
    # Without a seed its trials are others each time.
    lmtool(*line[:-1], "hydra.sweeper.n_trials=1", "hydra.sweep.dir=unseeded")
    assert "cannot be repeated" in lmtool(*line[:-1], "hydra.sweep.dir=unseeded", code=2)


def test_the_objective_of_a_search_is_the_mean_over_seeds(lmtool: Run) -> None:
    search = ("model.activation=choice(gelu)", "hydra/sweeper=optuna", "hydra.sweeper.sampler.seed=1")
    line = ("train", "-m", "data=toy", *NETWORK, "seed=1,2", *search, "hydra.sweeper.n_trials=1", DIR)
    lmtool(*line)
    rows = table()
    assert sorted((row["job"], row["seed"], row["model.activation"]) for row in rows) == [
        ("0/seed1", "1", "gelu"),
        ("0/seed2", "2", "gelu"),
    ]
    one, two = (float(row["valid_perplexity"]) for row in rows)
    best = yaml.safe_load(Path("sweep/optimization_results.yaml").read_text())
    assert best["best_value"] == pytest.approx((one + two) / 2) and best["best_params"] == {"model.activation": "gelu"}
    assert float(table("sweep/sweep-seeds.csv")[0]["mean valid_perplexity"]) == pytest.approx((one + two) / 2)
    assert "2 of these were finished before" in lmtool("train", "-m", "resume=sweep") and one != two


@pytest.fixture
def killed_afterwards() -> Iterator[list[int]]:
    pids: list[int] = []
    yield pids
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def holder(lock: Path, patience: float = 60.0) -> int:
    """Return the process that holds a lock, as soon as one does."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if lock.exists() and (words := lock.read_text().split()):
            return int(words[1])
        time.sleep(0.05)
    raise AssertionError(f"nobody holds {lock}")


def test_a_killed_worker_leaves_a_table_and_a_second_process_is_refused(
    lmtool: Run, tmp_path: Path, killed_afterwards: list[int]
) -> None:
    words = ("preprocess", "-m", "data=synthetic", "data.tokens=1000,3000000000")
    process = subprocess.Popen(
        [sys.executable, "-m", "lmtool", *words, DIR, *JOBLIB],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    killed_afterwards.append(process.pid)
    long = holder(Path("sweep/1/.job.lock"))
    killed_afterwards.append(long)
    while not Path("sweep/0/job.json").exists() or status(0)["status"] == "running":
        time.sleep(0.05)
    assert f"sweep is in use by process {process.pid}" in lmtool(*words, DIR, code=2)
    os.kill(long, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert "TerminatedWorkerError" in err and "resume it with: lmtool preprocess -m resume=sweep" in err
    assert "Traceback" not in err
    assert [(row["data.tokens"], row["status"]) for row in table()] == [("1000", "done"), ("3000000000", "cut off")]
    assert "cut off" in out


def is_running(process: int) -> bool:
    """Return whether a process runs; a zombie, which its parent has not waited for, does not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


# `python -m lmtool` that waits a second, not 15, for the result of a job that was killed.
IMPATIENT = "from submitit import Job; from lmtool.__main__ import run; Job._results_timeout_s = 1; run()"


def test_a_killed_job_of_submitit_fails_alone_and_an_interruption_cancels_all(
    lmtool: Run, killed_afterwards: list[int]
) -> None:
    words = ("preprocess", "-m", "data=synthetic", "data.tokens=3000000000,1000", "hydra/launcher=submitit_local")

    def started(folder: str) -> tuple[subprocess.Popen[str], int]:
        process = subprocess.Popen(
            [sys.executable, "-c", IMPATIENT, *words, "hydra.launcher.timeout_min=2", f"hydra.sweep.dir={folder}"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        long = holder(Path(folder, "0/.job.lock"))
        killed_afterwards.extend([process.pid, long])
        while not (Path(folder, "0/job.json").exists() and Path(folder, "1/job.json").exists()):
            time.sleep(0.05)
        return process, long

    process, long = started("sweep")
    os.kill(long, signal.SIGKILL)
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 1 and "Traceback" not in err
    assert "UncompletedJobError" in err and "resume it with: lmtool preprocess -m resume=sweep" in err
    assert [(row["job"], row["status"]) for row in table()] == [("0", "cut off"), ("1", "done")]

    process, long = started("stopped")
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and "resume it with: lmtool preprocess -m resume=stopped" in err
    end = time.monotonic() + 20
    while is_running(long):
        assert time.monotonic() < end, "its job outlives it"
        time.sleep(0.05)


def test_jobs_of_slurm_are_awaited_and_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("12_0", "12_1"):
        (tmp_path / ".submitit" / name).mkdir(parents=True)
    for name, rest in (("scancel", ""), ("squeue", "rm running && echo 12_1")):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\ncd {tmp_path}\necho "$@" >> {name}.txt\n{rest}\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(launchers, "BETWEEN_LOOKS", 0.0)
    (tmp_path / "running").touch()
    settings = SLURM | {"submitit_folder": f"{tmp_path}/.submitit/%j"}
    launchers.await_jobs(settings)
    looks = (tmp_path / "squeue.txt").read_text().split()
    assert len(looks) == 4 and looks[1] in ("--jobs=12_0,12_1", "--jobs=12_1,12_0")
    launchers.end_processes(settings, interrupted=False)
    assert not (tmp_path / "scancel.txt").exists()
    launchers.end_processes(settings, interrupted=True)
    assert sorted((tmp_path / "scancel.txt").read_text().split()) == ["12_0", "12_1"]


def test_a_plugin_that_is_missing_is_named(tmp_path: Path) -> None:
    lines = [
        ("hydra/launcher=joblib", "joblib"),
        ("hydra/launcher=submitit_slurm", "submitit"),
        ("hydra/sweeper=optuna", "optuna"),
    ]
    script = (
        "import sys; sys.modules['hydra_plugins'] = None; from lmtool.cli.command_line import main; "
        f"print([main({[*NGRAM]!r} + [line]) for line, _ in {lines!r}])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "[2, 2, 2]\n"
    want = [f'lmtool: {line} is not installed: pip install "lmtool[{extra}]"' for line, extra in lines]
    assert done.stderr.splitlines() == want


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("hydra.launcher.n_jobs=2",), "with hydra/launcher=basic; choose one of joblib"),
        (("hydra.sweeper.n_trials=2",), "with hydra/sweeper=basic; choose one of optuna"),
        (("hydra/launcher=jobli",), "did you mean joblib"),
        (("smoother=glob(wb*)",), "smoother=glob(wb*): nothing to try: glob() matches options of a group"),
        (("model.order=glob(*)",), "model.order=glob(*): nothing to try"),
        (("smoother=glob(*)", "hydra/sweeper=optuna"), "in a sweep without optuna"),
        (("model.order=interval(1,3)",), "add hydra/sweeper=optuna, or write values, e.g. model.order=1,2 or model."),
    ],
)
def test_launchers_mistaken(words: tuple[str, ...], said: str, lmtool: Run) -> None:
    assert said in lmtool(*NGRAM, *words, code=2)


def test_joblib_without_semaphores_is_refused(lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_lock() -> object:
        raise FileNotFoundError(2, "No such file or directory")  # as without a /dev/shm

    monkeypatch.setattr(multiprocessing, "Lock", no_lock)
    said = lmtool(*NGRAM, "model.order=2,3", *JOBLIB, code=2)
    assert said.startswith("lmtool: hydra/launcher=joblib: its processes need named semaphores")
    assert said.count("\n") == 1


def launcher(kind: str, **settings: object) -> dict[str, object]:
    return {"_target_": f"hydra_plugins.{kind}"} | settings


BASIC = launcher("basic_launcher.BasicLauncher")
LOCAL = launcher("hydra_submitit_launcher.submitit_launcher.LocalLauncher", cpus_per_task=None)
SLURM = launcher("hydra_submitit_launcher.submitit_launcher.SlurmLauncher", cpus_per_task=4)


def joblib(n_jobs: int) -> dict[str, object]:
    return launcher("hydra_joblib_launcher.joblib_launcher.JoblibLauncher", n_jobs=n_jobs)


@pytest.mark.parametrize(
    ("settings", "jobs", "at_once"),
    [
        (BASIC, 5, 1), (SLURM, 5, 1), (LOCAL, 5, 5), (LOCAL, None, 1),
        (joblib(2), 5, 2), (joblib(2), 1, 1), (joblib(-1), 20, 8), (joblib(-1), 3, 3), (joblib(-1), None, 8),
        (joblib(-2), 20, 7), (joblib(-20), 20, 1), (joblib(16), 20, 16),
    ],
)  # fmt: skip
def test_jobs_at_once_on_eight_cores(settings: dict[str, object], jobs: int | None, at_once: int) -> None:
    assert session.launcher_parallelism(settings, jobs, 8) == at_once


def test_threads_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[tuple[int, bool]] = []
    monkeypatch.setattr(parallel, "cores", lambda: 8)
    monkeypatch.setattr(parallel, "use", lambda count, *, follow: used.append((count, follow)) or count)
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        monkeypatch.setenv(name, "")
    cases = [(None, BASIC, 1), *((None, joblib(-1), jobs) for jobs in (2, 3, 8, 20)), (None, SLURM, 1)]
    for threads, settings, jobs in (*cases, (6, joblib(-1), 8)):  # threads=6 on the command line
        monkeypatch.setenv(session.PARALLEL_JOBS_VAR, str(jobs))
        session.Session(Path(), launcher=settings).use_threads(threads)
    assert used == [(8, True), (4, True), (2, True), (1, True), (1, True), (4, False), (6, False)]


@pytest.mark.parametrize(
    ("environment", "jobs", "devices", "want"),
    [
        ({}, 3, 2, ["0", "1", "0", "1"]),
        ({}, 3, 0, [None] * 4),
        ({}, 1, 2, [None] * 4),  # one job after the other: each has them all
        ({"CUDA_VISIBLE_DEVICES": "3,5,6"}, 2, 8, ["3", "5", "6", "3"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-a, GPU-b"}, 2, 8, ["GPU-a", "GPU-b", "GPU-a", "GPU-b"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, 2, 8, [None] * 4),
        ({"CUDA_VISIBLE_DEVICES": "2,-1,3"}, 2, 8, ["2"] * 4),
    ],
)
def test_each_job_gets_a_gpu(
    environment: dict[str, str], jobs: int, devices: int, want: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "count_devices", lambda: devices)
    for number in range(4):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with session.export_job_count(jobs):
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)  # as a launcher may hide it
            session.use_own_device(number)
            assert os.environ.get("CUDA_VISIBLE_DEVICES") == want[number]


def test_gpus_are_counted_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert session.count_devices(tmp_path / "gpus") == 0
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
    assert session.count_devices(tmp_path / "gpus") == 2
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: A (UUID: GPU-a)'\n")
    program.chmod(0o755)
    assert session.count_devices(tmp_path / "gpus") == 1


def test_a_job_is_told_of_the_gpus_that_its_launcher_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    with session.export_job_count(2):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        session.use_own_device(1)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "7" and session.parallel_jobs() == 2
    assert session.parallel_jobs() == 1
    session.use_own_device(0)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"


def test_a_sweep_of_which_no_job_began(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from omegaconf import OmegaConf

    from lmtool.config.request import Request
    from lmtool.sweeps.sweep import Sweep

    folder = {"dir": str(tmp_path), "subdir": "${hydra.job.name}"}
    hydra = OmegaConf.create({"sweep": folder, "sweeper": {"max_batch_size": None}, "launcher": {}})
    sweep = Sweep(Request("train", sweep=True), hydra)
    assert sweep.finish(quiet=True) == 1 and capsys.readouterr().out == ""
    assert sweep.finish() == 1 and capsys.readouterr().out == "no job began; see the messages above\n"


def test_number_of_jobs() -> None:
    from omegaconf import OmegaConf

    from lmtool.config.request import Request
    from lmtool.sweeps.sweep import _count_values, _number_of_jobs

    def number(sweeper: dict[str, Any], *words: str) -> int | None:
        hydra = OmegaConf.create({"sweeper": sweeper})
        request = Request("train", values=dict(word.split("=", 1) for word in words), sweep=True)
        return _number_of_jobs(hydra, _count_values(request, hydra))

    basic = {"max_batch_size": None, "params": None}
    assert number(basic, "a=1,2", "b=range(3)", "c=4") == 6
    assert number(basic | {"max_batch_size": 4}, "a=1,2", "b=range(3)") == 4
    assert number(basic, "smoother=glob(*kneser_ney)") == 2
    assert number({"n_trials": 20, "n_jobs": 2}, "a=interval(0,1)") == 2
    assert number({}) is None
