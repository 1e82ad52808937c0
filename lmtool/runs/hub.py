"""Runs on the Hugging Face Hub, by huggingface_hub: hub:NAME or hub:NAME@REVISION, wherever a run is named."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lmtool.errors import UserError, first_line
from lmtool.runs.run import METRICS, TOKENIZER, VOCABULARY, Run

HUB, CARD = "hub:", "README.md"
ABOUT = (CARD, "run.json", "result.json", VOCABULARY, TOKENIZER, METRICS, "curves.png")  # files beside the model's
LOG_IN = "log in by hf auth login, or set HF_TOKEN"
REASONS = {  # by the names of errors of huggingface_hub, the first one that fits
    "HFValidationError": "must be hub:OWNER/NAME, or hub:OWNER/NAME@REVISION",
    "RevisionNotFoundError": "the Hub has no such revision of it",
    "RepositoryNotFoundError": f"not on the Hub, or private: check the name; for a private one {LOG_IN}",
    "LocalTokenNotFoundError": LOG_IN,
    "HfHubHTTPError": f"the Hub refuses: {LOG_IN}, with a token that may do this",
}


def local_run(name: str) -> str:
    """Return a run's folder: for hub:NAME that of its copy, into which new files are downloaded, else the name.

    Only the files of a run are downloaded, and the checksums that its run.json has of them are verified. Raises
    UserError if the package is not installed, or the run cannot be reached and has no copy, or is damaged.
    """
    if not name.startswith(HUB):
        return name
    repository, _, revision = name.removeprefix(HUB).partition("@")
    with _client(name) as client:
        copy = f"{repository}@{revision.replace('/', '_')}" if revision else repository
        folder = Path(client.constants.HF_HOME, "lmtool", copy)
        fetch = partial(client.snapshot_download, repository, revision=revision or None, local_dir=folder)
        fetch(allow_patterns=["run.json"])
        if not (folder / "run.json").is_file():
            raise UserError(f"{name}: not a run of lmtool (it has no run.json)")
        run = Run.open(folder)
        fetch(allow_patterns=[*ABOUT, *run.files_of_model()])
    run.require_whole()
    return str(folder)


def upload(run: Run, name: str, *, private: bool) -> str:
    """Upload the files of a run to hub:NAME, which is made if it does not exist; return its name there."""
    with _client(name) as client:
        api = client.HfApi(library_name="lmtool")
        made = api.create_repo(name.removeprefix(HUB), private=private, exist_ok=True)
        names = [*ABOUT, *run.files_of_model()]
        api.upload_folder(repo_id=made.repo_id, folder_path=run.folder, allow_patterns=names)
    return str(made.repo_id)


@contextmanager
def _client(name: str) -> Iterator[Any]:
    """Yield the package huggingface_hub; raise its errors in the block as a UserError."""
    try:
        import huggingface_hub.constants
    except ImportError:
        raise UserError(f'{name}: needs huggingface_hub: pip install "lmtool[hub]"') from None
    for library in ("httpx", "httpx2"):  # which log each request
        logging.getLogger(library).setLevel(logging.WARNING)
    try:
        yield huggingface_hub
    except UserError:
        raise
    except Exception as error:  # of the package, or of those below it
        kinds = [kind.__name__ for kind in type(error).__mro__]
        cannot = f"the Hub cannot be reached, or answers strangely ({first_line(error)}): check the network"
        raise UserError(f"{name}: {next((REASONS[kind] for kind in kinds if kind in REASONS), cannot)}") from error
