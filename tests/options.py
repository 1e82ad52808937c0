"""The options of lmtool as tests build them, found as lmtool finds them: a new one is tested by being there."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor, nn

from lmtool.config.groups import EncoderConfig
from lmtool.config.options import conf_dir, kinds, settings_class
from lmtool.config.settings import saved_settings
from lmtool.neural import OutputLayer
from lmtool.trees import Tree, balanced_tree, from_codes, huffman_tree
from lmtool.trees.builders import union


def names_of(group: str, kind: str) -> set[str]:
    """Return the names of an option's settings."""
    return {field.name for field in fields(settings_class(group, kind))}


# Variants of an option beside the one of its YAML file, by the text after its name: "nce, own noise". Output layers
# also have `tied`, and those over a tree `several codes`, `union` and `one word`.
FEATURES: dict[str, dict[str, Any]] = {
    "morin_bengio": {"nodes": "morin_bengio"},
    "own noise": {"share_noise": False},
    "log Z": {"learn_log_z": True},
    "bf16": {"precision": "bf16"},
    "auto": {"precision": "auto"},
    "backed off": {"interpolate": False},
    "diagonal": {"diagonal": True},
    "history": {"fofe_window": 5},
    "gru": {"cell": "gru"},
    "rnn": {"cell": "rnn"},
}


def variants(group: str, names: list[str], *features: str) -> list[str]:
    """Return options, and with each feature those that have its settings."""
    found = list(names)
    for feature in features:
        wanted = {key for each in feature.split(", ") for key in FEATURES[each]}
        found += [f"{name}, {feature}" for name in names if wanted <= names_of(group, name)]
    return found


LAYERS = variants("output", kinds("output"), "own noise, log Z", "morin_bengio")
LAYERS += [f"{name}, several codes" for name in LAYERS if settings_class("output", name.split(", ")[0]).needs_tree]
SMOOTHERS = variants("smoother", kinds("smoother"), "backed off")
NETWORKS = [name for name in kinds("model") if issubclass(settings_class("model", name), EncoderConfig)]
COUNTED = [name for name in kinds("model") if name not in NETWORKS]
RECURRENT = [name for name in NETWORKS if settings_class("model", name).recurrent]
NEAR = [name for name in NETWORKS if settings_class("model", name).reads_near]  # of one word
ENCODERS = variants("model", sorted({*NETWORKS} - {*RECURRENT, *NEAR}), "history", "diagonal")  # of contexts
RECURRENT = variants("model", RECURRENT, "gru", "rnn")


@cache
def written(group: str, kind: str) -> dict[str, Any]:
    """Return the values of conf/GROUP/KIND.yaml."""
    values = yaml.safe_load((conf_dir() / group / f"{kind}.yaml").read_text(encoding="utf-8"))
    return {key: value for key, value in values.items() if key != "defaults"}


def settings(group: str, kind: str, **changes: object) -> Any:
    """Return the settings of conf/GROUP/KIND.yaml, with changes."""
    return saved_settings(written(group, kind) | changes, group)


def settings_of(group: str, name: str, small: dict[str, Any] | None = None, **changes: object) -> Any:
    """Return the settings of a variant of an option, e.g. "nce, own noise". small: values of optional settings."""
    kind, *features = name.split(", ")
    wanted = {key: value for key, value in (small or {}).items() if key in names_of(group, kind)}
    for feature in features:
        wanted |= FEATURES.get(feature, {})
    return settings(group, kind, **wanted | changes)


def output_settings(name: str, dim: int, words: int) -> Any:
    """Return the settings of a variant of an output layer, given the sizes of hidden states and vocabulary."""
    small = {"num_noise": min(7, words), "num_samples": min(7, words), "cutoffs": [words // 4, words // 2]}
    small |= {"div_value": 2.0 if dim > 3 else 1.0, "hidden_dim": 5, "node_dim": 4}
    return settings_of("output", name, small)


def output_layer(name: str, dim: int, counts: Tensor, *, sparse: bool = False) -> OutputLayer:
    """Return a variant of an output layer over words with these counts ("one word": over the first of them)."""
    counts = counts[:1] if "one word" in name else counts
    vectors = nn.Parameter(torch.randn(len(counts) + 1, dim)) if "tied" in name else None  # one more than words
    given = output_settings(name, dim, len(counts))
    made: OutputLayer = given.build(dim, counts, vectors, tree_of(name, counts) if given.needs_tree else None)
    if name == "negative_sampling":  # its vectors start at 0, where h has no gradient
        nn.init.normal_(made.vectors)  # type: ignore[arg-type]
    if not sparse:
        made.use_dense_gradients()
    return made


def trained(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained: not the biases of negative sampling."""
    return {key: parameter for key, parameter in module.named_parameters() if parameter.requires_grad}


def tree_of(name: str, counts: Any) -> Tree:
    """Return the tree of a variant of an output layer."""
    huffman = huffman_tree(np.asarray(counts))
    if "union" in name:
        return union([huffman, balanced_tree(np.asarray(counts).argsort())])
    return several_codes(len(counts)) if "several codes" in name else huffman


def several_codes(words: int) -> Tree:
    """Return a balanced tree with words 0 and 1 at two leaves each."""
    leaves = [0, 1, *range(words)]
    depth = (len(leaves) - 1).bit_length()
    short = 2**depth - len(leaves)  # leaves one level higher up
    codes = [f"{k:0{depth - 1}b}" if k < short else f"{k + short:0{depth}b}" for k in range(len(leaves))]
    return from_codes(list(zip(leaves, codes, strict=True)))


def smoother(name: str, order: int, vocabulary: Any, **changes: object) -> Any:
    """Return a variant of a smoother."""
    return settings_of("smoother", name, **changes).build(order, vocabulary)


def encoder(name: str, **changes: object) -> Any:
    """Return the settings of a variant of an encoder: small, without dropout, gates and history."""
    small = {"embedding_dim": 6, "hidden_dim": 8, "layers": 1, "tied": False, "across_sentences": False}
    small |= dict.fromkeys(("dropout", "input_dropout", "context_reset_prob", "fofe_window"), 0)
    small |= dict.fromkeys(("gated", "layer_norm"), False)
    small |= {} if name in RECURRENT else {"context_size": 3}
    return settings_of("model", name, small, **changes)
