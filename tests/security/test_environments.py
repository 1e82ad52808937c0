"""Odd surroundings: closed streams, full disks behind them, locales without UTF-8, packages that are read-only."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import lmtool as lm
from lmtool.cli.command_line import main
from lmtool.errors import UserError
from lmtool.system import process as compiled_loops
from tests.conftest import ROOT, Run


def shell(line: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of the shell in which `lmtool` is this checkout's."""
    lmtool = f'lmtool() {{ {shlex.quote(sys.executable)} -m lmtool "$@"; }}'
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.run(
        ["sh", "-c", f"{lmtool}\n{line}"], cwd=folder, capture_output=True, timeout=120, env=environment
    )


def test_all_streams_closed(runs: Path, tmp_path: Path) -> None:
    ended = shell(
        f"lmtool eval run={runs}/mle split=test store_dir={runs}/stores hydra.run.dir=e <&- >&- 2>&-", tmp_path
    )
    assert ended.returncode == 0 and (tmp_path / "e/result.json").is_file()
    assert b"perplexity" not in (tmp_path / "e/scores.h5").read_bytes()  # no file took the number of a stream


WRONG = {
    "OMP_NUM_THREADS": ("99999999999", "abc", "4,-1"),
    "NUMBA_NUM_THREADS": ("0", "abc"),
    "LMTOOL_JOBS_AT_ONCE": ("abc", "0"),
    "WORLD_SIZE": ("abc", "0", "1,2", ","),
    "LOCAL_WORLD_SIZE": ("0",),
    "RANK": ("abc", "²"),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_environment_variables(name: str, value: str, lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    said = lmtool("train", "data=toy", "model=ngram", "model.order=1", code=2)
    assert said.startswith(f"lmtool: {name}=") and "unset this variable" in said and said.count("\n") == 1
    with pytest.raises(UserError, match=f"^{name}="):
        lm.train("ngram", "toy")


def test_processes_without_a_number(lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = lmtool("train", "data=toy", "model=nplm", "training.steps=1", code=2)
    assert "lmtool: WORLD_SIZE=2: " in said and "RANK" in said and "torchrun" in said


@pytest.mark.parametrize("value", ["", " "])
def test_empty_environment_variables(value: str, tmp_path: Path) -> None:
    ended = shell("lmtool train data=toy model=ngram model.order=1", tmp_path, **dict.fromkeys(WRONG, value))
    assert ended.returncode == 0 and not ended.stderr, ended.stderr


def test_a_deleted_working_folder(lmtool: Run) -> None:
    Path("gone").mkdir()
    os.chdir("gone")
    Path("../gone").rmdir()
    said = lmtool("train", "data=toy", "model=ngram", "hydra.run.dir=/x", code=2)
    assert said.startswith("lmtool: the folder that you are in is gone") and said.count("\n") == 1


@pytest.mark.parametrize(
    ("plugin", "word"),
    [
        ("hydra/launcher=joblib", "hydra.launcher.n_jobs=0"),
        ("hydra/launcher=submitit_local", "hydra.launcher.timeout_min=-1"),
        ("hydra/sweeper=optuna", "hydra.sweeper.n_trials=-1"),
        ("hydra/sweeper=optuna", "hydra.sweeper.n_jobs=0"),
        ("hydra/sweeper=basic", "hydra.sweeper.max_batch_size=0"),
    ],
)
def test_numbers_of_jobs(plugin: str, word: str, lmtool: Run) -> None:
    for name in ("hydra_joblib_launcher", "hydra_submitit_launcher", "hydra_optuna_sweeper"):
        pytest.importorskip(f"hydra_plugins.{name}")
    said = lmtool("train", "data=toy", "model=ngram", "-m", "seed=1,2", plugin, word, "hydra.sweep.dir=sweep", code=2)
    assert said == f"lmtool: {word}: must be 1 or more\n"


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libarrow.so.2600: failed to map segment from shared object"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: 12 bytes"),
        RuntimeError("can't start new thread"),
        MemoryError(),
    ],
)
def test_no_memory(error: Exception, lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*given: object) -> None:
        raise error

    monkeypatch.setattr("lmtool.requests.run.run_command", run)
    said = lmtool("train", "data=toy", "model=ngram", code=2)
    assert said.startswith("lmtool: not enough memory") and said.count("\n") == 1


def test_no_memory_to_begin_with(capsys: pytest.CaptureFixture[str]) -> None:
    def command(words: list[str]) -> int:
        raise MemoryError

    assert main(["train"], command) == 2
    assert capsys.readouterr().err.startswith("lmtool: not enough memory")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_on_a_full_disk(runs: Path, tmp_path: Path) -> None:
    ended = shell(f"lmtool predict run={runs}/mle the >/dev/full", tmp_path)
    assert ended.stderr == b"lmtool: cannot write standard output: No space left on device\n"
    assert ended.returncode == 2


def test_words_of_other_scripts_in_a_locale_without_them(tmp_path: Path) -> None:
    (tmp_path / "a.arpa").write_text(
        "\\data\\\nngram 1=4\n\n\\1-grams:\n-1\t<unk>\n-99\t<s>\n-1\t</s>\n-0.1\tkäse\n\n\\end\\\n", encoding="utf-8"
    )
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    ended = shell("lmtool predict arpa=a.arpa käse top=1", tmp_path, **locale)
    assert ended.returncode == 0 and rb"k\xe4se" in ended.stdout, ended.stderr


def test_compiled_loops_of_a_package_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    monkeypatch.setenv(compiled_loops.FOLDER, "")
    compiled_loops.use_writable_cache(tmp_path)
    assert os.environ[compiled_loops.FOLDER] == ""  # there is a place
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as for another user than root
    registered: list[object] = []
    monkeypatch.setattr("atexit.register", registered.append)
    compiled_loops.use_writable_cache(tmp_path)
    folder = Path(os.environ[compiled_loops.FOLDER])
    assert folder.is_dir() and folder.stat().st_mode & 0o777 == 0o700
    compiled_loops.use_writable_cache(tmp_path)
    assert os.environ[compiled_loops.FOLDER] == str(folder)  # a process that this one starts takes it too
    (remove,) = registered
    remove()  # type: ignore[operator]
    assert not folder.exists()
