"""Hydra's settings that run code: taken from the command line, refused from YAML files and lines that are resumed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from omegaconf import OmegaConf

from lmtool.cli import hydra_rules
from lmtool.cli.command_line import main
from lmtool.config.options import conf_dir
from lmtool.config.settings import SettingError

Run = Callable[..., str]
TRAIN = ["train", "data=toy", "model=ngram", "model.order=1", "hydra.run.dir=run"]
CANARY = "canary"  # a folder that each of these would make
OPEN = {
    "callback": ("hydra: {callbacks: {x: {_target_: os.mkdir, path: canary}}}", "hydra.callbacks.x._target_=os.mkdir"),
    "logging factory": (
        "hydra: {job_logging: {formatters: {x: {'()': os.mkdir, path: canary}}}}",
        "hydra.job_logging.formatters.x.()=os.mkdir",
    ),
    "logging handler": (
        "hydra: {hydra_logging: {handlers: {x: {'()': os.mkdir, path: canary}}}}",
        "hydra.hydra_logging.handlers.x.()=os.mkdir",
    ),
}
REFUSED = {
    "callback by interpolation": (
        "evil: {_target_: os.mkdir}\nhydra: {callbacks: '${evil}'}",
        "hydra.callbacks=${evil}",
    ),
    "launcher": ("hydra: {launcher: {_target_: os.getcwd}}", "hydra.launcher._target_=os.getcwd"),
    "sweeper": ("hydra: {sweeper: {_target_: os.getcwd}}", "hydra.sweeper._target_=os.getcwd"),
    "an installed plugin elsewhere": (
        "hydra: {sweeper: {_target_: hydra._internal.core_plugins.basic_launcher.BasicLauncher}}",
        "hydra.sweeper._target_=hydra._internal",
    ),
    "sweeper's settings": (
        "hydra: {sweeper: {params: {x: {_target_: os.mkdir, path: canary}}}}",
        "hydra.sweeper.params.x._target_=os.mkdir",
    ),
    "launcher by interpolation": ("evil: {}\nhydra: {launcher: '${evil}'}", "hydra.launcher=${evil}"),
    "any text": ("evil: x\nhydra: {launcher: {partition: '${evil}'}}", "hydra.launcher.partition=${evil}"),
    "evaluated": ("hydra: {launcher: {pre_dispatch: x}}", "hydra.launcher.pre_dispatch=x"),
    "imported": ("hydra: {sweeper: {custom_search_space: os.mkdir}}", "hydra.sweeper.custom_search_space=os.mkdir"),
    "handler's class": (
        "hydra: {job_logging: {handlers: {console: {class: logging.handlers.SocketHandler}}}}",
        "hydra.job_logging.handlers.console.class=logging.handlers.SocketHandler",
    ),
    "import by ext": (
        "hydra: {job_logging: {handlers: {console: {stream: 'ext://evil.x'}}}}",
        "hydra.job_logging.handlers.console.stream=ext://evil.x",
    ),
    "log elsewhere": (
        "hydra: {job_logging: {handlers: {file: {filename: canary}}}}",
        "hydra.job_logging.handlers.file.filename=canary",
    ),
    "programs": ("hydra: {job: {env_set: {PATH: .}}}", "hydra.job.env_set.PATH=...:"),
    "copied variables": ("hydra: {job: {env_copy: [HOME]}}", "hydra.job.env_copy.0=HOME"),
}


def experiment(text: str, name: str = "evil") -> list[str]:
    """A folder of somebody else's with one experiment, and the words that take it."""
    folder = Path("theirs/experiment")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.yaml").write_text(f"# @package _global_\n{text}\n")
    return ["--config-dir", "theirs", f"+experiment={name}"]


@pytest.mark.parametrize("case", OPEN)
def test_refused_from_a_yaml_file(case: str, lmtool: Run) -> None:
    text, key = OPEN[case]
    said = lmtool(*TRAIN, *experiment(text), code=2)
    assert key in said and "write it on the command line" in said and said.count("\n") == 1
    assert not Path(CANARY).exists() and not Path("run/run.json").exists()


@pytest.mark.parametrize("case", REFUSED)
def test_refused_whatever_composed_it(case: str) -> None:
    text, key = REFUSED[case]
    composed: Any = OmegaConf.to_container(OmegaConf.create(text))
    with pytest.raises(SettingError) as refused:
        hydra_rules.require_harmless(composed["hydra"], [])
    assert str(refused.value).startswith(key) and refused.value.key == key.partition("=")[0]
    hydra_rules.require_harmless(composed["hydra"], [key.partition("=")[0] + "=mine"])  # typed by the user


@pytest.mark.parametrize("case", OPEN)
def test_each_would_run_without_the_check(case: str, lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hydra_rules, "require_harmless", lambda *given: None)
    main([*TRAIN, *experiment(OPEN[case][0])])  # whatever comes of it
    assert Path(CANARY).is_dir()


def test_refused_from_a_group_of_hydras(lmtool: Run) -> None:
    folder = Path("theirs/hydra/callbacks")
    folder.mkdir(parents=True)
    (folder / "evil.yaml").write_text("x: {_target_: os.mkdir, path: canary}\n")
    said = lmtool(*TRAIN, "--config-dir", "theirs", "hydra/callbacks=evil", code=2)
    assert "hydra.callbacks.x._target_=os.mkdir" in said and not Path(CANARY).exists()


def test_refused_from_another_file_that_is_moved_below_hydra(lmtool: Run) -> None:
    Path("theirs/data").mkdir(parents=True)
    Path("theirs/data/plain.yaml").write_text("_target_: os.mkdir\npath: canary\n")
    said = lmtool(*TRAIN, *experiment("defaults:\n  - /data@hydra.callbacks.x: plain"), code=2)
    assert "hydra.callbacks.x._target_=os.mkdir" in said and not Path(CANARY).exists()


def test_refused_in_the_jobs_of_a_sweep(lmtool: Run) -> None:
    experiment("seed: 1", "good")
    words = experiment(OPEN["logging factory"][0])[:2]
    said = lmtool(*TRAIN[:-1], "-m", *words, "+experiment=good,evil", "hydra.sweep.dir=sweep", code=2)
    assert "hydra.job_logging.formatters.x.()=os.mkdir" in said and not Path(CANARY).exists()
    assert not Path("sweep/1/run.json").exists()


def test_a_yaml_file_that_changes_is_read_again(lmtool: Run) -> None:
    shutil.copytree(conf_dir(), "conf")
    for seed in (1, 2):  # files of the same size
        path = Path("conf/train.yaml")
        path.write_text(path.read_text().replace("seed: 1 ", f"seed: {seed} "))
        os.utime(path, (0, 0))  # as cp -p and rsync give a file its earlier time
        for _ in range(3):  # what is composed the second time is kept for the third
            assert f"seed: {seed}\n" in lmtool("train", "data=toy", "--config-path", "conf", "--cfg", "job")


@pytest.mark.parametrize("flag", ["--hydra-help", "--info"])
def test_refused_where_nothing_is_run(flag: str, lmtool: Run) -> None:
    main([*TRAIN, flag, *experiment(OPEN["logging factory"][0])])
    assert not Path(CANARY).exists()


def test_a_sweep_of_a_yaml_file(lmtool: Run) -> None:
    """Resources, numbers of jobs, names: what experiments set of launchers and sweepers."""
    words = experiment(
        "hydra: {mode: MULTIRUN, sweep: {dir: sweep}, sweeper: {params: {model.order: '1,2'}}, job: {name: mine},"
        " job_logging: {root: {level: WARNING}}}"
    )
    lmtool(*TRAIN[:3], *words)
    assert Path("sweep/0/run.json").is_file() and Path("sweep/1/run.json").is_file()


def test_launchers_and_sweepers_by_yaml() -> None:
    """Each installed one as it is, with numbers of jobs, trials and memory, and a seed."""
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    changes = OmegaConf.create(
        "hydra: {sweeper: {n_trials: 2, n_jobs: 1, params: {seed: 'choice(1,2)'}, sampler: {seed: 3}}}"
    )
    with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
        for launcher in ("basic", "joblib", "submitit_local", "submitit_slurm"):
            words = [f"hydra/launcher={launcher}", "hydra/sweeper=optuna"]
            composed = hydra.compose("train", words, return_hydra_config=True)
            plain: Any = OmegaConf.to_container(composed, resolve=False)
            hydra_rules.require_harmless(plain["hydra"], [])
            changed: Any = OmegaConf.to_container(OmegaConf.merge(OmegaConf.create(plain), changes))
            hydra_rules.require_harmless(changed["hydra"], [])


def test_shell_of_launchers(lmtool: Run) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    text = "defaults:\n  - override /hydra/launcher: submitit_slurm\nhydra: {launcher: {setup: [touch canary]}}"
    said = lmtool(*TRAIN[:-1], "-m", *experiment(text), code=2)
    assert "hydra.launcher.setup.0=touch canary" in said and "write it on the command line" in said


def test_typed_it_is_the_users_own(lmtool: Run) -> None:
    logged = "hydra.experimental.callbacks.LogJobReturnCallback"
    text = f"hydra: {{callbacks: {{x: {{_target_: {logged}}}}}}}"
    assert f"hydra.callbacks.x._target_={logged}" in lmtool(*TRAIN, *experiment(text), code=2)
    lmtool(*TRAIN, f"+hydra.callbacks.x._target_={logged}", "+hydra.job.env_set.LMTOOL_X=1")
    assert Path("run/run.json").is_file()


def test_a_single_run_is_as_hydras_own(lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Hydra's application would call, write and set, of which lmtool runs a shorter form."""
    seen: list[object] = []
    before = HydraConfig.instance().cfg

    class Recorder(Callback):
        def on_job_start(self, **_: object) -> None:
            seen.append((Path.cwd().name, os.environ["LMTOOL_X"], HydraConfig.get().job.num))

        def on_job_end(self, job_return: JobReturn, **_: object) -> None:
            seen.append((job_return.status.name, Path(job_return.working_dir or "").name, job_return.overrides))

        def on_run_end(self, **given: object) -> None:
            seen.append((given["config_name"], Path.cwd().name == "run"))

    monkeypatch.setattr("lmtool.sweeps.sweep.Start", Recorder)
    words = [*TRAIN, "hydra.job.chdir=true", "+hydra.job.env_set.LMTOOL_X=1", "+hydra.job.num=${model.order}"]
    lmtool(*words, "threads=1", "hydra.output_subdir=about/${hydra.job.name}")
    task = [word for word in TRAIN[1:] if not word.startswith("hydra.")] + ["threads=1"]
    assert seen == [("run", "1", 1), ("COMPLETED", "run", task), ("train", False)]
    kept = Path("run/about/train")
    assert OmegaConf.load(kept / "overrides.yaml") == task
    assert OmegaConf.load(kept / "config.yaml").threads == 1
    assert OmegaConf.load(kept / "hydra.yaml").hydra.mode == "RUN"
    assert "LMTOOL_X" not in os.environ and Path.cwd().name != "run" and HydraConfig.instance().cfg is before


def begun(words: list[str], config_dir: str | None = None) -> list[str]:
    """A folder of somebody else's that was started with these words."""
    Path("theirs").mkdir(exist_ok=True)
    Path("theirs/begun.json").write_text(json.dumps({"overrides": words, "config_dir": config_dir}))
    return ["train", "resume=theirs"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["+hydra.callbacks.x={_target_:os.mkdir,path:canary}"], "hydra.callbacks.x._target_=os.mkdir"),
        (["+hydra.job.env_set.PATH=."], "hydra.job.env_set.PATH=...:"),
        (["hydra.searchpath=[pkg://this]"], "hydra.searchpath=[pkg://this]: the folders"),
        (["--experimental-rerun=evil.pickle"], "theirs is damaged: the line that it was started with has"),
        (["-cd=."], "theirs is damaged: the line that it was started with has"),
        (["data.name=\x1b[31m"], r"has 'data.name=\x1b[31m' among its settings"),
        (["options=theirs"], "name it again"),
    ],
)
def test_refused_from_a_line_that_is_resumed(words: list[str], said: str, lmtool: Run) -> None:
    shown = lmtool(*begun([*TRAIN[1:4], *words], "/" if words[0][0] == "-" else None), code=2)
    assert said in shown and shown.count("\n") == 1 and not Path(CANARY).exists()


def test_refused_from_a_sweep_that_is_resumed(lmtool: Run) -> None:
    lmtool(*TRAIN[:-1], "-m", "hydra.sweep.dir=sweep", "model.order=1,2")
    path = Path("sweep/multirun.yaml")
    evil = "    - +hydra.callbacks.x={_target_:os.mkdir,path:canary}\n"
    for copy in (path, Path("sweep/.multirun.yaml")):
        copy.write_text(copy.read_text().replace("    hydra:\n", f"    hydra:\n{evil}"))
    said = lmtool("train", "-m", "resume=sweep", code=2)
    assert "hydra.callbacks.x._target_=os.mkdir" in said and not Path(CANARY).exists()
    for copy in (path, Path("sweep/.multirun.yaml")):
        copy.write_text("!!python/object/apply:os.mkdir [canary]\n")
    assert "multirun.yaml is damaged" in lmtool("train", "-m", "resume=sweep", code=2)
    assert not Path(CANARY).exists()


def test_hydra_still_takes_a_loader_of_ours() -> None:
    """The one place that the check hangs on: Hydra composes by the loader of its application."""
    import inspect

    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.hydra import Hydra

    assert "self.config_loader.load_configuration" in inspect.getsource(Hydra.compose_config)
    assert "config_loader=self.config_loader" in inspect.getsource(Hydra.multirun)
    assert "self.load_configuration(" in inspect.getsource(ConfigLoaderImpl.load_sweep_config)
