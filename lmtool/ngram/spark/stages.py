"""The results of Spark's steps: a Parquet folder for each finished step, in a folder that driver and workers see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from lmtool.data.remote import escaped
from lmtool.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOCAL = "file:"  # prefix of the path of a folder of this machine
DONE = "_SUCCESS"  # name of the file that Spark writes when all tasks have delivered their files
ROWS_PER_BATCH = 1 << 20


@dataclass(frozen=True, slots=True)
class Stages:
    """The folder of finished steps. address: such as file:/folder or hdfs://host/folder."""

    address: str

    def folder(self, name: str) -> str:
        """Return the address of a step's folder."""
        return f"{self.address}/{name}"

    def finished(self, name: str, make: Callable[[], DataFrame]) -> str:
        """Return the folder of a step, as Spark reads it; run the step first if it is not finished."""
        if not self._exists(f"{name}/{DONE}"):
            make().write.mode("overwrite").parquet(self.folder(name))
        return escaped(self.folder(name))

    def remove(self) -> None:
        """Delete the folder with all steps."""
        files, path = self._files()
        files.delete_dir(path)

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a finished step, file by file in order. Raises UserError if they cannot be read here."""
        files, path = self._files()
        selector = fs.FileSelector(f"{path}/{name}", allow_not_found=True)
        found = sorted(info.path for info in files.get_file_info(selector) if info.path.endswith(".parquet"))
        if not found:
            raise UserError(
                f"{self.folder(name)} is empty for this machine: counts.folder must be an address that the driver and "
                "the workers see, such as hdfs://host/folder or a shared file system"
            )
        for file in found:
            try:
                with files.open_input_file(file) as handle:
                    yield from pq.ParquetFile(handle).iter_batches(batch_size=ROWS_PER_BATCH)
            except (OSError, pa.ArrowInvalid) as error:
                raise UserError(f"{file} cannot be read ({error}): delete {self.address} and run again") from error

    def _exists(self, name: str) -> bool:
        files, path = self._files()
        return bool(files.get_file_info(f"{path}/{name}").type != fs.FileType.NotFound)

    def _files(self) -> tuple[fs.FileSystem, str]:
        if self.address.startswith(LOCAL):
            return fs.LocalFileSystem(), self.address.removeprefix(LOCAL)
        try:
            found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(self.address)
            return found
        except (OSError, pa.ArrowInvalid) as error:
            raise UserError(f"counts.folder={self.address} cannot be reached: {error}") from error
