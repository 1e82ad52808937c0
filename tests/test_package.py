"""What a user installs: sdist and wheel, what is in them, ./scripts/install, and the files that other services read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT

YAML = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "conf").rglob("*.yaml"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    # The wheel is built from the sdist, as an index does it.
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "-o", out, ROOT], check=True, capture_output=True)
    return out


def test_sdist_and_wheel_carry_the_configuration(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {*YAML, "docs/guides/adding_an_option.md"} <= names
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        about = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        metadata = archive.read(f"{about}/METADATA").decode()
        assert b"\nlmtool = lmtool.__main__:run\n" in archive.read(f"{about}/entry_points.txt")
    assert {f"lmtool/{name}" for name in YAML} | {"lmtool/py.typed", f"{about}/licenses/LICENSE"} <= names
    assert {name.partition("/")[0] for name in names} == {"lmtool", about}  # no tests, no scripts
    suffixes = {Path(name).suffix for name in names if name.startswith("lmtool/")}
    assert suffixes == {".py", ".yaml", ".typed", ".j2", ".js", ".properties"}
    assert "\nLicense-Expression: MIT\n" in metadata and "\nProvides-Extra: plots\n" in metadata


def test_the_wheel_works_from_another_folder(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(pip, check=True, capture_output=True)
    script = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import lmtool.cli.command_line; "
        f"assert lmtool.cli.command_line.__file__.startswith({str(site)!r}), lmtool.cli.command_line.__file__; "
        "sys.exit(lmtool.cli.command_line.main(['train', 'model=ngram', 'data=toy', 'hydra.run.dir=run']))"
    )
    work = tmp_path / "work"
    work.mkdir()
    # Compilation is disabled: in a new folder all loops would be compiled again.
    surroundings = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    line = [sys.executable, "-P", "-c", script]
    done = subprocess.run(line, cwd=work, env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (work / "run" / "run.json").is_file()


PIP = """#!/bin/sh
case "$2" in
    *find_spec*) exit {missing} ;;
    *urllib*) exit {silent} ;;
    compileall) ;;
    *) echo "$@" >> asked ;;
esac
"""
INDEX = " --extra-index-url https://download.pytorch.org/whl/cpu"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copy the files that ./scripts/install reads, for Linux without an NVIDIA card."""
    for name in ("scripts/install", "scripts/constraints.txt", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    script = tmp_path / "scripts/install"
    script.write_text(script.read_text().replace("/proc/driver/nvidia", "no-driver"))
    program(tmp_path / "bin/uname", "#!/bin/sh\necho Linux\n")
    for name in ("bash", "cat", "cksum", "dirname", "find", "grep", "mkdir", "mv", "sort", "timeout", "xargs"):
        os.symlink(str(shutil.which(name)), tmp_path / "bin" / name)
    (tmp_path / "lmtool").mkdir()
    (tmp_path / "lmtool/loops.py").write_text("from numba import njit\n")
    return tmp_path


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def run_install(folder: Path, *words: str, torch: str = "", stdout: int = -1) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": str(folder / "bin"), "PYTHON": sys.executable, "LMTOOL_TORCH": torch}
    line = [str(shutil.which("bash")), "scripts/install", *words]
    return subprocess.run(line, cwd=folder, env=variables, stdout=stdout, stderr=subprocess.PIPE, text=True)


def install(folder: Path, torch: str = "", *, missing: bool = True, silent: bool = False, stdout: int = -1) -> str:
    """Run ./scripts/install with a Python that notes what pip is asked for; return that and what is printed."""
    program(folder / ".venv/bin/python", PIP.format(missing=int(missing), silent=int(silent)))
    (folder / "asked").unlink(missing_ok=True)
    (folder / ".venv/lmtool-installed").unlink(missing_ok=True)
    done = run_install(folder, "plots", torch=torch, stdout=stdout)
    if done.returncode:
        return f"{done.returncode} {done.stderr}"
    assert done.stderr.endswith("installing lmtool[plots] into .venv ...\n")
    asked = (folder / "asked").read_text().removeprefix("-m pip install --no-compile --disable-pip-version-check")
    return asked.removeprefix(" -c scripts/constraints.txt").removesuffix(" -e .[plots]\n") + "|" + done.stderr


@pytest.mark.skipif(not shutil.which("timeout"), reason="needs coreutils, as Linux has them")
def test_install_takes_the_cpu_build_of_torch_where_it_can(checkout: Path) -> None:
    said = "|installing lmtool[plots] into .venv ...\n"
    assert install(checkout) == f"{INDEX} --quiet{said}"
    assert install(checkout, "cpu", silent=True) == f"{INDEX} --quiet{said}"
    assert install(checkout, "pip") == install(checkout, "cuda") == f" --quiet{said}"
    assert install(checkout, missing=False) == install(checkout, "cpu", missing=False) == f" --quiet{said}"
    plain, _, line = install(checkout, silent=True).partition("|")
    assert plain == " --quiet" and "does not answer" in line and "5 GB" in line and "PIP_EXTRA_INDEX_URL" in line
    program(checkout / "bin/nvidia-smi", "#!/bin/sh\n")
    plain, _, line = install(checkout).partition("|")
    assert plain == " --quiet" and "5 GB" in line and "LMTOOL_TORCH=cpu" in line
    assert install(checkout, "gpu") == "2 LMTOOL_TORCH=gpu: must be cpu, cuda or pip\n"
    terminal, other = os.openpty()
    assert install(checkout, "pip", stdout=other) == said  # with pip's progress
    os.close(terminal), os.close(other)


@pytest.mark.skipif(not (ROOT / ".ci").is_dir(), reason="not a checkout")
@pytest.mark.parametrize("name", ["lmtool", "other name"])
@pytest.mark.parametrize(("data", "read"), [(None, "{top}/shared/data"), ("", ""), ("/x", "/x")])
def test_continuous_integration_runs_in_a_folder_named_lmtool(
    name: str, data: str | None, read: str, tmp_path: Path
) -> None:
    program(tmp_path / name / "scripts/test", '#!/bin/sh\necho "$PWD|$LMTOOL_DATA|$LMTOOL_SKIPS|$*"\n')
    program(tmp_path / name / "scripts/campaigns", "#!/bin/sh\nexit 3\n")
    program(tmp_path / name / ".ci/run", (ROOT / ".ci/run").read_text())
    (tmp_path / "shared/data").mkdir(parents=True)
    (tmp_path / name / ".venv").mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LMTOOL_")}
    environment |= {"TMPDIR": str(tmp_path)} | ({} if data is None else {"LMTOOL_DATA": data})
    done = subprocess.run(["bash", ".ci/run"], cwd=tmp_path / name, env=environment, capture_output=True, text=True)
    lines = [line.split("|") for line in done.stdout.splitlines()]
    corpora = read.format(top=tmp_path)
    assert [line[1:] for line in lines] == [[corpora, "", "tools"], [corpora, "suite", ""]], done.stderr
    assert done.returncode == 3, "of the campaigns"
    folders = {Path(line[0]) for line in lines}
    assert {folder.name for folder in folders} == {"lmtool"} and folders.isdisjoint({tmp_path / "other name"})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "shared"]), "the copy is removed"


@pytest.mark.skipif(not (ROOT / ".github").is_dir(), reason="not a checkout")
def test_files_of_other_services_name_what_exists() -> None:
    """The YAML of workflows, templates and hooks, and the Dockerfile."""
    read = {path.name: yaml.safe_load(path.read_text()) for path in (ROOT / ".github").rglob("*.yml")}
    assert {"ci.yml", "release.yml", "docs.yml", "dependabot.yml", "problem.yml"} <= read.keys()
    versions = read["ci.yml"]["jobs"]["test"]["strategy"]["matrix"]["python"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert versions == [item[-4:] for item in project["classifiers"] if re.search(r":: 3\.\d+$", item)]
    jobs = [job for name in ("ci.yml", "release.yml", "docs.yml") for job in read[name]["jobs"].values()]
    lines = "\n".join(step.get("run", "") for job in jobs for step in job["steps"])
    named = re.findall(r"(?<![\w./])(?:\./)?((?:scripts|tests)/\S+)", lines)
    named += re.findall(r"^COPY (.*) \S+$", (ROOT / "Dockerfile").read_text(), flags=re.M)
    assert len(named) > 9 and [path for path in " ".join(named).split() if not (ROOT / path).exists()] == []
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    check = (ROOT / "scripts/check").read_text()
    assert all(hook["entry"].removesuffix(" --fix") in check for hook in hooks) and len(hooks) == 3


@pytest.mark.skipif(not shutil.which("timeout"), reason="needs coreutils, as Linux has them")
@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ([], " -e .\n"),
        (["dev"], " -e .[dev]\n"),
        (["dev", "plots"], " -e .[dev,plots]\n"),
        (["dev,plots"], " -e .[dev,plots]\n"),
    ],
)
def test_install_takes_any_number_of_extras(words: list[str], asked: str, checkout: Path) -> None:
    program(checkout / ".venv/bin/python", PIP.format(missing=0, silent=0))
    done = run_install(checkout, *words)
    assert done.returncode == 0 and (checkout / "asked").read_text().endswith(asked), done.stderr
    assert done.stderr == f"installing lmtool{asked[5:-1]} into .venv ...\n"


@pytest.mark.parametrize("words", [["dve"], ["--help"], ["plots", "dve"], ["dev", "tools"]])
def test_install_refuses_what_is_no_extra(words: list[str], checkout: Path) -> None:
    done = run_install(checkout, *words)
    assert done.returncode == 2 and done.stderr.startswith(
        "usage: ./scripts/install tools, or [EXTRA ...] of download, "
    )
    assert done.stderr.endswith(f": no extra {words[-1]}\n") and not (checkout / ".venv").exists()


@pytest.mark.skipif(not shutil.which("timeout"), reason="needs coreutils, as Linux has them")
def test_install_removes_compiled_loops_when_a_file_of_loops_has_changed(checkout: Path) -> None:
    compiled = checkout / "lmtool/__pycache__/loops.nbc"
    compiled.parent.mkdir()
    install(checkout)
    compiled.touch()
    (checkout / "lmtool/other.py").touch()
    install(checkout)
    assert compiled.exists()
    (checkout / "lmtool/more.py").write_text("from numba import njit\n")
    install(checkout)
    assert not compiled.exists()
