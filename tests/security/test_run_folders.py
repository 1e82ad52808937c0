"""Run folders, weights, vocabularies and trees of a stranger: nothing in them runs, and each ends in one line."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from lmtool import UserError, load
from lmtool.system.files import read_json, write_json
from tests.conftest import Run


class Canary:
    """A pickle that makes a folder when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("canary",)


@pytest.fixture
def theirs(runs: Path, tmp_path: Path) -> Path:
    """Copies of runs that the test may spoil: mle, nplm, hs, mix."""
    for name in ("mle", "nplm", "hs", "mix"):
        shutil.copytree(runs / name, tmp_path / name)
    return tmp_path


def changed(folder: Path, name: str = "run.json", **values: object) -> None:
    """Change a file as a stranger would: with the right checksum."""
    write_json(folder / name, read_json(folder / name, "-") | values)


def test_the_pickle_is_a_weapon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Canary()))
    assert Path("canary").is_dir()


PICKLED = ["mle/model.h5", "mle/vocabulary.txt", "mle/run.json", "nplm/checkpoint.safetensors", "hs/tree.safetensors"]


@pytest.mark.parametrize("name", PICKLED)
def test_pickles_under_our_names(name: str, theirs: Path, lmtool: Run) -> None:
    Path(name).write_bytes(pickle.dumps(Canary()))
    said = lmtool("predict", f"run={Path(name).parent}", "the", "device=cpu", code=2)
    assert said.startswith("lmtool: ") and said.count("\n") == 1 and not Path("canary").exists()


@pytest.mark.parametrize("name", ["state.safetensors", "begun.json", "run.json"])
def test_pickles_that_would_be_resumed(name: str, theirs: Path, lmtool: Run) -> None:
    for path in ("state.safetensors", "state-before.safetensors"):
        Path("nplm", path).write_bytes(pickle.dumps(Canary()))
    Path("nplm", name).write_bytes(pickle.dumps(Canary()))
    said = lmtool("train", "resume=nplm", "training.epochs=2", code=2)
    assert said.splitlines()[-1].startswith("lmtool: ") and not Path("canary").exists()


@pytest.mark.parametrize("file", ["request.json", "config.yaml", "hydra.yaml", "overrides.yaml"])
def test_tags_in_what_is_saved_beside_a_run(file: str, theirs: Path, lmtool: Run) -> None:
    """The request is JSON; Hydra's own files are for people, and are not read."""
    Path("nplm/.hydra", file).write_text("!!python/object/apply:os.mkdir [canary]\n")
    Path("nplm/begun.json").unlink()
    said = lmtool("train", "resume=nplm", code=2 if file == "request.json" else 0)
    assert file != "request.json" or ("request.json is damaged" in said and said.count("\n") == 1)
    assert not Path("canary").exists()


SETTINGS: list[tuple[dict[str, object], str]] = [
    ({"kind": "os"}, "this is not an option"),
    ({"kind": "../../evil"}, "this is not an option"),
    ({"kind": "ngram.__class__"}, "this is not an option"),
    ({"_target_": "os.mkdir"}, "no key 'model._target_'"),
    ({"order": "${oc.env:HOME}"}, "order=${oc.env:HOME}: must be a whole number"),
]


@pytest.mark.parametrize(("values", "said"), SETTINGS, ids=lambda value: str(value)[:30])
def test_settings_that_a_run_saved(values: dict[str, object], said: str, theirs: Path) -> None:
    config = json.loads((theirs / "mle/run.json").read_text())["config"]
    changed(theirs / "mle", config=config | {"model": config["model"] | values})
    with pytest.raises(UserError) as refused:
        load(theirs / "mle")
    assert said in str(refused.value) and os.environ["HOME"] not in str(refused.value)


def test_an_origin_is_not_imported(theirs: Path, lmtool: Run) -> None:
    """Neither the package nor the folder that a run says its options are from."""
    (theirs / "evil/model").mkdir(parents=True)
    for path in ("evil/__init__.py", "evil/model/mine.py"):
        (theirs / path).write_text("import os\nos.mkdir('canary')\n")
    config = json.loads((theirs / "mle/run.json").read_text())["config"]
    for origin in ("the package evil", f"the folder {theirs}/evil"):
        changed(theirs / "mle", config=config | {"model": {"kind": "mine"}}, origins={"model": origin})
        said = lmtool("predict", "run=mle", "the", code=2)
        assert f"model=mine came from {origin}, which is not in use here" in said and not Path("canary").exists()


@pytest.mark.parametrize(
    ("members", "said"),
    [
        (["mix", "mle"], "mix is a member of itself"),
        (["../" * 30 + "etc", "mle"], "/etc is not a finished run"),
        (["/dev/null", "mle"], "no run folder /dev/null"),
        (["a\0b", "mle"], "run.json is damaged (members[0] must be text; got"),
        ("mle", "run.json is damaged (members must be a list; got"),
        ([5, "mle"], "run.json is damaged (members[0] must be text; got 5)"),
        ([], "damaged"),
    ],
    ids=str,
)
def test_members_of_a_mixture(members: object, said: str, theirs: Path, lmtool: Run) -> None:
    changed(Path("mix"), members=members)
    shown = lmtool("predict", "run=mix", "the", "device=cpu", code=2)
    assert said in shown and shown.count("\n") == 1


def test_mixtures_of_each_other(theirs: Path, lmtool: Run) -> None:
    shutil.copytree("mix", "other")
    changed(Path("mix"), members=["other", "mle"])
    changed(Path("other"), members=["mix", "mle"])
    assert "mix is a member of itself" in lmtool("predict", "run=mix", "the", "device=cpu", code=2)


def test_links_out_of_the_folder_are_not_shown(runs: Path, theirs: Path, lmtool: Run) -> None:
    """Read the target of a link as the file that it replaces, which is an error that shows nothing of the target."""
    Path("secret").write_text("the password is 1234567\n" * 3)
    for name in ("vocabulary.txt", "model.h5", "run.json"):
        Path("mle", name).unlink()
        Path("mle", name).symlink_to(Path("secret").resolve())
        said = lmtool("predict", "run=mle", "the", code=2)
        assert "1234567" not in said and said.count("\n") == 1
        Path("mle", name).unlink()
        shutil.copy(runs / "mle" / name, Path("mle", name))


@pytest.mark.parametrize("name", ["run.json", "vocabulary.txt", "model.h5"])
def test_devices_and_pipes_are_not_waited_for(name: str, theirs: Path, lmtool: Run) -> None:
    for make in (lambda path: os.mkfifo(path), lambda path: os.symlink("/dev/zero", path)):
        Path("mle", name).unlink()
        make(Path("mle", name))
        lmtool("predict", "run=mle", "the", code=2)


def test_brackets_in_brackets(theirs: Path, lmtool: Run) -> None:
    Path("mle/run.json").write_text("[" * 100_000)
    assert "run.json is damaged (maximum recursion depth" in lmtool("predict", "run=mle", "the", code=2)


def test_a_run_that_names_code_at_an_address(theirs: Path, lmtool: Run) -> None:
    """fsspec's `reference` is a program of templates, not an address."""
    pytest.importorskip("fsspec")
    changed(Path("mle"), store="reference::file:///evil.json")
    said = lmtool("eval", "run=mle", code=2)
    assert "reference" in said and "is not the address of a file" in said and said.count("\n") == 1


def test_a_tree_file_of_words_that_are_commands(theirs: Path, lmtool: Run) -> None:
    Path("tree.txt").write_text("\x1b[31mred\t0\n__import__('os').mkdir('canary')\t1\n")
    said = lmtool("tree", "data=toy", "tree=file", "tree.path=tree.txt", code=2)
    assert r"'\x1b[31mred' is not in the vocabulary" in said and "\x1b" not in said and not Path("canary").exists()


def test_an_arpa_file_is_text(theirs: Path, lmtool: Run) -> None:
    Path("evil.arpa").write_bytes(pickle.dumps(Canary()))
    said = lmtool("predict", "arpa=evil.arpa", "the", code=2)
    assert said.startswith("lmtool: evil.arpa") and said.count("\n") == 1 and not Path("canary").exists()


def test_a_result_is_text(theirs: Path, lmtool: Run) -> None:
    """result.json names a run: it is not imported, fetched or looked for where a path cannot be."""
    for run in ("https://example.org/x", "../../..", "pkg://evil", "a\0b"):
        Path("scores").mkdir(exist_ok=True)
        Path("scores/result.json").write_text(json.dumps({"run": run, "weighted_mean_depth": 1, "perplexity": 2}))
        lmtool("report", "scores", "hydra.run.dir=page")
