"""What compiled loops need: forms chosen by type, and tuples of arrays handed on without counting references."""

from __future__ import annotations

from typing import Any, TypeVar

import numba
from numba.core import cgutils, types
from numba.extending import intrinsic, overload

T = TypeVar("T")
_null: Any = cgutils.get_null_value


def interpreted(generator: Any, *values: Any) -> Any:
    """Return what compiled code would get of a function whose form depends on the types of its arguments.

    For the interpreter, if NUMBA_DISABLE_JIT is set. generator: the function that `overload` decorates.
    """
    return generator(*map(numba.typeof, values))(*values)


def borrowed(arrays: T) -> T:
    """Return a NamedTuple of arrays, and of such tuples, whose references compiled code does not count.

    Without it, each access to an array of a tuple raises the array's reference count and lowers it again, atomically:
    twice the time of a search in the trie, and threads wait for each other. A kernel calls it first; the caller holds
    the arrays while it runs, and none of them may be returned. What is handed on to functions with forceinline costs
    nothing then, so that a table is one argument.
    """
    return arrays


def without_owners(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Return LLVM's value of a tuple or an array, of Numba's type `kind`, with null for the owner that is counted."""
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value=value)
        array.meminfo, array.parent = _null(array.meminfo.type), _null(array.parent.type)
        return array._getvalue()
    parts: Any = kind if isinstance(kind, types.BaseTuple) else ()
    for i, part in enumerate(parts):
        inner = without_owners(context, builder, part, builder.extract_value(value, i))
        value = builder.insert_value(value, inner, i)
    return value


def _generate(_typing: Any, arrays: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return without_owners(context, builder, signature.args[0], values[0])

    return arrays(arrays), generate


_without_owners: Any = intrinsic(_generate)


@overload(borrowed)
def _borrowed(arrays: Any) -> Any:
    def strip(arrays: Any) -> Any:
        return _without_owners(arrays)

    return strip
