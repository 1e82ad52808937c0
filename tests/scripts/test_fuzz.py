"""./scripts/fuzz: a campaign finds, shrinks and repeats a planted fault; all run; what they found stays mended."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

import lmtool
from lmtool import neural, trees
from lmtool.cli.command_line import main
from lmtool.commands import verbs
from lmtool.config.settings import SettingError
from lmtool.errors import UserError, translate_path_errors
from lmtool.requests.arguments import split_line
from lmtool.runs.corpus import load_vocabulary
from tests.conftest import ROOT, Run

SCRIPTS = ROOT / "scripts"


@pytest.fixture
def fuzzing(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from fuzzing import campaign, child, commands, damage, formats, library, text, words

    modules = (campaign, child, commands, damage, formats, library, text, words)
    return SimpleNamespace(**{module.__name__.partition(".")[2]: module for module in modules})


def test_a_campaign_finds_shrinks_and_repeats_a_planted_fault(
    fuzzing: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def check(case: list[int], place: Path) -> list[str]:
        assert place.is_dir() and not list(place.iterdir())
        if sum(case) > 100:
            raise fuzzing.campaign.Fault("more than 100", f"it is {sum(case)}")
        return ["lmtool: 'a' is empty"] if not case else []

    planted = fuzzing.campaign.Generator(st.lists(st.integers(0, 1000)), check, lambda: None)
    row = fuzzing.campaign.campaign("planted", planted, tmp_path, seconds=20, first_seed=1, most=300)
    case, fault = row.found["more than 100"]
    assert case == [101] and fault.report == "it is 101", "the smallest case"
    assert fuzzing.campaign.try_case(planted, case, tmp_path)[0].signature == "more than 100"
    assert fuzzing.campaign.try_case(planted, [100], tmp_path) == (None, [])
    assert not list(tmp_path.iterdir())
    said = capsys.readouterr().out
    assert "again: ./scripts/fuzz planted '[101]'" in said and "seed 1" in said
    table = fuzzing.campaign.table([row]).splitlines()[-1].replace(" ", "").split("|")
    assert row.cases == 300 and (table[1], table[2], table[3], table[6]) == ("planted", "1", "300", "1")
    assert row.refused and set(row.refused) == {"lmtool: _ is empty"}


def test_how_a_child_ends_is_told(fuzzing: Any, tmp_path: Path) -> None:
    def forked(work: Callable[[], int], **limits: float) -> Any:
        return fuzzing.child.forked(work, tmp_path, **({"limit": 20} | limits))

    def patient() -> int:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        time.sleep(60)
        return 0

    said = forked(lambda: print("out") or print("err", file=sys.stderr) or 3)
    assert (said.code, said.out, said.err, said.interrupted) == (3, "out\n", "err\n", False)
    assert forked(lambda: 1 // 0).code == 70
    assert forked(lambda: os.kill(os.getpid(), signal.SIGSEGV) or 0).code == -signal.SIGSEGV
    assert forked(lambda: len(bytearray(1 << 40))).err.strip().endswith("MemoryError")
    hanging = forked(patient, limit=0.1, grace=0.1)
    assert (hanging.code, hanging.interrupted) == (None, True)


@pytest.mark.parametrize(
    ("item", "signature"),
    [
        *((kind, None) for kind in ("fine", "refused", "expected")),
        *(("two lines", "Wrong not one line"), ("wrong", "Wrong other words"), ("inside", "KeyError")),
        *(("slow", "TooSlow"), ("signal", "item signal: signal 11")),
    ],
)
def test_a_bad_item_is_named(item: str, signature: str | None, fuzzing: Any, tmp_path: Path) -> None:
    def act(name: str) -> None:
        two_lines = type("TwoLines", (UserError,), {"__str__": lambda self: "a\nb"})
        errors = {"two lines": two_lines("a"), "refused": UserError("no"), "expected": ValueError("no")}
        if name in errors:
            raise errors[name]
        if name == "wrong":
            raise fuzzing.campaign.Wrong("other words: a and b")
        if name == "inside":
            {}["a"]  # type: ignore[index]
        if name == "slow":
            time.sleep(20)
        if name == "signal":
            os.kill(os.getpid(), signal.SIGSEGV)

    def try_it() -> None:
        named = {"name": lambda name: f"item {name}", "seconds": 1, "expected": (ValueError,)}
        fuzzing.campaign.try_all(["fine", item], act, tmp_path, **named)

    if signature is None:
        try_it()
    else:
        with pytest.raises(fuzzing.campaign.Fault) as found:
            try_it()
        assert found.value.signature == signature and f'case 2: ["{item}"]' in found.value.report


@pytest.mark.parametrize(
    ("file", "place"),
    [(f"{ROOT}/lmtool/api/a.py", " in api/a.py:fails"), ("/x/lmtool/.venv/lib/torch/a.py", "")],
)
def test_a_clone_named_lmtool_is_not_the_package(file: str, place: str, fuzzing: Any) -> None:
    names: dict[str, Any] = {}
    exec(compile("def fails(): {}['a']", file, "exec"), names)
    with pytest.raises(KeyError) as found:
        names["fails"]()
    assert fuzzing.campaign.signature_of(found.value) == f"KeyError{place}"


@pytest.mark.parametrize(
    ("code", "err", "wrong"),
    [
        (2, "lmtool: no\n", None),
        (0, "", None),
        (2, "lmtool: a\nb\n", "not one line"),
        (2, "", "not one line"),
        (1, "lmtool: no\n", "exit code 1"),
        (-11, "", "signal 11"),
        (
            1,
            f'Traceback (most recent call last):\n  File "{ROOT}/lmtool/a.py", line 3\n'
            '  File "/x/lmtool/.venv/torch/b.py", line 4\nKeyError: 3\n',
            "traceback lmtool/a.py:3 KeyError",
        ),
        (None, "", "does not end"),
        (0, "x.py:3: RuntimeWarning: divide\n", "a warning"),
    ],
)
def test_what_must_not_be(code: int | None, err: str, wrong: str | None, fuzzing: Any) -> None:
    problem = fuzzing.commands.wrong_end(fuzzing.child.End(code, "", err))
    assert problem is None if wrong is None else wrong in problem[0]


def test_files_that_are_not_whole_are_seen(fuzzing: Any, tmp_path: Path) -> None:
    for name, whole, cut in (
        *(("a.json", b"{}", b"{"), ("b.jsonl", b"{}\n", b"{}\n{")),
        *(("c.h5", None, b"\x89HDF"), (".d.tmp", None, b"")),
    ):
        path = tmp_path / name
        if whole is not None:
            path.write_bytes(whole)
            assert fuzzing.child.damaged(path) is None
        path.write_bytes(cut)
        assert fuzzing.child.damaged(path), name


def test_edits_of_bytes_by_hand(fuzzing: Any) -> None:
    edited = fuzzing.damage.edited
    right = b"a 1\nb 2\n"
    for edit, wrong in (
        (["replace", "number", 1, "nan"], b"a 1\nb nan\n"),
        (["replace", "number", 2, "9"], b"a 9\nb 2\n"),
        (["replace", "field", 2, "\xff"], b"a 1\n\xff 2\n"),
        (["replace", "byte", 8, "A"], b"A 1\nb 2\n"),
        (["insert", "byte", 4, "x"], b"a 1\nxb 2\n"),
        (["insert", "line", 1, "x\n"], b"a 1\nx\nb 2\n"),
        (["drop", "line", 0, 1], b"b 2\n"),
        (["drop", "byte", 1, 2], b"a\nb 2\n"),
        (["double", "line", 1, 1], b"a 1\nb 2\nb 2\n"),
        (["swap", "line", 0, 1], b"b 2\na 1\n"),
        (["swap", "field", 3, 0], b"2 1\nb a\n"),
        (["flip", "byte", 0, 1], b"c 1\nb 2\n"),
        (["cut", "byte", 5, 0], b"a 1\nb"),
        (["splice", "byte", 2, 6], b"a 2\n"),
        (["times", "byte", 2, 0], right + right),
    ):
        assert edited(right, [edit]) == wrong, edit
        assert edited(b"", [edit]) in (b"", b"x", b"x\n", b"A", b"9", b"nan", b"\xff")


def test_an_arpa_file_by_the_plain_reader(fuzzing: Any) -> None:
    text = b"\\data\\\nngram 1=2\n\n\\1-grams:\n-0.5 a -0.25\n-1 b\n\n\\2-grams:\n-0.125 a a\n\n\\end\\\n"
    model = fuzzing.formats.PlainArpa(text)
    assert model.p((b"a",), b"a") == -0.125 and model.p((b"a",), b"b") == -1.25 and model.p((b"b",), b"a") == -0.5
    for wrong in (text[:-6], text.replace(b"-0.125", b"-0_1"), text.replace(b"a a\n", b"a a\n-1 a a\n")):
        with pytest.raises(ValueError):
            fuzzing.formats.PlainArpa(wrong)


def test_a_reader_that_loses_a_word_is_found(fuzzing: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    formats, text = fuzzing.formats, fuzzing.text
    kind = next(kind for kind in text.KINDS if kind.name == "w.txt")

    def read(content: bytes) -> None:
        (tmp_path / "w.txt").write_bytes(content)
        text.compare(kind, formats.Given(tmp_path / "w.txt", [content]))

    read(b"the\ncat\n")
    with monkeypatch.context() as patch:
        patch.setattr(
            "lmtool.data.choose_vocabulary.split_words", lambda line: [word for word in line.split() if word != "cat"]
        )
        with pytest.raises(text.Wrong, match="word_list: "):
            read(b"the\ncat\n")
    with pytest.raises(UserError, match="stands in line 1 already"):
        read(b"the\ncat\nthe\n")
    for plainly, found in ((lambda given: ["the"], "is refused"), (lambda given: 1 / int("x"), "is accepted")):
        content = b"" if found == "is refused" else b"the\n"
        monkeypatch.setattr(formats, "plain_word_list", plainly)
        with pytest.raises(text.Wrong, match=found):
            read(content)


def test_each_campaign_runs(fuzzing: Any, tmp_path: Path) -> None:
    """A few cases each, of a seed that finds nothing; one process prepares what they share once."""
    from fuzzing.__main__ import NONSENSE

    command = [sys.executable, "-m", "fuzzing", ",".join(NONSENSE), "60", "1", "--cases", "1"]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{SCRIPTS}", "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    assert [row[0][2:] for row in rows] == list(NONSENSE) and min(int(row[2]) for row in rows) >= 1
    assert not list(tmp_path.iterdir()), "the campaigns leave nothing behind"


def test_all_runs_each_campaign_in_a_process(fuzzing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from fuzzing import __main__ as lines

    asked: list[list[str]] = []

    def run(command: list[str]) -> Any:
        """Stand in for a campaign's process, which fails for `words`."""
        asked.append(command[3:])
        return SimpleNamespace(returncode=int(command[3] == "words"))

    monkeypatch.setattr(lines.subprocess, "run", run)
    assert lines.main(["all", "60", "1", "--cases", "2"]) == 1, "one has found something"
    assert sorted(asked) == [[name, str(60.0 * lines.cores()), "1", "--cases", "2"] for name in sorted(lines.NONSENSE)]


def test_every_verb_and_function_is_tried(fuzzing: Any) -> None:
    library = fuzzing.library
    assert set(fuzzing.words.RIGHT) == set(verbs())
    known = library.targets()
    assert {f"lmtool.{name}" for name in ("train", "ensemble", "distill", "convert", "sweep", "rescore")} < known.keys()
    assert {"kn.score", "net.advance", "mix.words", "tree.paths", "lmtool.Corpus.from_texts"} < known.keys()
    assert library.literal("[1,{a: null}]") == "[1, {'a': None}]"


def test_a_message_is_one_line_whatever_it_holds(lmtool: Run) -> None:
    assert str(SettingError("a\n")) == "a\\n"
    assert str(UserError("a\nb\tü\x1b[31m\u202e\u2028\udcff")) == "a\\nb\\tü\\x1b[31m\\u202e\\u2028\\udcff"
    said = lmtool("train", "model=\x85\n", code=2)
    assert said.startswith("lmtool: no model=\\x85\\n") and said.count("\n") == 1


# Lines that ended with a traceback, or with more than one line of error, and what they say now.
FOUND = [
    (["convert", "run=x", "to=b.arpa", "a" * 300], ["not a setting"]),
    (["train", "--info=x"], ["--info x", "defaults-tree"]),
    (["eval", "run=x", "text==${.x}"], ["x"]),
    (["eval", "run=x", "options=~nobody-of-this-name/x"], ["no such folder"]),
    (["eval", "run=x", "options=half\uddf6"], ["must be text without line breaks"]),
    (["tree", "data=toy", "tree=huffman", "to=."], [" is a folder: name a file"]),
    (["neighbors", "run=x", "a \ud81b"], [r"words: 'a \ud81b' is not UTF-8 text"]),
]


@pytest.mark.parametrize(("words", "said"), FOUND, ids=[" ".join(words)[:40] for words, _ in FOUND])
def test_lines_that_campaigns_found(words: list[str], said: list[str], lmtool: Run) -> None:
    message = lmtool(*words, code=2)
    assert message.startswith("lmtool: ") and message.count("\n") == 1
    for word in said:
        assert word in message


def test_info_takes_only_one_of_its_own_words_after_it() -> None:
    """Hydra's own parser would take any next word as the flag's value."""
    assert split_line(["train", "--info", "model=ngram"]).flags == {"--info": "all"}
    assert split_line(["train", "-i", "--info=config", "seed=1"]).flags == {"--info": "config"}
    assert split_line(["train", "--info", "searchpath", "seed=1"]).flags == {"--info": "searchpath"}


# The contents of a YAML file, and what the error names beside the file.
YAML = [(b"3\n", "int"), (b"a: \x07\n", "#x0007"), (b"a: \xff\n", "UTF-8")]


def test_neighbors_of_what_is_no_word(runs: Path) -> None:
    with pytest.raises(UserError, match="word=None: must be text"):
        lmtool.load(runs / "nplm").neighbors(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("where", ["--config-dir=own", "options=own"])
@pytest.mark.parametrize(("content", "named"), YAML)
def test_yaml_that_campaigns_found(content: bytes, named: str, where: str, lmtool: Run) -> None:
    Path("own/model").mkdir(parents=True)
    Path("own/model/mine.yaml").write_bytes(content)
    message = lmtool("train", "model=mine", "data=toy", where, code=2)
    assert message.count("\n") == 1 and named in message, message
    assert "own/model/mine.yaml" in message


def test_a_folder_of_presets_named_like_an_interpolation(lmtool: Run) -> None:
    Path("${seed}/data").mkdir(parents=True)
    said = lmtool("preprocess", "data=toy", "--config-dir", "${seed}", code=2)
    assert said.count("\n") == 1 and "must be a folder without ${ in its path" in said


def test_calls_that_campaigns_found(tmp_path: Path) -> None:
    tree = trees.balanced_tree([0, 1, 2])
    trees.write_tree(str(tmp_path / "tree.txt"), tree, ["a", "b", "c"])
    assert trees.code_strings(trees.read_tree(str(tmp_path / "tree.txt"), ["a", "b", "c"])) == ["00", "01", "1"]
    for wrong in (
        lambda: trees.top_of(None, ["a"], [1], 0),
        lambda: trees.analyze("tree", [1]),
        lambda: trees.path_rows(None, ["a"], [1], [0]),
        lambda: trees.code_strings(None),
        lambda: trees.tree_text(""),
        lambda: trees.write_tree(tmp_path / "x.txt", None, ["a"]),
        lambda: trees.write_tree(tmp_path / "x.txt", tree, [1, 2, 3]),
        lambda: neural.HierarchicalSoftmax(4, tree, nodes=neural.DotNodes),
        lambda: neural.AdaptiveSoftmax(4, torch.ones(4), cutoffs=[2], div_value=0),
        lambda: neural.AdaptiveSoftmax(4, torch.ones(4), cutoffs=[2], div_value=None),
        lambda: lmtool.States.of([3]),
        lambda: neural.clip_gradients([{"params": []}], 1.0),
    ):
        with pytest.raises(ValueError):
            wrong()
    assert not (tmp_path / "x.txt").exists()
    with pytest.raises(UserError, match="no store"):
        lmtool.Corpus.open(str(tmp_path))
    with pytest.raises(UserError, match="over='ngram'"):
        lmtool.sweep("ngram")
    with pytest.raises(UserError, match="verb=trian: must be one of preprocess, train"):
        lmtool.sweep({"seed": [1, 2]}, verb="trian")
    with pytest.raises(UserError, match=r"data=.*: settings are text, numbers, lists"):
        lmtool.preprocess(torch.ones(0))


def test_a_long_message_loses_its_middle() -> None:
    said = str(UserError(f"{'a' * 1000}{'b' * 500_000}{'c' * 1000}"))
    assert said == f"{'a' * 1000} [...] {'c' * 1000}" and str(UserError("a" * 2000)) == "a" * 2000


def test_vocabularies_that_campaigns_found(tmp_path: Path) -> None:
    right = "a\t2\n<unk>\t0\n<s>\t0\n"
    (tmp_path / "v.txt").write_text(right)
    assert load_vocabulary(tmp_path / "v.txt").counts.tolist() == [2, 0, 0]
    for count in ("-1", "9" * 30, "9" * 5000):
        (tmp_path / "v.txt").write_text(right.replace("2", count))
        with pytest.raises(UserError, match=r"v\.txt is damaged"):
            load_vocabulary(tmp_path / "v.txt")


def test_a_path_that_cannot_be_looked_at_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "a" * 300  # most file systems end names after 255 letters
    for call in (
        lambda: lmtool.load(name),
        lambda: lmtool.evaluate(name),
        lambda: lmtool.evaluate(tmp_path / name / "kn"),
        lambda: lmtool.Corpus.open(name),
        lambda: lmtool.Corpus.from_texts(["the cat"], ["the"], store_dir=tmp_path / name),
    ):
        with pytest.raises(UserError, match="File name too long; name another path"):
            call()
    for words in (["eval", f"run={name}"], ["export", "run=kn", f"to={name}.txt"], ["verify", name]):
        assert main([*words, f"hydra.run.dir={tmp_path}/run"]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_other_errors_of_files_are_not_taken_for_paths() -> None:
    with (
        pytest.raises(UserError, match=r"^/x/y: Permission denied; name another path, or allow this one$"),
        translate_path_errors(),
    ):
        raise PermissionError(errno.EACCES, "Permission denied", "/x/y")
    with pytest.raises(FileNotFoundError), translate_path_errors():
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "/x/y")
    with pytest.raises(OSError, match="File name too long"), translate_path_errors():
        raise OSError(errno.ENAMETOOLONG, "File name too long")
