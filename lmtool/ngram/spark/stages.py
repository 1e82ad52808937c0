"""What Spark has finished, in a folder that the driver and the workers see: a Parquet folder for each step."""

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

LOCAL = "file:"  # before the path of a folder of this machine
DONE = "_SUCCESS"  # Spark writes it when all tasks have handed in their files
ROWS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class Stages:
    """address: of the folder, such as file:/folder or hdfs://host/folder."""

    address: str

    def folder(self, name: str) -> str:
        """The address of a step's folder."""
        return f"{self.address}/{name}"

    def finished(self, name: str, make: Callable[[], DataFrame]) -> str:
        """The folder of a step that is finished, as Spark reads it; runs the step first where it is not."""
        if not self._exists(f"{name}/{DONE}"):
            make().write.mode("overwrite").parquet(self.folder(name))
        return escaped(self.folder(name))

    def remove(self) -> None:
        """Delete the folder with all steps."""
        files, path = self._files()
        files.delete_dir(path)

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """The rows of a finished step, file by file in their order. Raises UserError where they cannot be read here."""
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
                    yield from pq.ParquetFile(handle).iter_batches(batch_size=ROWS_AT_ONCE)
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
