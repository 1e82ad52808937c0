"""Score one word after one state, in little more than the time of a call.

Passing an array to a compiled function takes longer than the search itself, and it needs more than ten arrays.
Therefore the table lies in memory in the form for compiled loops, and its address is passed; the states and the word
are Python objects, which the compiled function reads by Python's C API: Python code would take as long as the search.
Nothing else in lmtool reads memory by address; a SingleStates keeps what it reads alive.
"""

from __future__ import annotations

import types as python_types
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import carray, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import NativeValue, intrinsic, models, register_model, unbox

from lmtool.data.vocabulary import SpecialTokens
from lmtool.ngram.query.find import Lookup, Table
from lmtool.ngram.query.scoring import first_state, is_state, prefetch_ngrams, score_word, shorten
from lmtool.ngram.tables.packed import without_owners
from lmtool.system.arrays import LN10

CompiledScore = Callable[[bytearray, str, bytearray], float]
MEMORY = 2048  # bytes, more than a Table takes
# Numbers beside a Table in memory: words scored so far, the addresses of the class of states, of str and of the
# dictionary of words, the id of other words (-1: they are not scored), and the number of the SingleStates.
COUNT, STATE, STR, IDS, UNK, OWNER = range(6)
_typeof: Any = numba.typeof
_is_null: Any = cgutils.is_null
_gep: Any = cgutils.gep_inbounds
_native_value: Any = NativeValue
_unbox: Any = unbox


class SingleStates:
    """A back-off table of order n that scores one word after one state.

    A state is a bytearray of n + 1 numbers, int64: the nodes of the last 1 to n-1 words; the length of the longest
    n-gram of the table that ends in the last word; the number of the SingleStates. An empty bytearray may become the
    state after a word.
    """

    def __init__(
        self,
        lookup: Lookup,
        special_tokens: SpecialTokens,
        state: type[bytearray],
        ids: dict[str, int],
        owner: int,
        *,
        scores_oov: bool = True,
    ) -> None:
        """state: the class of states. ids: the ids of the words. owner: the number of the SingleStates. scores_oov:
        whether all other words are `<unk>`.
        """
        self._lookup, self._kept = lookup, (state, ids)
        self.order = lookup.table.order
        rows = (first_state(self.order - 1, special_tokens.bos, sentence_start=start) for start in (False, True))
        self._first = [np.append(row, [0, owner]).tobytes() for row in rows]
        self._memory = np.zeros(MEMORY, dtype=np.uint8)
        unk = special_tokens.unk if scores_oov else -1
        self._numbers = np.array([0, id(state), id(str), id(ids), unk, owner])
        self._write(lookup.compiled)
        # log10 p of a word after a state, and the state after it; nan if one of the three is not as described above.
        table = TableAddress(_typeof(lookup.compiled))
        compiled = _log10_prob.compile(types.float64(table, _object, _object, _object))  # without Numba's dispatcher
        self.log10_prob: CompiledScore = python_types.MethodType(compiled, self._memory.ctypes.data)

    def use_hash(self) -> None:
        """Look n-grams up in the hash table from now on, if enough words were scored to make up for building it."""
        if self._written.ngrams.order < self.order:
            table = self._lookup.for_states(int(self._numbers[COUNT]))
            self._numbers[COUNT] = 0
            if table is not self._written:
                self._write(table)

    def first(self, *, sentence_start: bool) -> bytes:
        """Return the state after `<s>`, or a state without words."""
        self.use_hash()
        return self._first[sentence_start]

    def _write(self, table: Table) -> None:
        _write_table(table, self._numbers, self._memory)
        self._written = table  # keeps its arrays alive; those of the previous table can be freed now


class TableAddress(types.Type):
    """The type of the address of a Table and the numbers beside it, for compiled code."""

    def __init__(self, table: Any) -> None:
        self.content: Any = types.Tuple((table, types.Array(types.int64, 1, "C")))  # type: ignore[no-untyped-call]
        super().__init__(name=f"TableAddress({table})")


class _Object(types.Type):
    """The type of a Python object, for compiled code that passes it to Python's C API."""


_object = _Object(name="Object")
register_model(TableAddress)(models.OpaqueModel)
register_model(_Object)(models.OpaqueModel)


def _address(kind: Any, value: Any, context: Any) -> Any:
    pointer = context.pyapi.long_as_voidptr(value)
    return _native_value(pointer, is_error=_is_null(context.builder, pointer))


_unbox(TableAddress)(_address)
_unbox(_Object)(lambda kind, value, context: _native_value(value))


def _python_function(name: str, signature: Any) -> Any:
    return types.ExternalFunction(name, signature)


_type_of = _python_function("PyObject_Type", types.intp(_object))
_release = _python_function("Py_DecRef", types.void(types.intp))
_is_subtype = _python_function("PyType_IsSubtype", types.intc(types.intp, types.intp))
_clear_error = _python_function("PyErr_Clear", types.void())
_size = _python_function("PyByteArray_Size", types.intp(_object))
_resize = _python_function("PyByteArray_Resize", types.intc(_object, types.intp))
_memory_of = _python_function("PyByteArray_AsString", types.voidptr(_object))
_get_item = _python_function("PyDict_GetItem", types.intp(types.intp, _object))
_as_number = _python_function("PyLong_AsLongLong", types.int64(types.intp))


def _generate_write(_typing: Any, content: Any, memory: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = context.make_array(signature.args[1])(context, builder, value=values[1]).data
        builder.store(values[0], builder.bitcast(pointer, values[0].type.as_pointer()))
        return context.get_dummy_value()

    return types.void(content, memory), generate


def _generate_read(_typing: Any, address: Any) -> Any:
    def read(builder: Any, pointer: Any, kind: Any) -> Any:
        """Read a tuple number by number: LLVM would read a whole tuple with its unused numbers."""
        if not hasattr(kind, "elements"):
            return builder.load(pointer)
        value = kind(None)
        for i, part in enumerate(kind.elements):
            value = builder.insert_value(value, read(builder, _gep(builder, pointer, 0, i), part), i)
        return value

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = context.get_value_type(signature.return_type)
        content = read(builder, builder.bitcast(values[0], kind.as_pointer()), kind)
        return without_owners(context, builder, signature.return_type, content)

    return address.content(address), generate


_write_content: Any = intrinsic(_generate_write)
_read_content: Any = intrinsic(_generate_read)


@numba.njit(cache=True)
def _write_table(table: Any, numbers: Any, memory: Any) -> None:
    _write_content((table, numbers), memory)


@numba.njit(cache=True, forceinline=True)
def _is_state(value: Any, kind: Any) -> Any:
    """Return whether an object is of a class or a subclass, whatever its `__class__` says."""
    own = _type_of(value)
    found = own == kind or _is_subtype(own, kind) == 1
    _release(own)
    return found


@numba.njit(cache=True, forceinline=True)
def _is_str(value: Any, kind: Any) -> Any:
    """Return whether an object is a str and not of a subclass: looking up the latter could run Python code."""
    own = _type_of(value)
    _release(own)
    return own == kind


@numba.njit(cache=True)  # releasing the GIL would take as long as the search
def _log10_prob(address: Any, before: Any, word: Any, after: Any) -> Any:
    """Return log10 p of a word after a state, and write the state after it, which may be the same object; nan, with
    nothing changed, if an argument is not of the form in SingleStates. address: a TableAddress.
    """
    table, numbers = _read_content(address)
    order, size = table.order, 8 * (table.order + 1)
    if not (_is_state(before, numbers[STATE]) and _is_state(after, numbers[STATE]) and _is_str(word, numbers[STR])):
        return np.nan
    found = _get_item(numbers[IDS], word)
    index = _as_number(found) if found else numbers[UNK]
    if index < 0 or _size(before) != size:
        return np.nan
    nodes = carray(_memory_of(before), (order + 1,), np.int64)
    if nodes[order] != numbers[OWNER] or not is_state(nodes[: order - 1], table.nodes.first):
        return np.nan
    if _size(after) != size and _resize(after, size) != 0:
        _clear_error()
        return np.nan
    after_nodes = carray(_memory_of(after), (order + 1,), np.int64)
    numbers[COUNT] += 1
    if table.ngrams.order == order:
        prefetch_ngrams(table, nodes, index)
    score, matched, lasting = score_word(table, nodes, index, after_nodes)
    after_nodes[order - 1], after_nodes[order] = matched, numbers[OWNER]
    shorten(table, after_nodes[: order - 1], lasting, False)
    return score / LN10
