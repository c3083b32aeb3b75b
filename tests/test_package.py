"""What an index would have: the sdist, the wheel, and an agent that was installed from it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from configparser import ConfigParser
from email.message import Message
from email.parser import Parser
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.workbench.local.helpers import needs_root

ROOT = Path(__file__).resolve().parents[1]
PLACEHOLDER = "https://example.com/"
EXTRAS = {"report"}
PAGES = ("result.json", "report.html")
SECONDS = 300.0

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="compares with the repository")


class Built(NamedTuple):
    """The files of the repository, and what was built of them."""

    sources: list[str]
    sdist: Path
    wheel: Path
    """Built from the sdist, as pip does."""
    own_wheel: Path
    """Built from the checkout."""


def done(argv: list[str], cwd: Path | str = "/", **environ: str) -> str:
    """Standard output of a command that must end with 0."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = subprocess.run(argv, cwd=cwd, env=plain | environ, capture_output=True, text=True, timeout=SECONDS)
    assert result.returncode == 0, f"{argv}\n{result.stdout}{result.stderr}"
    return result.stdout


def build(what: str, source: Path, target: Path) -> Path:
    code = f"import sys; from setuptools import build_meta; build_meta.build_{what}(sys.argv[1])"
    done([sys.executable, "-c", code, str(target)], source)
    (found,) = target.iterdir()
    return found


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    place = tmp_path_factory.mktemp("package")
    names = done(["git", "ls-files", "-co", "--exclude-standard", "-z"], ROOT).split("\0")
    sources = sorted(name for name in names if name and (ROOT / name).exists())
    # Built in a copy: what setuptools leaves behind is not left in the checkout.
    for name in sources:
        copy = place / "checkout" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy)
    sdist = build("sdist", place / "checkout", place / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(place / "unpacked", filter="data")
    (unpacked,) = (place / "unpacked").iterdir()
    wheel = build("wheel", unpacked, place / "wheel")
    return Built(sources, sdist, wheel, build("wheel", place / "checkout", place / "own"))


def needed_by(requirements: Iterable[str], extras: set[str]) -> Iterator[str]:
    """The packages that these lines of metadata ask for, and those that they need."""
    for line in requirements:
        needed, _, condition = line.partition(";")
        extra = re.search(r"extra == ['\"]([^'\"]+)", condition)
        found = re.match(r"[A-Za-z0-9._-]+", needed)
        assert found, line
        if extra and extra[1] not in extras:
            continue
        try:
            metadata.distribution(found[0])
        except metadata.PackageNotFoundError:  # for another platform or Python
            assert condition, f"{line} is not installed"
            continue
        yield found[0]
        yield from needed_by(metadata.requires(found[0]) or (), set())


@pytest.fixture(scope="session")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment with the wheel, and of this one's packages those alone that it says it needs."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    done([sys.executable, "-m", "venv", "--without-pip", str(place)])
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(place / "bin/python"), "install"]
    done([*pip, "--quiet", "--no-index", "--no-deps", str(built.wheel)])
    (packages,) = place.glob("lib/python*/site-packages")
    for name in {*needed_by(about(built.wheel).get_all("Requires-Dist") or (), EXTRAS)}:
        for path in metadata.files(name) or ():
            top = Path(path).parts[0]
            if top not in ("..", "__pycache__") and not (packages / top).exists():
                # No links: pods have another /tmp, in which this checkout may lie.
                done(["cp", "-a", str(metadata.distribution(name).locate_file(top)), str(packages)])
    return place


def about(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def files_found(python: list[str], cwd: Path | str) -> set[str]:
    """Where the agent finds what comes with it; all of it must be there."""
    names = [f"{kind}/{path.name}" for kind in ("entrypoints", "env") for path in (ROOT / kind).glob("*.*")]
    find = "import sys; from agent.paths import shipped; [print(shipped(*name.split('/'))) for name in sys.argv[1:]]"
    found = done([*python, "-c", find, *names], cwd).split()
    assert [path for path in found if not Path(path).is_file()] == []
    return {path.removesuffix(f"/{name}") for name, path in zip(names, found, strict=True)}


def test_the_sdist_has_the_whole_repository(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert {name for name in names if not name.startswith("a4_agent.egg-info/")} - {"PKG-INFO"} == set(built.sources)


def test_the_sdist_makes_the_wheel_that_the_checkout_makes(built: Built) -> None:
    def content(wheel: Path) -> dict[str, bytes]:
        with zipfile.ZipFile(wheel) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    assert content(built.wheel) == content(built.own_wheel)


def test_links_of_the_description_are_whole_and_lead_to_files_of_this_version(built: Built) -> None:
    found = about(built.wheel)
    source = dict(text.split(", ") for text in found.get_all("Project-URL") or ())["Source"]
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", str(found.get_payload()))
    assert len(links) > 20
    for picture, link in links:
        if link.startswith(source):
            place = f"{source}/{'raw' if picture else 'blob'}/v{found['Version']}/"
            assert (ROOT / link.removeprefix(place).partition("#")[0]).is_file(), link
        else:
            assert link.startswith(("https://", "#")), link


def test_without_a_real_address_no_index_takes_it() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    is_placeholder = PLACEHOLDER in setup["metadata"]["project_urls"]
    assert is_placeholder == ("Private :: Do Not Upload" in setup["metadata"]["classifiers"])


def test_the_installed_agent_is_complete(installed: Path, tmp_path: Path) -> None:
    agent = str(installed / "bin/a4-agent")
    versions = json.loads(done([agent, "version", "--json"], tmp_path))
    assert versions["a4-agent"] == metadata.version("a4-agent")
    assert "not installed" not in versions.values()
    assert "connectivity" in done([agent, "run", "--help"], tmp_path)
    assert files_found([str(installed / "bin/python")], tmp_path) == {str(installed / "share/a4-agent")}
    schema = installed / "share/a4-agent/result.schema.json"
    assert schema.read_bytes() == (ROOT / "docs/result.schema.json").read_bytes()


@pytest.mark.parametrize("kind", ["target", "prefix"])
def test_the_agent_is_found_where_pip_has_put_it(built: Built, tmp_path: Path, kind: str) -> None:
    """With its files; not every installation is in the prefix of its Python. And by its command, also under a Python
    that looks nowhere but in its own directories."""
    python = os.path.realpath(sys.executable)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", python, "install"]
    done([*pip, "--no-deps", "--no-index", "--ignore-installed", f"--{kind}", str(tmp_path), str(built.wheel)])
    (packages,) = (path.parent for path in tmp_path.glob("**/agent"))
    found = files_found(["env", f"PYTHONPATH={packages}", sys.executable], "/")
    assert found == {str(tmp_path / "share/a4-agent")}
    (command,) = tmp_path.glob("**/bin/a4-agent")
    assert "connectivity" in done([str(command), "run", "--help"])
    for packages in tmp_path.glob("**/site-packages"):
        packages.rename(packages.with_name("dist-packages"))  # as Debian's pip calls it
        assert "connectivity" in done([str(command), "run", "--help"])


@needs_root
def test_the_installed_agent_runs_a_cluster_and_makes_its_reports(installed: Path, tmp_path: Path) -> None:
    """All of it, without the checkout: the control channel, rank programs over MPI, result and page. Modules of the
    user have the names of ours, of Python's and of those that Python imports at each start."""
    project = tmp_path / "project"
    project.mkdir()
    for module in ("agent", "sitecustomize", "usercustomize", "json", "dns", "re", "record"):
        (project / f"{module}.py").write_text("print('the module of the user')\nraise SystemExit(3)\n")
    users = {"PYTHONPATH": "/project", "PYTHONHOME": "/project"}
    local = [str(installed / "bin/a4-agent"), "local"]
    name = ["--name", f"package-{os.getpid()}"]
    try:
        words = ["--pods", "2", "--gpus-per-pod", "1", "--wait", "--mount", f"{project}:/project"]
        given = [word for variable in users.items() for word in ("--env", "=".join(variable))]
        done([*local, "up", *name, *words, *given], project, PYTHONPATH=str(project))
        done([*local, "exec", "1", *name, "--", "a4-agent", "run", "connectivity"])
        # The page comes some time after the end of the run.
        waits = "until cat /run/a4-agent/results/runs/*/{} 2>/dev/null; do sleep 0.1; done"
        shown = [["timeout", "120", "sh", "-c", waits.format(file)] for file in PAGES]
        files = [done([*local, "exec", "0", *name, "--", *words]) for words in shown]
    finally:
        done([*local, "down", *name], tmp_path)
    (tmp_path / PAGES[0]).write_text(files[0])
    done([*local[:1], "report", PAGES[0]], tmp_path)
    assert (tmp_path / PAGES[1]).read_text() == files[1]
