"""Shell completion: the candidates, and the scripts in the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lmtool.cli.completion import candidates
from tests.conftest import ROOT, Run

EXAMPLE = ROOT / "docs" / "examples" / "own_options" / "own_options"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with runs, texts and a folder of presets."""
    for name in ("runs/kn5", "runs/nplm", "runs/my run", "own/model", ".hidden"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("text.txt", "ünï text.txt", "a$b.txt"):
        (tmp_path / name).touch()
    (tmp_path / "own" / "model" / "mine.yaml").write_text("defaults: [nplm, _self_]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


PATHS = ["a\\$b.txt", "own/", "runs/", "text.txt", "ünï\\ text.txt"]
RUNS = ["runs/kn5/", "runs/my\\ run/", "runs/nplm/"]
LINES = {
    "tr": ["train", "tree"],
    "eval run=": [f"run={path}" for path in PATHS],
    "eval run=ru": ["run=runs/"],
    "eval run=runs/": [f"run={run}" for run in RUNS],
    "eval run=runs/my\\ r": ["run=runs/my\\ run/"],
    "eval run=.h": ["run=.hidden/"],
    "eval run=nowhere/": [],
    "eval text=~/te": ["text=~/text.txt"],
    "eval text=ü": ["text=ünï\\ text.txt"],
    "compare runs=[": [f"runs=[{path}" for path in PATHS],
    "compare runs=[runs/kn5,runs/n": ["runs=[runs/kn5,runs/nplm/"],
    "train resume=r": ["resume=runs/"],
    "train options=o": ["options=own/"],
    "train hydra.run.dir=r": ["hydra.run.dir=runs/"],
    "train ou": ["out=", "output=", "output."],
    "train model=ngram model.o": ["model.order="],
    "train -m optim.l": ["optim.lr="],
    "train out=r": ["out=runs/"],
    "train -m hydra.sweep.dir=r": ["hydra.sweep.dir=runs/"],
    "train --config-dir o": ["own/"],
    "train --config-dir=o": ["--config-dir=own/"],
    "train data=text data.train=t": ["data.train=text.txt"],
    "train data=text data.train=[text.txt,t": ["data.train=[text.txt,text.txt"],
    "convert arpa=t": ["arpa=text.txt"],
    "export to=t": ["to=text.txt"],
    "rescore nbest=t": ["nbest=text.txt"],
    "report ru": ["runs/"],
    "train --config-dir own model=m": ["model=mine"],
    f"train options={EXAMPLE} model=w": ["model=window_gru"],
    "train model.activation=": [f"model.activation={name}" for name in ("tanh", "gelu", "relu", "sigmoid")],
    "train -m model.activation=gelu,r": ["model.activation=gelu,relu"],
    "train -m model=ngram,np": ["model=ngram,nplm"],
    "ensemble method=c": ["method=classes"],
    "eval detail=": ["detail=true", "detail=false"],
    "eval split=t": ["split=train", "split=test"],
    "train hydra/l": ["hydra/launcher="],
    "train hydra/launcher=j": ["hydra/launcher=joblib"],
    "train hydra/sweeper=": ["hydra/sweeper=basic", "hydra/sweeper=optuna"],
    "train hydra.": ["hydra.run.dir=", "hydra.sweep.dir=", "hydra.sweep.subdir=", "hydra.job.name="],
    "train -m +experiment=ptb_s": ["+experiment=ptb_skip_layer"],
    "train --mu": ["--multirun"],
    "train seed=": [],
    "train model=nothing model.": [],
    "train options=nowhere model=": [],
    "eval text='my ": [],
    "train data.split.u": [],
    "train data=text data.split.unit=": ["data.split.unit=tokens", "data.split.unit=lines"],
    "train data=text data.segmenter=": ["data.segmenter=icu"],
    "train training.trackers=[wandb,t": ["training.trackers=[wandb,tensorboard", "training.trackers=[wandb,trackio"],
}


@pytest.mark.parametrize("line", LINES)
def test_candidates(line: str, folder: Path) -> None:
    assert candidates(f"lmtool {line}") == LINES[line]


def test_bash_replaces_the_end_of_a_word(folder: Path, lmtool: Run) -> None:
    query = ("completion", "query", "lmtool eval run=runs/k")
    assert lmtool(*query) == "run=runs/kn5/\n"
    assert lmtool(*query, "runs/k") == "runs/kn5/\n"
    assert lmtool("completion", "query", "lmtool eval run=", "") == "".join(f"{path}\n" for path in PATHS)
    assert lmtool("completion", "query", "lmtool train seed=") == "", "no empty candidate: the shell's own come then"
    assert lmtool("completion", "query") == lmtool("completion", "query", "lmtool ")


def shell(name: str, script: str, folder: Path) -> list[str]:
    """Return the lines that a script prints in a shell, where `lmtool` is this one."""
    program = shutil.which(name)
    assert program is not None
    (folder / "bin").mkdir()
    (folder / "bin" / "lmtool").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m lmtool "$@"\n')
    (folder / "bin" / "lmtool").chmod(0o755)
    flag = {"bash": "--norc", "zsh": "-f", "fish": "--no-config"}[name]
    environment = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    line = [program, flag, "-c", script]
    done = subprocess.run(line, capture_output=True, text=True, cwd=folder, env=environment, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.splitlines()


@pytest.mark.tool("bash")
def test_in_bash(folder: Path) -> None:
    script = """source <(lmtool completion bash)
ask() { COMP_LINE="$1" COMP_POINT=${#1}; _lmtool lmtool "$2" ""; printf '%s\\n' "${#COMPREPLY[@]}" "${COMPREPLY[@]}"; }
ask 'lmtool compare runs=[runs/kn5,runs/m' '[runs/kn5,runs/m'
ask 'lmtool eval text=x' 'x'
ask 'lmtool train model.activation=ge' 'ge'
complete -p lmtool"""
    assert shell("bash", script, folder) == [
        *("1", "[runs/kn5,runs/my\\ run/"),
        "0",
        *("1", "gelu"),
        "complete -o bashdefault -o default -F _lmtool lmtool",  # without candidates: bash's own
    ]


@pytest.mark.tool("zsh")
def test_in_zsh(folder: Path) -> None:
    script = """compdef() { :; }; compset() { :; }; _files() { print FILES; }; compadd() { print -rl -- "${@[5,-1]}"; }
source <(lmtool completion zsh)
words=(lmtool eval run=runs/m); CURRENT=3; PREFIX=run=runs/m; _lmtool
words=(lmtool eval text=x); PREFIX=text=x; _lmtool"""
    assert shell("zsh", script, folder) == ["--", "run=runs/my\\ run/", "FILES"]


@pytest.mark.tool("fish")
def test_in_fish(folder: Path) -> None:
    script = """lmtool completion fish | source
complete -C 'lmtool eval run=runs/m'
complete -C 'lmtool train model.activation=r'
complete -C 'lmtool predict text.t'"""
    assert shell("fish", script, folder) == ["run=runs/my run/", "model.activation=relu", "text.txt"]
