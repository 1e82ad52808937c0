"""Read and write weights as safetensors, which execute no code when loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy
import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from lmtool import __version__
from lmtool.errors import UserError, first_line
from lmtool.runs.run import REMEDY
from lmtool.system.checksums import KEY, ZEROS, seal, verify
from lmtool.system.files import atomic_write
from lmtool.system.schemas import parse_json
from lmtool.trees.tree import Tree

Array = npt.NDArray[Any]
CHECKPOINT, TREE = "checkpoint.safetensors", "tree.safetensors"  # file names in a run folder
TIED = "tied"  # metadata key: map from tied to stored tensors
LARGEST = 1e10  # maximum absolute weight; products of larger ones overflow
SCALE = ".row_scale"  # suffix of the names of row scales


def save_weights(model: nn.Module, path: Path, notes: dict[str, str], bits: int | None = None) -> None:
    """Write a model's parameters and buffers, and notes, completely or not at all. bits: as in `quantize`."""
    tensors, tied = arrays_of(model, bits)
    with atomic_write(path) as temporary:
        write_tensors(tensors, temporary, notes | {TIED: json.dumps(tied)})


def export_weights(
    model: nn.Module, tree: Tree | None, about: dict[str, Any], words: Sequence[str], path: Path, bits: int | None
) -> None:
    """Write a model for other programs: its state_dict, and `tree.children` `[N, 2]` and `tree.leaf_words` `[L]` of its
    tree, completely or not at all.

    The metadata hold, in JSON, `description`, which is `about` with `lmtool` (the version) and `tied` (a map from the
    name of a tied tensor to the name it is stored under), and `words`, by id. bits: None for float32; 16 or 8 as in
    `quantize`.
    """
    tensors, tied = arrays_of(model, bits)
    if tree is not None:
        tensors |= {"tree.children": tree.children, "tree.leaf_words": tree.leaf_words}
    description = {"lmtool": __version__, **about, "tied": tied}
    notes = {"description": json.dumps(description), "words": json.dumps(list(words))}
    with atomic_write(path) as temporary:
        write_tensors(tensors, temporary, notes)


def quantize(tensors: dict[str, Array], bits: int) -> dict[str, Array]:
    """Quantize the float32 matrices among tensors; all others stay unchanged.

    bits: 16 for float16; 8 for int8 `[R, ...]` with a float32 scale `[R]`, stored under the name
    plus `.row_scale`, by which row r is multiplied: its largest absolute value over 127.
    """
    small: dict[str, Array] = {}
    for name, values in tensors.items():
        if values.dtype != np.float32 or values.ndim < 2:
            small[name] = values
        elif bits == 16:
            if np.abs(values).max(initial=0) > np.finfo(np.float16).max:
                raise UserError(f"{name} has weights above 65,504, the largest float16: use 8 bits")
            small[name] = values.astype(np.float16)
        else:
            rows = values.reshape(len(values), -1)
            scale = np.abs(rows).max(axis=1, initial=0) / np.float32(127)
            scale[scale == 0] = 1
            small[name] = np.rint(rows / scale[:, None]).astype(np.int8).reshape(values.shape)
            small[name + SCALE] = scale
    return small


def dequantize(tensors: dict[str, Array]) -> dict[str, Array]:
    """Undo `quantize`: return float32 tensors; other tensors stay unchanged."""
    whole: dict[str, Array] = {}
    for name, values in tensors.items():
        if name + SCALE in tensors:
            scale = tensors[name + SCALE].reshape(-1, *[1] * (values.ndim - 1))
            whole[name] = values * scale
        elif not name.endswith(SCALE):
            whole[name] = values.astype(np.float32) if values.dtype == np.float16 else values
    return whole


def arrays_of(model: nn.Module, bits: int | None) -> tuple[dict[str, Array], dict[str, str]]:
    """Return a model's parameters and buffers in `bits`, and the name under which each tied tensor is stored."""
    tensors: dict[str, Array] = {}
    tied: dict[str, str] = {}
    first_name: dict[tuple[object, ...], str] = {}
    for name, tensor in model.state_dict().items():
        first = first_name.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride()), name)
        if first != name and tensor.numel():
            tied[name] = first
        else:
            tensors[name] = tensor.contiguous().cpu().numpy()
    return tensors if bits is None else quantize(tensors, bits), tied


def write_tensors(tensors: dict[str, Array], path: Path, notes: dict[str, str]) -> None:
    """Write arrays with notes as metadata, and a checksum."""
    try:
        safetensors.numpy.save_file(tensors, path, metadata=notes | {KEY: ZEROS})
    except SafetensorError as error:
        raise OSError(str(error)) from error
    seal(path)


def read_tensors(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Verify a safetensors file and read its arrays and notes."""
    verify(path)
    with safe_open(path, framework="np") as file:  # memory-maps the file
        notes = dict(file.metadata() or {})
        notes.pop(KEY, None)
        return {name: file.get_tensor(name) for name in file.keys()}, notes  # noqa: SIM118 - it is not a dictionary


@contextmanager
def _whole(what: str, path: Path) -> Iterator[None]:
    """Raise UserError if a file that is read in the block is missing or damaged. what: the content of the file."""
    if not path.is_file():
        raise UserError(f"the {what} {path} is missing: {REMEDY}")
    try:
        yield
    except (SafetensorError, OSError, LookupError, ValueError) as error:
        raise UserError(f"{path} is damaged or cut off ({first_line(error)}): {REMEDY}") from error


def load_weights(model: nn.Module, path: Path) -> dict[str, str]:
    """Read weights into a model of the same shape and verify their checksum; return the notes beside them."""
    with _whole("checkpoint", path):
        tensors, notes = read_tensors(path)
        tensors = dequantize(tensors)
        tensors |= {name: tensors[first] for name, first in parse_json(notes[TIED], {str: str}, TIED).items()}
        for name, values in tensors.items():
            if values.dtype.kind == "f" and not max(values.max(initial=0), -values.min(initial=0)) <= LARGEST:  # or nan
                raise ValueError(f"{name} has numbers that are not finite, or above {LARGEST:g}")
    try:
        model.load_state_dict({name: torch.from_numpy(values) for name, values in tensors.items()})
        return notes
    except (RuntimeError, ValueError) as error:  # different shapes or a different tree
        raise UserError(f"{path} does not fit the model of its run.json: {REMEDY}") from error


def save_tree(tree: Tree, path: Path) -> None:
    """Write a tree, completely or not at all: int32 `children` `[N, 2]` and `leaf_words` `[L]`."""
    with atomic_write(path) as temporary:
        write_tensors({"children": tree.children, "leaf_words": tree.leaf_words}, temporary, {})


def load_tree(path: Path) -> Tree:
    """Read a tree and verify its checksum."""
    with _whole("tree", path):
        arrays = read_tensors(path)[0]
        return Tree(arrays["children"], arrays["leaf_words"])
