"""Hydra's settings that run code: taken from the command line, refused from YAML files and lines that are resumed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

import lmtool as lmtool_package
from lmtool.cli.command_line import main
from lmtool.config.request import Request
from lmtool.requests import allowed
from lmtool.runs.resume import save_request
from lmtool.system.files import write_json
from tests.conftest import Run

TRAIN = ["train", "data=toy", "model=ngram", "model.order=1", "hydra.run.dir=run"]
CANARY = "canary"  # a folder that each of these would make
OPEN = {  # what would run without the check
    "callback": ("hydra: {callbacks: {x: {_target_: os.mkdir, path: canary}}}", "hydra.callbacks.x._target_=os.mkdir")
}
REFUSED = {
    "logging factory": (
        "hydra: {job_logging: {formatters: {x: {'()': os.mkdir, path: canary}}}}",
        "hydra.job_logging.formatters.x.()=os.mkdir",
    ),
    "logging handler": (
        "hydra: {hydra_logging: {handlers: {x: {'()': os.mkdir, path: canary}}}}",
        "hydra.hydra_logging.handlers.x.()=os.mkdir",
    ),
    "callback by interpolation": ("hydra: {callbacks: '${data}'}", "hydra.callbacks=${data}"),
    "launcher": ("hydra: {launcher: {_target_: os.getcwd}}", "hydra.launcher._target_=os.getcwd"),
    "no launcher": ("hydra: {launcher: null}", "hydra.launcher=null"),
    "sweeper": ("hydra: {sweeper: {_target_: os.getcwd}}", "hydra.sweeper._target_=os.getcwd"),
    "dictionaries as parameters": (
        "hydra: {sweeper: {params: {x: {_target_: os.mkdir, path: canary}}}}",
        "hydra.sweeper.params.x._target_=os.mkdir",
    ),
    "parameters of Hydra's": ("hydra: {sweeper: {params: {+hydra.job.env_set.PATH: .}}}", "hydra.job.env_set.PATH=."),
    "parameters in another place": ("hydra: {sweeper: {params: {data@hydra.job: toy}}}", "data@hydra.job=toy"),
    "parameters that leave out": ("hydra: {sweeper: {params: {~smoother: 'null'}}}", "hydra.sweeper.params.~smoother"),
    "parameters with code": ("hydra: {sweeper: {params: {options: theirs}}}", "options=theirs"),
    "launcher by interpolation": ("hydra: {launcher: '${data}'}", "hydra.launcher=${data}"),
    "any text": ("hydra: {launcher: {partition: '${data.name}'}}", "hydra.launcher.partition=${data.name}"),
    "evaluated": ("hydra: {launcher: {pre_dispatch: x}}", "hydra.launcher.pre_dispatch=x"),
    "more of a script": (
        "hydra: {launcher: {additional_parameters: {x: y}}}",
        "hydra.launcher.additional_parameters.x=y",
    ),
    "imported": ("hydra: {sweeper: {custom_search_space: os.mkdir}}", "hydra.sweeper.custom_search_space=os.mkdir"),
    "log": ("hydra: {job_logging: {root: {level: DEBUG}}}", "hydra.job_logging.root.level=DEBUG"),
    "programs": ("hydra: {job: {env_set: {PATH: .}}}", "hydra.job.env_set.PATH=."),
    "copied variables": ("hydra: {job: {env_copy: [HOME]}}", "hydra.job.env_set.HOME="),
    "runtime": ("hydra: {runtime: {output_dir: x}}", "hydra.runtime.output_dir=x"),
    "name with a folder": ("hydra: {job: {name: ../../x}}", "hydra.job.name=../../x"),
    "name with a line break": ('hydra: {job: {name: "a\\nmkdir canary"}}', "hydra.job.name='a\\nmkdir canary'"),
    "partition with a line break": ('hydra: {launcher: {qos: "a\\nb"}}', "hydra.launcher.qos='a\\nb'"),
    "parameter with a line break": (
        'hydra: {sweeper: {params: {data.name: "a\\nb,c"}}}',
        "hydra.sweeper.params.data.name='a\\nb,c'",
    ),
    "folder elsewhere": ("hydra: {output_subdir: /x}", "hydra.output_subdir=/x"),
    "folder above": ("hydra: {sweep: {subdir: a/../../x}}", "hydra.sweep.subdir=a/../../x"),
    "sweep above": ("hydra: {sweep: {dir: ..}}", "hydra.sweep.dir=.."),
    "folder of the environment": ("hydra: {sweep: {dir: 'p_${oc.env:HOME}'}}", "hydra.sweep.dir=p_${oc.env:HOME}"),
    "folder by a setting": ("hydra: {sweep: {dir: 'p/${data.name}'}}", "hydra.sweep.dir=p/${data.name}"),
    "mode of folders": ("hydra: {sweep: {mode: 777}}", "hydra.sweep.mode=777"),
    "options": ("options: theirs", "options=theirs"),
    "options by interpolation": ("options: '${store_dir}'", "options=${store_dir}"),
    "Spark's shell": (
        "counts: {options: {spark.driver.extraJavaOptions: '-XX:OnOutOfMemoryError=x'}}",
        "counts.options.spark.driver.extraJavaOptions=-XX:OnOutOfMemoryError=x",
    ),
    "Spark's number with more": (
        "counts: {options: {spark: {driver: {memory: '4g -agentpath:x'}}}}",
        "counts.options.spark.driver.memory=4g -agentpath:x",
    ),
    "Spark's master": ("counts: {master: 'spark://evil:7077'}", "counts.master=spark://evil:7077"),
    "Spark's options by interpolation": ("counts: {options: '${data}'}", "counts.options=${data}"),
    "counts by interpolation": ("counts: '${data}'", "counts=${data}"),
}


def experiment(text: str, name: str = "evil") -> list[str]:
    """Write another person's config folder with one experiment; return the words that use it."""
    folder = Path("theirs/experiment")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.yaml").write_text(f"# @package _global_\n{text}\n")
    return ["--config-dir", "theirs", f"+experiment={name}"]


@pytest.mark.parametrize("case", OPEN | REFUSED)
def test_refused_from_a_yaml_file(case: str, lmtool: Run) -> None:
    text, key = (OPEN | REFUSED)[case]
    said = lmtool(*TRAIN, *experiment(text), code=2)
    lacking = "no key 'hydra."  # of the launcher or sweeper that is chosen
    assert any(part in said for part in (key, lacking, "Merge error")) and said.count("\n") == 1, said
    assert not Path(CANARY).exists() and not Path("run").exists()


@pytest.mark.parametrize("choice", ["counts=spark", "counts=theirs"])
def test_to_choose_an_option_is_not_to_type_its_settings(choice: str, lmtool: Run) -> None:
    options = "options: {spark.driver.extraJavaOptions: -XX}"
    Path("theirs/counts").mkdir(parents=True)
    Path("theirs/counts/theirs.yaml").write_text(f"defaults: [spark, _self_]\n{options}\n")
    folder = experiment(f"counts: {{{options}}}") if choice == "counts=spark" else ["--config-dir", "theirs"]
    said = lmtool(*TRAIN, choice, *folder, code=2)
    assert "counts.options.spark.driver.extraJavaOptions=-XX: YAML files" in said and said.count("\n") == 1


@pytest.mark.parametrize("case", OPEN)
def test_each_would_run_without_the_check(case: str, lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowed, "require_allowed", lambda *given: None)
    main([*TRAIN[:4], "-m", *experiment(OPEN[case][0])])  # whatever comes of it
    assert Path(CANARY).is_dir()


def test_python_files_beside_yaml_files_are_not_run(lmtool: Run) -> None:
    Path("theirs/model").mkdir(parents=True)
    Path("theirs/model/evil.py").write_text("import os\n\nos.mkdir('canary')\n")
    Path("theirs/model/evil.yaml").write_text("kind: evil\n")
    words = experiment("defaults: [override /model: evil]\noptions: theirs")
    assert "options=theirs: YAML files" in lmtool("train", "data=toy", *words, code=2)
    assert not Path(CANARY).exists()


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
    assert "hydra.callbacks.x._target_=os.mkdir: YAML files" in said and not Path(CANARY).exists()
    Path("theirs/experiment/evil.yaml").unlink()
    Path("theirs/data/plain.yaml").write_text("defaults:\n  - /hydra/launcher@_global_.hydra.callbacks.x: basic\n")
    said = lmtool("train", "data=plain", "--config-dir", "theirs", code=2)
    assert "hydra.callbacks.x._target_=" in said  # of Hydra's own, in another place


CALLBACK = "x: {_target_: os.mkdir, path: canary}\n"
BELOW = "hydra: {callbacks: {x: {_target_: os.mkdir, path: canary}}}\n"
MOVED = {  # the defaults list of an experiment, and other files
    "a global package": ("[/zzz@_global_: e]", {"theirs/zzz/e.yaml": BELOW}),
    "another global one": ("[/zzz@data._global_.hydra.callbacks: e]", {"theirs/zzz/e.yaml": CALLBACK}),
    "a nested one": (
        "[/zzz: e]",
        {"theirs/zzz/e.yaml": "defaults: [yyy@_global_: e]\n", "theirs/zzz/yyy/e.yaml": BELOW},
    ),
    "a header": ("[/zzz: e]", {"theirs/zzz/e.yaml": f"# @package x._global_.hydra.callbacks\n{CALLBACK}"}),
    "a folder's name": ("[/x/_global_/hydra/callbacks: e]", {"theirs/x/_global_/hydra/callbacks/e.yaml": CALLBACK}),
    "a file outside": ("[/../other: e]", {"other/e.yaml": f"# @package hydra.callbacks\n{CALLBACK}"}),
    "Python files": ("[/zzz@_global_: e]", {"theirs/zzz/e.yaml": "options: opt\n"}),
}


@pytest.mark.parametrize("sweep", [[], ["-m"]])
@pytest.mark.parametrize("case", MOVED)
def test_refused_wherever_it_comes_from(case: str, sweep: list[str], lmtool: Run) -> None:
    defaults, files = MOVED[case]
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    said = lmtool(*TRAIN[:4], *sweep, *experiment(f"defaults: {defaults}"), code=2)
    assert "YAML files and resumed lines may not set this" in said and not Path(CANARY).exists()
    Path("theirs/begun.json").unlink(missing_ok=True)
    folder = str(Path("theirs").resolve())
    said = lmtool(*begun({}, {"+experiment": "evil"}, config_dir=folder), code=2)  # without naming the folder
    assert "YAML files and resumed lines may not set this" in said and not Path(CANARY).exists()


def test_a_link_to_a_folder_is_as_its_files(lmtool: Run) -> None:
    Path("other").mkdir()
    Path("other/e.yaml").write_text(f"# @package hydra.callbacks\n{CALLBACK}")
    words = experiment("defaults: [/lk: e]")
    Path("theirs/lk").symlink_to("../other")
    assert "hydra.callbacks.x._target_=os.mkdir: YAML files" in lmtool(*TRAIN[:4], "-m", *words, code=2)


@pytest.mark.parametrize("folder", ["run: {dir: '${now:..}/x'}", "sweep: {subdir: '${now:..}/x'}"])
def test_no_time_is_a_folder_above(folder: str, lmtool: Run) -> None:
    assert "may not set this" in lmtool(*TRAIN[:4], *experiment(f"hydra: {{{folder}}}"), code=2)


def test_refused_in_the_jobs_of_a_sweep(lmtool: Run) -> None:
    experiment("seed: 1", "good")
    words = experiment(REFUSED["logging factory"][0])[:2]
    said = lmtool(*TRAIN[:-1], "-m", *words, "+experiment=good,evil", "hydra.sweep.dir=sweep", code=2)
    assert "hydra.job_logging.formatters.x.()=os.mkdir" in said and not Path(CANARY).exists()
    assert not Path("sweep/1/run.json").exists()


def test_a_yaml_file_that_changes_is_read_again(lmtool: Run) -> None:
    path = Path("own/experiment/e.yaml")
    path.parent.mkdir(parents=True)
    for seed in (1, 2):  # files of the same size
        path.write_text(f"# @package _global_\nseed: {seed}\n")
        os.utime(path, (0, 0))  # as cp -p and rsync give a file its earlier time
        for _ in range(3):  # what is composed the second time is kept for the third
            said = lmtool("train", "data=toy", "+experiment=e", "--config-dir", "own", "--cfg", "job")
            assert f"seed: {seed}\n" in said


def test_refused_where_nothing_is_run(lmtool: Run) -> None:
    main([*TRAIN, "--info", *experiment(REFUSED["logging factory"][0])])
    assert not Path(CANARY).exists()


def test_a_sweep_of_a_yaml_file(lmtool: Run) -> None:
    """Resources, numbers of jobs, names: what experiments set of launchers and sweepers."""
    words = experiment(
        "hydra: {mode: MULTIRUN, sweep: {dir: sweep}, sweeper: {params: {model.order: '1,2'}}, job: {name: 'mine 1.0'},"
        " output_subdir: 'about/${hydra.job.num}'}"
    )
    lmtool(*TRAIN[:3], *words)
    assert Path("sweep/0/about/0/config.yaml").is_file() and Path("sweep/0/run.json").is_file()
    assert Path("sweep/1/run.json").is_file()


@pytest.mark.parametrize("launcher", ["basic", "joblib", "submitit_local", "submitit_slurm"])
def test_launchers_and_sweepers_by_yaml(launcher: str, lmtool: Run) -> None:
    """Each installed one, with numbers of jobs, trials and memory, and a seed; and Spark's resources."""
    for plugin in ("joblib_launcher", "submitit_launcher", "optuna_sweeper"):
        pytest.importorskip(f"hydra_plugins.hydra_{plugin}")
    numbers = {
        "joblib": "{n_jobs: 2, max_nbytes: 1M}",
        "submitit_slurm": "{partition: gpu, comment: a b, mem_per_cpu: 4G}",
    }
    words = experiment(
        f"defaults: [override /counts: spark, override /hydra/launcher: {launcher}, override /hydra/sweeper: optuna]\n"
        "counts: {master: 'local[2]', options: {spark.executor.memory: 4g, spark.network.timeout: 90s}}\n"
        f"hydra: {{launcher: {numbers.get(launcher, '{}')}, sweep: {{dir: 'mine/${{now:%Y-%m}}', subdir: '.'}}, "
        "sweeper: {n_trials: 2, params: {seed: 'choice(1,2)'}, sampler: {seed: 3}}}"
    )
    Path("theirs/hydra/launcher").mkdir(parents=True)
    Path("theirs/hydra/launcher/mine.yaml").write_text("defaults: [submitit_slurm]\npartition: gpu\n")
    assert "partition: gpu" in lmtool(*TRAIN[:-1], "--cfg", "hydra", "--config-dir", "theirs", "hydra/launcher=mine")
    shown = lmtool(*TRAIN[:-1], "--cfg", "all", *words)
    assert "n_trials: 2" in shown and "dir: mine/${now:%Y-%m}" in shown and "spark.network.timeout: 90s" in shown


def test_shell_of_launchers(lmtool: Run) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    text = "defaults:\n  - override /hydra/launcher: submitit_slurm\nhydra: {launcher: {setup: [touch canary]}}"
    said = lmtool(*TRAIN[:-1], "-m", *experiment(text), code=2)
    assert "hydra.launcher.setup.0=touch canary" in said and "write it on the command line" in said
    assert "no sbatch" in lmtool(*TRAIN[:-1], "-m", *experiment(text), "hydra.launcher.setup=[mine]", code=2)


def test_typed_it_is_the_users_own(lmtool: Run) -> None:
    logged = "hydra.experimental.callbacks.LogJobReturnCallback"
    text = f"hydra: {{callbacks: {{x: {{_target_: {logged}}}}}}}"
    assert f"hydra.callbacks.x._target_={logged}" in lmtool(*TRAIN, *experiment(text), code=2)
    typed = [f"+hydra.callbacks.x._target_={logged}", "+hydra.job.env_set.LMTOOL_X=1", "hydra.sweep.dir=sweep"]
    lmtool(*TRAIN[:4], "-m", *typed)
    assert Path("sweep/0/run.json").is_file()


def test_a_single_run_has_the_files_and_the_environment_of_hydras_own(lmtool: Run, monkeypatch: Any) -> None:
    seen: list[object] = []

    def run(settings: object, session: object) -> None:
        seen.append((Path.cwd().name, os.environ["LMTOOL_X"], HydraConfig.get().job.num))

    monkeypatch.setattr("lmtool.commands.train.run", run)
    before = HydraConfig.instance().cfg
    words = [*TRAIN, "hydra.job.chdir=true", "+hydra.job.env_set.LMTOOL_X=1", "hydra.job.num=${model.order}"]
    lmtool(*words, "threads=1", "hydra.output_subdir=about/${hydra.job.name}")
    assert seen == [("run", "1", 1)]
    kept = Path("run/about/train")
    task = [word for word in TRAIN[1:] if not word.startswith("hydra.")] + ["threads=1"]
    assert OmegaConf.load(kept / "overrides.yaml") == task
    assert OmegaConf.load(kept / "config.yaml").threads == 1
    assert OmegaConf.load(kept / "hydra.yaml").hydra.mode == "RUN"
    assert "LMTOOL_X" not in os.environ and Path.cwd().name != "run" and HydraConfig.instance().cfg is before


def test_callbacks_are_for_sweeps(lmtool: Run) -> None:
    said = lmtool(*TRAIN, "+hydra.callbacks.x._target_=hydra.experimental.callbacks.LogJobReturnCallback", code=2)
    assert "hydra.callbacks: Hydra calls them in sweeps (-m); leave them out of a single run" in said


def begun(values: dict[str, Any], choices: dict[str, str] | None = None, **others: Any) -> list[str]:
    """Write another person's run folder that was started with this request; return the words that resume it."""
    Path("theirs").mkdir(exist_ok=True)
    request = Request("train", {"data": "toy", "model": "ngram"} | (choices or {}), values, **others)
    save_request(Path("theirs"), request)
    return ["train", "resume=theirs"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"values": {"+hydra.callbacks.x": {"_target_": "os.mkdir"}}}, "hydra.callbacks.x._target_=os.mkdir"),
        ({"values": {"+hydra.job.env_set.PATH": "."}}, "hydra.job.env_set.PATH=.:"),
        ({"values": {}, "choices": {"data@hydra.callbacks.x": "toy"}}, "data@hydra.callbacks.x=toy"),
        ({"values": {"hydra.searchpath": ["pkg://this"]}}, "hydra.searchpath.0=pkg://this: YAML files and resumed"),
        ({"values": {"hydra.job.name": "a\nb"}}, r"hydra.job.name='a\nb': must be text without line breaks"),
        ({"values": {"hydra.output_subdir": "/x"}}, "hydra.output_subdir=/x"),
        ({"values": {"counts.options": {"spark.jars": "x"}}}, "counts.options.spark.jars=x"),
        ({"values": {"counts.master": "sc://x"}}, "counts.master=sc://x"),
        ({"values": {}, "choices": {"model": "\x1b[31m"}}, r"model='\x1b[31m': must be text without line breaks"),
        ({"values": {"data.name": "\t"}}, r"data.name='\t': must be text without line breaks"),
        ({"values": {"options": "theirs"}}, "options=theirs: YAML files and resumed lines"),
        ({"values": {"[options]": "theirs"}}, "[options]=theirs: YAML files and resumed lines"),
        ({"values": {"hydra[output_subdir]": "../x"}}, "hydra[output_subdir]=../x: YAML files and resumed lines"),
        ({"values": {}, "choices": {"+options": "theirs"}}, "+options=theirs: YAML files and resumed lines"),
        ({"values": {}, "choices": {"+hydra.callbacks.x": "{_target_: os.mkdir}"}}, "+hydra.callbacks.x={_target_"),
    ],
)
def test_refused_from_a_run_that_is_resumed(given: dict[str, Any], said: str, lmtool: Run) -> None:
    shown = lmtool(*begun(**given), code=2)
    assert said in shown and shown.count("\n") == 1 and not Path(CANARY).exists()


def test_refused_from_a_file_beside_a_run_that_is_resumed(lmtool: Run) -> None:
    experiment(REFUSED["logging factory"][0])
    said = lmtool(*begun({}, {"+experiment": "evil"}, config_dir=str(Path("theirs").resolve())), code=2)
    assert "hydra.job_logging.formatters.x.()=os.mkdir" in said and not Path(CANARY).exists()
    with pytest.raises(lmtool_package.UserError, match=r"hydra\.job_logging\.formatters"):
        lmtool_package.train(resume="theirs")


def test_refused_from_a_sweep_that_is_resumed(lmtool: Run) -> None:
    lmtool(*TRAIN[:-1], "-m", "hydra.sweep.dir=sweep", "model.order=1,2")
    path = Path("sweep/sweep.json")
    whole = json.loads(path.read_text())
    values = whole["values"] | {"+hydra.callbacks.x": {"_target_": "os.mkdir", "path": "canary"}}
    write_json(path, {key: value for key, value in whole.items() if key != "checksum"} | {"values": values})
    said = lmtool("train", "-m", "resume=sweep", code=2)
    assert "hydra.callbacks.x._target_=os.mkdir" in said and not Path(CANARY).exists()
    values = whole["values"] | {"counts": "{options: {spark.jars: x}}"}
    write_json(path, {key: value for key, value in whole.items() if key != "checksum"} | {"values": values})
    assert "counts={options: {spark.jars: x}}: YAML files" in lmtool("train", "-m", "resume=sweep", code=2)
    for damage in ("{", "[]", '{"verb": 3}', '{"verb": "train", "values": []}'):
        path.write_text(damage)
        assert "sweep.json is damaged" in lmtool("train", "-m", "resume=sweep", code=2)
