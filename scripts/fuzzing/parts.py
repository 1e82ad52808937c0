"""The values in a file of lmtool: read, changed, and written with the checksums that belong to them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from safetensors import safe_open

from lmtool.runs.weights import write_tensors
from lmtool.system.checksums import KEY, seal

MISSING, DEEP = "missing", "deep"
# What a value becomes; of arrays also another shape or type.
VALUES = [
    *(
        MISSING,
        None,
        True,
        "",
        "x",
        "inf",
        "nan",
        "a\nb",
        "a\0b",
        "\ud800",
        "\x1b[31m",
        "../../x",
        "${oc.env:HOME}",
        DEEP,
    ),
    *([], {}, [None], ["x"], {"a": None}, -1, 0, 1, 0.5, 1e4, 1e38, 1e308, 2**31, 2**62, 10**30, math.nan, math.inf),
    *("empty", "scalar", "column", "row", "cut", "double", "reversed", "float16", "float64", "int8", "bool", -math.inf),
]


def change_values(path: Path, changes: list[list[Any]]) -> bool:
    """Change values of a file, each of a place by number; return whether its format can hold them."""
    before = parts = parts_of(path)
    for _, place, new in changes:
        if ways := list(leaves(parts)):
            parts = changed(parts, ways[place % len(ways)], new, place)
    try:
        write_parts(path, parts, before)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(300):
        value = [value]
    return value


def parts_of(path: Path) -> Any:
    """Return what a file holds as nested values and arrays, without checksums."""
    match path.suffix:
        case ".json":
            return {key: value for key, value in json.loads(path.read_text()).items() if key != KEY}
        case ".jsonl":
            return [json.loads(line) for line in path.read_text().splitlines()]
        case ".safetensors":
            with safe_open(path, framework="np") as file:
                notes = {key: text for key, text in file.metadata().items() if key != KEY}
                return {"notes": notes} | {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        case ".h5":
            parts: dict[str, Any] = {}
            with h5py.File(path) as file:
                names = ["/"]
                file.visit(names.append)
                for name in names:
                    parts[f"{name}@"] = dict(file[name].attrs)
                    if isinstance(file[name], h5py.Dataset):
                        parts[name] = file[name][()]
            return parts
    return [line.split("\t") for line in path.read_text().splitlines()]


def write_parts(path: Path, parts: Any, before: Any) -> None:
    """Write a file of changed parts, with the checksums that belong to it."""
    match path.suffix:
        case ".json":  # without a checksum, as if it were changed by hand
            path.write_text(json.dumps(parts))
        case ".jsonl":
            path.write_text("".join(f"{json.dumps(part)}\n" for part in parts))
        case ".safetensors":
            notes = {key: text if isinstance(text, str) else json.dumps(text) for key, text in parts["notes"].items()}
            arrays = {name: np.ascontiguousarray(part) for name, part in parts.items() if name != "notes"}
            write_tensors(arrays, path, notes)
        case ".h5":
            with h5py.File(path, "r+") as file:
                for name in sorted(name for name in before if not name.endswith("@")):
                    if parts.get(name, ...) is not before[name]:
                        del file[name]
                        if name in parts:
                            file.create_dataset(name, data=parts[name])
                            file[name].attrs.update(before[f"{name}@"])
                for name in (name for name in before if name.endswith("@") and name[:-1] in file):
                    for key, old in before[name].items():
                        if parts[name].get(key, ...) is not old:
                            del file[name[:-1]].attrs[key]
                            if key in parts[name]:
                                new = parts[name][key]
                                simple = isinstance(new, str | int | float | np.ndarray)
                                file[name[:-1]].attrs[key] = new if simple else json.dumps(new)
            seal(path)
        case _:
            lines = ("\t".join(map(str, fields)) if isinstance(fields, list) else str(fields) for fields in parts)
            path.write_text("".join(f"{line}\n" for line in lines), errors="surrogatepass")


def leaves(parts: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value within a value, also in JSON that a text holds."""
    inner = parts
    if isinstance(parts, str) and parts[:1] in ("[", "{"):
        inner = json.loads(parts)
    if path and (path != ("notes",)) and not str(path[-1]).endswith("@"):
        yield path
    for key, value in inner.items() if isinstance(inner, dict) else enumerate(inner) if isinstance(inner, list) else ():
        yield from leaves(value, (*path, key))


def changed(parts: Any, path: tuple[Any, ...], new: Any, place: int) -> Any:
    """Return parts with another value at a place, or without it."""
    if not path:
        return new_array(parts, new, place) if isinstance(parts, np.ndarray) else deep() if new == DEEP else new
    if isinstance(parts, str):
        return json.dumps(changed(json.loads(parts), path, new, place))
    copy: Any = parts.copy()
    if new == MISSING and len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(parts[path[0]], path[1:], new, place)
    return copy


def new_array(array: Any, new: Any, place: int) -> Any:
    """Return an array of another shape or type, or with a number in it."""
    flat = array.reshape(-1)
    with np.errstate(all="ignore"):
        match new:
            case "float16" | "float64" | "int8" | "bool":
                return array.astype(new)
            case int() | float() if flat.size and (array.dtype.kind == "f" or math.isfinite(new)):
                limits = None if array.dtype.kind in "fb" else np.iinfo(array.dtype)
                flat = flat.copy()
                flat[place % flat.size] = new if limits is None else min(max(int(new), limits.min), limits.max)
                return flat.reshape(array.shape)
    shapes = {"scalar": np.float32(3), "column": array.reshape(-1, 1), "row": array.reshape(1, -1)}
    shapes |= {"cut": flat[: flat.size // 2], "double": np.concatenate([flat, flat]), "reversed": flat[::-1].copy()}
    return shapes.get(new, flat[:0]) if isinstance(new, str) else flat[:0]
