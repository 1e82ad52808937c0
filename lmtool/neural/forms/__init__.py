"""Fast forms: other ways to compute the results of the plain methods of layers, by families in the files of this
folder.

A layer's method is the formula in plain torch, for every device and dtype; a form is a function with the same arguments
and the same result up to its tolerance, and declares the layers and inputs that it serves. The first form that serves
is chosen once for each layer and kind of input; if none does, the plain method is called. Layers do not import forms.

A form stays only if `./scripts/measure forms` found it 1.3 times as fast as the plain method somewhere, or if it saves
memory that is needed; `measured` says where. tests/neural/test_forms.py compares every form with its plain method.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

# In the order in which they are tried.
FILES = "gpu", "pair_scores", "tree_loops", "hidden_units", "history", "softmax_tiles", "softmax_bf16", "softmax_chunks"
MAX_CHOICES = 256  # choices kept for one layer: evaluation may have batches of many sizes
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Form:
    """A fast form of one method of a class of layers.

    serves: given the layer and the method's first argument, returns whether this form computes the same, and faster.
    run: given the layer and all arguments.
    calls: other methods of the layer that the plain one calls, which a subclass must not override either.
    measured: the speed relative to the plain method, or the memory saved, with machine and date.
    tolerance: maximum difference from the plain method's loss and gradients in float32, relative to the largest number
    of each.
    bf16: whether some of its products are in bfloat16.
    """

    name: str
    layer: type[nn.Module]
    method: str
    serves: Function
    run: Function
    measured: str
    tolerance: float = 5e-6
    bf16: bool = False
    calls: tuple[str, ...] = ()

    def replaces(self, layer: nn.Module, method: str) -> bool:
        """Return whether this is a form of a layer's method: not if a subclass overrides it."""
        if method != self.method or not isinstance(layer, self.layer):
            return False
        names, own = (method, *self.calls), type(layer)
        return all(getattr(own, name) is getattr(self.layer, name) and name not in vars(layer) for name in names)


_registered: list[Form] = []
_chosen: WeakKeyDictionary[nn.Module, dict[Any, Form | None]] = WeakKeyDictionary()
_used: WeakKeyDictionary[nn.Module, set[Form]] = WeakKeyDictionary()
# The names of the forms that this thread may use; None for all.
_only: ContextVar[frozenset[str] | None] = ContextVar("_only", default=None)


def form(layer: type[nn.Module], method: str, **fields: Any) -> Callable[[Function], Function]:
    """Register a function as a form of a method; its name is the function's. fields: further ones of Form."""

    def register(run: Function) -> Function:
        _registered.append(Form(run.__name__, layer, method, run=run, **fields))
        return run

    return register


@cache
def registered() -> tuple[Form, ...]:
    """Return all forms in the order in which they are tried; their compiled code is imported."""
    for name in FILES:
        import_module(f"{__name__}.{name}")
    order = {f"{__name__}.{name}": place for place, name in enumerate(FILES)}
    return tuple(sorted(_registered, key=lambda each: order[each.run.__module__]))


@contextmanager
def only(names: Collection[str]) -> Iterator[None]:
    """While the block runs, use only the forms with these names, in this thread."""
    outer = _only.get()
    token = _only.set(frozenset(names) if outer is None else outer & frozenset(names))
    try:
        yield
    finally:
        _only.reset(token)


def only_plain(wanted: bool = True) -> AbstractContextManager[None]:
    """Return a block in which only plain methods are called, in this thread; wanted: whether to do so."""
    return only(()) if wanted else nullcontext()


def allowed() -> bool:
    """Return whether fast forms may be used: not inside only_plain, nor while torch.compile traces the code."""
    return not torch.compiler.is_compiling() and _only.get() != frozenset()


def chosen(layer: nn.Module, method: str, x: Tensor, *others: object) -> Form | None:
    """Return the form of a layer's method for these arguments; None for the plain method.

    The choice depends on the shape, dtype and device of x, the first argument, on the dtypes of the other tensors, and
    on the layer's `precision` and training mode.
    """
    if not allowed():
        return None
    choices = _chosen.setdefault(layer, {})
    only_these = _only.get()
    dtypes = x.dtype, *(other.dtype for other in others if isinstance(other, Tensor))
    key = method, x.shape, dtypes, x.device, layer.training, getattr(layer, "precision", None), only_these
    if key in choices:
        return choices[key]
    if len(choices) >= MAX_CHOICES:
        choices = _chosen[layer] = {}  # not cleared: another thread may read it
    fitting = (each for each in registered() if each.replaces(layer, method) and each.serves(layer, x))
    form = choices[key] = next((each for each in fitting if only_these is None or each.name in only_these), None)
    _used.setdefault(layer, set()).update(each for each in (form,) if each)
    return form


def used(model: nn.Module) -> list[Form]:
    """Return the forms that have been chosen for the modules of a model so far, each once, by name."""
    return sorted({each for module in model.modules() for each in _used.get(module, ())}, key=lambda each: each.name)


class Formed(nn.Module):
    """A module whose methods may have fast forms; the base class of encoders and output layers."""

    _built_from: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        """Note the constructor's arguments, from which reset_parameters builds the module again."""
        made = super().__new__(cls)
        made.__dict__["_built_from"] = arguments, named
        return made

    def reset_parameters(self) -> None:
        """Set parameters and buffers again as the constructor did; shared ones, such as tied vectors, stay.

        Raises ValueError if to_empty has untied them on the meta device.
        """
        arguments, named = self._built_from
        for argument in (*arguments, *named.values()):
            if isinstance(argument, Formed):
                argument.reset_parameters()
        fresh = type(self)(*arguments, **named)
        with torch.no_grad():
            for kind in nn.Module.parameters, nn.Module.buffers:
                for own, new in zip(kind(self), kind(fresh), strict=True):
                    if new.is_meta and not own.is_meta:  # to_empty has made two parameters of a shared one
                        name = type(self).__name__
                        raise ValueError(f"{name}: to_empty has untied the vectors: build the layer over them again")
                    if own is not new:
                        own.copy_(new)

    def extra_repr(self) -> str:
        """Return the numbers and choices that the constructor was given, and the number of words."""
        arguments, named = self._built_from
        given = signature(type(self)).bind(*arguments, **named).arguments
        words = getattr(self, "word_count", None)
        given |= {} if words is None else {"words": words}
        return ", ".join(f"{name}={value}" for name, value in given.items() if isinstance(value, int | float | str))

    def register_tensors(self, **tensors: Tensor) -> None:
        """Hold tensors, which move with the module and are not saved, as attributes."""
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor, persistent=False)

    def computed(self, method: str, x: Tensor, *others: Any) -> Any:
        """Call a method, the plain formula, or the form of it that serves x, its first argument."""
        fast = chosen(self, method, x, *others)
        return getattr(self, method)(x, *others) if fast is None else fast.run(self, x, *others)
