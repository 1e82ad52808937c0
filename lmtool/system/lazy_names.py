"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

# As type checkers read it, too: the only list of the names.
IMPORT = re.compile(r"^    from ([\w.]+) import (\w+) as \2$", re.MULTILINE)


def lazy_names(
    package: str, file: str, others: dict[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package. file: its own, with lines `from MODULE import NAME as
    NAME` under TYPE_CHECKING. others: modules of further names.
    """
    homes = {name: module for module, name in IMPORT.findall(Path(file).read_text(encoding="utf-8"))} | (others or {})

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return get, lambda: sorted({*vars(sys.modules[package]), *homes}), sorted(homes)
