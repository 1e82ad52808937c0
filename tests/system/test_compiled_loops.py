"""Rules for loops that Numba compiles."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.test_imports import FILES


def compiled_functions(path: Path) -> dict[str, tuple[ast.FunctionDef, str]]:
    """Return the compiled functions of a file, each with its decorator."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            for decorator in map(ast.unparse, node.decorator_list):
                if decorator.startswith("njit"):
                    found[node.name] = node, decorator
    return found


def test_loops_call_only_inlined_functions() -> None:
    """Require that loops inline the functions they call, so that results repeat to the bit.

    A function that is not inlined is a separate symbol that several compiled loops define, with different rounding:
    which one is called would depend on what was loaded before, and on whether this process compiled the loop or read
    it from the cache.
    """
    functions = {path: compiled_functions(path) for path in FILES}
    inlined = {
        name: "inline='always'" in decorator or "forceinline=True" in decorator
        for of_file in functions.values()
        for name, (_, decorator) in of_file.items()
    }
    calls = [
        (name, node.func.id)
        for of_file in functions.values()
        for name, (function, _) in of_file.items()
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in inlined
    ]
    assert len(calls) > 50
    assert not [call for call in calls if not inlined[call[1]]]
