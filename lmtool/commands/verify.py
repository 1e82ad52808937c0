"""`lmtool verify`: runs, stores and other files -> whether each is as it was written."""

from __future__ import annotations

from pathlib import Path

from lmtool.config.model_verbs import VerifyConfig
from lmtool.errors import UserError
from lmtool.runs.run import newest
from lmtool.session import Session
from lmtool.system.files import write_json

SETTINGS = VerifyConfig


def run(config: VerifyConfig, session: Session) -> None:
    """Read the files with checksums below the paths, print how each is, and fail where one is damaged."""
    from lmtool.commands.verify_files import Condition, files_of, verified
    from lmtool.data.text_form import visible
    from lmtool.system.terminal import Cell, text_table

    session.use_threads(config.threads)
    paths = [Path(path) for path in config.paths] or [newest()]
    files = [verified(path, checksum) for path, checksum in sorted(files_of(paths).items())]
    if not files:
        raise UserError(f"{', '.join(map(str, paths))}: no file of lmtool there; name runs, stores or folders of them")
    rows: list[list[Cell]] = [
        [visible(str(file.path)), file.bytes, str(file.condition.value), file.damage or ""] for file in files
    ]
    session.say(text_table(["file", "bytes", "condition", "damage"], rows))
    entries = [
        {"file": str(file.path), "bytes": file.bytes, "condition": file.condition.value, "damage": file.damage}
        for file in files
    ]
    write_json(session.out / "result.json", {"files": entries})
    if any(file.condition is Condition.unverified for file in files):
        session.note("unverified: written before 0.6, without checksums; files that are made again have them")
    damaged = [file for file in files if file.condition is Condition.damaged]
    if damaged:
        some = "; ".join(f"{file.path}: {file.damage}" for file in damaged[:3])
        raise UserError(f"{len(damaged)} of {len(files)} files damaged ({some}): take a copy, or make them again")
