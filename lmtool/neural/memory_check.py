"""Whether the weights of an encoder fit into memory, said before they are allocated."""

from __future__ import annotations

from lmtool.config.groups import EncoderConfig
from lmtool.errors import UserError
from lmtool.system.memory import memory_available

BYTES = 4  # of a weight; gradients and the optimiser's state come on top


def require_memory(model: EncoderConfig, words: int) -> None:
    """Raise UserError, naming the settings, where an encoder's weights alone take more memory than is free.

    words: V. Otherwise the system would end the process, or the library raise an error of its own.
    """
    free, needed = memory_available(), BYTES * model.weight_count(words)
    if free is None or needed <= free:
        return
    given = ", ".join(f"model.{name}={getattr(model, name)}" for name in model.size_settings())
    raise UserError(
        f"{given}: {needed // BYTES:,} parameters with a vocabulary of {words:,} words take {needed / 2**30:,.1f} GiB, "
        f"and {free / 2**30:,.1f} GiB are free; make them smaller"
    )
