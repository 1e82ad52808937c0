"""`lmtool preprocess`: text -> HDF5 store."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from lmtool.config.settings import typed
from lmtool.config.verbs import PreprocessConfig
from lmtool.session import on_terminal, output_dir, use_threads
from lmtool.system.files import write_json
from lmtool.system.tables import text_table


def run(composed: DictConfig) -> float | None:
    """Write the store of `data` unless it is up to date, and print its contents."""
    config = typed(composed, PreprocessConfig)
    from lmtool.data.preprocess import preprocess

    use_threads(config.threads)
    prepared = preprocess(config.data, Path(config.store_dir), progress=on_terminal())
    header = list(prepared.rows[0])
    print(text_table(header, [list(row.values()) for row in prepared.rows]))
    for note in prepared.notes:
        print(f"note: {note}")
    print(f"{'wrote' if prepared.created else 'nothing to do: up to date is'} {prepared.path}")
    result = {"store": str(prepared.path), "created": prepared.created, "splits": prepared.rows}
    write_json(output_dir() / "result.json", result)
    return None
