"""Runs on the Hugging Face Hub: its real client, and a server on this machine; and the card of a run."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import lmtool as python
from lmtool.system.files import write_json
from tests.conftest import Run
from tests.hub_server import TOKEN, Hub, running_hub

pytest.importorskip("huggingface_hub", minversion="1.0", reason="older ones copy the endpoint when they are imported")
from huggingface_hub import constants, utils


def use_endpoint(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Set the Hub's address, as HF_ENDPOINT does, which is read only when the package is imported."""
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with running_hub() as server:
        use_endpoint(monkeypatch, server.address)
        monkeypatch.setattr(constants, "HF_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        yield server


@pytest.fixture
def kn3(runs: Path, tmp_path: Path) -> str:
    shutil.copytree(runs / "kn3", tmp_path / "kn3", ignore=shutil.ignore_patterns("README.md"))
    return "kn3"


def scores(run: str | Path) -> list[float]:
    found: list[float] = python.load(run).score("the cat sat").tolist()
    return found


def test_a_run_is_pushed_and_used_by_its_name(lmtool: Run, hub: Hub, kn3: str, runs: Path) -> None:
    said = lmtool("push", "run=kn3", "to=hub:me/kn3")
    assert "load it by lmtool.load('hub:me/kn3')" in said and "wrote kn3/README.md" in said
    assert b'lmtool.load("hub:me/kn3")' in hub.files["me/kn3"]["README.md"]
    names = hub.files["me/kn3"].keys()
    assert names >= {"README.md", "run.json", "result.json", "vocabulary.txt", "model.h5"}
    assert not [name for name in names if name.endswith(".log") or name.startswith((".", "begun", "state"))]
    assert scores("hub:me/kn3") == scores("kn3")
    assert Path(python.load("hub:me/kn3").name).name == "kn3"
    Path("text.txt").write_text("the cat sat\n")
    lines = [lmtool("eval", f"run={run}", "text=text.txt").splitlines()[1:6] for run in ("kn3", "hub:me/kn3")]
    assert lines[0] == lines[1]
    said = lmtool("compare", f"runs=[hub:me/kn3,{runs}/nplm]", "resamples=100", f"store_dir={runs}/stores")
    assert "kn3" in said
    assert "hub:me/kn3@main" not in said and "perplexity" in lmtool("eval", "run=hub:me/kn3@main", "text=text.txt")


def test_a_copy_is_renewed_and_used_without_a_network(
    lmtool: Run, hub: Hub, kn3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lmtool("push", "run=kn3", "to=hub:me/kn3", "private=true")
    first = scores("hub:me/kn3")
    (private,) = hub.private
    assert private == "me/kn3"
    model = hub.files["me/kn3"]["model.h5"]
    hub.files["me/kn3"]["model.h5"] = model[:-100] + bytes(100)
    with pytest.raises(python.UserError, match=r"me/kn3/model\.h5 is damaged"):
        python.load("hub:me/kn3")
    hub.files["me/kn3"]["model.h5"] = model
    assert scores("hub:me/kn3") == first
    use_endpoint(monkeypatch, "http://127.0.0.1:9")  # where nothing listens
    assert scores("hub:me/kn3") == first
    assert "hub:me/other: the Hub cannot be reached" in lmtool("eval", "run=hub:me/other", code=2)


def test_only_files_of_a_run_are_fetched(hub: Hub, runs: Path, tmp_path: Path) -> None:
    python.push(runs / "nplm", "hub:me/net")
    hub.files["me/net"] |= {"evil.pkl": b"x", "lmtool.py": b"x"}
    assert scores("hub:me/net") == scores(runs / "nplm")
    copied = {path.name for path in (tmp_path / "home" / "lmtool" / "me" / "net").glob("*")}
    assert copied >= {"checkpoint.safetensors", "run.json"} and not copied & {"evil.pkl", "lmtool.py"}


@pytest.mark.parametrize("commit", ["../../../../canary", "/canary", "main", "A" * 40, "0" * 39, "", "0" * 40 + "/x"])
def test_a_commit_is_no_path(commit: str, hub: Hub, kn3: str, tmp_path: Path) -> None:
    python.push(tmp_path / kn3, "hub:me/kn3")
    hub.commit = commit or " "
    before = set(tmp_path.rglob("*"))
    with pytest.raises(python.UserError, match=r"hub:me/kn3: the Hub names the commit .*, not 40 hexadecimal digits"):
        python.load("hub:me/kn3")
    assert set(tmp_path.rglob("*")) == before


def test_without_a_terminal_there_are_no_bars(
    hub: Hub, kn3: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    python.push(tmp_path / kn3, "hub:me/kn3")
    python.load("hub:me/kn3")
    assert not capfd.readouterr().err and not utils.are_progress_bars_disabled()


def test_mistakes_are_one_line(lmtool: Run, hub: Hub, kn3: str, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "hub:me/none: not on the Hub, or private: check the name" in lmtool("eval", "run=hub:me/none", code=2)
    hub.files["me/bert"] = {"config.json": b"{}"}
    assert "hub:me/bert: not a run of lmtool (it has no run.json)" in lmtool("eval", "run=hub:me/bert", code=2)
    assert "the Hub has no such revision of it" in lmtool("eval", "run=hub:me/bert@v9", code=2)
    assert "must be hub:OWNER/NAME" in lmtool("eval", "run=hub:a/b/c", code=2)
    assert "to=kn3: must be a name on the Hugging Face Hub" in lmtool("push", "run=kn3", "to=kn3", code=2)
    assert "is a mixture of other folders" in lmtool("push", f"run={runs}/mix", "to=hub:me/mix", code=2)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "the Hub refuses: log in by hf auth login, or set HF_TOKEN" in lmtool(
        "push", "run=kn3", "to=hub:me/x", code=2
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    said = lmtool("eval", "run=hub:me/kn3", code=2)
    assert 'hub:me/kn3: needs huggingface_hub: pip install "lmtool[hub]"' in said


def test_the_card_has_data_settings_and_intervals(lmtool: Run, kn3: str, runs: Path) -> None:
    lmtool("eval", "run=kn3", "split=test", f"store_dir={runs}/stores", "hydra.run.dir=kn3/test")
    lmtool("eval", "run=kn3", "split=train", f"store_dir={runs}/stores", "hydra.run.dir=kn3/train")
    lmtool("eval", f"run={runs}/nplm", f"store_dir={runs}/stores", "hydra.run.dir=kn3/another")
    assert "wrote kn3/README.md" in lmtool("export", "run=kn3", "to=card", "license=mit", "language=en")
    text = Path("kn3/README.md").read_text()
    _, front, body = text.split("---\n", 2)
    about = yaml.safe_load(front)
    assert about == {"library_name": "lmtool", "license": "mit", "language": "en", "metrics": ["perplexity"]} | {
        "tags": ["language-model", "n-gram", "ngram", "modified_kneser_ney"]
    }
    result = json.loads(Path("kn3/result.json").read_text())
    assert f"| valid | {result['valid_perplexity']:.2f} |  |" in body
    test = json.loads(Path("kn3/test/result.json").read_text())
    (row,) = [line for line in body.splitlines() if line.startswith("| test |")]
    assert f"{test['perplexity']:.2f}" in row and " to " not in row and body.count("| valid |") == 1  # four sentences
    (row,) = [line for line in body.splitlines() if line.startswith("| train |")]
    assert " to " in row
    assert "trained on toy by lmtool" in body and "model.order: 3" in body and "data.vocabulary.unit" in body
    assert (
        "wrote kn3/README.md" in lmtool("export", "run=kn3", "to=card")
        and "unknown" in Path("kn3/README.md").read_text()
    )
    assert "license=mit: needs to=card" in lmtool("export", "run=kn3", "to=k.arpa", "license=mit", code=2)


def test_the_card_shows_names_as_text(lmtool: Run, kn3: str) -> None:
    """Whatever a stranger's run.json calls its data, options, splits and settings."""
    name = "x\n# evil\n<script>a()</script> | `b` [c](d) ```\n![e](f)"
    about = json.loads(Path(kn3, "run.json").read_text())
    about["config"]["data"]["name"] = about["store_fingerprint"] = about["choices"]["smoother"] = name
    about["config"] |= {name: 1, "more": {name: name}}
    about["fitted_on"] = {name: [name], "valid": [name]}
    Path(kn3).rename("<b># _x_")
    write_json(Path("<b># _x_/run.json"), about)
    lmtool("export", "run='<b># _x_'", "to=card")
    text = Path("<b># _x_/README.md").read_text().split("---\n", 2)[2]
    prose = re.sub(r"^```\w+\n.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert [line for line in prose.splitlines() if line.startswith("#")] == [
        r"# \<b\>\# \_x\_",
        "## Use",
        "## Settings",
    ]
    assert prose.count("evil") == 6 and not re.search(r"(?<!\\)[<`\[]", prose)
    assert text.count("```") - text.count(r"\n```") > 0
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 6
