"""Presets of conf/model start from nplm and say only what differs; any output layer goes with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from lmtool.config.options import conf_dir
from lmtool.training.plan import learning_rate
from lmtool.training.schedules import StepsSchedule


def composed(*overrides: str) -> dict[str, Any]:
    with initialize_config_dir(str(conf_dir()), version_base=None):
        values = OmegaConf.to_container(compose("train", overrides=list(overrides)))
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


@pytest.mark.parametrize(
    ("preset", "changes", "output", "tree"),
    [
        ("skip_layer", {"direct_connections": True}, "softmax", None),
        ("hsoftmax", {"dropout": 0.5, "input_dropout": 0.2}, "hierarchical", "union"),
        ("nce", {"dropout": 0.35}, "nce", None),
    ],
)
def test_what_a_preset_changes(preset: str, changes: dict[str, object], output: str, tree: str | None) -> None:
    found, plain = composed(f"model={preset}"), composed("model=nplm")
    assert found["model"] == plain["model"] | changes
    assert found["output"]["kind"] == output and (found["tree"]["kind"] if tree else found.get("tree")) == tree
    assert all(found[name] == plain[name] for name in ("optim", "schedule", "training"))


@pytest.mark.parametrize("name", ["mikolov2010", "zaremba2014_medium", "merity2018"])
def test_recurrent_networks_of_papers(name: str, lmtool: Callable[..., str]) -> None:
    small = ["model.embedding_dim=8", "model.hidden_dim=8", "training.epochs=2", "training.batch_size=4"]
    lmtool("train", f"+experiment={name}", "data=toy", *small, "hydra.run.dir=run")
    lmtool("eval", "run=run", "hydra.run.dir=eval")
    trained, evaluated = (json.loads(Path(run, "result.json").read_text()) for run in ("run", "eval"))
    assert evaluated["perplexity"] == pytest.approx(trained["valid_perplexity"], rel=1e-4)


@pytest.mark.parametrize("name", ["mikolov2010", "zaremba2014_medium", "merity2018"])
def test_networks_of_papers_do_not_follow_the_defaults(name: str) -> None:
    own, plain = (OmegaConf.load(conf_dir() / each) for each in (f"experiment/{name}.yaml", "model/lstm.yaml"))
    follow = {"defaults", "kind", "cell", "context_size", "across_sentences"}
    assert own.model.keys() == plain.keys() - follow
    assert {"epochs", "minutes", "batch_size", "bptt", "evaluate_every", "max_grad_norm"} <= own.training.keys()
    groups = {key for entry in own.defaults for key in entry}
    assert groups == {f"override /{group}" for group in ("data", "model", "output", "optim", "schedule")}


def test_the_rate_of_zaremba_falls_by_a_sixth_after_each_epoch_from_the_sixth_on() -> None:
    settings = composed("+experiment=zaremba2014_medium")["schedule"]
    schedule = StepsSchedule("steps", 0.0, settings["milestones"], settings["gamma"])
    rates = [learning_rate(schedule, 35.0, done=(epoch - 0.5) / 39, steps=0) for epoch in range(1, 40)]
    assert rates == pytest.approx([35 * 1.2 ** -max(0, epoch - 6) for epoch in range(1, 40)], rel=1e-5)


@pytest.mark.parametrize(
    ("overrides", "output", "tree"),
    [
        (["model=hsoftmax", "output=nce"], "nce", None),
        (["model=nce", "output=softmax"], "softmax", None),
        (["model=skip_layer", "output=hierarchical", "tree=brown"], "hierarchical", "brown"),
        (["+experiment=ptb_hsoftmax"], "hierarchical", "clusters"),
        (["+experiment=ptb_hsoftmax", "tree=huffman"], "hierarchical", "huffman"),
    ],
)
def test_the_output_of_a_preset_can_be_another(overrides: list[str], output: str, tree: str | None) -> None:
    found = composed(*overrides)
    assert found["output"]["kind"] == output and (found["tree"]["kind"] if tree else found.get("tree")) == tree
