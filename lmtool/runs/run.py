"""The run folder: everything needed to use the model of a command, or to reproduce it.

run.json has the kind of run (`train` or `ensemble`), its data, store and model; the model's files are beside it. It is
written last, so that a folder with a run.json is complete."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from lmtool import __version__
from lmtool.config.groups import CountModelConfig, EncoderConfig, cloze_split
from lmtool.config.rules import format_value
from lmtool.config.settings import saved_settings
from lmtool.data.readers import PACKED, is_kenlm_binary
from lmtool.errors import UserError
from lmtool.system.checksums import checksum_of
from lmtool.system.files import read_json, write_json
from lmtool.system.schemas import RUN

FORMAT = 3
VOCABULARY, TOKENIZER = "vocabulary.txt", "tokenizer.json"
Fits = dict[str, list[str]]  # names of the fitted or chosen parts of a model, by split
ARPA_NAMES = tuple(f".{name}{end}" for name in ("arpa", "lm") for end in ("", *PACKED))
SPLITS = ("train", "valid", "test")
METRICS_FILE = "metrics.jsonl"  # one line per evaluation of a neural training
TRACKED = "trackers.json"  # identifier of the training's run in each of its experiment trackers
STATE, STATE_BEFORE = "state.safetensors", "state-before.safetensors"  # the last two checkpoints of a training
BY_QUESTIONS = " by its cloze questions"  # ends the names of what was fitted or chosen on the questions of a split
REMEDY = "train it again, or name another run"


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run.

    kind: `train` or `ensemble`.
    config: the composed settings as plain values.
    store: the path of the HDF5 store when the run was made; any file with the same fingerprint can replace it.
    members, weights, mixture: only for an ensemble; mixture describes in plain values how the members are mixed.
    choices: the option chosen in each group, e.g. {"model": "hsoftmax"}, whose kind is in config.
    origins: where external options come from, by group.
    checksums: checksums of the files of the model and the vocabulary when run.json was written, by name.
    fitted_on: the parts of the model that were fitted or chosen on each split, e.g. {"valid": ["discounts"]}, or on a
    text, under its text_key.
    started_in: the folder to which relative paths in config["data"] refer.
    changes: settings that were changed on resuming the training, [{"step", "setting", "before", "after"}].
    """

    folder: Path
    kind: str
    config: dict[str, Any]
    store: str
    store_fingerprint: str
    vocabulary_fingerprint: str
    members: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    mixture: dict[str, Any] = field(default_factory=dict)
    choices: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    checksums: dict[str, str] = field(default_factory=dict)
    fitted_on: dict[str, list[str]] = field(default_factory=dict)
    started_in: str = field(default_factory=os.getcwd)
    changes: list[dict[str, Any]] = field(default_factory=list)

    def settings(self, group: str) -> Any:
        """Return the settings of the option that the run used in a group."""
        saved = self.config.get(group)
        if not isinstance(saved, dict):
            raise UserError(f"{self.folder / 'run.json'} is damaged (no settings of its {group}): {REMEDY}")
        return saved_settings(saved, group, self.origins)

    def require_whole(self, *names: str) -> None:
        """Raise UserError unless files of the run, by default all that exist, are those described by run.json."""
        for name in names or self.checksums:
            path = self.folder / name
            if names and not path.is_file():
                raise UserError(f"{path} is missing: {REMEDY}")
            if name not in self.checksums or not path.is_file():
                continue
            try:
                same = checksum_of(path) == self.checksums[name]
            except OSError as error:
                raise UserError(f"{path} is damaged ({error}): {REMEDY}") from error
            if not same:
                raise UserError(f"{path} is damaged, or of another run (its checksum is not in run.json): {REMEDY}")

    def save(self, *, unfinished: bool = False) -> None:
        """Write run.json, which completes the folder, with checksums of the files beside it.

        unfinished: whether to leave out checksums of the model's files, as a training is about to change these.
        """
        model = self.files_of_model()
        files = [self.folder / name for name in (VOCABULARY, TOKENIZER, *model)]
        checksums = {name: value for name, value in self.checksums.items() if name not in model}
        if not unfinished:
            checksums = {path.name: checksum_of(path) for path in files if path.is_file()}
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "folder"}
        about = {"format": FORMAT, "version": __version__}
        write_json(self.folder / "run.json", about | values | {"checksums": checksums})

    def files_of_model(self) -> tuple[str, ...]:
        """Return the names of the files that the model may have in the run folder."""
        if not self.config.get("model"):
            return ()
        settings = self.settings("model")
        assert isinstance(settings, CountModelConfig | EncoderConfig), "the two kinds of models there are"
        return settings.files

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Read a run folder."""
        _require_no_model_file(folder)
        if not folder.is_dir():
            raise UserError(f"no run folder {folder}: check the path")
        if not (folder / "run.json").is_file():
            inside = sorted(path.parent for path in folder.glob("*/run.json"))
            meant = f"; did you mean {', '.join(map(str, inside[:3]))}?" if inside else f": {REMEDY}"
            if (folder / "scores.h5").is_file():
                meant = ": its scores.h5 has scores without a model, which lmtool compare and lmtool ensemble can use"
            raise UserError(f"{folder} is not a finished run (it has no run.json){meant}")
        saved = read_json(folder / "run.json", REMEDY, RUN, FORMAT)
        values = {each.name: saved[each.name] for each in fields(cls) if each.name in saved.keys() - {"folder"}}
        values |= {"members": tuple(saved["members"]), "weights": tuple(map(float, saved["weights"]))}
        return cls(folder=folder, **values)


def fitted_by(config: dict[str, Any]) -> dict[str, list[str]]:
    """Return the parts that a run's settings fit or choose on each split, as in Run.fitted_on."""
    if "fit_split" in config:
        names = ["weights"] * (config.get("weights") is None)
        names += ["cache_theta"] * (config.get("cache") == "neural" and config.get("cache_theta") is None)
        if config.get("fit_on") == "cloze":
            names = [f"{name}{BY_QUESTIONS}" for name in names]
        return {config["fit_split"]: names} if names else {}
    smoother, schedule, training = (config.get(group) or {} for group in ("smoother", "schedule", "training"))
    if config.get("output"):  # the checkpoint with the lowest perplexity on valid is kept
        stopped, falling = training.get("patience") is not None, "patience" in schedule
        names = ["checkpoint"] + ["number of epochs"] * stopped + ["learning rate"] * falling
        return {"valid": [f"{name}{BY_QUESTIONS}" for name in names] if training.get("keep_best") == "cloze" else names}
    tuned = [name for name, value in smoother.items() if value == "tuned"]
    if smoother.keys() <= {"kind", "tune_on", "source_weights"}:  # a smoother that is always tuned
        tuned = ["weights and discounts" if smoother.get("source_weights") is None else "discounts"]
    if not tuned or "tune_on" not in smoother:
        return {}
    asked = cloze_split(smoother["tune_on"])
    return {smoother["tune_on"]: tuned} if asked is None else {asked: [f"{name}{BY_QUESTIONS}" for name in tuned]}


def change_text(change: dict[str, Any]) -> str:
    """Return an entry of Run.changes in words."""
    before, after = format_value(change["before"]), format_value(change["after"])
    return f"{change['setting']}={after}, was {before}, from step {change['step']:,} on"


def merge_fitted(*found: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the union of the fitted parts of several models, as in Run.fitted_on."""
    splits = dict.fromkeys(split for each in found for split in each)
    return {split: list(dict.fromkeys(what for each in found for what in each.get(split, []))) for split in splits}


def text_key(fingerprint: str) -> str:
    """Return the name in Run.fitted_on of a text that is not a split, given the fingerprint of its tokens."""
    return f"text:{fingerprint}"


def fitted_on(path: Path, split: str | None, fingerprint: str) -> tuple[str, ...]:
    """Return the parts of a run's model that were fitted or chosen on a split or on the same tokens as a text.

    path: a run folder; for any other path the result is empty. split: None for free text. fingerprint: of the tokens.
    """
    if not (path / "run.json").is_file():
        return ()
    known = Run.open(path).fitted_on
    return tuple(dict.fromkeys([*known.get(split or "", ()), *known.get(text_key(fingerprint), ())]))


def fitted_note(found: Mapping[str, Sequence[str]], split: str) -> list[str]:
    """Return a note if a split favors some models. found: the parts fitted or chosen on the split, by model."""
    named = "; ".join(f"{name} ({', '.join(what)})" for name, what in found.items() if what)
    other = "valid" if split == "test" else "test"
    remedy = f"use a split that was not, e.g. split={other}" if split in SPLITS else "use a text that was not"
    return [f"fitted or chosen on {split} itself, which favors it here: {named}; {remedy}"] if named else []


def has_state(folder: Path) -> bool:
    """Return whether a folder has a checkpoint of a training, damaged or not."""
    return (folder / STATE).exists() or (folder / STATE_BEFORE).exists()


def newest() -> Path:
    """Return the newest run below ./outputs and ./multirun."""
    runs = [path for top in ("outputs", "multirun") for path in Path(top).glob("**/run.json")]
    if not runs:
        raise UserError("no run below ./outputs or ./multirun: make one with lmtool train, or name one with run=PATH")
    return max(runs, key=lambda path: path.stat().st_mtime_ns).parent


def run_folder(named: str | None) -> Path:
    """Return the run folder of `run=`, which may not be an ARPA file or a binary file of KenLM, or the newest one."""
    if named:
        _require_no_model_file(Path(named))
    return Path(named) if named else newest()


def _require_no_model_file(path: Path) -> None:
    """Raise UserError for a file that arpa= takes."""
    if is_kenlm_binary(path):
        raise UserError(f"{path} is a KenLM binary: use arpa={path}, in lmtool eval, score or predict")
    if path.is_file() and path.name.endswith(ARPA_NAMES):
        raise UserError(f"{path} is an ARPA file: use arpa={path}, in lmtool eval, score, predict or convert")


RATES = "lr_range.json"
START = 20  # number of steps whose smoothed losses are ignored, as they are means of few losses


def start_of(rates: list[float]) -> int:
    """Return the first step whose smoothed loss counts: START, or half of the steps if that is less."""
    return min(START, len(rates) // 2)


@dataclass(repr=False)
class RangeTest:
    """The content of lr_range.json.

    rates: the learning rates that were tried, ascending.
    losses: the loss in nats at each rate, before its step.
    smoothed: running mean of the losses.
    proposed: a tenth of the rate with the lowest running mean after the first 20 steps, at least the lowest rate (many
    may diverge even if one does not).
    doubt: why the proposed rate is unreliable, or empty.
    """

    rates: list[float]
    losses: list[float]
    smoothed: list[float]
    proposed: float
    doubt: str = ""
