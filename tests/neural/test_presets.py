"""Presets of conf/model start from nplm and say only what differs; any output layer goes with them."""

from __future__ import annotations

from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from lmtool.config.options import conf_dir


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
