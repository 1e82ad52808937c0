"""Report a training to its experiment trackers, none of which can end it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lmtool import __version__
from lmtool.config.groups import TrackerConfig
from lmtool.errors import UserError, first_line
from lmtool.runs.resume import flat
from lmtool.runs.run import TRACKED
from lmtool.system.files import read_json, write_json

# Settings that do not change the weights, beside those of the data, for which the store's fingerprint stands.
NOT_IN_FINGERPRINT = {"store_dir", "threads", "device", "training.trackers", "training.save_every"}
Values = Mapping[str, Any]


class Trackers:
    """The trackers of one training, a context manager, at whose end those that have no result end without one.

    folder: the run folder. about: settings and store of the training. resumed: whether earlier runs are continued.
    warn: called with a message if a tracker fails, which is left out from then on.
    """

    def __init__(self, options: list[TrackerConfig], folder: Path, about: Values, *, resumed: bool, warn: Any) -> None:
        self.running, self._warn = options, warn
        if not options:
            return
        ids = read_json(folder / TRACKED, "delete it") if resumed and (folder / TRACKED).is_file() else {}
        settings = {key: value for key, value in flat(about["settings"]).items() if value is not None}
        settings |= {"run": "/".join(folder.resolve().parts[-2:]), "lmtool": __version__}
        settings |= {"store": about["store"], "fingerprint": fingerprint(about)}
        self.tell(lambda each: ids.update({each.kind: each.begin(folder, settings, ids.get(each.kind))}))
        write_json(folder / TRACKED, ids)

    def __enter__(self) -> Trackers:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(None)

    def end(self, result: Values | None) -> None:
        """End all runs with the numbers of result.json, or without a result; no-op for a second time."""
        self.tell(lambda each: each.end(None if result is None else numbers_in(result)))
        self.running = []

    def tell(self, call: Callable[[TrackerConfig], object]) -> None:
        """Call each tracker; leave out those that fail. Raises UserError if a tracker does."""
        for option in list(self.running):
            try:
                call(option)
            except UserError:
                raise
            except Exception as error:  # of a library, of a server
                self.running.remove(option)
                with suppress(Exception):
                    option.end(None)
                why = f"{type(error).__name__}: {first_line(error)}"
                self._warn(f"training.trackers: {option.kind} failed ({why}): the training continues without it")


def fingerprint(about: Values) -> str:
    """Return 16 hexadecimal digits that are equal for trainings by the same version with the same text and settings."""
    settings, free = flat(about["settings"]), NOT_IN_FINGERPRINT
    kept = {key: value for key, value in settings.items() if key not in free and not key.startswith("data.")}
    return hashlib.sha256(json.dumps([__version__, about["store"], kept], sort_keys=True).encode()).hexdigest()[:16]


def numbers_in(values: Values) -> dict[str, float]:
    """Return the numbers among values."""
    return {key: value for key, value in values.items() if type(value) in (int, float)}
