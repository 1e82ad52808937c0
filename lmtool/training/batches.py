"""The order in which training sees its examples: new each epoch, the same for the same seed, and resumable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lmtool.data.corpus import Split
from lmtool.data.windows import FAR, StoredTokens, Windows
from lmtool.errors import UserError
from lmtool.language_model import IntArray

Rows = npt.NDArray[np.int64]


class Batches:
    """Batches of examples in a new random order each epoch, without end: contexts `[B, C]` and targets `[B]`.

    A split in memory is shuffled as a whole. One in its store is read in blocks: their order is shuffled, and the
    examples of a group of blocks among themselves. The last examples of an epoch (or group) that do not fill a batch
    wait for another epoch's order. part: (rank, size), to make the rank's share of each batch alone; every process has
    the same order.
    """

    BLOCK = 1 << 17  # examples whose contexts are made at once

    def __init__(
        self,
        split: Split | StoredTokens,
        batch_size: int,
        context_size: int,
        seed: int,
        *,
        device: torch.device | None = None,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        """Raises UserError for a context too long to be read from a store."""
        self._split = split
        self.size = min(batch_size, split.tokens)
        self._context_size = context_size
        self._device = device or torch.device("cpu")
        self._part = part
        self._rng = np.random.default_rng(seed)
        self._at = 0  # batches of this epoch that are made
        self._epoch_began: Mapping[str, Any] = self._rng.bit_generator.state  # before the order was drawn
        if isinstance(split, StoredTokens):
            if context_size > FAR:
                raise UserError(f"model.context_size={context_size}: at most {FAR} with a train split that is streamed")
            self.size = min(batch_size, min(split.group_sizes()))
            self.per_epoch = sum(examples // self.size for examples in split.group_sizes())
        else:
            self.per_epoch = max(1, split.tokens // self.size)
        if self.size % part[1]:
            raise UserError(
                f"training.batch_size={self.size}: {part[1]} processes share it, so it must be a multiple of {part[1]}"
            )

    @property
    def streamed(self) -> bool:
        """Whether the examples come from the store, block by block."""
        return isinstance(self._split, StoredTokens)

    def position(self) -> dict[str, Any]:
        """Where the order stands after the last batch that was taken, in values that JSON can hold."""
        return {"at": self._at, "epoch_began": self._epoch_began}

    def go_to(self, position: dict[str, Any]) -> None:
        """The next batch will be the one after a position."""
        self._at = position["at"]
        self._rng.bit_generator.state = self._epoch_began = position["epoch_began"]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            self._epoch_began = self._rng.bit_generator.state
            for contexts, targets in self._epoch(self._at):
                self._at += 1
                yield contexts, targets
            self._at = 0

    def _epoch(self, skip: int) -> Iterator[tuple[Tensor, Tensor]]:
        """An epoch without its first batches."""
        if isinstance(self._split, StoredTokens):
            yield from self._streamed(self._split, skip)
            return
        order = self._rng.permutation(self._split.tokens)[skip * self.size : self.per_epoch * self.size]
        if self._device.type == "cpu":
            yield from self._cut(self._split.windows, order)
        else:
            yield from self._cut(_OnDevice(self._split.in_memory, self._device), order)

    def _streamed(self, split: StoredTokens, skip: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = self._rng.permutation(split.blocks)
        shuffles = self._rng.integers(1 << 62, size=len(split.group_sizes())).tolist()
        counts = [examples // self.size for examples in split.group_sizes()]
        group = 0
        while group < len(counts) and skip >= counts[group]:
            skip -= counts[group]
            group += 1
        for number, (windows, places) in enumerate(split.groups(order, self._context_size, group), start=group):
            mixed = np.random.default_rng(shuffles[number]).permutation(places)
            made = windows if self._device.type == "cpu" else _OnDevice(windows, self._device)
            yield from self._cut(made, mixed[skip * self.size : counts[number] * self.size])
            skip = 0

    def _cut(self, windows: Any, order: IntArray) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's share of the batches of an order."""
        rank, processes = self._part
        share = self.size // processes
        order = order.reshape(-1, self.size)[:, rank * share : (rank + 1) * share]
        block = max(1, self.BLOCK // share)
        for first in range(0, len(order), block):
            contexts, targets = (
                torch.as_tensor(made) for made in windows(order[first : first + block].ravel(), self._context_size)
            )
            for at in range(0, len(targets), share):
                yield contexts[at : at + share], targets[at : at + share]


class _OnDevice:
    """Windows whose tokens live on a device, where the contexts are made too."""

    def __init__(self, windows: Windows, device: torch.device) -> None:
        # Not all devices have types without a sign.
        self._padded = torch.from_numpy(windows.padded.astype(np.int32)).to(device)
        self._position = torch.from_numpy(windows.position).to(device)

    def __call__(self, index: IntArray, size: int) -> tuple[Tensor, Tensor]:
        """As Windows."""
        at = torch.from_numpy(np.ascontiguousarray(index)).to(self._padded.device)
        back = torch.arange(size, 0, -1, device=at.device)
        last = len(self._padded) - 1
        where = torch.where(back <= self._position[at][:, None], at[:, None] - back, last)
        return self._padded[where].long(), self._padded[at].long()
