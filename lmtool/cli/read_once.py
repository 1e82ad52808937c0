"""Hydra's repository of configurations, with lmtool's and Hydra's own read once until they change."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.plugins.config_source import ConfigResult


@dataclass(eq=False)
class Kept(ConfigResult):
    """A configuration that compositions share, and by what to notice that it has changed."""

    version: Any = None
    __hash__ = object.__hash__


class ReadOnce(ConfigRepository):
    """Hydra's repository of configurations, which reads lmtool's and Hydra's own once until they change.

    used: what has been loaded, by path.
    """

    _read: ClassVar[dict[tuple[Any, ...], Kept]] = {}

    def __init__(self, search_path: ConfigSearchPath) -> None:
        super().__init__(search_path)
        self.used: dict[str, ConfigResult | None] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> ReadOnce:
        """Return a copy to which other sources can be given, as each composition makes one; the sources themselves,
        with the settings of all plugins, do not change.
        """
        return copy.copy(self)

    def load_config(self, config_path: str) -> ConfigResult | None:
        """Return a configuration by its group and name, as Hydra does; None if it is missing."""
        self.used[config_path] = found = self._load(config_path)
        return found

    def _load(self, config_path: str) -> ConfigResult | None:
        source: Any = next((source for source in self.sources if source.is_config(config_path)), None)
        name = f"{config_path.removesuffix('.yaml')}.yaml"
        version: Any = None
        match source and (source.provider, source.scheme()):
            case ("main", "file"):
                status = os.stat(os.path.join(source.path, name))
                version = status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
            case (_, "structured"):
                version = reduce(lambda node, part: node[part], name.split("/"), ConfigStore.instance().repo)
            case ("hydra", "pkg"):
                pass
            case _:
                return super().load_config(config_path)
        key = (source.full_path(), name)
        if key not in self._read or self._read[key].version != version:
            found = super().load_config(config_path)
            assert found is not None, "its source has it"
            self._read[key] = Kept(**vars(found), version=version)
        return self._read[key]
