"""Recurrent networks against their equations, and how they read text, train and resume."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lmtool import kenlm
from lmtool.config.groups import is_tied
from lmtool.data.corpus import Corpus
from lmtool.data.split import Split
from lmtool.data.text_form import TextForm, split_of_text
from lmtool.data.text_records import block_of
from lmtool.errors import UserError
from lmtool.evaluation.metrics import split_accuracy
from lmtool.evaluation.text_scores import ScoringModel, TextsScorer, sums
from lmtool.mixtures.linear import Mixture
from lmtool.mixtures.log_linear import LogLinear
from lmtool.neural.build import build_neural
from lmtool.neural.encoders.options import LstmModel
from lmtool.neural.encoders.recurrent import Recurrent
from lmtool.neural.encoders.settings import Cell
from lmtool.neural.outputs.options import SoftmaxOutput
from lmtool.neural.recurrent import RecurrentModel
from lmtool.training.batches import Streams
from tests.conftest import Run
from tests.test_contract import nplm

V = 7  # words, `<s>` the last


def config(**changes: Any) -> LstmModel:
    settings: dict[str, Any] = {"embedding_dim": 3, "hidden_dim": 4, "layers": 2, "dropout": 0.0, "tied": False}
    settings |= {"across_sentences": True}
    return LstmModel(**settings | changes)


def encoder(**changes: Any) -> Recurrent:
    torch.manual_seed(0)
    made = config(**changes).build(V, tied=bool(changes.get("tied")), sparse=False).double()
    assert isinstance(made, Recurrent)
    return made


def written_out(encoder: Recurrent, words: list[int]) -> Tensor:
    """Compute h after each word, `[T, D]`, by the equations of the module's docstring."""
    cell, states = encoder.config.cell, []
    h = c = [torch.zeros(1)] * len(encoder.cells)
    for word in words:
        if word == V - 1:
            sizes = [each.hidden_size for each in encoder.cells]
            h, c = ([torch.zeros(size, dtype=torch.float64) for size in sizes] for _ in range(2))
        x = encoder.embedding.weight[word]
        h, c = list(h), list(c)
        for k, each in enumerate(encoder.cells):
            own, before = each.weight_ih_l0 @ x + each.bias_ih_l0, each.weight_hh_l0 @ h[k] + each.bias_hh_l0
            if cell is Cell.lstm:
                i, f, g, o = (own + before).chunk(4)
                c[k] = f.sigmoid() * c[k] + i.sigmoid() * g.tanh()
                h[k] = o.sigmoid() * c[k].tanh()
            elif cell is Cell.gru:
                (r, z, n), (r_, z_, n_) = own.chunk(3), before.chunk(3)
                gate = (z + z_).sigmoid()
                h[k] = (1 - gate) * (n + (r + r_).sigmoid() * n_).tanh() + gate * h[k]
            else:
                h[k] = (own + before).tanh()
            x = h[k]
        states.append(x)
    return torch.stack(states)


ROWS = [[6, 1, 2, 3, 4], [6, 0, 6, 5, 1], [6, 6, 2, 2, 6]]  # `<s>` also within rows


@pytest.mark.parametrize("cell", Cell)
@pytest.mark.parametrize("rows", [ROWS, ROWS[:1]], ids=["segments", "whole"])
def test_the_equations(cell: Cell, rows: list[list[int]]) -> None:
    model = encoder(cell=cell)
    h, after = model.read(torch.tensor(rows), model.zero_state(len(rows)))
    want = torch.stack([written_out(model, row) for row in rows])
    torch.testing.assert_close(h, want, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(model.top(after), want[:, -1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(model(torch.tensor(rows)), want[:, -1], rtol=1e-12, atol=1e-12)
    factor = torch.randn_like(h)
    found, wanted = (torch.autograd.grad((x * factor).sum(), list(model.parameters())) for x in (h, want))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_a_text_in_parts_is_read_as_a_whole() -> None:
    model, rows = encoder(), torch.tensor(ROWS)
    whole, last = model.read(rows, model.zero_state(3))
    first, state = model.read(rows[:, :2], model.zero_state(3))
    second, after = model.read(rows[:, 2:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(after, last)


def test_dropout_is_the_same_for_all_words_of_a_row() -> None:
    torch.manual_seed(1)
    model = encoder(dropout=0.5, hidden_dim=50)
    h, _ = model.read(torch.tensor([[6, 1, 2, 3], [6, 2, 2, 1]]), model.zero_state(2))
    dropped = h == 0
    assert (dropped == dropped[:, :1]).all() and 0.3 < dropped.double().mean() < 0.7
    assert (dropped[0] != dropped[1]).any()
    model.eval()
    assert (model.read(torch.tensor([[6, 1]]), model.zero_state(1))[0] != 0).all()


def test_dropped_words_and_weights() -> None:
    torch.manual_seed(2)
    model = encoder(embedding_dropout=0.5)
    x = model._embed(torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]]))
    zero = (x == 0).all(2)
    assert (zero[0] == zero[1]).all() and zero.any() and not zero.all()
    kept = ~zero[0]
    torch.testing.assert_close(x[0][kept], 2 * model.embedding.weight[:6][kept])
    weights = encoder(weight_dropout=0.5)
    once, again = (weights.read(torch.tensor([[6, 1, 2]]), weights.zero_state(1))[0] for _ in range(2))
    assert not torch.equal(once[0, 1:], again[0, 1:])
    weights.eval()
    once, again = (weights.read(torch.tensor([[6, 1, 2]]), weights.zero_state(1))[0] for _ in range(2))
    assert torch.equal(once, again)


def test_output_dropout_is_apart_from_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    model = encoder(dropout=0.5, output_dropout=0.25, layers=3)
    monkeypatch.setattr(model, "_shared_dropout", lambda x, share: shares.append(share) or x)
    model.read(torch.tensor([[6, 1]]), model.zero_state(1))
    assert shares == [0.0, 0.5, 0.5, 0.25]


def test_regularization_of_activations_by_hand() -> None:
    """AR: squares 64, 16, 4 and 0, 36, 16 of real words, 6 numbers, times 2; TAR: (3 - 1)^2 and (2 - 4)^2 of two."""
    model = encoder(activation_regularization=2.0, temporal_regularization=0.5)
    h = torch.tensor([[[1.0, 4.0], [3.0, 2.0]], [[3.0, 2.0], [9.0, 9.0]]], dtype=torch.float64)
    dropped = torch.tensor([[[8.0, 4.0], [2.0, 0.0]], [[6.0, 4.0], [9.0, 9.0]]], dtype=torch.float64)
    found = model._penalty(h, dropped, torch.tensor([2, 1]))
    assert found.item() == pytest.approx(2 * 136 / 6 + 0.5 * 8 / 2, rel=1e-14)
    alone = model._penalty(h[:, :1], dropped[:, :1], None)  # no word follows another
    assert alone.item() == pytest.approx(2 * (64 + 16 + 36 + 16) / 4, rel=1e-14)


def test_regularization_is_in_the_gradients_alone(toy: Corpus) -> None:
    plain = network(toy).double()
    model = network(toy, activation_regularization=2.0, temporal_regularization=1.0).double()
    bos = toy.vocabulary.special_tokens.bos
    words, targets = torch.tensor([[bos, 1, 2, bos, 4], [3, 1, bos, bos, 2]]), torch.randint(0, bos, (2, 5))
    loss, want = model(words, targets), plain(words, targets)
    assert loss.item() == want.item()
    h, _ = plain.recurrent.read(words, plain.recurrent.zero_state(2))
    steps = [h[0, 1] - h[0, 0], h[0, 2] - h[0, 1], h[0, 4] - h[0, 3], h[1, 1] - h[1, 0], h[1, 4] - h[1, 3]]
    want = want + 2 * h.square().mean() + torch.stack(steps).square().mean()
    found, wanted = (torch.autograd.grad(x, list(m.parameters())) for x, m in ((loss, model), (want, plain)))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)
    model.eval()
    model(words, targets)
    assert model.recurrent.penalty is None


def network(corpus: Corpus, **changes: Any) -> RecurrentModel:
    torch.manual_seed(0)
    made = build_neural(config(**changes), SoftmaxOutput("softmax"), corpus.vocabulary)
    assert isinstance(made, RecurrentModel)
    return made


@pytest.mark.parametrize("across", [False, True])
def test_a_text_and_its_states(across: bool, toy: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    model, valid = network(toy, across_sentences=across), toy.split("valid")
    want = model.score_text(valid)
    special, states = toy.vocabulary.special_tokens, model.begin(toy.vocabulary.special_tokens)[None]
    one_by_one = []
    for word in valid.ids.tolist():
        log_prob, states = model.advance(states, np.array([word]), special)
        one_by_one.append(log_prob[0])
    np.testing.assert_allclose(one_by_one, want, rtol=1e-5)
    dist = np.concatenate([model.log_dist_text(valid, k, min(k + 5, valid.tokens)) for k in range(0, valid.tokens, 5)])
    np.testing.assert_allclose(dist[np.arange(valid.tokens), valid.ids], want, rtol=1e-5)
    np.testing.assert_allclose(model.score_tokens(valid, 3, 17), want[3:17], rtol=1e-5)
    monkeypatch.setattr("lmtool.neural.recurrent.ROWS", 2)
    monkeypatch.setattr("lmtool.neural.recurrent.WORDS_PER_CHUNK", 3)
    np.testing.assert_allclose(model.score_text(valid), want, rtol=1e-5)


def test_long_texts_in_training_are_scored_in_pieces(toy: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    model, valid = network(toy), toy.split("valid")
    monkeypatch.setattr("lmtool.neural.recurrent.PIECE", 4)
    monkeypatch.setattr("lmtool.neural.recurrent.WARM_UP", 2)
    found = model.score_tokens(valid, 0, valid.tokens)
    contexts, targets = valid.as_stream(True).windows(np.arange(4, 8), 3)
    # the first token of the second piece is scored after 2 words and `<s>`
    context = contexts[0].copy()
    context[0] = toy.vocabulary.bos
    np.testing.assert_allclose(found[4], model.log_prob(context[None], targets[:1])[0], rtol=1e-5)


def test_a_step_continues_the_last_one(toy: Corpus) -> None:
    model = network(toy)
    words = torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]])
    targets = torch.tensor([[1, 2, 3, 4], [2, 1, 0, 4]])
    whole = model(words, targets)
    model.carry({})
    parts = [model(words[:, k : k + 2], targets[:, k : k + 2]) for k in (0, 2)]
    torch.testing.assert_close((parts[0] + parts[1]) / 2, whole)
    kept = model.carried_state()
    again = network(toy)
    again.carry(kept)
    torch.testing.assert_close(again(words, targets), model(words, targets))


def stream(ids: list[int], sentences: list[int]) -> Split:
    return Split(np.array(ids, dtype=np.uint8), np.array(sentences), np.empty(0, dtype=np.int64), 0, 9)


def test_rows_of_running_text() -> None:
    batches = Streams(stream(list(range(9)) * 3, [0, 27]), 2, 4, seed=1)
    assert batches.size == 8 and batches.per_epoch == 3
    (words, targets), (more, after) = [batch for batch, _ in zip(batches, range(2), strict=False)]
    first = targets[:, 0].tolist()
    assert words[:, 0].tolist() == [9, 9]  # `<s>`
    assert words[:, 1:].tolist() == targets[:, :-1].tolist()
    assert more[:, 0].tolist() == targets[:, -1].tolist() and more[:, 1:].tolist() == after[:, :-1].tolist()
    assert first[1] == (first[0] + 12) % 9  # 12 tokens further on
    sentences = Streams(stream([1, 2, 3, 1, 2, 3], [0, 3, 6]), 1, 6, seed=1)
    words, targets = next(iter(sentences))
    assert words.tolist() == [[9, 1, 2, 9, 1, 2]] and targets.tolist() == [[1, 2, 3, 1, 2, 3]]


def test_sentences_begin_anew_in_a_share_of_the_batches() -> None:
    """Over many epochs, that share of the batches has `<s>` before each sentence, the others none but their first."""
    sentences = stream([1, 2, 3, 4] * 200, list(range(0, 801, 4)))
    text = sentences.as_stream(True)
    batches = Streams(text, 2, 8, seed=1, sentences=sentences, reset_share=0.3)
    cut = 0
    for (words, targets), _ in zip(batches, range(1000), strict=False):
        begins = words[:, 1:] == 9
        if begins.any():
            cut += 1
            assert begins.tolist() == (targets[:, 1:] == 1).tolist()
    assert 250 < cut < 350


def test_going_to_a_position() -> None:
    split = stream(list(range(9)) * 9, [0, 81])
    batches = Streams(split, 2, 3, seed=1)
    examples = iter(batches)
    for _ in range(17):
        next(examples)
    position = json.loads(json.dumps(batches.position()))
    want = [next(examples)[1].tolist() for _ in range(20)]
    other = Streams(split, 2, 3, seed=5)
    other.go_to(position)
    assert [targets.tolist() for _, (__, targets) in zip(range(20), other, strict=False)] == want


def test_rows_of_another_shape_begin_a_new_pass(toy: Corpus) -> None:
    split = toy.split("train").as_stream(across_sentences=True)
    batches = Streams(split, 4, 5, seed=3)
    for _ in zip(range(2), batches, strict=False):
        pass
    position = json.loads(json.dumps(batches.position()))
    for rows, length in ((2, 10), (4, 3), (8, 5)):
        other = Streams(split, rows, length, seed=9)
        other.go_to(position)
        words, _ = next(iter(other))
        assert words.shape == (rows, length) and (words[:, 0] == split.bos).all()


SMALL = ["data=toy", "model.embedding_dim=6", "training.batch_size=4", "training.bptt=5"]
SMALL += ["training.minutes=null", "training.epochs=6", "optim.lr=0.02"]


@pytest.mark.parametrize("words", [[], ["output=hierarchical", "tree=huffman", "model.across_sentences=false"]])
def test_commands(words: list[str], lmtool: Run) -> None:
    lmtool("train", "model=lstm", *SMALL, *words, "hydra.run.dir=run", "model.weight_dropout=0.2")
    said = lmtool("eval", "run=run", "split=valid", "hydra.run.dir=eval", "accuracy=true")
    trained, found = (json.loads(Path(name, "result.json").read_text()) for name in ("run", "eval"))
    assert found["perplexity"] == pytest.approx(trained["valid_perplexity"], rel=1e-5)
    assert "perplexity" in said and found["perplexity"] < 15
    assert lmtool("predict", "a", "run=run", "top=2", "oov=unk")
    assert lmtool("generate", "run=run", "count=2", "length=5")
    assert kenlm.Model("run").order == sys.maxsize
    lmtool("train", "model=ngram", "data=toy", "hydra.run.dir=kn")
    lmtool("ensemble", "runs=[kn,run]", "cache=neural", "cache_size=9", "hydra.run.dir=mix")
    said = lmtool("eval", "run=mix", "hydra.run.dir=mix-eval", "accuracy=true")
    mixed, scored = (json.loads(Path(name, "result.json").read_text()) for name in ("mix", "mix-eval"))
    assert scored["perplexity"] == pytest.approx(mixed["perplexity"], rel=1e-6) and "perplexity, dynamic" in said
    assert scored["dynamic"] and len(mixed["weights"]) == 3 and mixed["perplexity"] < found["perplexity"]


def test_resuming_repeats_to_the_bit(lmtool: Run) -> None:
    line = ["model=gru", *SMALL, "training.save_every=0", "model.dropout=0.3"]
    lmtool("train", *line, "hydra.run.dir=whole")
    lmtool("train", *line, "hydra.run.dir=parts")
    Path("parts/state.safetensors").unlink()  # of the end: the one before it is a step older
    lmtool("train", "resume=parts")
    whole, parts = (Path(name, "metrics.jsonl").read_text().splitlines() for name in ("whole", "parts"))
    keys = "step", "train_loss", "valid_loss"
    assert [[json.loads(x)[k] for k in keys] for x in parts] == [[json.loads(x)[k] for k in keys] for x in whole]


def test_the_only_layer_is_tied_if_its_units_are_as_many_as_the_embeddings_dimensions() -> None:
    given, output = {"layers": 1, "embedding_dim": 3, "hidden_dim": 4}, SoftmaxOutput()
    assert not is_tied(config(**given | {"tied": None}), output)
    assert is_tied(config(**given | {"tied": None, "layers": 2}), output)
    assert is_tied(config(**given | {"tied": None, "hidden_dim": None}), output)
    with pytest.raises(UserError, match="another dimension than its embeddings"):
        is_tied(config(**given | {"tied": True}), output)
    assert config(**given).build(7, tied=False, sparse=False).output_dim == 4
    by_default = config(**given | {"hidden_dim": None})
    assert by_default.build(7, tied=True, sparse=False).output_dim == 3 and by_default.weight_count(7) == 3 * 7 + 72


def test_a_context_size_is_refused() -> None:
    with pytest.raises(UserError, match=r"model.context_size=5: must be null, as a recurrent network reads all words"):
        config(context_size=5)
    assert replace(config(), cell=Cell.gru).cell is Cell.gru


@pytest.fixture
def long_text(toy: Corpus) -> Split:
    """700 tokens without sentences: longer than what statistics of contexts read."""
    ids = np.random.default_rng(0).integers(0, len(toy.vocabulary) - 1, 700).astype(np.uint8)
    return Split(ids, np.array([0, 700]), np.empty(0, dtype=np.int64), 0, toy.vocabulary.bos)


def test_mixtures_read_a_long_text_in_order(toy: Corpus, long_text: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    model = network(toy)
    for cell in model.recurrent.cells:
        with torch.no_grad():
            cell.bias_ih_l0[4:8] += 5  # type: ignore[index]  # the forget gate: far words matter
    other = nplm(toy)
    kept = {name: model.score_text(long_text) for name in ("first", "again")}
    np.testing.assert_array_equal(kept["first"], kept["again"])
    members = [model, other]
    ids = long_text.ids.astype(np.int64)
    dists = np.stack([each.log_dist_text(long_text, 0, 700) for each in members])
    linear = np.logaddexp(dists[0] + np.log(0.4), dists[1] + np.log(0.6))
    both = 0.4 * dists[0] + 0.6 * dists[1]
    log_linear = both - np.logaddexp.reduce(both, axis=1, keepdims=True)
    weights = np.array([0.4, 0.6])
    for mixture, want in ((Mixture(members, weights), linear), (LogLinear(members, weights), log_linear)):
        np.testing.assert_allclose(mixture.score_text(long_text), want[np.arange(700), ids], atol=1e-5)
        parts = [mixture.log_dist_text(long_text, k, min(k + 256, 700)) for k in range(0, 700, 256)]
        np.testing.assert_allclose(np.concatenate(parts), want, atol=1e-5)
        assert split_accuracy(mixture, long_text) == (want[:, :-1].argmax(1) == ids).mean()


def test_a_reading_is_continued_only_with_the_same_weights_and_text(toy: Corpus, long_text: Split) -> None:
    model = network(toy)
    whole = model.hidden_text(long_text, 0, 700)
    model.hidden_text(long_text, 0, 300)
    words = []
    read = model.recurrent.read

    def counted(ids: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        words.append(ids.numel())
        return read(ids, state)

    model.recurrent.read = counted  # type: ignore[method-assign]
    np.testing.assert_allclose(model.hidden_text(long_text, 250, 400), whole[250:400], atol=1e-6)
    assert sum(words) == 100  # the other 50 are kept
    with torch.no_grad():
        model.recurrent.embedding.weight.mul_(2)
    words.clear()
    assert not np.allclose(model.hidden_text(long_text, 400, 401), whole[400:401], atol=1e-4)
    assert sum(words) == 401


def test_compiling_is_refused(lmtool: Run) -> None:
    said = lmtool("train", "model=lstm", *SMALL, "training.compile=true", code=2)
    assert "training.compile=true: a recurrent network is not compiled" in said


def test_scoring_one_text_in_blocks_reads_each_word_once(toy: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    model, form = network(toy).eval(), TextForm(toy.vocabulary)
    lines = ["a b c", "b a", "c c a", "a", "b b"]  # 16 tokens with their ends
    text, _ = split_of_text(["\n".join(lines).encode() + b"\n"], "text", form, across_sentences=True)
    want = sums(model.score_text(text), text.offsets)
    words, read = [], model.recurrent.read
    monkeypatch.setattr(model.recurrent, "read", lambda ids, state: (words.append(ids.numel()), read(ids, state))[1])
    mixture = Mixture([model, nplm(toy)], np.array([1.0, 0.0]), toy.vocabulary.special_tokens)
    log_linear = LogLinear([model, nplm(toy)], np.array([1.0, 0.0]), toy.vocabulary.special_tokens)
    for scored in model, mixture, log_linear:
        words.clear()
        scorer = TextsScorer(ScoringModel(scored, form, "run"), across=True, one_text=True)
        found = [scorer(block_of([line]))["log_prob"][0] for line in lines]
        np.testing.assert_allclose(found, want, rtol=1e-5)
        assert sum(words) == 16
