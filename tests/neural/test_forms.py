"""Every registered form against the plain method that it replaces, on all layers, shapes and dtypes that it serves; and
when a form is chosen.
"""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.config.training import Precision
from lmtool.neural import DotNodes, Encoder, FullSoftmax, HierarchicalSoftmax, OutputLayer, forms
from lmtool.neural.encoders.nplm import NPLM
from lmtool.neural.encoders.settings import Activation
from lmtool.neural.forms import Form, chosen, hidden_units, only_plain, registered, tiles, used
from lmtool.neural.forms.network_step import network_step
from lmtool.neural.model import NeuralModel
from lmtool.neural.rows import Pairs
from lmtool.system import parallel
from lmtool.trees import huffman_tree
from tests import options
from tests.conftest import nplm
from tests.neural.test_hidden_units import kept
from tests.options import output_layer, settings_of

GPU = {"whole_paths", "whole_classes", "whole_tails"}  # compared in tests/neural/test_gpu_forms.py
O = 23  # noqa: E741
COUNTS = torch.arange(O, 0, -1) ** 2
TREE = huffman_tree(COUNTS.numpy())
SIZES = {"one": (1, 1), "few": (9, 6), "many": (300, 33)}  # examples, and their dimension
DTYPES = [torch.float32, torch.float64]
DRAW = 12345  # of dropout

Call = Callable[[nn.Module], list[Tensor]]


OUTPUTS = [*options.LAYERS, "hierarchical, one word", "hierarchical, morin_bengio, one word", "hierarchical, union"]
OUTPUTS += ["softmax, bf16", "softmax, auto"]
OUTPUTS += [f"{name}, tied" for name in OUTPUTS if settings_of("output", name).can_tie]


def of_output(layer: OutputLayer, examples: int) -> dict[str, Call]:
    """Return calls for all that an output layer computes from random hidden vectors."""
    assert layer.word_count is not None and layer.input_dim is not None
    dtype = next((p.dtype for p in layer.parameters()), torch.float32)
    h, words = torch.randn(examples, layer.input_dim, dtype=dtype), layer.word_count
    y, several = torch.randint(words, (examples,)), torch.randint(words, (examples, 3))
    y[0], y[-1] = 0, words - 1

    def loss(layer: nn.Module) -> list[Tensor]:
        inputs = h.clone().requires_grad_()
        found = layer(inputs, y)
        (3 * found).backward()
        return [found.detach(), inputs.grad, *gradients(layer)]  # type: ignore[list-item]

    calls: dict[str, Callable[[OutputLayer], list[Tensor]]] = {
        "loss": loss,
        "log_dist": lambda layer: [layer.log_dist(h)],
        "log_prob": lambda layer: [layer.log_prob(h, y)],
        "log_prob of several": lambda layer: [layer.log_prob(h, several)],
        "probabilities": lambda layer: [layer.probabilities(h, words + 1)],
        "top": lambda layer: list(layer.top(h, 4)),
        "sample": lambda layer: [layer.sample(h)],
    }
    if layer.self_normalized:
        calls["unnormalized"] = lambda layer: [layer.unnormalized_log_prob(h, y), layer.log_partition(h)]
    if isinstance(layer, HierarchicalSoftmax):
        calls["nodes"] = lambda layer: [layer.nodes.all_scores(h)]  # type: ignore[attr-defined]
    return calls  # type: ignore[return-value]


def gradients(layer: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in layer.parameters() if parameter.grad is not None]


UNITS = {
    f"nplm, {activation.value}{', gated' * gated}{', norm' * norm}{', dropout' * (dropout > 0)}": nplm(
        activation=activation, gated=gated, layer_norm=norm, dropout=dropout, hidden_dim=37
    )
    for activation, gated, norm, dropout in itertools.product(Activation, (False, True), (False, True), (0.0, 0.3))
}
ENCODERS = {
    **UNITS,
    "nplm, all": nplm(layers=3, gated=True, layer_norm=True, direct_connections=True, dropout=0.2, input_dropout=0.4),
    "nplm, no layers": nplm(layers=0, input_dropout=0.4),
    "nplm, projected": nplm(projection_dim=4, dropout=0.2),
    "history": nplm(fofe_window=12, forgetting_factors=[0.7, 0.9, 1.0]),
    "history, dropout": nplm(fofe_window=7, forgetting_factors=[0.8], input_dropout=0.3),
    **{name: options.encoder(name, dropout=0.3) for name in options.ENCODERS if not name.startswith("nplm")},
}


def contexts_of(encoder: Encoder, examples: int) -> dict[str, Tensor]:
    """Contexts that do not follow one another, and contexts that do."""
    size = encoder.context_size
    text = torch.randint(O + 1, (examples + size,))
    return {
        "apart": torch.randint(O + 1, (examples, size)),
        "one text": text.unfold(0, size, 1)[:examples].contiguous(),
    }


def of_encoder(encoder: Encoder, examples: int) -> dict[str, Call]:
    """Return calls for all that an encoder computes from random contexts, with its gradients."""

    def hidden(contexts: Tensor) -> Call:
        factor = torch.randn(examples, encoder.output_dim, dtype=encoder.embedding.weight.dtype)

        def call(encoder: nn.Module) -> list[Tensor]:
            found = encoder(contexts)
            (found * factor).sum().backward()
            return [found.detach(), *gradients(encoder)]

        return call

    return {name: hidden(contexts) for name, contexts in contexts_of(encoder, examples).items()}


def of_model(model: NeuralModel, examples: int) -> dict[str, Call]:
    """Return calls for the loss of a model with its gradients, and for evaluation."""
    contexts, y = contexts_of(model.encoder, examples)["one text"], torch.randint(O, (examples,))

    def loss(model: nn.Module) -> list[Tensor]:
        found = model(contexts, y)
        found.backward()
        return [found.detach(), *gradients(model)]

    def evaluated(model: nn.Module) -> list[Tensor]:
        dist, log_p = model.log_dist(contexts), model.log_prob(contexts, y)  # type: ignore[operator]
        return [torch.from_numpy(dist[:, :O]), torch.from_numpy(log_p)]

    return {"loss": loss, "evaluated": evaluated}


def tied_model(output: str, sparse: bool) -> NeuralModel:
    """sparse: whether the gradients of rows are, unless the layer's is dense, to which it cannot be added."""
    sparse = sparse and not settings_of("output", output).dense_gradient
    encoder = nplm(tied=True, fofe_window=5, dropout=0.3).build(O + 1, tied=True, sparse=sparse)
    layer = output_layer(output, encoder.output_dim, COUNTS, sparse=sparse)
    layer.vectors = encoder.embedding.weight
    return NeuralModel(encoder, layer, O + 1)


TIED = [name for name in OUTPUTS if name.endswith("tied")]


def drawn(layer: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Draw all parameters of a layer again; return the layer."""
    layer.to(dtype)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


def output_case(name: str, size: str, dtype: torch.dtype, sparse: bool) -> tuple[nn.Module, dict[str, Call]]:
    examples, dim = SIZES[size]
    layer = output_layer(name, dim, COUNTS, sparse=sparse)
    drawn(layer, dtype)
    return layer, of_output(layer, examples)


def encoder_case(name: str, size: str, dtype: torch.dtype, sparse: bool) -> tuple[nn.Module, dict[str, Call]]:
    layer = ENCODERS[name].build(O + 1, tied=False, sparse=sparse)
    drawn(layer, dtype)
    return layer, of_encoder(layer, SIZES[size][0])


def model_case(name: str, size: str, dtype: torch.dtype, sparse: bool) -> tuple[nn.Module, dict[str, Call]]:
    model = tied_model(name, sparse)
    drawn(model, dtype)
    return model, of_model(model, SIZES[size][0])


CASES = {
    f"{kind}: {name}": (make, name)
    for kind, make, names in (
        ("output", output_case, OUTPUTS),
        ("encoder", encoder_case, ENCODERS),
        ("model", model_case, TIED),
    )
    for name in names
}


@pytest.fixture
def _work_for_small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have forms serve the sizes of tests, on two threads; without tiles. Plain dropout has the mask of the form's."""
    torch.manual_seed(0)
    monkeypatch.setattr(tiles, "fit", lambda tensor: False)
    for name in ("history.MIN_NUMBERS", "hidden_units.MIN_DROPPED", "tree_loops.MIN_UNITS"):
        monkeypatch.setattr(f"lmtool.neural.forms.{name}", 0)
    monkeypatch.setattr("lmtool.neural.forms.softmax_chunks.MAX_SCORES_PER_CHUNK", 1)  # so that 64 rows are at once
    for name in ("MIN_BF16_PRODUCTS", "MIN_BF16_ROWS", "MIN_BF16_PRODUCTS_DOTS", "MIN_BF16_ROWS_DOTS"):
        monkeypatch.setattr(f"lmtool.neural.forms.softmax_chunks.{name}", 0)
    monkeypatch.setattr("lmtool.neural.devices._measured_faster", lambda: True)
    monkeypatch.setattr(parallel._here, "threads", 2)
    for place in ("loops.NUMBERS", "hidden_units.UNITS", "softmax_bf16.PRODUCTS"):
        monkeypatch.setattr(f"lmtool.neural.forms.{place}_PER_THREAD", 1)
    monkeypatch.setattr(hidden_units, "_draw", lambda: DRAW)

    def dropout(x: Tensor, share: float) -> Tensor:
        return x * kept(x.shape, share, DRAW) / (1 - share)

    monkeypatch.setattr(F, "dropout", dropout)


def tolerance_of(found: list[Form], dtype: torch.dtype) -> float:
    """Return the maximum relative deviation of these forms from the plain method (relative to the largest number)."""
    if not found:  # the same operations, whose sums may be cut in other places
        return 1e-6 if dtype == torch.float32 else 1e-12
    narrow = [each for each in found if dtype == torch.float32 or each.bf16]
    return max((each.tolerance for each in narrow), default=1e-12)


def require_near(where: str, found: Tensor, want: Tensor, tolerance: float) -> None:
    assert (found.dtype, found.shape, found.layout) == (want.dtype, want.shape, want.layout), where
    found, want = found.to_dense(), want.to_dense()
    assert want.isfinite().all(), where
    if not want.is_floating_point():
        assert torch.equal(found, want), where
    elif want.numel():
        apart, largest = (found - want).abs().max().item(), want.abs().max().item()
        assert apart <= tolerance * largest, f"{where}: {apart / largest:.2g} of the largest, above {tolerance:.2g}"


def outcome(call: Call, layer: nn.Module) -> tuple[list[Tensor], list[Form]]:
    """Return the result of a call with a copy of a layer, and the forms that were chosen for it."""
    fresh = copy.deepcopy(layer)
    torch.manual_seed(1)  # the same noise each time
    return call(fresh), used(fresh)


def require_as_plain(
    layer: nn.Module, calls: dict[str, Call], dtype: torch.dtype, tolerance: float | None = None
) -> set[str]:
    """Compare each call with forms and without; returns the names of the forms that were used.

    tolerance: None for that of the forms.
    """
    names: set[str] = set()
    for what, call in calls.items():
        found, by_forms = outcome(call, layer)
        with only_plain():
            want, plain = outcome(call, layer)
        assert not plain
        here = {each.name for each in by_forms}
        for place, (one, other) in enumerate(zip(found, want, strict=True)):
            where = f"{what}, number {place}, by {here}, training={layer.training}"
            require_near(where, one, other, tolerance_of(by_forms, dtype) if tolerance is None else tolerance)
        names |= here
    return names


@pytest.mark.usefixtures("_work_for_small_sizes")
@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES)
def test_forms_compute_what_plain_methods_do(case: str, size: str, dtype: torch.dtype) -> None:
    make, name = CASES[case]
    for sparse in (False, True):
        layer, calls = make(name, size, dtype, sparse)
        require_as_plain(layer, calls, dtype)
        if not isinstance(layer, OutputLayer):  # whose numbers are the same
            require_as_plain(layer.eval(), calls, dtype)


# The forms of a softmax in bf16, each on its processor: with tiles, without, and any other that multiplies bfloat16.
NARROW = ("softmax_tiles", "softmax_bf16", "softmax_autocast")
HERE = {"softmax_tiles": tiles.available(), "softmax_bf16": tiles.has_dots()}
NOT_HERE = {name for name, here in HERE.items() if not here}


def on_a_processor_of(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "fit", lambda tensor: wanted == "softmax_tiles")
    monkeypatch.setattr(tiles, "has_dots", lambda: True)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: "znver5")
    every = registered()
    kept = tuple(each for each in every if each.name != "softmax_bf16" or wanted != "softmax_autocast")
    monkeypatch.setattr(forms, "registered", lambda: kept)


@pytest.mark.usefixtures("_work_for_small_sizes")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["softmax, bf16", "softmax, bf16, tied", "softmax, auto"])
@pytest.mark.parametrize("wanted", NARROW)
def test_losses_in_bf16(wanted: str, name: str, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if wanted in NOT_HERE:
        pytest.skip(f"{wanted} needs another processor: it is not compared")
    on_a_processor_of(wanted, monkeypatch)
    layer, calls = output_case(name, size, torch.float32, False)
    assert require_as_plain(layer, {"loss": calls["loss"]}, torch.float32) == {wanted}


@pytest.mark.usefixtures("_work_for_small_sizes")
def test_every_form_is_compared() -> None:
    reached: set[str] = set()

    def reach(layer: nn.Module, calls: dict[str, Call]) -> None:
        for call in calls.values():
            reached.update(each.name for each in outcome(call, layer)[1])

    for make, name in CASES.values():
        for size, dtype in (("many", torch.float32), ("few", torch.float64)):
            reach(*make(name, size, dtype, False))
    for wanted in set(NARROW) - NOT_HERE:
        with pytest.MonkeyPatch.context() as monkeypatch:
            on_a_processor_of(wanted, monkeypatch)
            reach(*output_case("softmax, bf16", "few", torch.float32, False))
    assert reached | NOT_HERE | GPU == {each.name for each in registered()}
    assert len({each.name for each in registered()}) == len(registered())


@pytest.mark.usefixtures("_work_for_small_sizes")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [name for name in OUTPUTS if name != "adaptive"])  # torch's own layer cannot
def test_output_layers_under_autocast(name: str, size: str) -> None:
    layer, calls = output_case(name, size, torch.float32, False)
    del calls["top"], calls["sample"]  # words may be others where scores are rounded
    with torch.autocast("cpu", dtype=torch.bfloat16):
        require_as_plain(layer, calls, torch.float32, 0.05)


@pytest.mark.usefixtures("_work_for_small_sizes")
@pytest.mark.parametrize("name", TIED)
def test_models_in_bf16(name: str) -> None:
    model, calls = model_case(name, "many", torch.float32, False)
    assert isinstance(model, NeuralModel)
    model.use_precision(Precision.bf16)
    assert {"history", "hidden_units"} <= require_as_plain(model, {"loss": calls["loss"]}, torch.float32, 0.02)


@pytest.mark.usefixtures("_work_for_small_sizes")
def test_a_product_in_bf16_is_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = nplm(layer_norm=True, dropout=0.3).build(O, tied=False, sparse=False)
    units, given = encoder.computed, []
    monkeypatch.setattr(encoder, "computed", lambda method, x, *more: given.append(x.dtype) or units(method, x, *more))
    with torch.autocast("cpu", torch.bfloat16):
        encoder(torch.randint(O, (9, encoder.context_size)))
    assert given == [torch.float32]
    assert [each.name for each in used(encoder)] == ["hidden_units"]


# When a form is chosen


def found_in_cases() -> Iterator[tuple[nn.Module, dict[str, Call], nn.Module, Form]]:
    """For each form the first case that it serves: the layer and its calls, and which module of it has the form."""
    waiting = {each.name for each in registered()}
    for make, name in CASES.values():
        layer, calls = make(name, "many", torch.float32, False)
        for call in calls.values():
            fresh = copy.deepcopy(layer)
            call(fresh)
            for module, original in zip(fresh.modules(), layer.modules(), strict=True):
                for each in used(module):
                    if each.name in waiting and isinstance(module, each.layer):
                        waiting.remove(each.name)
                        yield layer, calls, original, each


@pytest.mark.usefixtures("_work_for_small_sizes")
def test_a_subclass_with_its_own_method_has_no_form_of_its_base() -> None:
    looked_at = set()
    for layer, calls, module, each in list(found_in_cases()):
        kind = type(module)
        own = {each.method: lambda self, *given, kind=kind, name=each.method: getattr(kind, name)(self, *given)}
        for members, served in (({}, True), (own, False)):
            module.__class__ = type("Other", (kind,), members)
            assert (each.name in require_as_plain(layer, calls, torch.float32)) is served, each.name
        module.__class__ = kind
        looked_at.add(each.name)
    assert (
        looked_at | set(NARROW) | GPU == {each.name for each in registered()}
        and {"softmax_bf16", "softmax_autocast"} & looked_at
    )


class Scaled(FullSoftmax):
    """A softmax with twice the vectors: its own method is called by that which has forms."""

    def word_vectors(self) -> Tensor:
        return 2 * super().word_vectors()


class Raised(DotNodes):
    """Nodes with other scores than DotNodes have."""

    def pair_scores(self, h: Tensor, pairs: Pairs) -> Tensor:
        return super().pair_scores(h, pairs) + 1

    def all_scores(self, h: Tensor) -> Tensor:
        return super().all_scores(h) + 1


class Tempered(HierarchicalSoftmax):
    """Another distribution over the leaves than HierarchicalSoftmax has."""

    def log_leaves(self, h: Tensor) -> Tensor:
        return (2 * super().log_leaves(h)).log_softmax(1)


class Halved(NPLM):
    """An encoder with its own dropout."""

    def dropped(self, x: Tensor, share: float) -> Tensor:
        return x / 2


OVERRIDING: dict[str, Callable[[], tuple[nn.Module, dict[str, Call]]]] = {
    "weight of a softmax": lambda: (Scaled(6, COUNTS), 300),
    "weight of a softmax in bf16": lambda: (Scaled(6, COUNTS, precision=Precision.bf16), 9),
    "scores of nodes": lambda: (HierarchicalSoftmax(6, TREE, nodes=Raised(6, torch.zeros(O - 1))), 9),
    "leaves of a tree": lambda: (Tempered(6, TREE), 9),
    "dropout of an encoder": lambda: (Halved(nplm(layer_norm=True, dropout=0.3), O + 1, tied=False), 9),
}


@pytest.mark.usefixtures("_work_for_small_sizes")
@pytest.mark.parametrize("name", OVERRIDING)
def test_forms_do_not_pass_over_what_a_subclass_has_changed(name: str) -> None:
    """A plain method calls others: where a subclass has its own of these, a form may not leave them out."""
    layer, examples = OVERRIDING[name]()
    calls = of_encoder(layer, examples) if isinstance(layer, Encoder) else of_output(layer, examples)
    require_as_plain(layer, calls, torch.float32)


def test_a_method_that_is_set_on_one_layer_is_called() -> None:
    layer = FullSoftmax(6, COUNTS, precision=Precision.bf16)
    layer.loss = lambda h, y: torch.tensor(3.0)  # type: ignore[method-assign]
    assert layer(torch.randn(4, 6), torch.arange(4)).item() == 3


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[torch.Size, bool, Precision]]:
    """Record the calls of the only form's `serves`: shape, whether in training, precision."""
    questions: list[tuple[torch.Size, bool, Precision]] = []

    def serves(layer: FullSoftmax, h: Tensor) -> bool:
        questions.append((h.shape, layer.training, layer.precision))
        return layer.training and layer.precision is Precision.fp32

    def seven(layer: FullSoftmax, h: Tensor, y: Tensor) -> Tensor:
        return torch.tensor(7.0)

    only = Form("seven", FullSoftmax, "loss", serves, seven, "nowhere", 1e-6, False)
    monkeypatch.setattr(forms, "registered", lambda: (only,))
    return questions


def test_a_choice_is_kept_for_each_kind_of_input(asked: list[tuple[torch.Size, bool, Precision]]) -> None:
    layer = FullSoftmax(4, torch.ones(5))
    h, y = torch.zeros(3, 4), torch.arange(3)

    def loss(size: int = 3) -> float:
        found: float = layer(h[:size], y[:size]).item()
        return pytest.approx(found, abs=1e-6)  # type: ignore[return-value]

    nats = torch.tensor(5.0).log().item()
    assert [loss(), loss(2), loss(), loss(2)] == [7, 7, 7, 7]
    assert [each.name for each in used(nn.Sequential(layer))] == ["seven"]
    layer.eval()
    assert [loss(), loss()] == [nats, nats]
    layer.train()
    layer.precision = Precision.auto
    assert [loss(), loss()] == [nats, nats]
    layer.use_precision(Precision.fp32)
    assert [loss(), loss()] == [7, 7]
    with only_plain():
        assert loss() == nats
    both, fp32, auto = torch.Size((3, 4)), Precision.fp32, Precision.auto
    assert asked == [(both, True, fp32), (torch.Size((2, 4)), True, fp32), (both, False, fp32), (both, True, auto)]


def test_choices_do_not_pile_up(
    asked: list[tuple[torch.Size, bool, Precision]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "MAX_CHOICES", 3)
    layer = FullSoftmax(4, torch.ones(5))
    for size in (1, 2, 3, 1, 2, 3, 4, 1):  # the fourth kind has the others forgotten
        layer(torch.zeros(size, 4), torch.zeros(size, dtype=torch.int64))
    assert [len(torch.empty(shape)) for shape, *_ in asked] == [1, 2, 3, 4, 1]
    before, layers = len(forms._chosen), weakref.ref(layer)
    del layer
    gc.collect()
    assert layers() is None and len(forms._chosen) < before


@pytest.mark.usefixtures("_work_for_small_sizes")
@pytest.mark.parametrize("case", [*(f"output: {name}" for name in OUTPUTS), "encoder: history", "encoder: nplm, all"])
def test_choices_follow_a_layer_that_changes_its_dtype(case: str) -> None:
    """History is chosen by ids, which do not show it."""
    make, name = CASES[case]
    layer, calls = make(name, "few", torch.float32, False)
    for call in calls.values():
        call(layer)
    layer.double()
    for what, call in make(name, "few", torch.float64, False)[1].items():
        layer.zero_grad()
        torch.manual_seed(1)
        found = call(layer)
        with only_plain():
            want, _ = outcome(call, layer)
        for one, other in zip(found, want[: len(found)], strict=True):
            require_near(what, one, other, 1e-12)


def test_a_history_in_bf16_has_the_plain_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmtool.neural.forms.history.MIN_NUMBERS", 0)
    encoder = nplm(fofe_window=12).build(O, tied=False, sparse=False)
    contexts = torch.randint(O, (5, 12))
    wide = encoder(contexts)
    assert [each.name for each in used(encoder)] == ["history"]
    torch.testing.assert_close(encoder.bfloat16()(contexts).float(), wide, atol=0.05, rtol=0.05)


def test_only_plain() -> None:
    layer, h = DotNodes(6, torch.zeros(O - 1)), torch.randn(2, 6)

    def name() -> str | None:
        found = chosen(layer, "pair_scores", h)
        return found and found.name

    assert name() == "pair_scores" and forms.allowed()
    with only_plain():
        assert name() is None and not forms.allowed()
        with only_plain(False):
            assert name() is None
        assert name() is None
    with only_plain(False):
        assert name() == "pair_scores"
    with pytest.raises(ZeroDivisionError), only_plain():
        raise ZeroDivisionError
    assert name() == "pair_scores"
    model = NeuralModel(nplm().build(O + 1, tied=False, sparse=True), FullSoftmax(8, COUNTS), O + 1)
    assert network_step(model, 0.0, 4, None) is not None
    with only_plain():
        assert network_step(model, 0.0, 4, None) is None


def test_only_plain_in_threads_that_overlap() -> None:
    """It is for its own thread, and ends with its block, whichever of two blocks ends first."""
    entered, left = threading.Event(), threading.Event()

    def block() -> None:
        with only_plain():
            entered.set()
            assert left.wait(60)

    with only_plain():
        thread = threading.Thread(target=block)
        thread.start()
        assert entered.wait(60)
    assert forms.allowed()
    left.set()
    thread.join()
    assert forms.allowed()


def test_forms_are_asked_in_the_order_of_their_files() -> None:
    places = [forms.FILES.index(each.run.__module__.rpartition(".")[2]) for each in registered()]
    assert places == sorted(places) and set(places) == set(range(len(forms.FILES)))
    for each in registered():
        assert each.name == each.run.__name__ and callable(getattr(each.layer, each.method))
        assert 0 < each.tolerance <= (0.02 if each.bf16 else 1e-5)


@pytest.mark.usefixtures("_work_for_small_sizes")
@pytest.mark.parametrize(
    "case",
    [
        "output: softmax, bf16",
        "output: hierarchical, morin_bengio",
        "output: nce, own noise, log Z",
        "model: nce, tied",
    ],
)
def test_layers_that_have_used_forms_are_copied_and_stored(case: str) -> None:
    make, name = CASES[case]
    layer, calls = make(name, "few", torch.float32, False)
    for call in calls.values():
        call(layer)
    layer.zero_grad()
    assert used(layer)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert not used(other)
        for call in calls.values():
            for one, want in zip(outcome(call, other)[0], outcome(call, layer)[0], strict=True):
                assert torch.equal(one.to_dense(), want.to_dense())
        assert other.state_dict().keys() == layer.state_dict().keys()


# Layers that have their own public methods


class OwnSoftmax(OutputLayer):
    """A layer that has its own forward and log_dist, as those of docs/examples."""

    def __init__(self, dim: int, words: int) -> None:
        super().__init__()
        self.input_dim, self.word_count = dim, words
        self.linear = nn.Linear(dim, words)

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.linear(h), y)

    def log_dist(self, h: Tensor) -> Tensor:
        scores: Tensor = self.linear(h)
        return scores.detach().double().log_softmax(1)


class OwnForward(Encoder):
    """An encoder that has its own forward."""

    def forward(self, contexts: Tensor) -> Tensor:
        return self.embedding(contexts)[:, 0]

    def of_embeddings(self, x: Tensor) -> Tensor:
        raise NotImplementedError


def test_an_output_layer_with_its_own_forward_and_log_dist() -> None:
    torch.manual_seed(0)
    layer, h, y = OwnSoftmax(6, O), torch.randn(4, 6), torch.tensor([0, 3, 22, 3])
    want = layer.linear(h).detach().double().log_softmax(1)
    torch.testing.assert_close(layer(h, y).double(), -want[range(4), y].mean(), rtol=1e-6, atol=0)
    assert torch.equal(layer.log_prob(h, y), want[range(4), y])
    assert torch.equal(layer.log_prob(h, y[:, None].expand(4, 2)), want[range(4), y][:, None].expand(4, 2))
    words, log_p = layer.top(h, 3)
    assert torch.equal(log_p, want.topk(3, 1).values) and torch.equal(words, want.topk(3, 1).indices)
    torch.testing.assert_close(layer.probabilities(h, O + 1)[:, :O], want.exp())
    share = layer.sample(h[:1].expand(20_000, 6)).bincount(minlength=O) / 20_000
    torch.testing.assert_close(share.double(), want[0].exp(), atol=0.015, rtol=0)
    for call in (lambda: layer.log_prob(h, y + 20), lambda: layer.top(h[:, :2], 1)):
        with pytest.raises(ValueError, match=r"OwnSoftmax.\w+: (y|h) must be"):
            call()


def test_an_encoder_with_its_own_forward() -> None:
    encoder, contexts = OwnForward(nplm(), O + 1), torch.randint(O + 1, (4, 3))
    model = NeuralModel(encoder, OwnSoftmax(6, O), O + 1)
    assert torch.equal(encoder(contexts), encoder.embedding.weight[contexts[:, 0]])
    model(contexts, torch.arange(4)).backward()
    assert encoder.embedding.weight.grad is not None
    assert model.log_dist(contexts.numpy()).shape == (4, O + 1)
