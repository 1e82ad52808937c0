"""Calls of lmtool's public functions and methods, with arguments of the types in their signatures, roughly.

Each gives a right answer, ValueError, UserError or TypeError: no error from inside, no signal, no hang, and no NaN from
finite input.
"""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Callable
from contextlib import chdir
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from hypothesis import strategies as st

import lmtool
from fuzzing import commands
from fuzzing.campaign import Generator, Wrong, frames_of_lmtool, try_all
from fuzzing.values import typed_setting
from lmtool import neural, trees
from lmtool.config.options import yaml_files

LIMIT = 30  # seconds of a call

# Values: Python expressions that name np, torch, nn, lmtool, neural, trees, Path and the objects of `_names`. The first
# of each list is right.
# fmt: off
VALUES = {
    "int": ["2", "0", "1", "5", "8", "True", "2**40", "2**63", "np.int32(3)"],
    "float": ["0.25", "0", "1", "1e-9", "1e30", "float('inf')", "np.float32(0.5)"],
    "bool": ["True", "False"],
    "dim": ["4", "0", "3", "2**40"],
    "word": ["'the'", "'horse'", "'the cat'", "'<s>'", "'</s>'"],
    "offsets": ["[0, 3]", "[0]", "[3, 0]", "[0, 9]", "[0, 1, 3]"],
    "top": ["trees.top_of(tree, ['a'] * 6, [1] * 6, 2)"],
    "str": ["'valid'", "'train'", "'test'", "'error'", "'unk'", "'output'", "'cpu'", "'balanced'", "'gaussians'",
            "'a' * 300", "'a\\x00b'"],
    "counts": ["[5, 3, 1, 1, 1, 1]", "[0, 0, 0]", "[1]", "[1.5, 2.5]", "[-1, 2]", "[float('nan'), 1.]", "[[1], [2, 3]]",
               "[2**62, 2**62]", "[1e300, 1e300, 1.]", "range(6)", "np.zeros((2, 3))", "np.array(3)"],
    "ids": ["[0, 1, 2]", "[5, 5, 5]", "[-1, 0, 1]", "[6, 0, 0]", "[2**62]", "[0., 1., 2.]", "[[0, 1], [1, 2]]",
            "[[0, 1, 2], [1, 1, 1], [5, 4, 3]]", "['a', 'b', 'c']", "[True, False, True]", "[0, [1]]"],
    "list": ["[2]", "[1, 2, 3]", "[0.5, 0.5]", "[6]", "[-1]", "[1.5]"],
    "contexts": ["[[0] * C] * 2", "[[V - 1] * C] * 2", "[[0] * (C + 1)]", "[[V] * C] * 2", "[[-1] * C] * 2", "[0] * C",
                 "[[]]", "np.zeros((0, C), np.int64)", "np.zeros((2, C), np.int64, order='F')"],
    "candidates": ["[[0, 1], [1, 2]]", "[[0] * 5] * 2", "[[], []]", "[0, 1]", "[[V]] * 2", "[[-1]] * 2"],
    "classes": ["classes", "[0, 0, 0, 1, 1, 1]", "2", "torch.tensor([0, 5])", "torch.zeros(6)"],
    "targets": ["[0, 1]", "[V, 0]", "[-1, 0]", "[0]", "[[0, 1], [1, 2]]", "[0.5, 1]", "[2**40, 0]", "[[], []]"],
    "vectors": ["np.random.default_rng(0).normal(size=(6, 4))", "np.ones((6, 4))", "np.zeros((1, 4))",
                "np.ones((6, 0))", "[[1., 2.]] * 6", "np.full((6, 4), np.nan)", "np.ones(6)", "np.full((6, 4), 1e200)"],
    "children": ["[[-1, -2]]", "[[1, -1], [-2, -3]]", "np.zeros((0, 2), np.int32)", "[[0, 0]]", "[[-2**40, -1]]",
                 "[[-1, -2], [-3, -4]]", "[[-1., -2.]]"],
    "hidden": ["torch.randn(3, 4)", "torch.ones(3, 4)", "torch.zeros(0, 4)", "torch.ones(3, 5)", "torch.ones(4)",
               "[[1.] * 4] * 3", "torch.ones(3, 4, dtype=torch.int64)", "np.ones((3, 4), np.float32)",
               "torch.randn(4, 3).t()", "torch.randn(3, 8)[:, ::2]", "torch.full((3, 4), 1e30)",
               "torch.randn(3, 4, requires_grad=True)", "torch.ones(3, 4).to_sparse()",
               "torch.full((3, 4), float('nan'))", *(f"torch.ones(3, 4).{kind}()" for kind in ("double", "half"))],
    "text": ["'the cat sat'", "'horse'", "'<s>'", "'</s>'", "'a\\nb'", "'\\ud800'", "'\\x00'", "' '", "'the ' * 300",
             "['the', 'cat']", "['the cat']", "[1]", "b'the'", "['']", "[['the'], 'cat']", "[[]]"],
    "texts": ["['the cat', 'a dog']", "['']", "'the cat'", "[1]", "['a\\nb']", "0.5"],
    "words": ["['a', 'b', 'c', 'd', 'e', 'f']", "['a']", "['a'] * 6", "'abcdef'", "[1, 2, 3, 4, 5, 6]",
              "['a', 'b c', '', '\\n', 'ü', '\\t']"],
    "codes": ["[(0, '0'), (1, '10'), (2, '11')]", "[(0, '')]", "[(0, '0')]", "[(0, 'x'), (1, '1')]",
              "[(-1, '0'), (0, '1')]", "[(0, '0'), (1, '0')]", "[('a', '0')]", "[(0,)]", "'ab'",
              "[(10**9, '0'), (0, '1')]", "[(0, '0' * 2000), (1, '1')]", "[(0, 0), (1, 1)]"],
    "tree": ["tree", "tree1", "trees.random_tree(6, 1)", "codes"],
    "gradients": ["[nn.Parameter(torch.ones(6, 4))]", "with_gradients", "[{'params': with_gradients}]",
                  "[torch.ones(2)]", "nn.Parameter(torch.ones(3))"],
    "states": ["[kn.begin()]", "kn.begin()", "lmtool.States.of([kn.begin()] * 2)", "[net.begin()] * 2",
               "[kn.begin(), net.begin()]", "kn.advance(kn.begin(), 'the')[1]", "[3]"],
    "index": ["0", "5", "[0, 0]", "slice(0, 1)", "np.array([True])", "np.array([0])", "1.0", "[9]"],
    "run": ["'kn'", "'net'", "'mix'", "kn", "net", "Path('kn')", "'kn.arpa'", "'tree.txt'", "'nowhere'", "'.'"],
    "runs": ["['kn', 'mix']", "['kn', 'net']", "[kn, net]", "['kn', 'kn.arpa']", "['kn']", "'kn'"],
    "path": ["'new'", "Path('new.txt')", "'new.arpa'", "'new.safetensors'", "'kn'", "'train.txt'", "'no/such/new.txt'",
             "'.'", "'a' * 300"],
    "data": ["corpus", "corpus1", "'toy'", "'nope'", "{'kind': 'toy'}"],
    "training": ["training", "{'nope': 1}", "{'epochs': -1}"],
    "over": ["{'seed': [1, 2]}", "{'model.order': [2]}", "{'model': ['ngram']}", "{}", "{'seed': 1}"],
    "nodes": ["None", "neural.DotNodes(4, torch.zeros(5))", "neural.DotNodes", "neural.DotNodes(5, 4)",
              "neural.MorinBengioNodes(4, torch.zeros(5), hidden_dim=3, node_dim=2)"],
}
WRONG = ["None", "3", "-1", "1.5", "float('nan')", "'a'", "''", "[]"]  # for any parameter
FORMS = [
    "np.array({})", "torch.tensor({})", "np.array({}, np.uint8)", "np.array({}, np.uint64)", "np.array({}, float)",
    "torch.tensor({}, dtype=torch.int32)", "np.array({})[::-1]", "torch.tensor({}).double()", "tuple({})", "iter({})",
]
# The list for a parameter: by its name, with that of its function or without, else by the first of BY_TYPE that its
# annotation holds.
BY_NAME = {name: name for name in VALUES} | {
    "log_odds": "counts", "y": "ids", "h": "hidden", "noise": "ids", "samples": "ids", "state": "states",
    "sentences": "text", "train": "texts", "valid": "texts", "test": "texts", "names": "words", "params": "gradients",
    "parameters": "gradients", "like": "run", "path": "run", "write_tree.path": "path", "random_tree.words": "int",
    "advance.words": "list", "neighbors.top": "int", "predict.top": "int",
}
BY_TYPE = {
    "[RunLike": "runs", "RunLike": "run", "Path": "path", "Tree": "tree", "Array": "ids", "Sequence": "list",
    "bool": "bool", "float": "float", "int": "int", "Tensor": "ids", "Option": "option", "Mapping": "training",
}
# Arguments of output layers that fit six words.
FITTING = {
    "dim": "4", "counts": "[5, 3, 1, 1, 1, 1]", "tree": "tree", "classes": "classes", "noise": "3", "samples": "3",
    "cutoffs": "[2, 4]",
}
METHODS = ["forward", "log_dist", "log_prob", "sample", "top", "unnormalized_log_prob", "log_partition", "loss_with",
           "sparse_parameters", "word_vectors"]  # of layers
CASTS = ["", "", "", ".double()", ".eval()"]
NOT_PROMISED = ("close", "reading", "first_places")  # for lmtool itself
VERB_OF = {
    "evaluate": "eval", "report_page": "report", "distill": "distill",
    "sweep": "train",
}
# Arguments that keep a call short, or without which there is nothing to do.
ALWAYS = {
    "train": {"training": "training", "data": "corpus"}, "sweep": {"model": "'ngram'", "data": "corpus"},
    "tree": {"data": "corpus"}, "preprocess": {"data": "'toy'"}, "report_page": {"map": "'none'"},
    "compare": {"resamples": "100"}, "distill": {"tokens": "200"},
}
# fmt: on


@cache
def layers() -> dict[str, str]:
    """Return right arguments of each output layer."""
    found = {name: getattr(neural, name) for name in neural.__all__}
    return {
        name: ", ".join(f"{key}={FITTING[key]}" for key in inspect.signature(kind).parameters if key in FITTING)
        for name, kind in found.items()
        if inspect.isclass(kind) and issubclass(kind, neural.OutputLayer) and kind is not neural.OutputLayer
    }


@cache
def targets() -> dict[str, Callable[..., Any] | None]:
    """Return what is called, by its expression; None: an attribute."""
    found: dict[str, Any] = {}
    for place, module, names in (("lmtool", lmtool, lmtool.__all__), ("trees", trees, trees.__all__)):
        found |= {f"{place}.{name}": getattr(module, name) for name in names if name.islower()}
    for name, value in ((name, getattr(neural, name)) for name in neural.__all__):
        if name in layers():
            found |= {
                f"neural.{name}().{member}": getattr(value, member) for member in METHODS if hasattr(value, member)
            }
        if name in layers() or name.islower() or issubclass(value, torch.optim.Optimizer):
            found[f"neural.{name}"] = value
    classes = [("corpus", lmtool.Corpus), ("tree", trees.Tree), ("tree1", trees.Tree)]
    classes += [("lmtool.States.of([kn.begin()] * 2)", lmtool.States)]
    for name, kind in [*classes, *((name, lmtool.TextModel) for name in ("kn", "net", "mix"))]:
        for member, value in inspect.getmembers_static(kind):
            if member in NOT_PROMISED or (member[0] == "_" and member != "__getitem__"):
                continue
            if isinstance(value, property | cached_property):
                found[f"{name}.{member}"] = None
            elif inspect.isfunction(value):
                found[f"{name}.{member}"] = value
            elif isinstance(value, classmethod):
                found[f"{kind.__module__.partition('.')[0]}.{kind.__name__}.{member}"] = getattr(kind, member)
    return found


def is_command(expression: str) -> bool:
    return expression.startswith("lmtool.") and "States" not in expression


@st.composite
def calls(draw: st.DrawFn, commands: bool) -> str:
    """Draw a call as a Python expression; most arguments are right."""
    known = targets()
    target = draw(st.sampled_from([one for one in known if is_command(one) == commands]))
    function, name, wrong = known[target], target.rpartition(".")[2], draw(st.integers(0, 3))
    if function is None:
        return target
    given = draw(arguments(function, ALWAYS.get(name, {}), wrong))
    if "settings" in inspect.signature(function).parameters:
        settings = draw(st.lists(typed_setting(VERB_OF.get(name, name)), max_size=2))
        given = ", ".join([*filter(None, [given]), *(f"**{{{key!r}: {literal(value)}}}" for key, value in settings)])
    if name in layers():
        then = draw(arguments(known["neural.FullSoftmax().forward"], {}, wrong))
        return f"{target}({given})({then}){draw(st.sampled_from(['', '.backward()']))}"
    if target.startswith("neural.") and "()" in target:  # a method of a layer
        target = target.replace("()", f"({layers()[target.split('.')[1][:-2]]}){draw(st.sampled_from(CASTS))}")
    after = ".step()" if name.startswith("Row") else ""
    return f"list({target}({given}))" if name == "score_texts" else f"{target}({given}){after}"


@st.composite
def arguments(draw: st.DrawFn, function: Callable[..., Any], always: dict[str, str], wrong: int) -> str:
    """Draw the arguments of a function. always: right ones that are not left out. wrong: of 8."""
    given = dict(always)
    for name, parameter in inspect.signature(function).parameters.items():
        is_optional = parameter.default is not parameter.empty and name not in always
        unnamed = name in ("self", "settings") or parameter.kind is parameter.VAR_POSITIONAL
        if unnamed or (is_optional and draw(st.integers(0, 2))):
            continue
        pool = pool_of(function.__name__, parameter)
        value = always.get(name, pool[0] if parameter.default in (None, parameter.empty) else repr(parameter.default))
        if draw(st.integers(1, 8)) <= wrong:
            value = draw(st.sampled_from(pool) | st.sampled_from(WRONG))
            value = draw(st.sampled_from(["{}"] * 6 + FORMS)).format(value) if value[0] == "[" else value
        given[name] = value
    return ", ".join(f"{name}={value}" for name, value in given.items())


def pool_of(function: str, parameter: inspect.Parameter) -> list[str]:
    """Return the values for a parameter of a function, by its name or its annotation."""
    name, annotation = parameter.name, str(parameter.annotation)
    kind = BY_NAME.get(f"{function}.{name}") or BY_NAME.get(name)
    kind = kind or next((of for part, of in BY_TYPE.items() if part in annotation), "str")
    if kind == "option" or (kind == "tree" and "Option" in annotation):
        names = sorted(yaml_files(name))
        return [repr(name) for name in names] + [f"{{'kind': {name!r}, 'seed': 1}}" for name in names]
    return VALUES[kind]


def literal(text: str) -> str:
    try:
        return repr(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError):
        return repr(text)


_names = {"np": np, "torch": torch, "nn": torch.nn, "lmtool": lmtool, "neural": neural, "trees": trees, "Path": Path}


def prepare() -> None:
    """Make the runs and objects that calls name, and compile what they use."""
    commands.prepare()
    weight = torch.nn.Parameter(torch.ones(6, 4))
    weight.grad = torch.ones(6, 4)
    with chdir(commands.SHARED):
        kn, net, mix = map(lmtool.load, ("kn", "net", "mix"))
        corpus = lmtool.Corpus.from_texts(["the cat sat", "a dog sat", "the dog ran"] * 4, ["the dog sat"], ["a cat"])
        corpus1 = lmtool.Corpus.from_texts(["a"], ["a"], name="one")
    _names.update(kn=kn, net=net, mix=mix, corpus=corpus, corpus1=corpus1, C=2, V=len(kn.vocabulary))
    _names.update(tree=trees.huffman_tree(np.array([5, 3, 1, 1, 1, 1])), tree1=trees.balanced_tree([0]))
    _names.update(codes=trees.from_codes([(0, "0"), (1, "10"), (0, "110"), (2, "111")]), with_gradients=[weight])
    _names.update(classes=torch.tensor([0, 0, 0, 1, 1, 1]), training={"epochs": 1, "minutes": None})
    evaluated("trees.brown_tree([0, 1, 2], [0, 3], [1, 1, 1], 2)")
    evaluated("kn.generate('the', seed=1)")
    evaluated("net.log_dist([[0, 0]])")


def evaluated(call: str) -> Any:
    return eval(call, dict(_names))


def check(case: list[str], place: Path) -> list[str]:
    shared = place.parent / commands.SHARED
    return try_all(
        case, answer, place, seconds=LIMIT, expected=(ValueError, TypeError, MemoryError, NotImplementedError),
        name=lambda call: re.sub(r"\(.*?\)|\[.*?\]|\{.*?\}", "", call),
        make=lambda folder: shutil.copytree(shared, folder, dirs_exist_ok=True) and None,
    )  # fmt: skip


def answer(call: str) -> None:
    """Evaluate a call in this process. Raises what it raises, unless that is right, and Wrong for NaN."""
    try:
        value = evaluated(call)
    except IndexError as error:
        if (frames := frames_of_lmtool(error)) and frames[-1].name == "__getitem__":  # as sequences raise it
            return
        raise
    except (AttributeError, RuntimeError, OverflowError) as error:
        is_memory = isinstance(error, RuntimeError) and re.search("allocate|memory|overflow", str(error))
        if is_memory or not frames_of_lmtool(error):  # before lmtool is called
            return
        raise
    if not any(word in call for word in ("nan", "inf", "1e30", "1e300", "1e200")) and _has_nan(value):
        raise Wrong(f"nan from {call.partition('(')[0]}")


def _has_nan(answer: Any) -> bool:
    if isinstance(answer, torch.Tensor):
        return answer.is_floating_point() and bool(answer.isnan().any())
    if isinstance(answer, np.ndarray):
        return answer.dtype.kind == "f" and bool(np.isnan(answer).any())
    if isinstance(answer, float):
        return answer != answer
    return isinstance(answer, list | tuple) and any(map(_has_nan, answer))


# Calls that one child makes, one after the other.
CASES = st.one_of(
    st.integers(1, 60).flatmap(lambda size: st.lists(calls(False), min_size=size, max_size=size)),
    st.lists(calls(True), min_size=1, max_size=3),
)
CAMPAIGNS = {"library": Generator(CASES, check, prepare, len)}
