"""Commands that only read work in a folder that may not be written to, and leave nothing anywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

READ = {
    "eval run=kn3": "perplexity",
    "eval run=kn3 text=t.txt": "perplexity",
    "predict the run=kn3": "probability",
    "predict the run=hs paths=true": "decisions from the root",
    "generate the run=kn3 seed=1": "seed=1",
    "neighbors cat run=nplm": "cosine",
    "score run=kn3 text=t.txt to=-": "tokens",
    "surprisal run=kn3 text=t.txt": "surprisal_bits",
    "pairs run=kn3 text=p.jsonl": "1.0000",
    "compare runs=[kn3,nplm]": "p (bootstrap)",
    "verify kn3": "whole",
    "tree data=toy": "leaves",
    "preprocess data=toy": "up to date",
}
NEED_A_FOLDER = (
    "train model=ngram data=toy",
    "report kn3",
    "eval run=kn3 hydra.run.dir=here",
    "rescore run=kn3 nbest=n.txt",
)
SCRIPT = """
import sys
from lmtool.cli.command_line import main
for line in sys.argv[1:]:
    print("##", line, flush=True)
    print("code", main(line.split()), flush=True)
"""


@pytest.fixture
def unprivileged() -> list[str]:
    """What begins a command line so that permissions hold, for root too."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere without setpriv")
    return ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]


def test_where_nothing_may_be_written(
    unprivileged: list[str], runs: Path, tmp_path: Path, lmtool: Callable[..., str]
) -> None:
    folder, temporary = tmp_path / "locked", tmp_path / "temporary"
    temporary.mkdir()
    folder.mkdir()
    for name in ("kn3", "nplm", "hs"):
        shutil.copytree(runs / name, folder / name)
    shutil.copytree(runs / "stores", folder / "stores")
    (folder / "t.txt").write_text("the cat sat\n")
    (folder / "n.txt").write_text("0 ||| the cat ||| 1 ||| -1\n")
    (folder / "p.jsonl").write_text('{"sentence_good": "the cat sat", "sentence_bad": "sat cat the"}\n')
    before = sorted(folder.rglob("*"))
    for path in (folder, *before):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        ended = subprocess.run(
            [*unprivileged, sys.executable, "-c", SCRIPT, *READ, *NEED_A_FOLDER],
            cwd=folder,
            env={**os.environ, "TMPDIR": str(temporary), "MPLBACKEND": "agg"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert sorted(folder.rglob("*")) == before
    finally:
        for path in (folder, *before):
            path.chmod(0o755)
    said = dict(part.split("\n", 1) for part in ended.stdout.split("## ")[1:])
    for line, wanted in READ.items():
        assert said[line].endswith("code 0\n") and wanted in said[line], (line, said.get(line), ended.stderr)
        assert "cannot be made (Permission denied): the result is printed, not kept" in said[line]
        assert str(temporary) not in said[line]
    for line in NEED_A_FOLDER:
        assert said[line] == "code 2\n"
    assert ended.stderr.count("Permission denied; choose another folder") == len(NEED_A_FOLDER)
    assert not list(temporary.iterdir())
