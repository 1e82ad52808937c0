"""The weights of encoders are counted before they are allocated."""

from __future__ import annotations

import pytest
import torch

from lmtool.config.groups import EncoderConfig
from lmtool.errors import UserError
from lmtool.neural import build
from lmtool.neural.encoders.options import CbowModel, LblModel
from tests.conftest import nplm


@pytest.mark.parametrize(
    ("model", "count"),
    [
        # 10 words, vectors of 6; 3 x 6 numbers are read by 8 units, those by 8 more, and 5 by a projection.
        (nplm(layers=2, projection_dim=5), 10 * 6 + 18 * 8 + 8 * 8 + 8 * 5),
        (nplm(layers=2, gated=True), 10 * 6 + 18 * 16 + 8 * 16),
        (nplm(layers=0), 60),
        (nplm(layers=0, projection_dim=5), 60 + 18 * 5),
        (nplm(fofe_window=9, forgetting_factors=[0.5, 1.0]), 60 + 5 * 6 * 8),
        (LblModel("lbl", 3, 6, None, 0.0, False), 60 + 3 * 36),
        (LblModel("lbl", 3, 6, None, 0.0, True), 60 + 18),
        (CbowModel("cbow", 3, 6, None, 0.0), 60),
    ],
)
def test_weights_of_each_encoder(model: EncoderConfig, count: int) -> None:
    assert model.weight_count(10) == count
    # All but biases, norms and the 2 factors for each of 9 words and scales of 6 components of a history.
    weights = [p for p in model.build(10, tied=False, sparse=False).parameters() if p.dim() > 1 and p.shape[0] != 2]
    assert sum(p.numel() for p in weights) == count


def test_too_many_weights_are_refused_by_their_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nplm(layers=2, projection_dim=5)
    monkeypatch.setattr(build, "memory_available", lambda: 4 * 308)
    build.require_memory(model, 10)
    monkeypatch.setattr(build, "memory_available", lambda: 4 * 308 - 1)
    said = (
        "model.embedding_dim=6, model.context_size=3, model.layers=2, model.hidden_dim=8, model.projection_dim=5: 308 "
    )
    with pytest.raises(UserError, match=said + "parameters with a vocabulary of 10 words"):
        build.require_memory(model, 10)


def test_initialize_changes_nothing_by_default() -> None:
    for model in (nplm(), CbowModel("cbow", 3, 6, None, 0.0)):
        encoder = model.build(10, tied=False, sparse=False)
        before = [parameter.clone() for parameter in encoder.parameters()]
        model.initialize(encoder)
        assert all(map(torch.equal, before, encoder.parameters()))
