"""The commands of the README and the guides run, or at least compose."""

from __future__ import annotations

import re
import shlex
import shutil
import sysconfig
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import partial
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import pytest

from lmtool.config.options import GROUP_MODULES, folder_in_use, yaml_files
from lmtool.data.sources import builtin
from lmtool.errors import UserError
from lmtool.plots import can_plot
from lmtool.requests.arguments import split_line
from lmtool.requests.words import parse_request
from tests.conftest import ROOT, Run
from tests.pages import (
    GUIDES,
    README,
    Block,
    anchors,
    blocks,
    command_lines,
    indented,
    links,
    pages,
    shell_code,
    toctree,
)

NEEDS = {"subwords": "tokenizers", "your_language": "tokenizers", "reports": "matplotlib"}  # of pages of an extra
NETWORKS = {"model=nplm", "model=hsoftmax"}
SMALL = ["model.embedding_dim=16", "model.hidden_dim=16", "training.steps=4", "training.batch_size=1024"]
EXAMPLE = "docs/examples/own_options/own_options"
# What a shell quotes, or does not read at all; and what zsh replaces outside quotes, or refuses if no file matches.
QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|\$\{\w+\}|\s#.*")
REPLACED = re.compile(r"[][*?()]|\{[^{}]+\}|(?<!\S)~")
SETTING = re.compile(r"'?[+~]?[a-z_]+([./][a-z_]+)*=[^\s\"(]")


def test_the_contents_and_the_index_of_the_guides_have_each_page_once() -> None:
    names = [path.stem for path in GUIDES.glob("*.md") if path.stem != "index"]
    index = (GUIDES / "index.md").read_text(encoding="utf-8")
    assert sorted(toctree()) == sorted(names)
    assert re.findall(r"^\| \[[^]]+\]\((\w+)\.md\)", index, flags=re.M) == toctree()


@pytest.mark.parametrize(
    "page", [README, *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "SECURITY"))], ids=lambda page: page.stem
)
def test_the_links_of_pages_outside_the_site_lead_somewhere(page: Path) -> None:
    """./scripts/docs follows the links of the site's pages."""
    for address in links(page):
        name, _, anchor = address.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), address
        assert not anchor or anchor in anchors(target), address


def test_the_list_of_options_has_every_option() -> None:
    text = (ROOT / "docs" / "reference" / "options.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    for group in GROUP_MODULES:
        (row,) = [row for row in rows if f"`{group}=`" in row]
        assert {name for name in yaml_files(group) if f"`{name}`" not in row} == set(), group


def test_no_line_to_type_lacks_quotes_that_zsh_needs() -> None:
    """zsh, the shell of macOS, refuses `runs=[a,b]`; a list without brackets, or quoted, works in each shell."""
    written = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]
    for folder, suffix in (("docs", "md"), ("docs/examples", "yaml"), ("conf", "yaml")):
        written += (ROOT / folder).rglob(f"*.{suffix}")
    lines = [
        (path.relative_to(ROOT), line)
        for path in written
        if not {"_build", "generated"} & set(path.parts)
        for line in shell_code(path)
        if re.search(r"\blmtool [a-z]", line) or (SETTING.match(line) and '"' not in line)
    ]
    wrong = [f"{path}: {line}" for path, line in lines if REPLACED.search(QUOTED.sub("", line))]
    assert not wrong and len(lines) > 700


def test_no_message_shows_a_list_that_zsh_refuses() -> None:
    for path in (ROOT / "lmtool").rglob("*.py"):
        assert not re.search(r"(?<!')\b[a-z_]+=\[([A-Z{]|a,b)", path.read_text(encoding="utf-8")), path


@pytest.fixture
def few_docstrings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have data=pydoc read a part of the library; tests/docs/test_tutorials.py reads all of it."""
    library = tmp_path / "library"
    library.mkdir()
    for path in Path(sysconfig.get_paths()["stdlib"]).glob("[a-i]*.py"):
        shutil.copy(path, library)
    monkeypatch.setattr(builtin, "docstrings", partial(lambda real, _: real(library), builtin.docstrings))


def test_the_pages_run(lmtool: Run, with_curves: None, few_docstrings: None) -> None:
    """Run all pages as one session, because the guides use the runs of the README. A block of `text` has lines that
    the block before it prints.
    """
    done: set[str] = set()
    for page in pages():
        if page.stem in NEEDS and find_spec(NEEDS[page.stem]) is None:
            continue
        names: dict[str, object] = {}
        printed: set[str] = set()  # lines, of the block of commands before
        for block in blocks(page, "sh", "python", "text"):
            if block.language == "text":
                assert {*map(str.rstrip, block.text.splitlines())} - {"..."} <= printed, block.place
                continue
            printed = set()
            if block.language == "python":
                with redirect_stdout(StringIO()) as said:
                    exec(compile(block.text, block.place, "exec"), names)
                printed = set(map(str.rstrip, said.getvalue().splitlines()))
                continue
            assert len(command_lines(block.text)) == len([line for line in block.text.splitlines() if line.strip()])
            for words in command_lines(block.text):
                if shlex.join(words) not in done:
                    printed |= set(map(str.rstrip, _run(lmtool, block, words).splitlines()))
                done.add(shlex.join(words))
        if page == README:
            assert len(done) >= 6
            assert names["mixture"].perplexity < min(names["mixture"].perplexities)
        if page.stem == "using_a_model":
            assert names["model"].context_size == 4
        if page.stem == "output_layers_in_pytorch":
            dist = names["output"].log_dist(names["encoder"](names["contexts"]))
            assert dist.shape == (256, 5000) and float((dist.exp().sum(1) - 1).abs().max()) < 1e-5
    assert Path("runs/nplm/curves.png").is_file() == can_plot()


def _run(lmtool: Run, block: Block, words: list[str]) -> str:
    """Run a command, with a smaller network that trains in a second instead of a minute, and return what it printed."""
    small = SMALL if NETWORKS & set(words) and "--cfg" not in words else []
    small = ["training.steps=8"] if "resume=runs/nplm" in words else small
    small = [*small, "lr_range_steps=10"] if "lr_range=true" in words else small
    try:
        printed = lmtool(*words, *small)
        assert printed
        return printed
    except AssertionError as error:
        raise AssertionError(f"{block.place}: lmtool {shlex.join(words)}\n{error}") from None


def shown() -> Iterator[tuple[Path, list[str]]]:
    """Yield the command lines that are shown but not run, each with its page."""
    for page in pages():
        texts = [block.text for block in blocks(page, "bash")]
        for words in command_lines("\n".join([*texts, indented(page)])):
            if "..." not in words and not {"completion", "--version"} & set(words):
                yield page, words


def test_the_commands_that_are_only_shown_have_settings_that_exist() -> None:
    """Check verbs, groups, options, keys and types of values, as the command line does."""
    checked = 0
    with folder_in_use(str(ROOT / EXAMPLE)):
        for page, words in shown():
            try:
                parse_request(split_line(words))
            except UserError as error:
                pytest.fail(f"{page.name}: lmtool {shlex.join(words)}: {error}")
            checked += 1
    assert checked > 70
