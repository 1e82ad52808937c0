"""Weights on disk, as safetensors, which execute nothing when they are loaded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_model, save_model
from torch import nn

from lmtool import __version__
from lmtool.errors import UserError
from lmtool.runs.run import REMEDY
from lmtool.system.files import written_whole
from lmtool.trees.tree import Tree

Array = npt.NDArray[Any]
CHECKPOINT, TREE = "checkpoint.safetensors", "tree.safetensors"  # their names in a run folder
QUANTISED, SCALE = "quantize", ".row_scale"  # a key of the metadata, with the bits; the end of the names of scales


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
    model: nn.Module,
    tree: Tree | None,
    about: dict[str, Any],
    words: Sequence[str],
    path: Path,
    bits: int | None = None,
) -> None:
    """Write a model for other programs, whole or not at all: its parameters and buffers by their names, and its tree's
    `tree.children` `[N, 2]` and `tree.leaf_words` `[L]`.

    The metadata hold, in JSON, `description`, which is `about` with `lmtool`, the version, and `tied`, a map from the
    name of a tied tensor to the name it is stored under; and `words`, by id. bits: None for float32; 16 or 8, as in
    `quantised`. Raises UserError where the file cannot be written.
    """
    tensors, tied = _arrays_of(model)
    if bits is not None:
        tensors = quantised(tensors, bits)
    if tree is not None:
        tensors |= {"tree.children": tree.children, "tree.leaf_words": tree.leaf_words}
    description = {"lmtool": __version__, **about, "tied": tied}
    notes = {"description": json.dumps(description), "words": json.dumps(list(words))}
    _write(tensors, path, notes)


def save_quantised(model: nn.Module, path: Path, notes: dict[str, str], bits: int) -> None:
    """Write a model's parameters and buffers in 16 or 8 bits, as `quantised` does, for load_weights.

    Raises UserError where the file cannot be written, and for a weight that float16 does not have.
    """
    tensors, tied = _arrays_of(model)
    _write(quantised(tensors, bits), path, notes | {QUANTISED: str(bits), "tied": json.dumps(tied)})


def quantised(tensors: dict[str, Array], bits: int) -> dict[str, Array]:
    """The float32 matrices among tensors in 16 bits, as float16, or in 8: int8 `[R, ...]`, and under the name with
    `.row_scale` float32 `[R]`, by which row r is multiplied: its largest number over 127. All others as they are.

    Raises UserError for a weight that float16 does not have.
    """
    small: dict[str, Array] = {}
    for name, values in tensors.items():
        if values.dtype != np.float32 or values.ndim < 2:
            small[name] = values
        elif bits == 16:
            if np.abs(values).max(initial=0) > np.finfo(np.float16).max:
                raise UserError(f"{name} has weights above 65,504, which float16 does not have: take 8 bits")
            small[name] = values.astype(np.float16)
        else:
            rows = values.reshape(len(values), -1)
            scale = np.abs(rows).max(axis=1, initial=0) / np.float32(127)
            scale[scale == 0] = 1
            small[name] = np.rint(rows / scale[:, None]).astype(np.int8).reshape(values.shape)
            small[name + SCALE] = scale
    return small


def restored(tensors: dict[str, Array]) -> dict[str, Array]:
    """What `quantised` was given, float32 again."""
    whole: dict[str, Array] = {}
    for name, values in tensors.items():
        if name + SCALE in tensors:
            scale = tensors[name + SCALE].reshape(-1, *[1] * (values.ndim - 1))
            whole[name] = values * scale
        elif name.removesuffix(SCALE) == name or name.removesuffix(SCALE) not in tensors:
            whole[name] = values.astype(np.float32) if values.dtype == np.float16 else values
    return whole


def _arrays_of(model: nn.Module) -> tuple[dict[str, Array], dict[str, str]]:
    """A model's parameters and buffers by name; and from the names of tied tensors to those they are stored under."""
    tensors: dict[str, Array] = {}
    tied: dict[str, str] = {}
    first_name: dict[int, str] = {}
    for name, tensor in model.state_dict().items():
        first = first_name.setdefault(tensor.data_ptr(), name)
        if first != name:
            tied[name] = first
        else:
            tensors[name] = tensor.contiguous().cpu().numpy()
    return tensors, tied


def _write(tensors: dict[str, Array], path: Path, notes: dict[str, str]) -> None:
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
        if QUANTISED in read_notes(path):
            _load_quantised(model, path)
        else:
            load_model(model, path)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise UserError(f"{path} is damaged or cut off: {REMEDY}") from error
    except RuntimeError as error:
        raise UserError(f"{path} does not fit the model of its run.json: {REMEDY}") from error


def _load_quantised(model: nn.Module, path: Path) -> None:
    with safe_open(path, framework="np") as file:  # maps the file
        whole = restored({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
        tied = json.loads(file.metadata()["tied"])
    whole |= {name: whole[first] for name, first in tied.items()}
    model.load_state_dict({name: torch.from_numpy(values) for name, values in whole.items()})


def read_notes(path: Path) -> dict[str, str]:
    """The metadata that were written with the weights. Raises UserError where the file is missing or damaged."""
    if not path.is_file():
        raise UserError(f"the checkpoint {path} is missing: {REMEDY}")
    try:
        with safe_open(path, framework="np") as file:
            return dict(file.metadata() or {})
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
