"""Whether the weights of an encoder fit into memory, said before any of them is made."""

from __future__ import annotations

from lmtool.config import EncoderModel, LblModel, NplmModel
from lmtool.errors import UserError
from lmtool.system.memory import memory_available

BYTES = 4  # a weight; gradients and what the optimiser remembers come on top


def read_at_once(model: EncoderModel) -> int:
    """How many vectors of the embeddings' size the first layer reads: context words, and sums over the history."""
    return model.context_size + (len(model.forgetting) if isinstance(model, NplmModel) and model.history else 0)


def weights_of(model: EncoderModel, words: int) -> int:
    """The weights of an encoder's embeddings and large matrices, for a vocabulary of so many words."""
    inputs = read_at_once(model) * model.embedding_dim
    found = words * model.embedding_dim
    match model:
        case NplmModel(layers=layers, hidden_dim=width) if layers:
            found += inputs * width + (layers - 1) * width**2
            if model.projection_dim is not None:
                found += width * model.projection_dim
        case NplmModel() if model.projection_dim is not None:
            found += inputs * model.projection_dim
        case LblModel():
            found += inputs * (1 if model.diagonal else model.embedding_dim)
    return found


def require_room(model: EncoderModel, words: int) -> None:
    """Raise UserError, naming the settings, where an encoder's weights alone are more than the memory that is free.

    The system would end the process, or the library answer in its own words.
    """
    free, needed = memory_available(), BYTES * weights_of(model, words)
    if free is None or needed <= free:
        return
    names = ["embedding_dim", "context_size", *(["layers", "hidden_dim"] if isinstance(model, NplmModel) else [])]
    if isinstance(model, NplmModel) and model.projection_dim is not None:
        names.append("projection_dim")
    given = ", ".join(f"model.{name}={getattr(model, name)}" for name in names)
    raise UserError(
        f"{given}: {needed // BYTES:,} parameters with a vocabulary of {words:,} words take {needed / 2**30:,.1f} GiB, "
        f"and {free / 2**30:,.1f} GiB are free; make them smaller"
    )
