"""Output layers: gradients against differences in float64, distributions, and what each is in the limit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.neural import AdaptiveSoftmax, FullSoftmax, HierarchicalSoftmax, MorinBengioNodes, NCELoss, SampledSoftmax
from lmtool.neural.forms import only_plain
from lmtool.neural.outputs import adaptive, hierarchical, softmax
from lmtool.system import arrays
from lmtool.system.alias_table import AliasTable
from lmtool.trees import Tree, balanced_tree, frequency_tree, from_codes, huffman_tree, random_tree
from tests.options import LAYERS, output_layer, several_codes, trained

O, D, B = 23, 6, 9  # noqa: E741
COUNTS = torch.arange(O, 0, -1) ** 2
TREE = huffman_tree(COUNTS.numpy())
SEVERAL = several_codes(O)


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(params=["forms", "plain"])
def _both(request: pytest.FixtureRequest) -> Iterator[None]:
    """With fast forms, and by the plain methods alone."""
    with only_plain(request.param == "plain"):
        yield


SPARSE = [name for name in LAYERS if output_layer(name, D, COUNTS, sparse=True).sparse_parameters()]


@pytest.mark.usefixtures("_both")
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_and_distributions(name: str) -> None:
    layer = output_layer(name, D, COUNTS)
    words = layer.word_count or 0
    h, y = torch.randn(B, D, requires_grad=True), torch.randint(0, words, (B,))
    parameters = dict(layer.named_parameters())

    def loss(*values: Tensor) -> Tensor:
        torch.manual_seed(3)  # the same noise each time
        return torch.func.functional_call(layer, dict(zip(parameters, values[1:], strict=True)), (values[0], y))

    assert torch.autograd.gradcheck(loss, (h, *(value.detach().requires_grad_() for value in parameters.values())))
    dist = layer.log_dist(h)
    assert dist.shape == (B, words) and dist.dtype == torch.float64
    torch.testing.assert_close(dist.exp().sum(1), torch.ones(B))
    torch.testing.assert_close(layer.log_prob(h, y), dist.gather(1, y[:, None])[:, 0])
    several = torch.randint(0, words, (B, 4))
    torch.testing.assert_close(layer.log_prob(h, several), dist.gather(1, several))
    if not layer.loss_is_log_prob:  # in training the loss is of drawn words
        layer.eval()
    before = torch.get_rng_state()
    losses = {how: layer(h, y, reduction=how) for how in ("none", "mean", "sum")}
    assert torch.equal(torch.get_rng_state(), before), "nothing is drawn"
    for how, wanted in {"none": -layer.log_prob(h, y), "mean": -layer.log_prob(h, y).mean()}.items():
        torch.testing.assert_close(losses[how], wanted)
    torch.testing.assert_close(losses["sum"], B * losses["mean"])


@pytest.mark.parametrize("name", [name for name in LAYERS if not re.search("one word|adaptive|morin|negative", name)])
def test_starts_at_the_unigram_distribution(name: str) -> None:
    """Of half an occurrence more on each side of a node, or of each word."""
    dist = output_layer(name, D, 1000 * COUNTS).log_dist(torch.zeros(1, D))[0].exp()
    torch.testing.assert_close(dist, COUNTS / COUNTS.sum(), atol=1e-4, rtol=0)


@pytest.mark.usefixtures("_both")
@pytest.mark.parametrize("name", SPARSE)
def test_sparse_gradients_are_the_dense_ones_of_used_rows(name: str) -> None:
    y = torch.tensor([1, 1, 2])
    h = torch.randn(3, D)
    found = []
    for sparse in (False, True):
        torch.manual_seed(1)
        layer = output_layer(name, D, COUNTS, sparse=sparse)
        torch.manual_seed(2)
        layer(h, y).backward()
        rows = layer.sparse_parameters()
        assert all(parameter.grad.is_sparse for parameter in rows if parameter.requires_grad)
        assert bool(rows) == sparse
        found.append([parameter.grad.to_dense() for parameter in trained(layer).values()])
        if sparse:
            used = {
                row
                for parameter in rows
                if parameter.requires_grad
                for row in parameter.grad.coalesce().indices()[0].tolist()
            }
            assert 0 < len(used) < O - 1
    for dense, rows_alone in zip(*found, strict=True):
        torch.testing.assert_close(dense, rows_alone)


@pytest.mark.usefixtures("_both")
@pytest.mark.parametrize("name", LAYERS)
def test_nan_of_one_example_stays_its_own(name: str) -> None:
    layer, h = output_layer(name, D, COUNTS), torch.randn(3, D)
    h[1, 2] = torch.nan
    h.requires_grad_()
    loss = layer(h, torch.tensor([2, 1, 0]))
    (grad,) = torch.autograd.grad(loss, h)
    assert loss.isnan() and grad[1].isnan().any()
    assert grad[[0, 2]].isfinite().all() and (grad[[0, 2]] != 0).any(1).all()


@pytest.mark.usefixtures("_both")
@pytest.mark.parametrize("name", LAYERS)
def test_a_graph_that_is_kept_gives_the_gradients_twice(name: str) -> None:
    layer, h = output_layer(name, D, COUNTS), torch.randn(3, D, requires_grad=True)
    loss = layer(h, torch.tensor([2, 1, 0]))
    first, second = (torch.autograd.grad(loss, h, retain_graph=True)[0] for _ in range(2))
    assert first.equal(second) and first.any()


# Hierarchical softmax


@pytest.mark.usefixtures("_both")
@pytest.mark.parametrize(
    "tree", [TREE, balanced_tree(np.arange(O)), random_tree(O, 3), frequency_tree(COUNTS.numpy()), SEVERAL]
)
def test_leaves_are_code_by_code(tree: Tree) -> None:
    layer, h = HierarchicalSoftmax(D, tree), torch.randn(B, D)
    want = leaves_by_codes(layer, h)
    torch.testing.assert_close(layer.computed("log_leaves", h), want)
    torch.testing.assert_close(want.exp().sum(1), torch.ones(B))


def leaves_by_codes(layer: HierarchicalSoftmax, h: Tensor) -> Tensor:
    """Return log p of each leaf, `[B, L]`, from the nodes of its code."""
    pairs, signs = layer.paths_to(torch.arange(layer.tree.leaves))
    decisions = F.logsigmoid(layer.nodes.all_scores(h)[:, pairs.rows] * signs)
    return torch.zeros(len(h), layer.tree.leaves).index_add_(1, pairs.owner, decisions)


def test_paths_by_hand() -> None:
    layer = HierarchicalSoftmax(1, from_codes([(0, "0"), (1, "10"), (2, "11")]))
    pairs, signs = layer.paths_to(torch.tensor([2, 0, 2]))
    assert pairs.rows.tolist() == [0, 1, 0, 0, 1] and signs.tolist() == [1, 1, -1, 1, 1]
    assert pairs.starts.tolist() == [0, 2, 3, 5] and pairs.owner.tolist() == [0, 0, 1, 2, 2]


def test_by_hand() -> None:
    # Codes 0, 10, 11; s_0 = 1 + 2 h, s_1 = -1 + h; with h = 1: p = 1 - sigma(3), sigma(3) (1 - sigma(0)), sigma(3)
    # sigma(0).
    layer = HierarchicalSoftmax(1, from_codes([(0, "0"), (1, "10"), (2, "11")]))
    with torch.no_grad():
        layer.nodes.vectors.copy_(torch.tensor([[2.0], [1.0]]))
        layer.nodes.bias.copy_(torch.tensor([1.0, -1.0]))
    up = 1 / (1 + math.exp(-3))
    want = torch.tensor([[1 - up, up / 2, up / 2]])
    torch.testing.assert_close(layer.log_dist(torch.ones(1, 1)).exp(), want)
    assert layer(torch.ones(1, 1), torch.tensor([2])).item() == pytest.approx(-math.log(up / 2))


@pytest.mark.usefixtures("_both")
@pytest.mark.parametrize("name", [name for name in LAYERS if name.startswith("hierarchical")])
def test_top_and_samples_by_descent(name: str) -> None:
    layer, h = output_layer(name, D, COUNTS), torch.randn(B, D)
    dist = layer.log_dist(h)
    words, log_p = layer.top(h, 5)
    values, want = dist.topk(min(5, dist.shape[1]), 1)
    torch.testing.assert_close(log_p, values)
    assert torch.equal(words, want)
    drawn = layer.sample(h[:1].expand(20_000, D))
    share = drawn.bincount(minlength=dist.shape[1]) / 20_000
    torch.testing.assert_close(share, dist[0].exp(), atol=0.015, rtol=0)


@pytest.mark.usefixtures("_both")
def test_scores_of_morin_bengio_by_hand() -> None:
    # alpha + beta . tanh(c + W h + U N_n) with two hidden units and one number for each node.
    nodes = MorinBengioNodes(1, torch.tensor([0.5, -0.5]), hidden_dim=2, node_dim=1)
    with torch.no_grad():
        for weight, value in [
            (nodes.hidden.weight, [[1.0], [2.0]]),
            (nodes.hidden.bias, [0.25, 0.0]),
            (nodes.node_map.weight, [[1.0], [-1.0]]),
            (nodes.beta, [2.0, -3.0]),
            (nodes.nodes, [[0.5], [-1.0]]),
        ]:
            weight.copy_(torch.tensor(value))
    want = [0.5 + 2 * math.tanh(1.75) - 3 * math.tanh(1.5), -0.5 + 2 * math.tanh(0.25) - 3 * math.tanh(3.0)]
    torch.testing.assert_close(nodes.all_scores(torch.ones(1, 1)), torch.tensor([want]))


# Noise-contrastive estimation


COUNTED = torch.tensor([8, 3, 0])  # with half a word each (0.68, 0.28, 0.04); the square roots' shares are below


@pytest.mark.parametrize("power", [1.0, 0.5])
@pytest.mark.parametrize("shared", [True, False])
def test_nce_of_several_noise_words_by_hand(power: float, shared: bool) -> None:
    # k = 2, h = 0: s_w is b_w = log p_w, and the score of w less log k q_w is log(p_w / (2 q_w)).
    p = [8.5 / 12.5, 3.5 / 12.5, 0.5 / 12.5]
    total = sum(x**power for x in p)
    odds = [x / (2 * x**power / total) for x in p]  # of the text against the noise; 1 / 2 where q = p
    layer = NCELoss(2, COUNTED, noise=2, shared=shared, power=power)
    y, noise = torch.tensor([0, 1]), torch.tensor([[2, 1], [0, 0]])
    if shared:
        noise = noise[0]
    real = [math.log(1 + 1 / odds[word]) for word in (0, 1)]
    fake = [math.log(1 + odds[word]) for word in (2, 1, *((2, 1) if shared else (0, 0)))]
    found = layer.loss_with(torch.zeros(2, 2), y, noise).item()
    assert found == pytest.approx((sum(real) + sum(fake)) / 2, rel=1e-9)  # q has 2^31 heights
    if power == 1.0:  # each of the four noise words log 3/2, each of the two real ones log 3
        assert found == pytest.approx((2 * math.log(3) + 4 * math.log(1.5)) / 2)


def test_the_learned_normalizer_is_taken_from_every_score() -> None:
    layer = NCELoss(1, COUNTED, noise=1, learn_normalizer=True)
    with torch.no_grad():
        layer.normalizer.bias.fill_(math.log(2))
    # b = log q and k = 1: each score less log k q is -log 2; -log sigma(-log 2) = log 3, -log sigma(log 2) = log 3/2.
    for noise in (torch.tensor([1]), torch.tensor([[1]])):
        found = layer.loss_with(torch.zeros(1, 1), torch.tensor([0]), noise).item()
        assert found == pytest.approx(math.log(3) + math.log(1.5))


def test_unnormalized_scores_and_their_log_z() -> None:
    layer = NCELoss(D, COUNTS, noise=3, learn_normalizer=True)
    with torch.no_grad():
        layer.normalizer.bias.fill_(0.7)
    h, y = torch.randn(B, D), torch.randint(0, O, (B,))
    torch.testing.assert_close(layer.unnormalized_log_prob(h, y) - layer.log_partition(h), layer.log_prob(h, y))


@pytest.mark.parametrize(("make", "name"), [(NCELoss, "noise"), (SampledSoftmax, "samples")])
@pytest.mark.parametrize("power", [None, "1", math.nan])
def test_a_power_must_be_a_finite_number(make: Callable[..., nn.Module], name: str, power: object) -> None:
    with pytest.raises(ValueError, match=r"^power must be a finite number; got "):
        make(D, COUNTS, **{name: 3}, power=power)


def test_the_sampled_softmax_of_several_samples_by_hand() -> None:
    # Power 0.5 and k = 2, h = 0: exp(score) of w is p_w / q_w up to a factor; the target 1 among the samples stays.
    p = [8.5 / 12.5, 3.5 / 12.5, 0.5 / 12.5]
    total = sum(x**0.5 for x in p)
    score = [x / (x**0.5 / total) for x in p]
    layer = SampledSoftmax(2, COUNTED, samples=2, power=0.5)
    found = layer.loss_with(torch.zeros(2, 2), torch.tensor([0, 1]), torch.tensor([2, 1]))
    losses = math.log((score[0] + score[2] + score[1]) / score[0]), math.log((2 * score[1] + score[2]) / score[1])
    assert found.item() == pytest.approx(sum(losses) / 2, rel=1e-9)  # q has 2^31 heights


# The rest


def test_alias_table() -> None:
    probability = np.array([1.0, 2.0, 0.0, 5.0, 2.0])
    table = AliasTable(probability)
    # The places and their heights reproduce the distribution, up to rounding to 2^32 places and 2^31 heights.
    np.testing.assert_allclose(table.drawn / 2**63, probability / 10, atol=2**-30, rtol=0)
    for wrong in ([0.0, 0.0], [1.0, -1.0, 3.0], [math.inf, 1.0], [math.nan, 1.0]):
        with pytest.raises(ValueError, match="probabilities"):
            AliasTable(np.array(wrong))


def test_cutoffs() -> None:
    assert adaptive.default_cutoffs(10_000) == [2000, 5000]
    assert adaptive.default_cutoffs(1_000_000) == [20_000, 50_000]
    assert adaptive.default_cutoffs(10) == [2, 5]
    for wrong in ([], [5, 5], [5, 3], [0, 3], [23]):
        with pytest.raises(ValueError, match="cutoffs"):
            AdaptiveSoftmax(D, COUNTS, cutoffs=wrong)
    with pytest.raises(ValueError, match=r"div_value=4.0: must be at most 2\.45"):
        AdaptiveSoftmax(D, COUNTS, cutoffs=[5, 12], div_value=4.0)


@pytest.mark.usefixtures("_both")
@pytest.mark.parametrize("name", ["hierarchical", "hierarchical, morin_bengio", "nce"])
def test_distributions_in_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, h, y = output_layer(name, D, COUNTS), torch.randn(B, D), torch.randint(0, O, (B, 2))
    want = layer.log_dist(h), layer.log_prob(h, y)
    monkeypatch.setattr(hierarchical, "EXAMPLES_PER_CHUNK", 4)
    monkeypatch.setattr(hierarchical, "MAX_UNITS_PER_CHUNK", 2 * 5 * (O - 1))  # two examples
    monkeypatch.setattr(softmax, "EXAMPLES_PER_TILE", 4)
    torch.testing.assert_close((layer.log_dist(h), layer.log_prob(h, y)), want)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("words", [5, 37])
def test_probabilities_of_all_words(kind: torch.dtype, words: int) -> None:
    layer = FullSoftmax(4, torch.arange(1, words + 1)).to(kind)
    h = torch.randn(9, 4, dtype=kind)
    p = layer.probabilities(h, words + 1)
    assert p.shape == (9, words + 1) and p.dtype == torch.float64 and not p[:, words].any() and not p.requires_grad
    torch.testing.assert_close(p[:, :words], layer.log_dist(h).exp())
    torch.testing.assert_close(p.sum(1), torch.ones(9))


def test_probabilities_sum_to_one_beside_a_likely_word() -> None:
    # torch's own sum in float32 loses what is far below the largest: here each of 20,000 words has 2^-25 of it.
    layer = FullSoftmax(1, torch.ones(20_001)).float()
    with torch.no_grad():
        layer.vectors.zero_()
        layer.bias.fill_(math.log(2.0**-25))
        layer.bias[0] = 0
    (p,) = layer.probabilities(torch.zeros(1, 1, dtype=torch.float32), 20_001)
    assert p.sum().item() == pytest.approx(1, abs=1e-12)
    assert p[0].item() == pytest.approx(1 / (1 + 20_000 / 2**25), rel=1e-7)


def test_scores_of_targets_and_of_other_words_by_hand() -> None:
    layer = NCELoss(2, torch.ones(3), noise=1)
    with torch.no_grad():
        layer.vectors.copy_(torch.tensor([[1.0, 1.0], [0.5, 0.0], [2.0, -1.0]]))
        layer.bias.copy_(torch.tensor([0.25, 0.0, 1.0]))
    h, y = torch.tensor([[1.0, 2.0], [3.0, -1.0]]), torch.tensor([1, 2])
    targets, others = layer.target_and_other_scores(h, y, torch.tensor([0, 2, 0]))
    assert targets.tolist() == [0.5, 8.0]  # 0.5 + 0; 7 + 1
    assert others.tolist() == [[3.25, 1.0, 3.25], [2.25, 8.0, 2.25]]
    targets, others = layer.target_and_other_scores(h, y, torch.tensor([[0, 2], [1, 0]]))
    assert targets.tolist() == [0.5, 8.0] and others.tolist() == [[3.25, 1.0], [1.5, 2.25]]
    assert layer.scores(h, torch.tensor([0, 1])).tolist() == [3.25, 1.5]


def of_counts(name: str, counts: Tensor) -> Callable[[], nn.Module]:
    return lambda: output_layer(name, D, counts)


def over_leaves(words: list[int]) -> Callable[[], nn.Module]:
    """Over the leaves of these words, of three words, two of which have two codes."""
    return lambda: HierarchicalSoftmax(D, Tree(np.array([[1, 2], [-1, -2], [3, -3], [-4, -5]]), words))


# Layers over a tree or over classes, and such of the same sizes over others.
OF_OTHERS = {
    name: (of_counts(name, COUNTS), of_counts(name, COUNTS.flip(0)))
    for name in ("hierarchical", "hierarchical, morin_bengio", "classes")
} | {"words of the leaves": (over_leaves([0, 0, 1, 1, 2]), over_leaves([0, 0, 1, 2, 2]))}


@pytest.mark.parametrize("case", OF_OTHERS)
def test_the_state_of_another_tree_or_other_classes_is_refused(case: str) -> None:
    make, make_other = OF_OTHERS[case]
    layer, again, other = make(), make(), make_other()
    state, other_state = layer.state_dict(), other.state_dict()
    assert {name: t.shape for name, t in state.items()} == {name: t.shape for name, t in other_state.items()}
    for model, given in (
        (again, other_state),
        (nn.Sequential(again), nn.Sequential(other).state_dict()),
        (again.float(), other.state_dict()),
    ):
        for strict in (True, False):
            with pytest.raises(
                ValueError, match=r"load_state_dict: the state is of a layer over another tree or other"
            ):
                model.load_state_dict(given, strict=strict)
    again = make()
    assert again.load_state_dict(state).unexpected_keys == []
    h = torch.randn(B, D)
    assert torch.equal(again.log_dist(h), layer.log_dist(h))  # type: ignore[operator]


@pytest.mark.parametrize("case", OF_OTHERS)
def test_states_of_before_fingerprints_are_loaded(case: str) -> None:
    layer, again = OF_OTHERS[case][0](), OF_OTHERS[case][0]()
    state = layer.state_dict()
    assert state["fingerprint"].shape == (16,) and state.pop("fingerprint").dtype is torch.uint8
    assert not any(again.load_state_dict(state))  # neither missing nor unexpected keys
    h = torch.randn(B, D)
    assert torch.equal(again.log_dist(h), layer.log_dist(h))  # type: ignore[operator]
    with_it = {name for name in LAYERS if "fingerprint" in output_layer(name, D, COUNTS).state_dict()}
    assert {name.partition(",")[0] for name in with_it} == {"hierarchical", "classes"}


def test_leaves_of_a_large_tree_are_scored_for_few_examples_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, h = HierarchicalSoftmax(4, huffman_tree(np.arange(1, 9))), torch.randn(7, 4)
    wanted, compute, sizes = layer.log_dist(h), layer.computed, list[int]()
    monkeypatch.setattr(arrays, "NUMBERS_AT_ONCE", 3 * 8 + 1)
    monkeypatch.setattr(layer, "computed", lambda name, h: [sizes.append(len(h)), compute(name, h)][1])
    torch.testing.assert_close(layer.log_dist(h), wanted)
    assert sizes == [7, 3, 3, 1]  # log_probs, and its parts
