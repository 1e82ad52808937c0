"""Gradients of two processes, each with half the batch, against those of one with all of it, in float64, also of layers
in another model; and evaluation in shares against the whole. tests/training/test_processes.py runs this in both.
"""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import torch

from lmtool.data.corpus import Corpus
from lmtool.neural.outputs.options import AdaptiveOutput, ClassesOutput, HierarchicalOutput, NodeForm
from lmtool.training.batches import Batches
from lmtool.training.processes import SharedModel, joined_processes
from lmtool.trees import huffman_tree
from tests.conftest import neural
from tests.neural.test_other_models import LAYERS, Model, batch, built


def main(store: Path) -> None:
    torch.set_default_dtype(torch.float64)
    with Corpus.open(store) as toy, joined_processes(torch.device("cpu")) as processes:
        split = toy.split("train")
        tree = huffman_tree(toy.vocabulary.counts[:-1])
        for name, arguments in {
            "softmax": (),
            "hierarchical": (HierarchicalOutput("hierarchical", NodeForm.dot, 6, 5), tree),
            "morin_bengio": (HierarchicalOutput("hierarchical", NodeForm.morin_bengio, 6, 5), tree),
            "adaptive": (AdaptiveOutput("adaptive", [4, 12], 2.0),),
            "classes": (ClassesOutput("classes", None),),
        }.items():
            torch.manual_seed(3 + processes.rank)  # the first process's weights count
            model = neural(toy, *arguments)
            shared = SharedModel(model, processes)
            parts = (processes.rank, processes.size), (0, 1)
            mine, whole = (iter(Batches(split, 16, 3, 1, part=part)) for part in parts)
            for _ in range(2):
                part, batch = next(mine), next(whole)
                half = slice(8 * processes.rank, 8 * processes.rank + 8)
                assert all(torch.equal(p, b[half]) for p, b in zip(part, batch, strict=True))
                model.zero_grad()
                shared(*part).backward()
                shared.share_rows()
                assert all(parameter.grad.is_coalesced() for parameter in model.sparse_parameters())
                found = [parameter.grad.to_dense() for parameter in model.parameters()]
                model.zero_grad()
                model(*batch).backward()
                wanted = [parameter.grad.to_dense() for parameter in model.parameters()]
                for (parameter, _), f, w in zip(model.named_parameters(), found, wanted, strict=True):
                    torch.testing.assert_close(f, w, rtol=1e-10, atol=1e-12, msg=f"{name} {parameter}")
                model.zero_grad()
                shared.share_rows()  # of which no process has any
                assert all(parameter.grad._nnz() == 0 for parameter in model.sparse_parameters())
            first, last = processes.share(toy.split("valid").tokens)
            shares = processes.join_parts(model.score_tokens(toy.split("valid"), first, last))
            np.testing.assert_allclose(shares, model.score_text(toy.split("valid")), rtol=1e-12)
        layers_in_another_model(processes.rank)
        assert processes.largest(float(processes.rank), -1.0) == [1.0, -1.0]
        assert processes.mean(float(processes.rank)) == 0.5
        assert processes.from_first(processes.rank) == 0
        if processes.rank == 0:
            print("the same in two processes")


def layers_in_another_model(rank: int) -> None:
    """Compare the gradients of each layer with sparse gradients in DistributedDataParallel with the whole batch's."""
    x, y = (part.flatten(0, 1) for part in batch())
    half = slice(6 * rank, 6 * rank + 6)
    shared = [name for name in LAYERS if "own noise" not in name and name != "negative_sampling"]
    for name in shared:  # the others draw words for each example
        model = Model(built(name, sparse=True))
        alone = copy.deepcopy(model)
        model.output.use_dense_gradients()
        parallel = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=name == "adaptive")
        for targets in (y, y.index_fill(0, torch.arange(6), -100)):  # one process then has only padding
            for each, part in ((parallel, half), (alone, slice(None))):
                each.zero_grad()
                torch.manual_seed(5)  # the same draws
                each(x[part], targets[part]).backward()
            for (key, parameter), other in zip(model.named_parameters(), alone.parameters(), strict=True):
                wanted = other.grad.to_dense() / (1 if targets is y else 2)  # a mean over both processes
                torch.testing.assert_close(parameter.grad, wanted, rtol=1e-10, atol=1e-12, msg=f"{name} {key}")
