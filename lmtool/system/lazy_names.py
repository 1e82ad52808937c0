"""Names of a package that are imported on first use."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

# Type checkers read the same lines: they are the only list of the names.
IMPORT = re.compile(r"^    from ([\w.]+) import (\w+) as \2$", re.MULTILINE)


def lazy_names(
    package: str, file: str, others: dict[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package. file: the package's file, with lines `from MODULE
    import NAME as NAME` under TYPE_CHECKING. others: modules of additional names.
    """
    homes = {name: module for module, name in IMPORT.findall(Path(file).read_text(encoding="utf-8"))} | (others or {})

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return get, lambda: sorted({*vars(sys.modules[package]), *homes}), sorted(homes)
