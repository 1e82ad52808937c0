"""Weights on disk, as safetensors, which execute nothing when they are loaded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import safetensors.numpy
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_model, save_model
from torch import nn

from lmtool import __version__
from lmtool.errors import UserError
from lmtool.runs.run import REMEDY
from lmtool.system.files import written_whole
from lmtool.trees.tree import Tree

CHECKPOINT, TREE = "checkpoint.safetensors", "tree.safetensors"  # their names in a run folder


def save_weights(model: nn.Module, path: Path, notes: dict[str, str]) -> None:
    """Write the parameters and buffers of a model, with notes as metadata, whole or not at all.

    Raises UserError where the file cannot be written.
    """
    with written_whole(path) as temporary:
        try:
            save_model(model, str(temporary), metadata=notes)  # tied tensors are written once
        except SafetensorError as error:  # of an OSError
            raise OSError(str(error)) from error


def export_weights(
    model: nn.Module, tree: Tree | None, about: dict[str, Any], words: Sequence[str], path: Path
) -> None:
    """Write a model for other programs, whole or not at all: its parameters and buffers by their names, and its tree's
    `tree.children` `[N, 2]` and `tree.leaf_words` `[L]`.

    The metadata hold, in JSON, `description`, which is `about` with `lmtool`, the version, and `tied`, a map from the
    name of a tied tensor to the name it is stored under; and `words`, by id. Raises UserError where the file cannot be
    written.
    """
    tensors: dict[str, npt.NDArray[Any]] = {}
    tied: dict[str, str] = {}
    first_name: dict[int, str] = {}
    for name, tensor in model.state_dict().items():
        first = first_name.setdefault(tensor.data_ptr(), name)
        if first != name:
            tied[name] = first
        else:
            tensors[name] = tensor.contiguous().cpu().numpy()
    if tree is not None:
        tensors |= {"tree.children": tree.children, "tree.leaf_words": tree.leaf_words}
    description = {"lmtool": __version__, **about, "tied": tied}
    notes = {"description": json.dumps(description), "words": json.dumps(list(words))}
    with written_whole(path) as temporary:
        try:
            safetensors.numpy.save_file(tensors, temporary, metadata=notes)
        except SafetensorError as error:
            raise OSError(str(error)) from error


def load_weights(model: nn.Module, path: Path) -> None:
    """Read weights into a model of the same shape.

    Raises UserError where the file is missing, damaged, or of a model of another shape.
    """
    if not path.is_file():
        raise UserError(f"the checkpoint {path} is missing: {REMEDY}")
    try:
        load_model(model, path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged or cut off: {REMEDY}") from error
    except RuntimeError as error:
        raise UserError(f"{path} does not fit the model of its run.json: {REMEDY}") from error


def read_notes(path: Path) -> dict[str, str]:
    """The metadata that were written with the weights. Raises UserError where the file is missing or damaged."""
    if not path.is_file():
        raise UserError(f"the checkpoint {path} is missing: {REMEDY}")
    try:
        with safe_open(path, framework="np") as file:
            return dict(file.metadata())
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged or cut off: {REMEDY}") from error


def save_tree(tree: Tree, path: Path) -> None:
    """Write a tree, whole or not at all: int32 `children` `[N, 2]` and `leaf_words` `[L]`."""
    with written_whole(path) as temporary:
        safetensors.numpy.save_file({"children": tree.children, "leaf_words": tree.leaf_words}, temporary)


def load_tree(path: Path) -> Tree:
    """Read a tree. Raises UserError where the file is missing or damaged."""
    if not path.is_file():
        raise UserError(f"the tree {path} is missing: {REMEDY}")
    try:
        arrays = safetensors.numpy.load_file(path)
        return Tree(arrays["children"], arrays["leaf_words"])
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise UserError(f"{path} is damaged or cut off: {REMEDY}") from error
