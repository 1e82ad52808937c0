"""The fused losses against the plain forms in float64, in Triton's interpreter.

test_triton runs this in a process of its own, as the interpreter has to be asked for before Triton is imported.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator

os.environ["TRITON_INTERPRET"] = "1"

import pytest
import torch
from torch import Tensor, nn

from lmtool.neural import AdaptiveSoftmax, ClassSoftmax, FullSoftmax, HierarchicalSoftmax, NCELoss, SampledSoftmax
from lmtool.neural.triton import columns, lists, losses, serves, serves_columns
from lmtool.neural.triton.columns import Choice, column_sums
from lmtool.trees import balanced_tree, from_codes, huffman_tree
from tests.neural import test_fixed_points as fixed

O, D, B = 23, 7, 5  # noqa: E741
COUNTS = torch.arange(O, 0, -1) ** 2
CHAIN = from_codes([(word, "1" * word + "0" * (word < 18)) for word in range(19)])  # paths of up to 18 nodes


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    torch.use_deterministic_algorithms(False)


def gradients_of(layer: nn.Module, h: Tensor, loss: Tensor) -> list[Tensor]:
    wanted = [h, *layer.parameters()]
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    given = [torch.zeros_like(tensor) if grad is None else grad for grad, tensor in zip(found, wanted, strict=True)]
    return [grad.to_dense() if grad.is_sparse else grad for grad in given]


def check(layer: nn.Module, h: Tensor, *words: Tensor, tolerance: float = 1e-5) -> None:
    """Loss and every gradient, of loss_with where there are two tensors of words, are those of the layer in float64."""
    plain, double = copy.deepcopy(layer).double(), h.detach().double().requires_grad_()
    h = h.detach().requires_grad_()
    fused, want = ((each.loss_with if len(words) > 1 else each)(x, *words) for each, x in ((layer, h), (plain, double)))
    assert serves(h) and not serves(double) and fused.dtype == h.dtype and fused.grad_fn is not None
    close = {"rtol": tolerance, "atol": tolerance, "check_dtype": False}
    torch.testing.assert_close(fused, want, **close)
    for found, expected in zip(gradients_of(layer, h, 3 * fused), gradients_of(plain, double, 3 * want), strict=True):
        torch.testing.assert_close(found, expected, **close)


TREES = {
    "huffman": huffman_tree(COUNTS.numpy()),
    "chain": CHAIN,
    "one node": balanced_tree(COUNTS[:2].argsort().numpy()),
    "empty paths": balanced_tree(COUNTS[:1].argsort().numpy()),
}


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_trees(name: str, sparse: bool) -> None:
    tree = TREES[name]
    layer, y = HierarchicalSoftmax(D, tree, sparse=sparse), torch.randint(tree.words, (B,))
    y[0] = tree.words - 1
    check(layer, torch.randn(D, B).T, y)


def test_deterministic_trees_add_nothing_atomically(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter's sums always repeat, a device's atomic ones do not."""
    launched = []

    def launch(kernel: object, grid: object, like: object, *arguments: object, **constants: object) -> None:
        launched.append((kernel, arguments))
        plain_launch(kernel, grid, like, *arguments, **constants)

    plain_launch = lists.launch
    monkeypatch.setattr(lists, "launch", launch)
    layer = HierarchicalSoftmax(D, TREES["huffman"], COUNTS)
    torch.use_deterministic_algorithms(True)
    check(layer, torch.randn(B, D), torch.tensor([3, 3, 0, 22, 5]))
    _, (gradients, given), (last, _) = launched
    assert gradients is lists.list_kernels.gradients and given[-3:-1] == (None, None)
    assert last is lists.list_kernels.segment_sums


NOISE: dict[str, Callable[[], nn.Module]] = {
    "dense": lambda: NCELoss(D, COUNTS, noise=4),
    "sparse": lambda: NCELoss(D, COUNTS, noise=4, sparse=True),
    "normaliser": lambda: NCELoss(D, COUNTS, noise=4, learn_normaliser=True),
    "tied": lambda: NCELoss(D, COUNTS, nn.Parameter(torch.randn(O + 2, D)), noise=4),
}


@pytest.mark.parametrize("name", NOISE)
def test_noise(name: str) -> None:
    layer, y = NOISE[name](), torch.tensor([3, 3, 0, 22, 5])
    for parameter in layer.parameters():  # a normaliser starts at 0
        nn.init.normal_(parameter)
    check(layer, torch.randn(B, D), y, torch.tensor([1, 3, 1, 20]))
    check(layer, torch.randn(B, D), y, torch.randint(O, (B, 4)))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_samples(sparse: bool) -> None:
    layer, y = SampledSoftmax(D, COUNTS, samples=4, sparse=sparse), torch.tensor([3, 3, 0, 22, 5])
    check(layer, torch.randn(B, D), y, torch.tensor([1, 3, 1, 5]))
    check(layer, torch.randn(B, D), torch.full((B,), 3), torch.tensor([3, 3, 3]))


@pytest.mark.parametrize("power", [0.0, 0.75, 1.0])
def test_the_fixed_point_of_samples_is_the_data(power: float) -> None:
    layer = SampledSoftmax(fixed.D, fixed.COUNTS, samples=3, power=power)
    h = fixed.as_the_data(layer)
    assert serves_columns(h, layer.vectors)
    found = fixed.expected_gradients(layer, h, layer.table.log_q.exp(), 3)
    assert max(gradient.abs().max() for gradient in found) < 1e-6


@pytest.mark.parametrize("own", [False, True], ids=["shared", "own"])
def test_the_fixed_point_of_noise_is_the_data(own: bool) -> None:
    layer = NCELoss(fixed.D, fixed.COUNTS, noise=1, shared=not own, power=0.75)  # more take the interpreter minutes
    found = fixed.expected_gradients(layer, fixed.as_the_data(layer), layer.table.log_q.exp(), 1, own=own)
    assert max(gradient.abs().max() for gradient in found) < 1e-6


def test_softmax_of_several_tiles_and_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "processors", lambda device: 8)
    counts = torch.randint(1, 9, (150,))
    layer = FullSoftmax(37, counts, nn.Parameter(torch.randn(153, 37)))
    check(layer, torch.randn(70, 37), torch.randint(150, (70,)))


def test_softmax_of_one_word_and_one_number() -> None:
    check(FullSoftmax(1, torch.ones(1)), torch.randn(1, 1), torch.zeros(1, dtype=torch.int64))


def test_softmax_of_large_scores() -> None:
    layer = FullSoftmax(D, COUNTS)
    with torch.no_grad():
        layer.bias.add_(300).mul_(torch.linspace(-1, 1, O))
    check(layer, 20 * torch.randn(B, D), torch.randint(O, (B,)), tolerance=1e-4)


@pytest.mark.parametrize("softplus", [False, True])
def test_column_sums_of_every_argument(softplus: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "processors", lambda device: 8)
    h, weight, bias, terms = (torch.randn(size).requires_grad_() for size in ((70, D), (150, D), (150,), (70,)))
    doubles = [tensor.detach().double().requires_grad_() for tensor in (h, weight, bias, terms)]
    scores = doubles[0] @ doubles[1].T + doubles[2] + doubles[3][:, None]
    want = nn.functional.softplus(scores).sum(1) if softplus else scores.logsumexp(1)
    found = column_sums(h, weight, bias, Choice(softplus=softplus), terms)
    scale = torch.randn(70)
    torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-5, check_dtype=False)
    of_found = torch.autograd.grad(found, (h, weight, bias, terms), scale)
    for gradient, expected in zip(of_found, torch.autograd.grad(want, doubles, scale.double()), strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=2e-5, check_dtype=False)


def test_adaptive() -> None:
    layer = AdaptiveSoftmax(D, COUNTS, cutoffs=[5, 12, 20], div_value=1.5)
    check(layer, torch.randn(B, D), torch.tensor([4, 5, 12, 19, 0]))  # none of the last tail


def test_adaptive_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is read would wait for a GPU, and a step that waits cannot be captured.
    layer, h = AdaptiveSoftmax(D, COUNTS, cutoffs=[5, 12, 20], div_value=1.5), torch.randn(B, D)
    monkeypatch.setattr(torch.Tensor, "nonzero", None)
    monkeypatch.setattr(torch.Tensor, "item", None)
    losses.adaptive_loss(layer.layer, h, torch.randint(O, (B,))).backward()


def test_classes() -> None:
    layer = ClassSoftmax(D, COUNTS, torch.tensor([0] + [1] * 18 + [2, 2, 0, 3]))
    check(layer, torch.randn(B, D), torch.tensor([18, 1, 0, 22, 20]))
    torch.use_deterministic_algorithms(True)  # by the plain form
    check(layer, torch.randn(B, D), torch.tensor([18, 1, 0, 22, 20]))


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "tree": lambda: HierarchicalSoftmax(D, TREES["huffman"], COUNTS),
    "own noise": lambda: NCELoss(D, COUNTS, noise=3, shared=False),
    "shared noise": lambda: NCELoss(D, COUNTS, noise=3),
    "samples": lambda: SampledSoftmax(D, COUNTS, samples=3),
    "full": lambda: FullSoftmax(D, COUNTS),
    "classes": lambda: ClassSoftmax(D, COUNTS, torch.arange(O) % 5),
    "adaptive": lambda: AdaptiveSoftmax(D, COUNTS, cutoffs=[5], div_value=2.0),
}


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("name", LAYERS)
def test_nan_of_one_example_stays_its_own(name: str) -> None:
    layer, h = LAYERS[name](), torch.randn(3, D)
    h[1, 2] = torch.nan
    h.requires_grad_()
    loss = layer(h, torch.tensor([20, 2, 1]))
    loss.backward()
    assert loss.isnan() and h.grad[1].isnan().any()
    assert h.grad[[0, 2]].isfinite().all() and (h.grad[[0, 2]] != 0).any()


@pytest.mark.parametrize("name", LAYERS)
def test_bf16_sums_in_float32(name: str) -> None:
    """Against the same numbers in float64: an error of rounding of what goes in and out, not of every addition."""
    noise = {"own noise": torch.randint(O, (3, 3)), "shared noise": torch.arange(3), "samples": torch.arange(3)}
    words = torch.tensor([20, 2, 1]), *([noise[name]] if name in noise else [])
    check(LAYERS[name]().bfloat16(), torch.randn(3, D).bfloat16(), *words, tolerance=2**-6)


def test_bf16_products_of_float32() -> None:
    """The interpreter rounds to bf16 towards 0, a device to the nearest: what bf16 holds is the same in both."""
    h, weight, y = torch.randn(B, 40), torch.randn(O, 40), torch.randint(O, (B,))
    held = h.bfloat16().float(), weight.bfloat16().float()
    for given, difference in ((held, 0), ((h, weight), 1e-4)):
        narrow, full = (losses.softmax_loss(*given, torch.zeros(O), y, narrow=each) for each in (True, False))
        torch.testing.assert_close(narrow, full, rtol=1e-6 if not difference else 2**-6, atol=0)
        assert abs(narrow - full) >= difference


def test_a_graph_that_is_kept_gives_the_gradients_twice() -> None:
    for make in LAYERS.values():
        layer, h = make(), torch.randn(3, D, requires_grad=True)
        loss = layer(h, torch.tensor([20, 2, 1]))
        first, second = (torch.autograd.grad(loss, h, retain_graph=True)[0] for _ in range(2))
        assert first.equal(second) and first.any()


def test_what_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    h = torch.zeros(2, 4096)
    assert serves(h, h.bfloat16()) and not serves(h, h.double()) and not serves(h.half())
    assert not serves(torch.zeros(2, 4097))
    for width, narrow in ((128, False), (256, True)):
        assert serves_columns(torch.zeros(2, width), narrow=narrow)
        assert not serves_columns(torch.zeros(2, width + 1), narrow=narrow)
    assert serves_columns(h[:, :256].bfloat16()) and not serves_columns(h[:, :256].bfloat16(), h[:, :256])
    monkeypatch.setenv("LMTOOL_TRITON", "0")
    assert not serves(h)
    monkeypatch.undo()
    monkeypatch.delenv("TRITON_INTERPRET")
    assert not serves(h)
