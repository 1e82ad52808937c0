"""The count of a training step's operations on a GPU for ./scripts/measure launches: each is about one launch. No GPU
is needed: the step runs on the CPU in the form for other devices, and torch tells what it does.

An operation that has to know what is in a tensor waits for all that the GPU still has to do: such are counted beside.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

# What moves no numbers: views, and memory that is only set aside.
FREE = {"_record_function_enter_new", "_record_function_exit", "_reshape_alias", "_unsafe_view", "alias", "as_strided"}
FREE |= {"detach", "empty", "empty_like", "empty_strided", "expand", "lift_fresh", "narrow", "new_empty", "permute"}
FREE |= {"reshape", "resize_", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind"}
FREE |= {"unsqueeze", "view", "view_as"}
WAITS = {"_coalesce", "_local_scalar_dense", "_nnz", "_unique2", "equal", "is_nonzero", "item", "masked_select"}
WAITS |= {"nonzero", "repeat_interleave", "unique_dim"}
VOCABULARY, CONTEXT, EMBEDDING, HIDDEN, BATCH = 10_000, 5, 30, 100, 1024
MOST = 40  # launches that every layer's step should stay within


class Operations(TorchDispatchMode):
    """Counts what torch does while it is on, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__.split(".")[-1]
        if name not in FREE and not (name in ("copy_", "_to_copy") and _is_number(args[0])):
            self.count[name] += 1
        return function(*args, **(kwargs or {}))

    @property
    def launches(self) -> int:
        """All operations."""
        return sum(self.count.values())

    @property
    def waits(self) -> int:
        """Those that wait."""
        return sum(self.count[name] for name in WAITS)


def _is_number(tensor: Tensor) -> bool:
    """Whether a tensor is a Python number that torch has wrapped, which goes to the device with the launch."""
    return tensor.dim() == 0 and tensor.dtype is torch.float64 and not tensor.requires_grad


def layers(words: int, dim: int) -> dict[str, Callable[[], nn.Module]]:
    """Every output layer by name, over words whose counts fall as a vocabulary's do."""
    import numpy as np

    from lmtool.neural import AdaptiveSoftmax, ClassSoftmax, FullSoftmax, HierarchicalSoftmax, NCELoss, SampledSoftmax
    from lmtool.neural.outputs.tree_nodes import MorinBengioNodes
    from lmtool.trees import huffman_tree
    from lmtool.trees.frequency_classes import class_of_words
    from lmtool.trees.union import union

    counts = torch.from_numpy(np.maximum(1, (1e7 / np.arange(1, words + 1)).astype(np.int64)))

    def morin_bengio() -> nn.Module:
        tree = huffman_tree(counts.numpy())
        nodes = MorinBengioNodes(dim, torch.zeros(tree.nodes), hidden_dim=dim, node_dim=EMBEDDING)
        return HierarchicalSoftmax(dim, tree, counts, nodes=nodes)

    return {
        "softmax": lambda: FullSoftmax(dim, counts),
        "hierarchical": lambda: HierarchicalSoftmax(dim, huffman_tree(counts.numpy()), counts),
        "hierarchical, union": lambda: HierarchicalSoftmax(dim, union([huffman_tree(counts.numpy())] * 2), counts),
        "morin_bengio": morin_bengio,
        "nce": lambda: NCELoss(dim, counts, noise=100),
        "nce, own noise": lambda: NCELoss(dim, counts, noise=25, shared=False),
        "sampled": lambda: SampledSoftmax(dim, counts),
        "classes": lambda: ClassSoftmax(dim, counts, torch.from_numpy(class_of_words(counts.numpy(), None))),
        "adaptive": lambda: AdaptiveSoftmax(dim, counts),
    }


def encoders() -> dict[str, dict[str, object]]:
    """The settings of an encoder of each kind, by the name it is shown by."""
    plain = {"direct": False, "layer_norm": False, "gated": False, "dropout": 0.0, "activation": "tanh"}
    modern = {"direct": False, "layer_norm": True, "gated": True, "dropout": 0.4, "input_dropout": 0.15}
    return {
        "nplm, as in the paper": {"kind": "nplm", "hidden_dim": HIDDEN, **plain},
        "nplm, as it comes": {"kind": "nplm", "hidden_dim": HIDDEN, "activation": "gelu", **modern},
        "nplm, with a history": {"kind": "nplm", "hidden_dim": HIDDEN, "activation": "gelu", "history": 100, **modern},
        "lbl": {"kind": "lbl", "diagonal": False, "dropout": 0.0},
        "cbow": {"kind": "cbow", "dropout": 0.0},
    }


def encoder(settings: dict[str, object], words: int) -> nn.Module:
    """An encoder of these settings, its gradients dense."""
    from lmtool.neural.encoders.cbow import CbowModel
    from lmtool.neural.encoders.lbl import LblModel
    from lmtool.neural.encoders.nplm import Activation, NplmModel

    values = {"context_size": CONTEXT, "embedding_dim": EMBEDDING, "tied": False, **settings}
    if "activation" in values:
        values["activation"] = Activation(values["activation"])
    config = {"nplm": NplmModel, "lbl": LblModel, "cbow": CbowModel}[str(settings["kind"])](**values)
    return config.build(words + 1, tied=False, sparse=False)


def counted(of: nn.Module, output: nn.Module, *, clip: bool) -> Operations:
    """The operations of the third step of an encoder and an output layer, by AdamW."""
    from lmtool.neural.sparse_optim import clip_gradients

    parameters = [*of.parameters(), *output.parameters()]
    optimiser = torch.optim.AdamW(parameters, fused=True)
    x, y = torch.randint(VOCABULARY, (BATCH, of.context_size)), torch.randint(VOCABULARY, (BATCH,))

    one = torch.ones(())

    def step() -> None:
        loss = output(of(x), y)
        optimiser.zero_grad()
        loss.backward(one)
        if clip:
            clip_gradients(parameters, 1.0)
        optimiser.step()

    step()
    step()
    with Operations() as operations:
        step()
    return operations


def table(*, clip: bool = False) -> Iterator[tuple[str, str, Operations]]:
    """The encoder, the layer and the operations of each pair."""
    from lmtool.neural.devices import device_path

    for of, settings in encoders().items():
        for name in layers(VOCABULARY, HIDDEN):
            torch.manual_seed(0)
            network = encoder(settings, VOCABULARY)
            output = layers(VOCABULARY, network.output_dim)[name]()
            with device_path():
                yield of, name, counted(network, output, clip=clip)


def launches() -> None:
    """Both tables; PARTS=names: also how often each operation is done."""
    names = "names" in os.environ.get("PARTS", "")
    print(f"one step of AdamW: {VOCABULARY:,} words, {EMBEDDING}/{HIDDEN}, batches of {BATCH:,}, dense gradients, fp32")
    print(f"{'encoder':<24} {'output layer':<19} {'launches':>8} {'clipped':>8} {'waits':>6}")
    for (of, name, plain), (_, _, clipped) in zip(table(), table(clip=True), strict=True):
        mark = "" if plain.launches <= MOST or not of.endswith("paper") else f"  more than {MOST}"
        print(f"{of:<24} {name:<19} {plain.launches:>8} {clipped.launches:>8} {clipped.waits:>6}{mark}", flush=True)
        if names:
            print("   ", dict(plain.count.most_common()))
