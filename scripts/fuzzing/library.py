"""Calls of lmtool's public functions and classes with arguments of roughly the right types.

Each gives a right answer, ValueError, UserError or TypeError: no error from inside, no signal, no hang, and no NaN from
finite input.
"""

from __future__ import annotations

import re
import shutil
import traceback
from contextlib import chdir
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzzing import commands
from fuzzing.campaign import Wrong, try_all

LIMIT = 30  # seconds of a call

# Values: Python expressions that name np, torch, nn, lmtool, neural, trees, Path and the objects of `_names`. The first
# of each list is right.
# fmt: off
KNOWN = {
    "size": [
        "0", "1", "2", "3", "5", "8", "-1", "1.5", "None", "True", "2**40", "2**63", "'a'", "np.int32(3)",
        "float('nan')",
    ],
    "number": [
        "0", "1", "0.5", "2.0", "-1.0", "1e-9", "1e30", "float('nan')", "float('inf')", "None", "'a'", "True",
        "np.float32(0.5)",
    ],
    "counts": [
        "[5, 3, 1, 1, 1, 1]", "np.array([5, 3, 1, 1, 1, 1])", "torch.tensor([5., 3, 1, 1, 1, 1])", "[0, 0, 0]", "[1]",
        "[]", "None", "[1.5, 2.5]", "[-1, 2]", "[float('nan'), 1.]", "np.zeros((2, 3))", "[2**62, 2**62]", "'abc'",
        "[[1], [2, 3]]", "range(6)", "np.array([1, 2], dtype=np.uint8)", "np.arange(6)[::-1]", "[1e300, 1e300, 1.]",
        "[True, False]", "np.array(3)", "[0, 5, 0, 5]",
    ],
    "ids": [
        "[0, 1, 2]", "np.array([0, 1, 2])", "torch.tensor([0, 1, 2])", "[]", "[5, 5, 5]", "[-1, 0, 1]", "[6, 0, 0]",
        "[2**62]", "None", "np.array([0., 1., 2.])", "torch.tensor([0., 1., 2.])", "np.array([[0, 1], [1, 2]])",
        "[[0, 1, 2], [1, 1, 1], [5, 4, 3]]", "0", "'a'", "np.array([0, 1, 2], dtype=np.uint8)",
        "np.array([0, 1, 2], dtype=np.uint64)", "torch.tensor([0, 1, 2], dtype=torch.int32)", "torch.arange(6)[::2]",
        "np.array(['a', 'b', 'c'])", "[True, False, True]", "np.array([2**63], dtype=np.uint64)", "[0, [1]]",
    ],
    "hidden": [
        "torch.ones(3, 4)", "torch.randn(3, 4)", "torch.zeros(0, 4)", "torch.ones(3, 5)", "torch.ones(4)",
        "torch.ones(3, 4).double()", "None", "torch.ones(3, 4).half()", "torch.ones(3, 4).bfloat16()",
        "torch.ones(3, 4, dtype=torch.int64)", "np.ones((3, 4), np.float32)", "torch.randn(4, 3).t()",
        "torch.randn(3, 8)[:, ::2]", "torch.full((3, 4), 1e30)", "torch.randn(3, 4, requires_grad=True)",
        "[[1.] * 4] * 3", "torch.ones(3, 4).to_sparse()", "torch.full((3, 4), float('nan'))",
        "torch.ones(3, 1).expand(3, 4)", "torch.ones(1, 4).expand(3, 4)",
    ],
    "tree": [
        "tree", "tree1", "trees.balanced_tree(6)", "trees.huffman_tree([5, 3, 1, 1, 1, 1])", "trees.random_tree(6, 1)",
        "codes", "None", "'tree'",
    ],
    "text": [
        "'the cat sat'", "''", "'horse'", "'<s>'", "'</s>'", "'<unk>'", "'a\\nb'", "'\\ud800'", "'\\x00'", "' '",
        "'ünï'", "'the ' * 300", "['the', 'cat']", "['the cat']", "[]", "[1]", "None", "3", "b'the'", "['']",
        "('the',)", "[['the'], 'cat']", "[[]]", "iter(['the'])",
    ],
    "contexts": [
        "np.zeros((2, C), np.int64)", "np.full((2, C), V - 1)", "[[0] * C]", "np.zeros((0, C), np.int64)",
        "np.zeros((2, C + 1), np.int64)", "np.full((2, C), V)", "np.full((2, C), -1)", "np.zeros(C, np.int64)",
        "np.zeros((2, C))", "None", "[[]]", "[]", "'a'", "np.zeros((2, C), np.uint8)",
        "np.zeros((2, C), np.int64, order='F')", "np.zeros((4, C), np.int64)[::2]",
        "torch.zeros((2, C), dtype=torch.int64)", "[[0] * C] * 2",
    ],
    "targets": [
        "[0, 1]", "np.array([0, 1])", "np.array([V - 1, 0])", "np.array([V, 0])", "[-1, 0]", "[0]", "[]", "None",
        "[[0, 1], [1, 2]]", "[0.5, 1]", "np.array([0, 1], np.uint8)", "torch.tensor([0, 1])",
        "np.zeros((2, 0), np.int64)", "'ab'", "[2**40, 0]", "[[0] * 5] * 2", "[[], []]",
    ],
    "path": [
        "'kn'", "'net'", "Path('kn')", "'mix'", "'nowhere'", "'kn.arpa'", "''", "'.'", "None", "3", "kn", "net",
        "'tree.txt'", "'train.txt'", "'a\\x00b'",
    ],
    "out": [
        "'new'", "'new.txt'", "Path('new')", "'kn'", "'no/such/new.txt'", "''", "None", "3", "'new.arpa'",
        "'new.safetensors'", "'.'", "'a' * 300",
    ],
    "codes": [
        "[(0, '0'), (1, '1')]", "[(0, '0'), (1, '10'), (2, '11')]", "[(0, '')]", "[]", "[(0, '0')]",
        "[(0, '0'), (0, '1')]", "[(0, 'x'), (1, '1')]", "[(-1, '0'), (0, '1')]", "[(0, '0'), (1, '0')]",
        "[(0, '0'), (2, '1')]", "[('a', '0')]", "None", "[(0,)]", "'ab'", "[(10**9, '0'), (0, '1')]",
        "[(0, '0' * 2000), (1, '1')]", "[(0, 0), (1, 1)]", "[(0.0, '0'), (1.0, '1')]",
    ],
    "words": [
        "['a', 'b', 'c', 'd', 'e', 'f']", "['a']", "[]", "None", "['a'] * 6", "'abcdef'", "[1, 2, 3, 4, 5, 6]",
        "['a', 'b c', '', '\\n', 'ü', '\\t']",
    ],
    "children": [
        "[[-1, -2]]", "[[1, -1], [-2, -3]]", "np.zeros((0, 2), np.int32)", "[[0, 0]]", "[]", "None", "[[-1.0, -2.0]]",
        "[[-2**40, -1]]", "[[-1, -2], [-3, -4]]",
    ],
    "gradients": [
        "[nn.Parameter(torch.ones(6, 4))]", "[]", "None", "[torch.ones(2)]", "nn.Parameter(torch.ones(3))",
        "with_gradients", "[{'params': with_gradients}]",
    ],
    "model": [
        "'ngram'", "'nplm'", "{'kind': 'ngram', 'order': 2}", "{'kind': 'nplm', 'hidden_dim': 4, 'embedding_dim': 4}",
        "'nope'", "3", "{}", "None", "{'order': 2}", "{'kind': 'ngram', 'order': 99}", "{'kind': 3}",
        "{'kind': 'ngram', 'nope': 1}", "{'kind': 'cbow', 'context_size': 2}",
    ],
    "data": ["corpus", "'toy'", "'nope'", "{'kind': 'toy'}", "3", "corpus1"],
    "states": [
        "kn.begin()", "[kn.begin()]", "[]", "None", "lmtool.States.of([kn.begin()] * 2)", "net.begin()",
        "[kn.begin(), net.begin()]", "3", "[net.begin()] * 2", "kn.advance(kn.begin(), 'the')[1]", "[3]",
    ],
    "options": ["True", "False", "None", "3", "'a'"],
    "oov": ["'error'", "'unk'", "'x'", "None", "3"],
    "texts": ["['the cat', 'a dog']", "[]", "['']", "'the cat'", "None", "[1]", "['a\\nb']", "iter(['a'])"],
    "split": ["'valid'", "'train'", "'test'", "'dev'", "None", "3", "''"],
    "paths": ["['kn', 'mix']", "['kn', 'net']", "[kn, net]", "['kn']", "[]", "'kn'", "None"],
    "index": [
        "0", "-1", "5", "'a'", "[0, 0]", "slice(0, 1)", "np.array([True])", "np.array([0])", "None", "1.0", "[]",
        "[9]",
    ],
    "word": ["'the'", "'horse'", "''", "'the cat'", "None", "3", "'<s>'", "'</s>'"],
    "by": ["'cosine'", "'dot'", "'x'", "None"],
    "of": ["'embeddings'", "'output'", "'x'", "None"],
    "nodes": ["neural.DotNodes", "neural.MorinBengioNodes", "neural.DotNodes(5, 4)", "None", "3"],
    "linkage": ["'balanced'", "'adaptive'", "'x'", "None"],
    "lr": ["0.1", "0", "-1", "float('nan')", "None", "'a'", "1e30"],
    "vectors": [
        "np.random.default_rng(0).normal(size=(6, 4))", "np.ones((6, 4))", "np.zeros((1, 4))", "np.ones((6, 0))",
        "None", "[[1., 2.]] * 6", "np.full((6, 4), np.nan)", "torch.ones(6, 4)", "np.ones(6)", "np.ones((6, 4), int)",
        "'a'", "np.full((6, 4), 1e200)",
    ],
    "list": [
        "[2]", "[1, 2, 3]", "[3]", "[]", "None", "[6]", "[-1]", "[2, 2]", "'a'", "[1.5]", "(2, 4)", "3",
        "np.array([2])",
    ],
}
OUTPUTS = [
    "neural.FullSoftmax(4, 6)", "neural.HierarchicalSoftmax(4, tree)", "neural.HierarchicalSoftmax(4, codes)",
    "neural.NCELoss(4, [5, 3, 1, 1, 1, 1], 3)", "neural.SampledSoftmax(4, [5, 3, 1, 1, 1, 1], 3)",
    "neural.AdaptiveSoftmax(4, [5, 3, 1, 1, 1, 1], [2, 4])", "neural.ClassSoftmax(4, [5, 3, 1, 1, 1, 1], 2)",
]
LAYER = [
    "({hidden}, {ids})", ".log_dist({hidden})", ".log_prob({hidden}, {ids})", ".sample({hidden})",
    ".top({hidden}, {size})", "({hidden}, {ids}).backward()", ".unnormalized_log_prob({hidden}, {ids})",
    ".log_partition({hidden})", ".sparse_parameters()", ".word_vectors()", ".double()({hidden}, {ids})",
    ".eval().log_prob({hidden}, {targets})",
]
ASKED = [
    ".score({text})", ".perplexity({text})", ".predict({text}, {size})",
    ".predict({text}, oov={oov}, sentence_start={options})",
    ".generate({text}, count={size}, length={size}, seed=1, oov={oov})", ".begin(sentence_start={options})", ".network",
    ".embeddings",
    ".generate('the', count=1, length=2, temperature={number}, top_k={size}, top_p={number}, seed={size})",
    ".ids({text}, {oov})", ".log_prob({contexts}, {targets})", ".log_dist({contexts})",
    ".log_prob_candidates({contexts}, {targets})", ".words", ".split_of({text})", ".advance({states}, {text})",
    ".advance({states}, {ids})", ".context({ids})", ".neighbors({word}, {size}, by={by}, of={of})",
]
TREE_MEMBERS = [".paths", ".depths", ".words", ".word_leaves", ".leaves", ".nodes"]

CALLS = [
    *(f"{output}{member}" for output in OUTPUTS for member in LAYER),
    *(f"{model}{member}" for model in ("kn", "net", "mix") for member in ASKED),
    *(f"{{tree}}{member}" for member in TREE_MEMBERS),
    "neural.FullSoftmax({size}, {counts})({hidden}, {ids})",
    "neural.HierarchicalSoftmax({size}, {tree}, {counts}, sparse={options})({hidden}, {ids})",
    "neural.HierarchicalSoftmax(4, tree, nodes={nodes})({hidden}, {ids})",
    "neural.NCELoss({size}, {counts}, noise={size}, power={number}, learn_normaliser={options})({hidden}, {ids})",
    "neural.NCELoss(4, [5, 3, 1, 1, 1, 1], noise=3, shared={options}).loss_with({hidden}, {ids}, {ids})",
    "neural.SampledSoftmax({size}, {counts}, samples={size}, power={number})({hidden}, {ids})",
    "neural.SampledSoftmax(4, [5, 3, 1, 1, 1, 1], samples=3).loss_with({hidden}, {ids}, {ids})",
    "neural.AdaptiveSoftmax({size}, {counts}, cutoffs={list}, div_value={number})({hidden}, {ids})",
    "neural.ClassSoftmax({size}, {counts}, {ids}, sparse={options})({hidden}, [0, 0, 0])",
    "neural.ClassSoftmax(4, [5, 3, 1, 1, 1, 1], {list})({hidden}, {ids})",
    "neural.DotNodes({size}, {counts}, sparse={options}).all_scores({hidden})",
    "neural.MorinBengioNodes({size}, torch.zeros(5), hidden_dim={size}, node_dim={size}).all_scores({hidden})",
    "neural.RowSGD({gradients}, {lr}, {number}, {number}).step()",
    "neural.RowAdagrad({gradients}, {lr}, {number}, {number}).step()",
    "neural.RowAdam({gradients}, {lr}, weight_decay={number}, correct_skipped_steps={options}).step()",
    "neural.clip_gradients({gradients}, {number})",
    "trees.Tree({children}, {list})",
    "trees.analyse({tree}, {counts})",
    "trees.path_rows({tree}, {words}, {counts}, {ids})",
    "trees.balanced_tree({ids})",
    "trees.brown_tree({ids}, {list}, {counts}, {size})",
    "trees.brown_tree(np.array([0, 1, 2, 3, 4, 5, 0, 1]), np.array([0, 4, 8]), {counts}, {size})",
    "trees.classes_tree({counts}, {size})",
    "trees.clusters_tree({vectors}, {counts}, {linkage}, {oov}, {number}, {size})",
    "trees.clusters_tree({vectors}, [5, 3, 1, 1, 1, 1], {linkage}, 'gaussians', {number}, {size})",
    "trees.clusters_tree({vectors}, [5, 3, 1, 1, 1, 1], {linkage}, 'kmeans', 0.0, {size})",
    "trees.code_string({tree}, {size})",
    "trees.code_strings({tree})",
    "trees.from_codes({codes}, {words})",
    "trees.from_codes({codes})",
    "trees.frequency_tree({counts})",
    "trees.huffman_tree({counts})",
    "trees.random_tree({size}, {size})",
    "trees.read_tree(Path({path}), {words})",
    "trees.read_tree({path}, {words})",
    "trees.write_tree(Path({out}), {tree}, {words})",
    "trees.top_of({tree}, {words}, {counts}, {size})",
    "trees.tree_text(trees.top_of({tree}, {words}, {counts}, {size}))",
    "trees.wordnet_tree({words}, {counts}, Path({path}))",
    "lmtool.States.of({states})",
    "lmtool.States.of([kn.begin()] * 2)[{index}]",
    "lmtool.States.of([kn.begin()] * 3).groups()",
    "lmtool.load({path})",
    "lmtool.load({path}, {oov})",
    "list(lmtool.score_texts({path}, {texts}))",
    "list(lmtool.score_texts(kn, {texts}, run_out={path}))",
    "lmtool.Corpus.from_texts({texts}, {texts})",
    "lmtool.Corpus.from_texts(['the cat', 'a dog'] * 3, {number}, {number}, sentences={options}, unit={oov})",
    "lmtool.Corpus.from_texts(['the cat'], ['the'], name={out}, min_count={size}, size={size}, words={words})",
    "lmtool.Corpus.from_texts(['the cat'], ['the'], store_dir={out})",
    "lmtool.Corpus.open({path})",
    "corpus.split({split})",
    "lmtool.evaluate({path}, {split})",
    "lmtool.evaluate(kn, text={text})",
    "lmtool.evaluate(net, text={text}, accuracy={options}, detail={options}, out={out})",
    "lmtool.train({model}, {data}, out={out}, training=training)",
    "lmtool.train({model}, corpus, seed={size}, prune_counts={list}, prune_entropy={number}, training=training)",
    "lmtool.train('nplm', corpus, output={model}, optim={model}, training={model})",
    "lmtool.train('nplm', corpus, resume={path}, training=training)",
    "lmtool.mix({paths}, out={out}, weights={list}, method={oov})",
    "lmtool.mix({paths}, fit_split={split}, split={split}, cache={oov})",
    "lmtool.compare({paths}, split={split}, resamples=100, block={size})",
    "lmtool.tree({model}, {data}, levels={size}, words={words}, to={out})",
    "lmtool.tree('huffman', {data}, out={out}, to={out})",
    "lmtool.rescore({path}, 'lists.txt', out={out}, nbest_weight={number})",
    "lmtool.export({path}, {out}, what={of})",
    "lmtool.convert({path}, {data}, out={out})",
    "lmtool.convert(run={path}, quantize={size}, out={out}, to={out})",
    "lmtool.convert(runs={paths}, weights={list}, out={out})",
    "lmtool.distil({path}, {path}, out={out}, tokens={size})",
    "lmtool.preprocess({data}, store_dir={out})",
    "lmtool.sweep({model}, model='ngram', data=corpus, out={out})",
    "lmtool.sweep({{'model.order': {list}}}, model='ngram', data=corpus, out={out})",
    "lmtool.report_page({paths}, out={out}, map='none')",
]

# fmt: on
SLOT = re.compile(r"(?<!\{)\{(\w+)\}(?!\})")
COMMANDS = [call for call in CALLS if call.startswith(("lmtool.", "list(lmtool."))]  # which run commands
OTHERS = [call for call in CALLS if call not in COMMANDS]


@st.composite
def calls(draw: st.DrawFn, templates: list[str]) -> str:
    """Draw a call as a Python expression; most arguments are right."""
    template = draw(st.sampled_from(templates))
    wrong = draw(st.integers(1, 3))

    def value(match: re.Match[str]) -> str:
        pool = KNOWN[match[1]]
        return pool[0] if draw(st.integers(0, 3)) > wrong else draw(st.sampled_from(pool))

    return SLOT.sub(value, template).replace("{{", "{").replace("}}", "}")


# Calls that one child makes, one after the other.
CASES = st.one_of(
    st.integers(1, 60).flatmap(lambda size: st.lists(calls(OTHERS), min_size=size, max_size=size)),
    st.lists(calls(COMMANDS), min_size=1, max_size=3),
)
_names: dict[str, Any] = {}


def count(case: list[str]) -> int:
    """Return the number of calls of a case."""
    return len(case)


def prepare() -> None:
    """Make the runs and objects that calls name, and compile what they use."""
    commands.prepare()
    import numpy as np
    import torch

    import lmtool
    from lmtool import neural, trees

    weight = torch.nn.Parameter(torch.ones(6, 4))
    weight.grad = torch.ones(6, 4)
    with chdir(commands.SHARED):
        kn, net, mix = map(lmtool.load, ("kn", "net", "mix"))
        corpus = lmtool.Corpus.from_texts(["the cat sat", "a dog sat", "the dog ran"] * 4, ["the dog sat"], ["a cat"])
        corpus1 = lmtool.Corpus.from_texts(["a"], ["a"], name="one")
    _names.update(np=np, torch=torch, nn=torch.nn, lmtool=lmtool, neural=neural, trees=trees, Path=Path)
    _names.update(kn=kn, net=net, mix=mix, corpus=corpus, corpus1=corpus1, C=2, V=len(kn.vocabulary))
    _names.update(tree=trees.huffman_tree(np.array([5, 3, 1, 1, 1, 1])), tree1=trees.balanced_tree([0]))
    _names.update(codes=trees.from_codes([(0, "0"), (1, "10"), (0, "110"), (2, "111")]), with_gradients=[weight])
    _names.update(training={"epochs": 1, "minutes": None})
    evaluated("trees.brown_tree([0, 1, 2], [0, 3], [1, 1, 1], 2)")
    evaluated("kn.generate('the', seed=1)")
    evaluated("net.log_dist([[0, 0]])")


def evaluated(call: str) -> Any:
    """Return the value of a call."""
    return eval(call, dict(_names))


def check(case: list[str], place: Path) -> None:
    """Evaluate calls in a child. Raises Fault."""
    shared = place.parent / commands.SHARED
    try_all(
        case,
        answer,
        place,
        seconds=LIMIT,
        expected=(ValueError, TypeError, MemoryError, NotImplementedError),
        name=lambda call: re.sub(r"\(.*?\)|\[.*?\]|\{.*?\}", "", call),
        make=lambda folder: shutil.copytree(shared, folder, dirs_exist_ok=True) and None,
    )


def answer(call: str) -> None:
    """Evaluate a call in this process. Raises what it raises, unless that is right, and Wrong for NaN."""
    try:
        value = evaluated(call)
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/lmtool/" in frame.filename]
        if (
            (isinstance(error, IndexError) and frames and frames[-1].name == "__getitem__")  # as sequences raise it
            or (isinstance(error, RuntimeError) and re.search("allocate|memory|overflow", str(error)))
            or (isinstance(error, AttributeError | RuntimeError) and not frames)  # of Python or torch, before lmtool
        ):
            return
        raise
    if not any(word in call for word in ("nan", "inf", "1e30", "1e300", "1e200")) and _has_nan(value):
        raise Wrong(f"nan from {call.partition('(')[0]}")


def _has_nan(answer: Any) -> bool:
    """Return whether any number in an answer is NaN."""
    np, torch = _names["np"], _names["torch"]
    if isinstance(answer, torch.Tensor):
        return answer.is_floating_point() and bool(answer.isnan().any())
    if isinstance(answer, np.ndarray):
        return answer.dtype.kind == "f" and bool(np.isnan(answer).any())
    if isinstance(answer, float):
        return answer != answer
    return isinstance(answer, list | tuple) and any(map(_has_nan, answer))
