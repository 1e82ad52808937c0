"""Words and names of a stranger where people see them: on a terminal, in a spreadsheet, in the report's page."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lmtool.cli.command_line import main
from lmtool.errors import escape_controls
from lmtool.system.files import write_json
from lmtool.system.terminal import csv_text, text_table
from tests.conftest import Run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")  # what no terminal is to get


def test_escapes() -> None:
    assert escape_controls("a\x1b[31m\tb\nc\r\x07\x00\x7f\x9b") == r"a\x1b[31m" + "\tb\nc" + r"\r\x07\x00\x7f\x9b"
    assert escape_controls("\u202egnp \u2066 \udcff") == r"\u202egnp \u2066 \udcff"
    assert escape_controls("naïve 学 \u200c \u200f \u00a0") == "naïve 学 \u200c \u200f \u00a0"  # text of people


def test_a_table_stays_aligned() -> None:
    assert text_table(["a", "n"], [["\x1b", 1], ["bcdef", 2]]) == "a      n\n-----  -\n\\x1b   1\nbcdef  2"


TYPED = ["hydra.run.dir", "hydra.job.name", "store_dir", "data.name", "options"]


@pytest.mark.parametrize("break_", ["\n", "\x1b", "\u2028", "\u202e"])
@pytest.mark.parametrize("key", TYPED)
def test_no_name_has_a_line_break(key: str, break_: str, lmtool: Run) -> None:
    said = lmtool("train", "data=toy", "model=ngram", "model.order=1", f"{key}=a{break_}b", code=2)
    assert said.startswith(f"lmtool: {key}=") and "must be text without line breaks" in said and said.count("\n") == 1
    assert not list(Path().iterdir())


@pytest.mark.parametrize("words", [("hydra.run.dir=a",), ("-m", "seed=1,2", "hydra.sweep.dir=a")])
def test_no_folder_that_the_line_is_typed_in_has_one(words: tuple[str, ...], lmtool: Run) -> None:
    Path("a\nb").mkdir()
    os.chdir("a\nb")
    said = lmtool("train", "data=toy", "model=ngram", *words, code=2)
    assert "must be text without line breaks" in said and said.count("\n") == 1 and not list(Path().iterdir())


def test_text_to_read_may_have_them(lmtool: Run) -> None:
    lmtool("train", "data=toy", "model=ngram", "model.order=1", "hydra.run.dir=run")
    assert "not in the vocabulary" in lmtool("predict", "run=run", "text=\tqx\n", code=2)


def test_no_folder_is_interpolated(lmtool: Run) -> None:
    folder = Path("p_${oc.env:HOME}")
    folder.mkdir()
    os.chdir(folder)
    line = ["train", "data=toy", "model=ngram", "model.order=1", "hydra.run.dir=run"]
    for words in ([], ["-m", "seed=1,2"]):
        said = lmtool(*line, *words, code=2)
        assert "a folder without ${ in its path" in said and said.count("\n") == 1
    os.chdir("..")
    lmtool(*line)
    shutil.move("run", folder)
    lmtool("eval", f"run={folder}/run", "split=valid", "hydra.run.dir=scored")
    assert {path.name for path in Path().iterdir()} == {folder.name, "scored", "stores"}


WORDS = [
    "<script>document.title='RAN'</script>",
    "\"><img/src=SERVER/word/onerror=document.title='RAN'>",
    "<svg/onload=document.title='RAN'>",
    '<style>@import"SERVER/style";</style>',
    "</text></svg><iframe/src=SERVER/frame>",
    "<link/rel=stylesheet/href=SERVER/link>",
    "<meta/http-equiv=refresh/content=0;url=SERVER/meta>",
    "javascript:document.title='RAN'",
    "]]>",
    "&lt;script&gt;",
    "{{7*7}}",
    "\x1b]0;RAN\x07",
    "\x9b31m",
    "\u202egnp",
    "=cmd|'/c",
]


@pytest.fixture(scope="module")
def server() -> tuple[str, list[str]]:
    """A server on this machine that notes who asks it for anything: its address, and the paths."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{listening.server_port}", asked  # type: ignore[misc]
    listening.shutdown()
    listening.server_close()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, server: tuple[str, list[str]]) -> Path:
    """Runs over hostile words, in folders with hostile names, with hostile settings, and their report in `page`."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("hostile")
    words = [word.replace("SERVER", server[0]) for word in WORDS]
    (folder / "text").write_text("\n".join(" ".join(words[k:] + words[:k]) for k in range(12)) + "\n")
    names = [
        "a<script>document.title=`RAN`<",
        f"<img src={server[0].replace('/', ':')} onerror=alert(1)>",
        "\x1b[31m\x07",
    ]
    data = ["data=text", "data.name=evil", *(f"data.{split}={folder}/text" for split in ("train", "valid", "test"))]
    data += ["data.vocabulary.min_count=1", f"store_dir={folder}/stores"]
    tiny = ["model.embedding_dim=4", "model.hidden_dim=4", "model.context_size=2", "training.epochs=1"]
    at = f"hydra.run.dir='{folder}/runs"
    for line in (
        ["train", "model=ngram", "model.order=2", *data, f"{at}/kn'"],
        [
            "train",
            "model=hsoftmax",
            *tiny,
            "training.batch_size=16",
            "training.minutes=null",
            *data,
            f"{at}/{names[0]}'",
        ],
        ["eval", f"run={folder}/runs/kn", "split=test", f"store_dir={folder}/stores", f"{at}/{names[1]}'"],
        ["tree", *data, "tree=huffman", "levels=3", f"{at}/tree'"],
    ):
        assert main(line) == 0
    os.rename(folder / "runs/tree", folder / "runs" / names[2])  # which lmtool does not make
    shutil.copytree(folder / "runs" / names[1], folder / "runs" / os.fsdecode(b"\xff\xfe"))
    sweep = folder / "runs" / "sweep"
    sweep.mkdir()
    key, value = words[0], words[1]
    (sweep / "sweep.csv").write_text("")
    for number, other, perplexity in ((0, value, 2.0), (1, words[2], 3.0), (2, "=1+1", None)):
        record = {
            "request": {"verb": "train", "values": {key: other}},
            "status": "done" if perplexity else "failed",
            "error": words[3],
            "code": 2,
        }
        write_json(sweep / str(number) / "job.json", record | {"made": ["result.json"] if perplexity else []})
        write_json(sweep / str(number) / "result.json", {"perplexity": perplexity, "seconds": 1.0})
    assert main(["report", str(folder / "runs"), f"hydra.run.dir={folder}/page", "resamples=100", "threads=1"]) == 0
    return folder


def test_the_page_is_text_and_markup_of_ours(hostile: Path) -> None:
    page = (hostile / "page/report.html").read_text(encoding="utf-8")
    assert not COMMANDS.search(page)
    for tag in ("script", "img/", "iframe", "style>@import", "link/", "meta/", "svg/onload"):
        assert f"<{tag}" not in page
    assert "&lt;script&gt;document.title='RAN'" in page.replace("&#39;", "'").replace("<wbr>", "")
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'" in page
    result = json.loads((hostile / "page/result.json").read_text())
    assert all(re.fullmatch(r"[\w-]+\.png", name) for name in result["pictures"]) and len(result["pictures"]) >= 4


@pytest.mark.tool(CHROMIUM or "chromium")
def test_a_browser_runs_nothing_and_asks_for_nothing(
    hostile: Path, server: tuple[str, list[str]], tmp_path: Path
) -> None:
    address, asked = server
    (tmp_path / "open.html").write_text(
        f"<title>x</title><script>document.title='RAN'</script><img src='{address}/control'>"
    )

    def shown(page: Path) -> str:
        flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
        flags += " --disable-component-update --disable-sync --disable-dev-shm-usage"
        flags += " --virtual-time-budget=2000 --dump-dom"
        own = tmp_path / page.stem
        return subprocess.run(
            [str(CHROMIUM), *flags.split(), f"--user-data-dir={own}", page.as_uri()],
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
            env=os.environ | {"HOME": str(own), "XDG_CACHE_HOME": str(own)},
        ).stdout

    assert "<title>RAN</title>" in shown(tmp_path / "open.html") and asked == ["/control"]  # a browser that would
    asked.clear()
    text = shown(hostile / "page/report.html")
    title = re.search("<title>(.*?)</title>", text)
    assert title is not None and title[1] != "RAN" and text.count("<svg") >= 4
    assert "<script" not in text and asked == []


def test_lines_on_a_terminal(hostile: Path, tmp_path: Path) -> None:
    """Of verbs that print words: on a terminal no control character; generated text in a file is exact."""
    run, store = hostile / "runs/kn", f"store_dir={hostile}/stores"
    (scores,) = (hostile / "runs").glob("<img*")
    lines = [
        ["predict", f"run={run}", "]]> \x1b]0;RAN\x07", "top=20"],
        ["generate", f"run={run}", "count=20", "seed=1", "length=15"],
        ["score", f"run={run}", f"text={hostile}/text", "to=scores.tsv"],
        ["eval", f"run={run}", "split=test", store],
        ["compare", f"runs=['{run}','{scores}']", "split=test", store, "resamples=100"],
    ]
    script = "import sys, json\nfrom lmtool.cli.command_line import main\n"
    script += "for line in json.loads(sys.argv[1]): assert main(line) == 0"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", script, json.dumps(lines)], stdout=theirs, stderr=theirs, stdin=theirs, cwd=tmp_path
    )
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # how a terminal without programs ends
        while part := os.read(ours, 1 << 16):
            seen += part
    os.close(ours)
    text = re.sub(r"\x1b\[A|\r", "", seen.decode())  # tqdm's bars, and the terminal's line ends
    assert process.wait(60) == 0, text
    assert r"\x1b]0;RAN\x07" in text and not COMMANDS.search(text), text


def test_generated_text_is_exact_in_a_file(hostile: Path, lmtool: Run) -> None:
    assert "\x1b]0;RAN\x07" in lmtool("generate", f"run={hostile}/runs/kn", "count=20", "seed=1", "length=15")


def test_formulas_in_tables() -> None:
    rows = [["=cmd|'/c calc'!A1", "+1+1", "-x", "@SUM(A1)", "\t=1", "'=1", "plain", "a=b", ""]]
    text = csv_text(rows)
    assert text == "'=cmd|'/c calc'!A1,'+1+1,'-x,'@SUM(A1),'\t=1,''=1,plain,a=b,\n"


def test_numbers_in_tables_are_numbers() -> None:
    assert csv_text([[-1.5, "-1.5", "+2", "-inf", None, 3, "1_0", "-1_0"]]) == "-1.5,-1.5,+2,-inf,,3,1_0,'-1_0\n"


def test_a_sweep_over_formulas(lmtool: Run) -> None:
    words = ["data=toy", "model=ngram", "model.order=1", "hydra.sweep.dir=sweep", "smoother=laplace"]
    lmtool("train", "-m", *words, "smoother.alpha=1", "data.name=-x,y")
    cells = [line.split(",")[1] for line in Path("sweep/sweep.csv").read_text().splitlines()]
    assert sorted(cells) == ["'-x", "data.name", "y"]
    lmtool("report", "sweep", "hydra.run.dir=page")
    page = Path("page/report.html").read_text(encoding="utf-8")
    assert ">-x<" in page and "&#39;-x" not in page
