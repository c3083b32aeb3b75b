"""`a4-agent bundle` in one pod, whose agent is dead; tests/cluster has those of several."""

from __future__ import annotations

import fcntl
import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from agent.decide.plan import Plan, PlannedPeer
from tests.commands.conftest import Type
from tests.commands.server import FakeAgent
from tests.terminal import Terminal

RUN = "script-1a2b3c4d"
NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
TOKEN = "hf_0123456789abcdef0123456789abcdef"


@pytest.fixture
def left(run_dir: Path) -> Path:
    """What an agent has left of a run; its state is damaged."""
    (run_dir / "state.json").write_bytes(b"\xff no JSON")
    (run_dir / "token").write_text("a token of the pod's own")
    of_run = run_dir / "runs" / RUN
    of_run.mkdir(parents=True)
    (of_run / "evidence.txt").write_bytes(bytes(range(256)))
    return of_run


def files_of(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


def test_what_is_damaged_goes_in_as_it_is(left: Path, tmp_path: Path, type_command: Type) -> None:
    (left / "result.json").symlink_to("/etc/passwd")
    os.mkfifo(left / "record.jsonl")
    for _ in range(2):  # the file is replaced
        code, out, err = type_command("bundle", RUN, "-o", str(tmp_path / "b.tar.gz")).end()
        assert (code, out) == (0, ""), err
    assert err.startswith(f"a4-agent: this pod alone ({left.parent.parent}/state.json is damaged: ")
    assert (tmp_path / "b.tar.gz").stat().st_mode & 0o777 == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"run", "b.tar.gz"}
    files = files_of((tmp_path / "b.tar.gz").read_bytes())
    above = f"a4-bundle-{RUN}/pod-0"
    assert files[f"{above}/state.json"] == b"\xff no JSON"
    assert files[f"{above}/runs/{RUN}/evidence.txt"] == bytes(range(256))
    assert not [name for name in files if name.endswith(("result.json", "record.jsonl", "token"))]
    missing = files[f"a4-bundle-{RUN}/missing.txt"].decode()
    assert "pod 0: no a4-agent runs in this pod: what is here is what it left\n" in missing


def test_the_end_of_a_long_file_begins_with_no_rest_of_a_secret(left: Path, tmp_path: Path, type_command: Type) -> None:
    lines = "".join(f"{number} {TOKEN}\n" for number in range(40_000))
    (left / "evidence.txt").write_text(lines)
    for most in (200_000, 200_010, 200_020):  # it is cut elsewhere in a line
        part = ("bundle", "--part", str(left.parent.parent), RUN, "--most", str(most))
        with open(tmp_path / "part", "wb") as file:
            done = type_command(*part, env={"HF_TOKEN": TOKEN}, stdout=file).end()
        assert done[0] == 0, done
        files = files_of((tmp_path / "part").read_bytes())
        evidence = files[f"runs/{RUN}/evidence.txt"].decode()
        assert "39999 ***\n" in evidence and all(line.endswith(" ***") for line in evidence.splitlines())
        assert not any(TOKEN[at : at + 8] in evidence for at in range(len(TOKEN) - 8))
        assert f"runs/{RUN}/evidence.txt: only " in files["missing.txt"].decode()


def test_what_cannot_be_asked_for(left: Path, tmp_path: Path, type_command: Type) -> None:
    def refused(*words: str, **more: object) -> tuple[int, str]:
        code, _, err = type_command("bundle", *words, **more).end()
        return code, err.removeprefix("a4-agent: ").partition("\n")[0]

    assert refused("-o", "") == (2, "-o needs a name")
    assert refused("script-ffffffff") == (66, "this pod knows no run script-ffffffff")
    assert refused("../..") == (66, "this pod knows no run ../..")
    assert refused("--results", str(tmp_path / "no")) == (66, f"{tmp_path}/no is not a directory")
    assert refused(RUN, "--results", str(tmp_path))[0] == 2
    assert refused(env={"A4_RUN_DIR": str(tmp_path / "no")}) == (69, "no a4-agent has run in this pod yet")
    assert refused("-o", str(tmp_path / "no" / "b"))[0] == 73
    with Terminal() as terminal:
        shell = {"through": terminal.through, **terminal.streams}
        assert type_command("bundle", "-o", "-", **shell).process.wait(60) == 2


def test_where_there_is_no_room_nothing_is_left(left: Path, tmp_path: Path, type_command: Type) -> None:
    (tmp_path / "b.tar.gz").write_text("from yesterday")
    through = ["prlimit", "--fsize=600"]
    code, _, err = type_command("bundle", "-o", str(tmp_path / "b.tar.gz"), through=through, env=NO_BYTECODE).end()
    assert (code, err.splitlines()) == (
        73,
        [
            f"a4-agent: {tmp_path}/b.tar.gz cannot be written: File too large",
            "  put it elsewhere with -o FILE, or take it from stdout with -o -",
        ],
    )
    assert (tmp_path / "b.tar.gz").read_text() == "from yesterday"
    assert {path.name for path in tmp_path.iterdir()} == {"run", "b.tar.gz"}


def test_a_fifo_is_written_into(left: Path, tmp_path: Path, type_command: Type) -> None:
    """And a device, such as /dev/null: with a file in its place, every program of the pod would read that."""
    os.mkfifo(tmp_path / "fifo")
    reading = os.open(tmp_path / "fifo", os.O_RDWR)
    fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, 1 << 20)  # nobody reads meanwhile
    assert type_command("bundle", "-o", str(tmp_path / "fifo")).end()[0] == 0
    content = os.read(reading, 1 << 20)
    os.close(reading)
    assert "a4-bundle/README.txt" in files_of(content)
    assert {path.name for path in tmp_path.iterdir()} == {"run", "fifo"}


def test_a_reader_that_has_gone(left: Path, type_command: Type) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = type_command("bundle", "-o", "-", stdout=writing)
    os.close(writing)
    assert command.end()[0] == 141


SSH = """#!/bin/sh
for word; do case $word in
job-workload-0-0*) head -c 4000 "$PART"; exit 255 ;;
job-workload-0-2*) echo "no tar at all" ;;
job-workload-0-3*) echo "ssh: no route" >&2; exit 255 ;;
esac; done
"""
"""Three other pods: one breaks off, one sends something else, one cannot be reached."""


def test_parts_that_break_off_are_used_as_far_as_they_came(
    agent: FakeAgent, tmp_path: Path, type_command: Type
) -> None:
    peers = tuple(PlannedPeer(pod, f"job-workload-0-{pod}.job.local", "10.0.0.1", "a") for pod in range(4))
    agent.write("plan.json", Plan("e", 1, peers).to_json())
    part, ssh = tmp_path / "part", tmp_path / "ssh"
    with gzip.open(part, "wb") as packed, tarfile.open(None, "w", packed) as archive:
        for name, size in (("../facts.json", 1000), ("state.json", 100_000)):
            member = tarfile.TarInfo(name)
            member.size = size
            archive.addfile(member, io.BytesIO(os.urandom(size)))
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PART": str(part)}
    code, _, err = type_command("bundle", "-o", str(tmp_path / "b.tar.gz"), env=env).end()
    assert code == 0 and err.startswith("a4-agent: 2 pods, without pod 2 and pod 3: "), err
    files = {name.partition("/")[2]: data for name, data in files_of((tmp_path / "b.tar.gz").read_bytes()).items()}
    assert [name for name in files if name.startswith("pod-0/")] == ["pod-0/facts.json"]
    missing = files["missing.txt"].decode().splitlines()
    assert "pod 0: its part was not made in time, or the connection broke" in missing
    assert "pod 0: its part ends before all of it has come" in missing
    assert "pod 2: its part ends before all of it has come" in missing
    assert "pod 3: ssh: no route" in missing
