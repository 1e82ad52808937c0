"""`lmtool push`: run -> Hugging Face Hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lmtool.config.rules import MISSING, require
from lmtool.config.verbs import VerbConfig
from lmtool.errors import UserError
from lmtool.results.base import Written
from lmtool.session import Session


@dataclass(slots=True)
class Settings(VerbConfig):
    run: str | None = MISSING
    to: str = MISSING
    private: bool = MISSING

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        require(self.to.startswith("hub:"), "to", self.to, "a name on the Hugging Face Hub, as hub:OWNER/NAME")


@dataclass(repr=False)
class PushResult(Written):
    """The result of `push`. to: the run's name on the Hub."""

    run: Path
    to: str


def run(settings: Settings, session: Session) -> PushResult:
    """Upload a run, with its card, which is written unless the folder has one.

    >>> lmtool.push("runs/mine", to="me/mine")  # doctest: +SKIP
    """
    from lmtool.commands._card import write_card
    from lmtool.runs.hub import CARD, upload
    from lmtool.runs.run import Run, run_folder

    finished = Run.open(run_folder(settings.run))
    if finished.members:
        raise UserError(f"{finished.folder} is a mixture of other folders: push its members, and mix these by hub:NAME")
    if not (finished.folder / CARD).is_file():
        session.note(f"wrote {write_card(finished, settings.to)}: add a license and what others should know")
    name = upload(finished, settings.to, private=settings.private)
    about = f"on the Hub; load it by lmtool.load('hub:{name}'), or as run=hub:{name}"
    result = PushResult(Path(f"hub:{name}"), about, finished.folder, f"hub:{name}")
    session.finish(result, f"{finished.folder} is {about}")
    return result
