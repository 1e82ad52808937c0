"""Experiment trackers, the options of tracker=, each by its own package and that package's environment variables."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from lmtool.config.groups import TrackerConfig
from lmtool.config.rules import MISSING


@dataclass
class TensorboardTracker(TrackerConfig):
    """Files for TensorBoard, continued by a resumed training: a text of settings, scalars, images."""

    kind: str = "tensorboard"

    def begin(self, folder: Path, settings: dict[str, Any], earlier: str | None) -> str:
        self._writer = import_module("torch.utils.tensorboard").SummaryWriter(str(folder / "tensorboard"))
        rows = "".join(f"| {key} | {value} |\n" for key, value in settings.items())
        self._writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}")
        return ""

    def log(self, numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def picture(self, name: str, path: Path) -> None:
        self._writer.add_image(name, import_module("matplotlib.image").imread(path), dataformats="HWC")

    def end(self, result: dict[str, float] | None) -> None:
        self.log({f"result/{name}": value for name, value in (result or {}).items()}, 0)
        self._writer.close()


@dataclass
class MlflowTracker(TrackerConfig):
    """A run of MLflow, which a resumed training continues: parameters, metrics, artifacts."""

    kind: str = "mlflow"
    experiment: str = MISSING

    def begin(self, folder: Path, settings: dict[str, Any], earlier: str | None) -> str:
        self._client = client = import_module("mlflow").MlflowClient()
        if earlier:
            client.update_run(earlier, status="RUNNING")
        else:
            found = client.get_experiment_by_name(self.experiment)
            experiment = found.experiment_id if found else client.create_experiment(self.experiment)
            earlier = client.create_run(experiment, run_name=settings["run"]).info.run_id
            for key, value in settings.items():
                client.log_param(earlier, key, str(value)[:500])  # older servers refuse longer values
        self._id = str(earlier)
        return self._id

    def log(self, numbers: dict[str, float], step: int) -> None:
        metric, now = import_module("mlflow.entities").Metric, int(time.time() * 1000)
        self._client.log_batch(self._id, [metric(name, value, now, step) for name, value in numbers.items()])

    def picture(self, name: str, path: Path) -> None:
        self._client.log_artifact(self._id, str(path))

    def end(self, result: dict[str, float] | None) -> None:
        self.log({f"result/{name}": value for name, value in (result or {}).items()}, 0)
        self._client.set_terminated(self._id, "FAILED" if result is None else "FINISHED")


@dataclass
class WandbTracker(TrackerConfig):
    """A run of Weights & Biases, which a resumed training continues: config, history, summary."""

    kind: str = "wandb"
    project: str = MISSING

    def begin(self, folder: Path, settings: dict[str, Any], earlier: str | None) -> str:
        self._library = import_module("wandb")
        about = {"project": self.project, "name": settings["run"], "dir": str(folder), "config": settings}
        about |= {"reinit": "create_new", "settings": {"console": "off"}}  # beside other runs of this process
        self._run = self._library.init(id=earlier, resume="allow", **about)
        return str(self._run.id)

    def log(self, numbers: dict[str, float], step: int) -> None:
        self._run.log(numbers, step=step)

    def picture(self, name: str, path: Path) -> None:
        self._run.log({name: self._library.Image(str(path))})

    def end(self, result: dict[str, float] | None) -> None:
        self._run.summary.update({f"result/{name}": value for name, value in (result or {}).items()})
        self._run.finish(exit_code=int(result is None))


@dataclass
class TrackioTracker(WandbTracker):
    """A run of Trackio, which a resumed training continues: config and history."""

    kind: str = "trackio"

    def begin(self, folder: Path, settings: dict[str, Any], earlier: str | None) -> str:
        self._library = import_module("trackio")
        about = {"config": settings, "resume": "must" if earlier else "never", "embed": False}
        self._run = self._library.init(self.project, earlier or settings["run"], **about)
        return str(self._run.name)

    def end(self, result: dict[str, float] | None) -> None:
        if result:
            self._run.log({f"result/{name}": value for name, value in result.items()})
        self._run.finish()
