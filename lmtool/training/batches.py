"""Batches of examples, in an order that differs from epoch to epoch, depends only on the seed, and is resumable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor

from lmtool.config.training import ROWS, TrainingConfig, default_batch_size
from lmtool.data.split import MAX_POSITION, Split, StoredTokens, Windows
from lmtool.errors import UserError
from lmtool.neural.encoders.base import Encoder
from lmtool.system.arrays import Array, IntArray

Rows = npt.NDArray[np.int64]


class Batches:
    """An endless iterator over batches: contexts int64 `[B, C]` and targets int64 `[B]`.

    A split in memory is shuffled as a whole. A split that is streamed from its store is read in blocks: the order of
    the blocks is shuffled, and the examples within each group of blocks. The examples at the end of an epoch, or of a
    group, that do not fill a batch are left out until a later epoch. consecutive: number of consecutive examples that
    stay together when shuffling, cut at other places in each epoch. part: (rank, number of processes), for the share of
    one process in each batch; all processes draw the same order.
    """

    EXAMPLES_PER_CHUNK = 1 << 17  # examples whose contexts are materialized at once

    def __init__(
        self,
        split: Split | StoredTokens,
        batch_size: int | None,
        context_size: int,
        seed: int,
        *,
        consecutive: int = 1,
        full: int = 0,
        device: torch.device | None = None,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        """batch_size: None for default_batch_size. full: the minimum number of words before an example in its sentence.

        Raises UserError if the processes cannot share a batch evenly, or no example is left.
        """
        if full and isinstance(split, StoredTokens):
            raise UserError("model.full_windows=true: train is streamed from its store; set training.memory=null")
        self._split = split
        self._places = split.full_windows(full) if full and isinstance(split, Split) else None  # if not all tokens
        examples = split.tokens if self._places is None else len(self._places)
        batch_size = batch_size or default_batch_size(examples)
        self.size = min(batch_size, examples)
        self._context_size = context_size
        self._consecutive = consecutive
        self._device = device or torch.device("cpu")
        self._part = part
        self._on_device: DeviceWindows | None = None  # for a split in memory
        self._rng = np.random.default_rng(seed)
        self._at = 0  # number of examples of this epoch that were taken or left out
        self._epoch_began: Mapping[str, Any] = self._rng.bit_generator.state  # before the draw
        if isinstance(split, StoredTokens):
            if context_size > MAX_POSITION:
                raise UserError(
                    f"model.context_size={context_size}: at most {MAX_POSITION} with a train split that is streamed"
                )
            self.size = min(batch_size, min(split.group_sizes()))
            self.per_epoch = sum(examples // self.size for examples in split.group_sizes())
        else:
            self.per_epoch = max(1, examples // self.size)
        if self.size % part[1]:
            raise UserError(
                f"training.batch_size={self.size}: {part[1]} processes share it, so it must be a multiple of {part[1]}"
            )

    @property
    def streamed(self) -> bool:
        """Whether the examples are read from the store, block by block."""
        return isinstance(self._split, StoredTokens)

    def position(self) -> dict[str, Any]:
        """Return the position after the last batch that was taken, as values that JSON can hold."""
        return {"at": self._at, "epoch_began": self._epoch_began}

    def go_to(self, position: dict[str, Any]) -> None:
        """Move to a position, also of batches of another size: the next batch begins after its examples."""
        self._at = position["at"]
        self._rng.bit_generator.state = self._epoch_began = position["epoch_began"]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            self._epoch_began = self._rng.bit_generator.state
            for after, contexts, targets in self._epoch(self._at):
                self._at = after
                yield contexts, targets
            self._at = 0

    def _epoch(self, skip: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield the batches of an epoch after its first `skip` examples, each with the position after it."""
        if isinstance(self._split, StoredTokens):
            yield from self._stream(self._split, skip)
            return
        places = self._places
        order = random_order(self._rng, self._split.tokens if places is None else len(places), self._consecutive)
        order = order[skip : len(order) - max(len(order) - skip, 0) % self.size]
        order = order if places is None else places[order]
        windows: Any = self._split.windows
        if self._device.type != "cpu" and self._context_size <= MAX_POSITION:
            self._on_device = windows = self._on_device or DeviceWindows(self._split.in_memory, self._device)
        yield from self._cut_batches(windows, order, skip)

    def _stream(self, split: StoredTokens, skip: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        order = self._rng.permutation(split.blocks)
        shuffles = self._rng.integers(1 << 62, size=len(split.group_sizes())).tolist()
        sizes = split.group_sizes()
        group = 0
        while group < len(sizes) and skip + self.size > sizes[group]:  # the rest of the group does not fill a batch
            skip = max(0, skip - sizes[group])
            group += 1
        for number, (windows, places) in enumerate(split.groups(order, self._context_size, group), start=group):
            some = np.random.default_rng(shuffles[number])
            examples = places[random_order(some, len(places), self._consecutive)]
            source: Any = windows if self._device.type == "cpu" else DeviceWindows(windows, self._device)
            end = sizes[number] - (sizes[number] - skip) % self.size
            yield from self._cut_batches(source, examples[skip:end], sum(sizes[:number]) + skip)
            skip = 0

    def _cut_batches(self, windows: Any, order: IntArray, position: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield this process's share of the batches of an order `[N]` of examples, from a position in the epoch on."""
        rank, processes = self._part
        share = self.size // processes
        order = order.reshape(-1, self.size)[:, rank * share : (rank + 1) * share]
        block = max(1, self.EXAMPLES_PER_CHUNK // share)
        for first in range(0, len(order), block):
            contexts, targets = (
                torch.as_tensor(array).to(self._device)
                for array in windows(order[first : first + block].ravel(), self._context_size)
            )
            for at in range(0, len(targets), share):
                position += self.size
                yield position, contexts[at : at + share], targets[at : at + share]


class Streams(Batches):
    """An endless iterator over batches of running text: words int64 `[B, T]` and targets int64 `[B, T]`, the words
    after them; each row continues the same row of the previous batch.

    In each epoch, the rows begin at different positions, with `<s>`; tokens at either end that do not fill a batch are
    left out. In some batches, chosen at random, all sentences begin with `<s>`: cells read a batch without `<s>` 1.4
    (bf16) to 1.8 (fp32) times as fast, since its rows are not cut (32 rows, 35 words, 400 units; AMD EPYC, 2026-11-26).
    """

    def __init__(
        self,
        split: Split,
        rows: int,
        length: int,
        seed: int,
        *,
        sentences: Split | None = None,
        reset_share: float = 0.0,
        device: torch.device | None = None,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        """rows: B of all processes. length: T. sentences: the text in sentences, for reset_share of the batches."""
        self._rows, self._length = min(rows, split.tokens), min(length, max(1, split.tokens // min(rows, split.tokens)))
        super().__init__(split, self._rows, 1, seed, device=device, part=part)
        self.size = self._rows * self._length
        self.per_epoch = split.tokens // self.size
        self._sentences, self._reset_share = sentences or split, reset_share

    def position(self) -> dict[str, Any]:
        return super().position() | {"shape": [self._rows, self._length]}

    def go_to(self, position: dict[str, Any]) -> None:
        """Move to a position. Rows of another number or length cannot continue where it is: a new epoch begins."""
        same = position["shape"] == [self._rows, self._length]
        super().go_to(position if same else position | {"at": 0})

    def _epoch(self, skip: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        assert isinstance(self._split, Split), "it is kept in memory"
        length, columns = self._length, self.per_epoch * self._length
        begin = int(self._rng.integers(self._split.tokens - self._rows * columns + 1))
        rank, processes = self._part
        share = self._rows // processes
        starts = begin + columns * np.arange(rank * share, (rank + 1) * share)
        resets = self._rng.random(self.per_epoch) < self._reset_share
        for step in range(skip // self.size, self.per_epoch):
            index = starts[:, None] + step * length + np.arange(length)
            source = self._sentences if resets[step] else self._split
            words, targets = (
                torch.from_numpy(array.reshape(index.shape)).to(self._device)
                for array in source.windows(index.ravel(), 1)
            )
            if step == 0:
                words[:, 0] = self._split.bos
            yield (step + 1) * self.size, words, targets


class NearWords(Batches):
    """An endless iterator over batches of skip-gram's pairs: contexts int64 `[P, 1]` and targets int64 `[P]` near them.

    The words of a batch are as in Batches; the number P of their pairs differs from batch to batch. Which words are
    left out, and the windows of the others, are drawn for each epoch.
    """

    def __init__(self, split: Split, batch_size: int | None, model: Any, seed: int, **named: Any) -> None:
        """model: the settings of skip-gram. The others: as in Batches."""
        super().__init__(split, batch_size, 1, seed, **named)
        self._model = model

    def _epoch(self, skip: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        assert isinstance(self._split, Split), "it is kept in memory"
        text, count, window, rank = self._split.in_memory, self._split.tokens, self._model.window, self._part[0]
        order, share = random_order(self._rng, count, self._consecutive), self.size // self._part[1]
        reach = self._rng.integers(1 if self._model.shrink_windows else window, window, count, np.uint8, endpoint=True)
        reach[self._rng.random(count, np.float32) >= keep_probability(self._split.ids, self._model.subsample)] = 0
        for at in range(skip, count - self.size + 1, self.size):
            words = order[at + rank * share : at + (rank + 1) * share]
            pairs = near_words(text.padded, text.position, reach, words)
            pairs = pairs if len(pairs[1]) else text(words, 1)  # if all are left out: each with the word before it
            contexts, targets = (torch.from_numpy(array).to(self._device) for array in pairs)
            yield at + self.size, contexts, targets


def keep_probability(ids: Array, threshold: float) -> npt.NDArray[np.float32]:
    """Return the probability that each word of a text `[N]` is kept, `[N]`: sqrt(t/f) + t/f, at most 1, f being its
    relative frequency; 1 for a threshold t of 0.
    """
    share = threshold * len(ids) / np.maximum(np.bincount(ids), 1) if threshold else np.ones(int(ids.max()) + 1)
    return np.minimum(np.sqrt(share) + share, 1).astype(np.float32)[ids]


@njit(cache=True, nogil=True)
def near_words(padded: Array, position: Array, reach: Array, batch: IntArray) -> tuple[IntArray, IntArray]:
    """Return contexts `[P, 1]` and targets `[P]`: each word of `batch` `[B]`, places in a text as in Windows, is the
    target of the reach[place] words on either side of it in its sentence, `<s>` before it included.

    reach: `[N]`; words with 0 are left out, as if they were not in the text.
    """
    contexts: Any = np.empty((2 * len(batch) * int(reach[batch].max()), 1), np.int64)
    targets: Any = np.empty(len(contexts), np.int64)
    pairs = 0
    for place in batch:
        for back in (True, False):
            at, left = place, int(reach[place])
            while left:
                first = position[at] == 0 if back else at + 1 == len(position) or position[at + 1] == 0
                if first and not back:
                    break
                at = -1 if first else at - 1 if back else at + 1
                if first or reach[at]:
                    contexts[pairs, 0], targets[pairs] = padded[at], padded[place]
                    pairs, left = pairs + 1, 0 if first else left - 1
    return contexts[:pairs], targets[:pairs]


def make_batches(
    split: Split | StoredTokens,
    training: TrainingConfig,
    encoder: Encoder,
    seed: int,
    device: torch.device,
    part: tuple[int, int] = (0, 1),
) -> Batches:
    """Return the batches of a training in the form that its encoder reads. part: as in Batches."""
    size, config = encoder.context_size, encoder.config
    if size is None:
        assert isinstance(split, Split), "it is kept in memory"
        rows = training.batch_size or default_batch_size(split.tokens, maximum=ROWS, length=training.bptt)
        text, share = split.as_stream(bool(config.across_sentences)), config.context_reset_prob
        return Streams(text, rows, training.bptt, seed, sentences=split, reset_share=share, device=device, part=part)
    consecutive = training.shuffle_block or encoder.consecutive
    if config.reads_near:
        assert isinstance(split, Split), "it is kept in memory"
        return NearWords(split, training.batch_size, config, seed, consecutive=consecutive, device=device, part=part)
    full = config.context_size if config.full_windows else 0
    return Batches(split, training.batch_size, size, seed, consecutive=consecutive, full=full, device=device, part=part)


class DeviceWindows:
    """Windows whose tokens are on a GPU, where contexts are then made without a transfer."""

    def __init__(self, windows: Windows, device: torch.device) -> None:
        self._padded = torch.from_numpy(windows.padded.astype(np.int32)).to(device)
        self._position = torch.from_numpy(windows.position).to(device)

    def __call__(self, index: IntArray, size: int) -> tuple[Tensor, Tensor]:
        """Return contexts int64 `[B, size]` and targets int64 `[B]` of the tokens at `index` `[B]`, like Windows."""
        at = torch.from_numpy(np.ascontiguousarray(index)).to(self._padded.device)
        back = torch.arange(size, 0, -1, device=at.device)  # distance of each context word from the target
        where = torch.where(back <= self._position[at][:, None], at[:, None] - back, len(self._padded) - 1)
        return self._padded[where].long(), self._padded[at].long()


def random_order(rng: np.random.Generator, count: int, consecutive: int = 1) -> IntArray:
    """Return a random order of `count` places, `[count]`, in which pieces of `consecutive` places stay together.

    The first piece begins at a random place, and pieces wrap around at the end; places that fill no piece come last.
    """
    if consecutive == 1:
        return rng.permutation(count)
    begin = int(rng.integers(count))
    pieces = rng.permutation(count // consecutive)
    places = (pieces[:, None] * consecutive + np.arange(consecutive)).ravel()
    return (np.append(places, np.arange(len(places), count)) + begin) % count
