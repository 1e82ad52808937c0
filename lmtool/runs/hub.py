"""Runs on the Hugging Face Hub, by huggingface_hub: hub:NAME or hub:NAME@REVISION, wherever a run is named."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lmtool.errors import UserError, first_line
from lmtool.runs.run import METRICS_FILE, TOKENIZER, VOCABULARY, Run
from lmtool.system.terminal import hub_bars, note_once

HUB, CARD = "hub:", "README.md"
ABOUT = (CARD, "run.json", "result.json", VOCABULARY, TOKENIZER, METRICS_FILE, "curves.png")  # files beside the model's
COMMIT = re.compile("[0-9a-f]{40}")
LOG_IN = "log in by hf auth login, or set HF_TOKEN"
REASONS = {  # by the names of huggingface_hub's exceptions; the first match is used
    "HFValidationError": "must be hub:OWNER/NAME, or hub:OWNER/NAME@REVISION",
    "RevisionNotFoundError": "the Hub has no such revision of it",
    "RepositoryNotFoundError": f"not on the Hub, or private: check the name; for a private one {LOG_IN}",
    "LocalTokenNotFoundError": LOG_IN,
    "HfHubHTTPError": f"the Hub refuses: {LOG_IN}, with a token that may do this",
}


def local_run(name: str) -> str:
    """Return a run's folder: for hub:NAME, the folder of its copy, into which new files are downloaded.

    Only the files of a run are downloaded, and verified by the checksums in its run.json.
    """
    if not name.startswith(HUB):
        return name
    repository, _, revision = name.removeprefix(HUB).partition("@")
    with _client(name) as client:
        copy = f"{repository}@{revision.replace('/', '_')}" if revision else repository
        folder = Path(client.constants.HF_HOME, "lmtool", copy)
        try:
            commit = str(client.HfApi().model_info(repository, revision=revision or None).sha)
        except Exception as error:
            wrong = isinstance(error, ValueError | client.errors.RevisionNotFoundError)
            if wrong or not (folder / "run.json").is_file():
                raise
            note_once(f"{name}: the Hub cannot be reached; the copy {folder} is used")
        else:
            if not COMMIT.fullmatch(commit):  # it names files
                raise UserError(f"{name}: the Hub names the commit {commit!r}, not 40 hexadecimal digits")
            fetch = partial(client.snapshot_download, repository, revision=commit, local_dir=folder)
            fetch(allow_patterns=["run.json"])
            if not (folder / "run.json").is_file():
                raise UserError(f"{name}: not a run of lmtool (it has no run.json)")
            fetch(allow_patterns=[*ABOUT, *Run.open(folder).files_of_model()])
    Run.open(folder).require_whole()
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
        import huggingface_hub.errors
    except ImportError:
        raise UserError(f'{name}: needs huggingface_hub: pip install "lmtool[hub]"') from None
    for library in ("httpx", "httpx2"):  # both log each request
        logging.getLogger(library).setLevel(logging.WARNING)
    try:
        with hub_bars():
            yield huggingface_hub
    except UserError:
        raise
    except Exception as error:  # raised by the package or its dependencies
        kinds = [kind.__name__ for kind in type(error).__mro__]
        cannot = f"the Hub cannot be reached, or answers strangely ({first_line(error)}): check the network"
        raise UserError(f"{name}: {next((REASONS[kind] for kind in kinds if kind in REASONS), cannot)}") from error
