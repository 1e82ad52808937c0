"""What a stranger may give: files with right checksums and wrong values, YAML files and resumed lines that reach for
more than settings, and odd environments. Each ends as it should, or with one line.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import yaml
from hypothesis import strategies as st
from safetensors import safe_open

from fuzzing import commands, files
from fuzzing.campaign import Fault, Generator, try_all
from fuzzing.child import forked
from fuzzing.commands import NEURAL, SHARED
from fuzzing.damage import PLACES
from fuzzing.lines import RIGHT
from lmtool.runs.weights import write_tensors
from lmtool.system.checksums import KEY, checksum_of, seal
from lmtool.system.files import read_json, write_json

# fmt: off
USES = ["score", "eval", "verify", "report", "predict", "ensemble", "compare", "card"]
NEURAL_USES = [*USES, "neighbors", "export"]
OF_RESULTS = ["report", "compare", "card", "verify"]
FILES = {  # each with what reads it
    "kn/run.json": [*USES, "arpa"], "kn/result.json": OF_RESULTS, "kn/model.h5": [*USES, "arpa"],
    "kn/vocabulary.txt": USES, "net/run.json": [*NEURAL_USES, "resume"], "net/result.json": [*OF_RESULTS, "resume"],
    "net/metrics.jsonl": ["report", "resume"], "net/begun.json": ["resume"], "net/state.safetensors": ["resume"],
    "net/checkpoint.safetensors": NEURAL_USES, "hs/run.json": NEURAL_USES, "hs/tree.safetensors": [*USES, "resume"],
    "mix/run.json": USES, "mix/result.json": OF_RESULTS, "classes/classes.txt": USES, "classes/model.h5": USES,
    "q8/model.h5": USES, "q16/checkpoint.safetensors": NEURAL_USES, "scores/result.json": ["report", "compare"],
    "scores/scores.h5": ["scores", "compare", "report", "ensemble"], files.STORE: ["store", "train", "eval kn"],
}
MISSING, DEEP = "missing", "deep"
VALUES = [
    MISSING, None, True, "", "x", "inf", "nan", "a\nb", "a\0b", "\ud800", "\x1b[31m", "../../x", "${oc.env:HOME}", DEEP,
    [], {}, [None], ["x"], {"a": None}, -1, 0, 1, 0.5, 1e4, 1e38, 1e308, 2**31, 2**62, 10**30, math.nan, math.inf,
    "empty", "scalar", "column", "row", "cut", "double", "reversed", "float16", "float64", "int8", "bool", -math.inf,
]
# fmt: on


def deep() -> list[Any]:
    """Return a list within a list, hundreds of times."""
    value: list[Any] = []
    for _ in range(300):
        value = [value]
    return value


@st.composite
def strange_files(draw: st.DrawFn) -> list[Any]:
    """Draw a file of a run, what reads it, and the values in it that are changed."""
    name = draw(st.sampled_from(sorted(FILES)))
    used = draw(st.sampled_from(FILES[name]))
    changes = st.lists(st.tuples(PLACES, st.sampled_from(VALUES)), min_size=1, max_size=2)
    return [name, used if name == files.STORE else f"{used} {Path(name).parent}", draw(changes)]


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
            case int() | float() if flat.size and (array.dtype.kind == "f" or np.isfinite(new)):
                limits = None if array.dtype.kind in "fb" else np.iinfo(array.dtype)
                flat = flat.copy()
                flat[place % flat.size] = new if limits is None else min(max(int(new), limits.min), limits.max)
                return flat.reshape(array.shape)
    shapes = {"scalar": np.float32(3), "column": array.reshape(-1, 1), "row": array.reshape(1, -1)}
    shapes |= {"cut": flat[: flat.size // 2], "double": np.concatenate([flat, flat]), "reversed": flat[::-1].copy()}
    return shapes.get(new, flat[:0]) if isinstance(new, str) else flat[:0]


def use_strange(item: list[Any]) -> None:
    """Use a file whose values are changed, in this process. Raises UserError as the tool does."""
    name, used, changes = item
    with files.copies(Path(name).parts[0], used.partition(" ")[2]):
        path, run = Path(name), Path(name).with_name("run.json")
        before = parts = parts_of(path)
        for place, new in changes:
            if ways := list(leaves(parts)):
                parts = changed(parts, ways[place % len(ways)], new, place)
        try:
            write_parts(path, parts, before)
        except (TypeError, ValueError, OverflowError):  # the format cannot hold this
            return
        if run != path and run.is_file() and path.name in (saved := read_json(run, "-"))["checksums"]:
            write_json(run, saved | {"checksums": saved["checksums"] | {path.name: checksum_of(path)}})
        files.use(used)


def check_files(case: list[Any], place: Path) -> list[str]:
    """Read changed files in a child; return the refusals. Raises Fault."""
    shared = place.parent / SHARED
    return try_all(
        case, use_strange, place, seconds=files.LIMIT, name=lambda item: f"{item[1]} with {item[0]}",
        make=lambda folder: (folder / SHARED).symlink_to(shared),
    )  # fmt: skip


# fmt: off
# What no file may set, and what no name or folder of a file may be.
NEVER = [
    *(f"counts.options.spark.{name}" for name in (
        "driver.extraJavaOptions", "executor.extraJavaOptions", "jars", "submit.pyFiles", "executorEnv.PATH",
        "pyspark.python", "driver.extraClassPath", "plugins", "local.dir", "eventLog.dir", "hadoop.x")),
    "counts.master", "hydra.callbacks.x._target_", "hydra.launcher._target_", "hydra.launcher.setup",
    "hydra.launcher.additional_parameters.x", "hydra.launcher.srun_args", "hydra.launcher.python",
    "hydra.launcher.pre_dispatch", "hydra.sweeper._target_", "hydra.sweeper.custom_search_space",
    "hydra.sweeper.params.x._target_", "hydra.job.env_set.PATH", "hydra.job.env_copy", "hydra.runtime.output_dir",
    "hydra.job_logging.handlers.x.class", "hydra.job_logging.formatters.x.()", "hydra.hydra_logging.root.handlers",
    "hydra.searchpath", "hydra.job.config.override_dirname.kv_sep", "options",
]
EVIL = ["x", "os.mkdir", "spark://h:1", "-XX:OnOutOfMemoryError=touch x", "${oc.env:HOME}", "[a]", "{a: b}", "ext://os"]
WHERE = ["hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.output_subdir", "hydra.job.name"]
OUTSIDE = ["../../x", "../x", "a/../../b", "/tmp/x", "p_${oc.env:HOME}", "x\n#SBATCH y", "\x1b[31m", "x\u202ey", ".."]
HARMLESS = [("seed", "3"), ("hydra.mode", "RUN"), ("counts.options.spark.executor.cores", "1"), ("threads", "1")]
# fmt: on
HOSTILE = st.tuples(st.sampled_from(NEVER), st.sampled_from(EVIL)) | st.tuples(
    st.sampled_from(WHERE), st.sampled_from(OUTSIDE)
)
FOLDERS = ["hydra.run.dir", "hydra.sweep.dir"]  # of a resumed request, which names none
WAYS = ["experiment", "typed", "sweep"]  # and preset and resume


@st.composite
def strange_settings(draw: st.DrawFn) -> dict[str, Any]:
    """Draw settings, of which one may not come from a file, and the file that has them."""
    pairs = [draw(HOSTILE), *draw(st.lists(st.sampled_from(HARMLESS), max_size=1))]
    key = pairs[0][0]
    ways = [*WAYS, *(["preset"] if key.startswith("counts") else ["resume"] if key not in FOLDERS else [])]
    return {"pairs": draw(st.permutations(pairs)), "way": draw(st.sampled_from(ways)), "flat": draw(st.booleans())}


def check_settings(case: dict[str, Any], place: Path) -> list[str]:
    """Use the file; return the error that rejects it. Raises Fault if no error does."""
    way, pairs = case["way"], case["pairs"]

    def make(work: Path) -> None:
        tree: dict[str, Any] = {}
        for key, text in pairs:
            names = key.split(".", 2 if case["flat"] and key.startswith("counts.options") else -1)
            at = tree
            for name in names[:-1]:
                at = at.setdefault(name, {})
            at[names[-1]] = yaml.safe_load(text) if text[:1] in "[{" else text
        if way == "resume":
            begun = read_json(work / "net/begun.json", "-")
            theirs = {key: yaml.safe_load(text) if text[:1] in "[{" else text for key, text in pairs}
            write_json(work / "net/begun.json", begun | {"values": begun.get("values", {}) | theirs})
            return
        group, text = "experiment", {"defaults": [{"override /counts": "spark"}, "_self_"]} | tree
        if way == "preset":
            group, text = "counts", {"defaults": ["spark", "_self_"]} | tree["counts"]
        path = work / "own" / group / "mine.yaml"
        path.parent.mkdir(parents=True)
        path.write_text("# @package _global_\n" * (way != "preset") + yaml.safe_dump(text), encoding="utf-8")

    words = ["train", *RIGHT["train"][1], "--config-dir", "own"]
    words += ["counts=mine" if way == "preset" else "+experiment=mine"]
    ways = {"sweep": [*words, "-m", "seed=1,2"], "typed": [*words, "counts=spark"]}
    ways |= {"resume": ["train", "resume=net", "training.epochs=2"]}
    refused = commands.checked(ways.get(way, words), place, make)
    beside = sorted(path.name for path in place.iterdir())
    (key,) = (key for key, _ in pairs if key in NEVER + WHERE)
    is_named = refused and any(part in refused[0] for part in key.split(".")[-2:])
    if not is_named or beside != ["home", "tmp", "work"]:
        raise Fault(f"not refused: {key}", f"{case}\n{beside}\n{refused}")
    return refused


# fmt: off
VARIABLES = [
    "OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS", "LMTOOL_JOBS_AT_ONCE", "LMTOOL_SHARED_DEVICES", "RANK",
    "LMTOOL_UNPACK_RATIO", "LMTOOL_DATA", "LMTOOL_CACHE", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "COLUMNS",
    "NUMBA_CACHE_DIR", "MPLBACKEND", "CUDA_VISIBLE_DEVICES", "LC_ALL", "TERM", "TZ", "XDG_CACHE_HOME",
    "HYDRA_FULL_ERROR", "JAVA_HOME", "HF_HOME", "WNHOME", "OMP_SCHEDULE", "OMP_PLACES", "NUMBA_THREADING_LAYER",
]
ODD = ["", "0", "-1", "abc", "1.5", "9" * 11, "9" * 40, "2", "1,2", " 1", "nowhere", "/dev/null", "a\nb", "\udcff", "C"]
TOY = ["train", "data=toy", "model=ngram", "model.order=2"]
PLAIN = [
    TOY, ["eval", "run=kn"], ["score", "run=kn", "text=valid.txt", "to=s.tsv"], ["predict", "the", "run=net"],
    [*TOY[:-1], "-m", "model.order=1,2"], [*TOY, "-m", "seed=1,2", "hydra/launcher=joblib", "hydra.launcher.n_jobs={}"],
    [*TOY, "-m", "seed=1,2", "hydra/sweeper=optuna", "hydra.sweeper.n_trials={}"], ["verify", "kn"], ["--version"],
    ["train", "--help"], ["report", "kn", "map=none"], ["train", "model=nplm", *NEURAL],
]
# fmt: on
ENVIRONMENTS = st.fixed_dictionaries(
    {
        "words": st.sampled_from(PLAIN),
        "variables": st.dictionaries(st.sampled_from(VARIABLES), st.sampled_from(ODD), max_size=2),
        "number": st.sampled_from(["1", "0", "-1", "-2", "abc", "null", "1.5", "1e9"]),
        "memory": st.sampled_from([0, 0, 0, 0, 3000, 2500, 1200]),  # MB of address space; 0: enough
        "gone": st.sampled_from([False, False, False, True]),  # the working folder
    }
)


def check_environment(case: dict[str, Any], place: Path) -> list[str]:
    """Run a line in a new process; return its refusal. Raises Fault."""
    commands.share(place)
    words = [word.format(case["number"]) for word in case["words"]]

    def work() -> int:
        if case["gone"]:
            os.mkdir("gone")
            os.chdir("gone")
            os.rmdir(os.getcwd())
        if case["memory"]:
            resource.setrlimit(resource.RLIMIT_AS, (case["memory"] << 20, case["memory"] << 20))
        os.execv(sys.executable, [sys.executable, "-m", "lmtool", *words])

    environment = {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp")} | case["variables"]
    end = forked(work, place / "work", limit=60, grace=commands.GRACE, environment=environment)
    if problem := commands.wrong_end(end):
        raise Fault(*problem)
    return [end.refusal] if end.refusal is not None else []


CAMPAIGNS = {
    "strange-files": Generator(st.lists(strange_files(), min_size=1, max_size=20), check_files, files.prepare, len),
    "strange-settings": Generator(strange_settings(), check_settings, commands.prepare),
    "environments": Generator(ENVIRONMENTS, check_environment, commands.prepare),
}
