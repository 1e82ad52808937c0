"""What the tests share: small corpora of our own, and the real ones where LMTOOL_DATA has them."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from lmtool.config.data import Unit, VocabularyConfig
from lmtool.config.groups import OutputConfig
from lmtool.data.corpus import Corpus
from lmtool.neural.encoders.options import NplmModel
from lmtool.neural.encoders.settings import Activation
from lmtool.neural.outputs.options import SoftmaxOutput
from lmtool.neural.outputs.softmax import Precision
from lmtool.system import parallel
from tests.skips import pytest_make_collect_report, pytest_runtest_makereport, pytest_runtest_setup  # noqa: F401

Run = Callable[..., str]  # the fixture lmtool: runs a command line
ROOT = Path(__file__).resolve().parent.parent
of_torch_2_13 = pytest.mark.skipif(
    [int(part) for part in version("torch").split(".")[:2]] < [2, 13], reason="torch drew other numbers before 2.13"
)
RULES = VocabularyConfig(file=None, size=None, min_count=1, lowercase=False, unit=Unit.word)

SOFTMAX = SoftmaxOutput("softmax", Precision.fp32)


# As `lmtool` itself does: what is imported stays, and looking for garbage among it takes a tenth of a command's time.
gc.set_threshold(50_000, 20, 20)


# Trainings are compared to the bit, and the other worker of pytest-xdist comes and goes.
parallel.LOOK_EVERY = parallel.LOOK_FIRST = math.inf


@pytest.fixture(scope="session", autouse=True)
def without_curves() -> Iterator[None]:
    """Trainings end without their picture, which takes longer to draw than they take; `with_curves` undoes it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lmtool.commands._train_neural.can_plot", lambda: False)
        yield


@pytest.fixture(scope="session", autouse=True)
def without_syncing() -> Iterator[None]:
    """Files are not flushed to the disk, for which a short command waits as long as it computes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # an error for what is not open
        yield


@pytest.fixture(autouse=True)
def without_corpora(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """LMTOOL_DATA is set for the tests of its corpora alone: others must not read them, and messages name it."""
    if "real_data" not in request.fixturenames:
        monkeypatch.delenv("LMTOOL_DATA", raising=False)


@pytest.fixture
def also_logged(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[str], None]]:
    """Have caplog hear a logger by name, as commands remove its handler from the root. Undone after the test: the
    handler is one for all tests, so that later ones would hear each message twice."""
    loggers: list[logging.Logger] = []

    def add(name: str) -> None:
        loggers.append(logging.getLogger(name))
        loggers[-1].addHandler(caplog.handler)

    yield add
    for logger in loggers:
        logger.removeHandler(caplog.handler)


@pytest.fixture
def with_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have trainings draw their curves where matplotlib is installed, as for a user."""
    from lmtool.plots import can_plot

    monkeypatch.setattr("lmtool.commands._train_neural.can_plot", can_plot)


def nplm(**changes: object) -> NplmModel:
    """Return the settings of a small NPLM as in the paper."""
    values: dict[str, object] = {"kind": "nplm", "context_size": 3, "embedding_dim": 6, "hidden_dim": 8, "layers": 1}
    values |= {
        "direct_connections": False,
        "tied": False,
        "activation": Activation.tanh,
        "layer_norm": False,
        "dropout": 0.0,
    }
    return NplmModel(**(values | {"input_dropout": 0.0, "projection_dim": None} | changes))  # type: ignore[arg-type]


def neural(corpus: Corpus, output: OutputConfig = SOFTMAX, tree: object = None, **changes: object) -> object:
    """Return a small neural model over the words of a corpus."""
    from lmtool.neural.build import build_neural

    return build_neural(nplm(**changes), output, corpus.vocabulary, tree)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    from lmtool.data.preprocess import preprocess
    from lmtool.data.sources.builtin import ToyData

    data = ToyData(kind="toy", name="toy", sentences=True, vocabulary=RULES)
    return Corpus.open(preprocess(data, tmp_path_factory.mktemp("stores"), progress=False).path)


def composed_line(verb: str, *words: str, flags: Sequence[str] = ()) -> Any:
    """Return the composed settings of a command line, without Hydra's part."""
    from lmtool.config.composition import verb_settings
    from lmtool.requests.arguments import split_line
    from lmtool.requests.compose import compose_request
    from lmtool.requests.words import parse_request

    return verb_settings(compose_request(parse_request(split_line([verb, *flags, *words])))[1])


NEURAL = ["data=toy", "model.embedding_dim=8", "model.hidden_dim=12", "model.context_size=3", "training.epochs=1"]
NEURAL += ["training.batch_size=16", "optim.lr=0.02", "training.minutes=null"]


def require_mistake(lmtool: Callable[..., str], line: str, words: Sequence[str]) -> None:
    """Require that a command line ends with exit code 2 and one line that contains all of these words."""
    said = lmtool(*line.split(), code=2)
    assert said.startswith("lmtool: ") and said.count("\n") == 1, said
    for word in words:
        assert word in said


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs on toy data: mle (of bigrams), kn3, nplm, hs (a tree), mix, and char, of letters."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "names.txt").write_text("anna\nhanna\nann\nhan\n" * 5)
    letters = ["data=text", "data.name=letters", f"data.train={folder}/names.txt", f"data.valid={folder}/names.txt"]
    from lmtool.cli.command_line import main

    for line in (
        ["train", "model=ngram", "data=toy", "model.order=2", "smoother=mle", f"hydra.run.dir={folder}/mle"],
        ["train", "model=ngram", "data=toy", "model.order=3", f"hydra.run.dir={folder}/kn3"],
        ["train", "model=nplm", *NEURAL, f"hydra.run.dir={folder}/nplm"],
        ["train", "model=hsoftmax", *NEURAL, f"hydra.run.dir={folder}/hs"],
        ["ensemble", f"runs=[{folder}/kn3,{folder}/nplm]", "weights=[0.5,0.5]", f"hydra.run.dir={folder}/mix"],
        ["train", "model=ngram", *letters, "data.vocabulary.unit=char", f"hydra.run.dir={folder}/char"],
    ):
        assert main([*line, f"store_dir={folder}/stores"]) == 0
    return folder


def run_lines(folder: Path, *lines: str) -> Path:
    """Run command lines in a folder, for what the tests of a file share; return the folder."""
    from lmtool.cli.command_line import main

    with contextlib.chdir(folder):
        for line in lines:
            assert main(line.split()) == 0, line
    return folder


def result(folder: str | Path) -> dict[str, Any]:
    """result.json of a folder."""
    found: dict[str, Any] = json.loads((Path(folder) / "result.json").read_text(encoding="utf-8"))
    return found


def answer() -> dict[str, Any]:
    """result.json of the only command so far, which is then forgotten."""
    (path,) = Path("outputs").glob("*/*/result.json")
    found: dict[str, Any] = json.loads(path.read_text())
    shutil.rmtree("outputs")
    return found


@pytest.fixture(scope="session")
def real_data() -> Path:
    folder = os.environ.get("LMTOOL_DATA", "")
    if not (Path(folder) / "ptb" / "ptb.train.txt").is_file() or not folder:
        pytest.skip("needs LMTOOL_DATA with ptb/ptb.train.txt")
    return Path(folder)


@pytest.fixture
def lmtool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run a command line in this process from an empty folder; gives what it printed, checks its exit code."""
    from lmtool.cli.command_line import main

    monkeypatch.chdir(tmp_path)

    def run(*words: str, code: int = 0) -> str:
        found = main(list(words))
        out, err = capfd.readouterr()
        assert found == code, err + out
        assert "Traceback" not in err
        return err if code else out

    yield run
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, logging.FileHandler):  # Hydra leaves it to the end of the process
            root.removeHandler(handler)
            handler.close()


def fresh_process(*words: str, cwd: Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Run `python -m lmtool` in a separate process."""
    return subprocess.run(
        [sys.executable, "-m", "lmtool", *words], cwd=cwd, capture_output=True, text=True, timeout=120, **options
    )
