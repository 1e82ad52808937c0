"""What a CUDA graph does, on a CPU: the tensor operations of a step are recorded, and replayed in the memory that they
had, without Python. What a graph would not notice is not noticed: numbers that Python computed, a tensor that has been
replaced by another one. What cannot be captured raises RuntimeError, as it does on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Call = tuple[Any, tuple[Any, ...], dict[str, Any], Any]
# Operations that read the device: a number, or how many their result will have. lift_fresh is torch.tensor(...), whose
# number comes from the host.
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_consecutive", "equal", "lift_fresh"}
WAITING |= {"repeat_interleave", "bincount", "_coalesce"}


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}  # memory that has changed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        masks = name.startswith("index") and any(_is_mask(tensor) for tensor in tree_leaves(args[1:]))
        if name in WAITING or masks:
            raise RuntimeError(f"{name}: operation not permitted when stream is capturing")
        if func._schema.is_mutable:
            for storage in _storages((args, kwargs)):
                self.before.setdefault(storage.data_ptr(), (storage, storage.clone()))
        result = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, result))
        return result


def _is_mask(value: object) -> bool:
    return isinstance(value, Tensor) and value.dtype is torch.bool


def _storages(values: Any) -> list[torch.UntypedStorage]:
    return [value.untyped_storage() for value in tree_leaves(values) if isinstance(value, Tensor)]


def _places(values: Any) -> set[int]:
    return {storage.data_ptr() for storage in _storages(values)}


def _replay(call: Call) -> None:
    func, args, kwargs, result = call
    again = func(*args, **kwargs)
    if func._schema.is_mutable or _places(result) & _places((args, kwargs)):
        return  # it has changed what is recorded, or is a view of it
    for before, now in zip(tree_leaves(result), tree_leaves(again), strict=True):
        if isinstance(before, Tensor):
            before.copy_(now)


class RecordedGraph:
    """In the place of captured_step.capture_on_gpu. captures, replays: how often."""

    def __init__(self) -> None:
        self.captures = self.replays = 0

    def __call__(self, step: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """A replay of a step, and its loss. The step is made by being recorded, and then undone."""
        self.captures += 1
        recorder, random = _Recorder(), torch.get_rng_state()
        with recorder:
            loss = step()
        for storage, before in recorder.before.values():
            storage.copy_(before)
        torch.set_rng_state(random)

        @torch.no_grad()
        def replay() -> None:
            self.replays += 1
            for call in recorder.calls:
                _replay(call)

        return replay, loss
