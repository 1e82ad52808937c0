"""Known corpora, fetched once into a cache folder and checked by their checksum."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lmtool.config.rules import MISSING
from lmtool.errors import UserError


@dataclass(slots=True)
class DownloadConfig:
    """Where a file is fetched from when it is not below LMTOOL_DATA.

    checksum: `md5:...` or `sha256:...`. member: the file in a .zip; None for the file itself.
    """

    url: str = MISSING
    checksum: str = MISSING
    member: str | None = None


def cache_dir() -> Path:
    """The folder of downloads: LMTOOL_CACHE, or the user's cache folder."""
    import pooch

    return Path(os.environ.get("LMTOOL_CACHE") or pooch.os_cache("lmtool"))


def is_cached(download: DownloadConfig) -> bool:
    """Whether the file is in the cache, so that `fetch` needs no network."""
    try:
        return (cache_dir() / _file_name(download)).is_file()
    except ImportError:
        return False


def _file_name(download: DownloadConfig) -> str:
    return f"{download.checksum.split(':')[-1][:12]}-{download.url.rsplit('/', 1)[-1]}"


def fetch(download: DownloadConfig, *, progress: bool) -> Path:
    """The local path of a download, fetched where it is not in the cache: whole and checked, or not there.

    Raises UserError where it cannot be fetched, is cut off, or does not have the checksum.
    """
    try:
        import pooch
        import requests
    except ImportError:
        raise UserError(
            f"{download.url} is to be downloaded, which needs pooch: pip install 'lmtool[download]', or fetch it "
            "yourself and set LMTOOL_DATA"
        ) from None
    pooch.get_logger().setLevel("WARNING")
    folder = cache_dir()
    try:
        path = pooch.retrieve(
            download.url,
            known_hash=download.checksum,
            fname=_file_name(download),
            path=folder,
            downloader=pooch.HTTPDownloader(progressbar=progress, timeout=30),
        )
    except requests.exceptions.HTTPError as error:
        raise _failed(
            download, f"the server answered {error.response.status_code if error.response is not None else error}"
        ) from error
    except requests.exceptions.RequestException as error:
        raise _failed(download, f"the connection failed ({type(error).__name__})") from error
    except ValueError as error:
        raise _failed(download, "its checksum is another: the file was changed or cut off") from error
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}; set LMTOOL_CACHE to another") from error
    return Path(path)


def _failed(download: DownloadConfig, reason: str) -> UserError:
    return UserError(f"cannot download {download.url}: {reason}; try again, or fetch it yourself and set LMTOOL_DATA")
