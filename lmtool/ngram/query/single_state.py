"""Scoring one word after one state, in little more than the time of a call.

Handing a compiled function an array takes longer than the search itself, and it needs more than ten of them. Therefore
all arguments are numbers: the table lies in memory as compiled loops take it, and its address is handed over. Nothing
else in lmtool reads memory by address; a SingleStates keeps its arrays alive, and takes states that it has made alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import carray, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import NativeValue, intrinsic, models, register_model, unbox

from lmtool.ngram.query.find import Lookup, Table
from lmtool.ngram.query.scoring import score_word, shorten
from lmtool.ngram.tables.packed import without_owners
from lmtool.ngram.tables.trie_search import SHORT
from lmtool.system.arrays import LN10

CompiledScore = Callable[[int, int, int, int], float]
MEMORY = 2048  # bytes, more than a Table takes
_typeof: Any = numba.typeof
_is_null: Any = cgutils.is_null
_gep: Any = cgutils.gep_inbounds
_native_value: Any = NativeValue


class SingleStates:
    """A back-off table of order n that scores one word after one state.

    A state is n numbers, int64, at an address: as in NgramScorer the nodes of the last 1 to n-1 words, and then the
    length of the longest n-gram of the table that ends in the last word.
    """

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self.order = lookup.table.order
        self._memory = np.zeros(MEMORY, dtype=np.uint8)
        self._words = np.zeros(1, dtype=np.int64)
        self.table: int = self._memory.ctypes.data
        self._write(lookup.compiled)
        self.log10_prob: CompiledScore = called_with_numbers(_log10_prob, TableAddress(_typeof(lookup.compiled)))

    def use_hash(self) -> None:
        """Look n-grams up in the hash table from now on, if enough words were scored that building it pays."""
        if self._written.ngrams.order < self.order:
            table = self._lookup.for_states(int(self._words[0]))
            self._words[0] = 0
            if table is not self._written:
                self._write(table)

    def new_state(self) -> ctypes.Array[ctypes.c_int64]:
        """Return a state without any words."""
        return (ctypes.c_int64 * self.order)(*[int(SHORT)] * (self.order - 1), 0)

    def _write(self, table: Table) -> None:
        self._written = table  # whose arrays it keeps alive
        _write_table(table, self._words, self._memory)


class TableAddress(types.Type):
    """The type of the address of a Table and a counter of words, for compiled code."""

    def __init__(self, table: Any) -> None:
        self.content: Any = types.Tuple((table, types.Array(types.int64, 1, "C")))  # type: ignore[no-untyped-call]
        super().__init__(name=f"TableAddress({table})")


register_model(TableAddress)(models.OpaqueModel)


@unbox(types.RawPointer)  # type: ignore[no-untyped-call]
@unbox(TableAddress)  # type: ignore[no-untyped-call]
def _address(kind: Any, value: Any, context: Any) -> Any:
    pointer = context.pyapi.long_as_voidptr(value)
    return _native_value(pointer, is_error=_is_null(context.builder, pointer))


def called_with_numbers(kernel: Any, table: TableAddress) -> CompiledScore:
    """Return a compiled kernel without the look at the types of its arguments that a call begins with.

    It takes a table's address, the address of a state, a word, and the address of the state after it. `compile` of
    Numba's dispatcher returns it.
    """
    function: CompiledScore = kernel.compile(types.float64(table, types.voidptr, types.int64, types.voidptr))
    return function


def _generate_write(_typing: Any, content: Any, memory: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = context.make_array(signature.args[1])(context, builder, value=values[1]).data
        builder.store(values[0], builder.bitcast(pointer, values[0].type.as_pointer()))
        return context.get_dummy_value()

    return types.void(content, memory), generate


def _generate_read(_typing: Any, address: Any) -> Any:
    def read(builder: Any, pointer: Any, kind: Any) -> Any:
        """Read a tuple number by number: of a tuple as a whole, LLVM would read the numbers that nobody uses, too."""
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
def _write_table(table: Any, words: Any, memory: Any) -> None:
    _write_content((table, words), memory)


@numba.njit(cache=True)  # to let other threads run would take as long as the search
def _log10_prob(address: Any, state: Any, word: int, after: Any) -> Any:
    """Return log10 p of a word after a state, and write the state after it; see score_word.

    address: a TableAddress. state, after: addresses of n int64.
    """
    table, words = _read_content(address)
    nodes = carray(state, (table.order,), np.int64)
    after_nodes = carray(after, (table.order,), np.int64)
    words[0] += 1
    score, matched, lasting = score_word(table, nodes, word, after_nodes)
    after_nodes[table.order - 1] = matched
    if table.missing == 0.0:
        shorten(table, after_nodes[: table.order - 1], lasting)
    return score / LN10
