"""Who may do what over the agent's sshd, asked by the clients that others use."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import paramiko
import pytest

from agent.machine.api import Problem
from agent.machine.ssh import handshake
from tests.machine.sshd import Sshd, serving
from tests.machine.waiting import DEADLINE_SECONDS, wait_until

POLICY = Path(__file__).with_name("ssh-audit.policy")
ENVIRONMENT = "IMAGE=1\n"
JOB, PERSON, IMAGE = "client_key", "person", "image"
"""Files with private keys."""


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """Its image has a key that may log in, variables, and a script that runs at each login."""
    directory = tmp_path_factory.mktemp("sshd")
    public = {name: new_key(directory / name) for name in (PERSON, IMAGE)}
    home = {"authorized_keys": public[IMAGE], "environment": ENVIRONMENT, "rc": f"touch {directory}/rc-ran\n"}
    people = f'environment="PERSON=1" {public[PERSON]}'
    # Without a program for cookies no daemon forwards X11, whatever its configuration says.
    cookies = ("-o", "XAuthLocation=/bin/true")
    with serving(directory, session_env={"PATH": "/usr/bin:/bin"}, people=people, home=home, options=cookies) as daemon:
        yield daemon


def new_key(path: Path) -> str:
    """The public half of a new key in this file."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path.with_name(f"{path.name}.pub").read_text()


def ssh(
    sshd: Sshd, key: str, *options: str, run: Sequence[str] = ("true",), env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """OpenSSH's client with this key alone."""
    return client(sshd, "ssh", key, *options, "root@127.0.0.1", *run, env=env)


def client(
    sshd: Sshd, program: str, key: str, *words: str, typed: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A program of OpenSSH with this key alone."""
    settings = (f"Port={sshd.target.port}", "IdentitiesOnly=yes", "BatchMode=yes", "StrictHostKeyChecking=no")
    # Its own first choice costs six times as much.
    cheap = ("UserKnownHostsFile=/dev/null", "KexAlgorithms=curve25519-sha256")
    given = [word for setting in (*settings, *cheap) for word in ("-o", setting)]
    return subprocess.run(
        [program, "-F", "none", "-i", str(sshd.directory / key), *given, *words],
        env={"PATH": os.environ["PATH"], **(env or {})},
        input=typed,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )


def test_ssh_audit_finds_what_the_policy_says(sshd: Sshd) -> None:
    program = str(Path(sys.executable).with_name("ssh-audit"))
    argv = [program, "--policy", str(POLICY), "--port", str(sshd.target.port), "127.0.0.1"]
    audit = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert audit.returncode == 0, audit.stdout + audit.stderr


@contextmanager
def stranger(sshd: Sshd) -> Iterator[paramiko.Transport]:
    """A connection that nobody has logged in on yet."""
    with socket.create_connection(("127.0.0.1", sshd.target.port)) as connection:
        transport = paramiko.Transport(connection)
        try:
            transport.start_client(timeout=DEADLINE_SECONDS)
            yield transport
        finally:
            transport.close()


def no_key(transport: paramiko.Transport) -> None:
    transport.auth_none("root")


def password(transport: paramiko.Transport) -> None:
    transport.auth_password("root", "root", fallback=False)


def keyboard_interactive(transport: paramiko.Transport) -> None:
    transport.auth_interactive("root", lambda title, instructions, prompts: ["root"] * len(prompts))


@pytest.mark.parametrize("way", [no_key, password, keyboard_interactive])
def test_nothing_but_a_key_is_even_tried(sshd: Sshd, way: Callable[[paramiko.Transport], None]) -> None:
    with stranger(sshd) as transport, pytest.raises(paramiko.BadAuthenticationType) as refused:
        way(transport)
    assert refused.value.allowed_types == ["publickey"]


def test_a_key_of_the_image_is_refused(sshd: Sshd) -> None:
    tried = ssh(sshd, IMAGE)
    assert (tried.returncode, "Permission denied (publickey)" in tried.stderr) == (255, True), tried


def test_a_command_and_a_terminal_are_allowed(sshd: Sshd) -> None:
    command = ssh(sshd, JOB, run=["echo works; exit 7"])
    assert (command.returncode, command.stdout) == (7, "works\n"), command
    terminal = ssh(sshd, JOB, "-tt", run=["test -t 0 && echo terminal"])
    assert (terminal.returncode, terminal.stdout.replace("\r", "")) == (0, "terminal\n"), terminal


@pytest.mark.parametrize("key", [JOB, PERSON])
def test_files_are_copied_there_and_back(sshd: Sshd, tmp_path: Path, key: str) -> None:
    """scp goes over SFTP from OpenSSH 9.0 on."""
    before, there, back = (tmp_path / name for name in ("before", "there", "back"))
    before.write_bytes(bytes(range(256)) * 4096)
    for source, target in ((str(before), f"root@127.0.0.1:{there}"), (f"root@127.0.0.1:{there}", str(back))):
        copied = client(sshd, "scp", key, "-p", source, target)
        assert copied.returncode == 0, copied
    assert there.read_bytes() == back.read_bytes() == before.read_bytes()
    typed = f"rename {there} {tmp_path}/moved\nget {tmp_path}/moved {back}.2\n"
    told = client(sshd, "sftp", key, "-b", "-", "root@127.0.0.1", typed=typed)
    assert (told.returncode, Path(f"{back}.2").read_bytes()) == (0, before.read_bytes()), told


@contextmanager
def ssh_agent(path: Path) -> Iterator[dict[str, str]]:
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL) as agent:
        wait_until(path.exists)
        yield {"SSH_AUTH_SOCK": str(path)}
        agent.terminate()


def forwarded(sshd: Sshd, key: str, way: str) -> bool:
    """Whether the daemon forwards what this option of the client asks for."""
    strict = ("-o", "ExitOnForwardFailure=yes")
    if way == "-L":  # -W asks for the same, and needs no port here
        return "SSH-2.0" in ssh(sshd, key, "-W", f"127.0.0.1:{sshd.target.port}", run=[]).stdout
    if way == "-R":
        return ssh(sshd, key, *strict, "-R", "0:127.0.0.1:1").returncode == 0
    if way == "-A":
        with ssh_agent(sshd.directory / f"agent-{key}") as env:
            shown = ssh(sshd, key, "-A", run=["echo $SSH_AUTH_SOCK"], env=env)
    elif way == "-X":
        shown = ssh(sshd, key, "-X", run=["echo $DISPLAY"], env={"DISPLAY": "127.0.0.1:99"})
    else:
        shown = ssh(sshd, key, *strict, "-w", "any", run=["echo here"])
        assert "Tunnel device open failed" not in shown.stderr, "the client has not even asked"
    return bool(shown.stdout.strip())


@pytest.mark.parametrize("way", ["-L", "-R", "-A", "-X", "-w"])
def test_the_jobs_key_forwards_nothing(sshd: Sshd, way: str) -> None:
    assert not forwarded(sshd, JOB, way)


@pytest.mark.parametrize(("way", "may"), [("-L", True), ("-R", True), ("-A", True), ("-X", False), ("-w", False)])
def test_people_may_forward_connections_and_their_agent(sshd: Sshd, way: str, may: bool) -> None:
    assert forwarded(sshd, PERSON, way) is may


def test_no_variable_and_no_program_of_others_comes_into_a_session(sshd: Sshd) -> None:
    foreign = "LANG=xx LC_ALL=xx LD_PRELOAD=/xx A4_OTHER=xx BASH_ENV=/xx"
    names = {word.partition("=")[0] for word in foreign.split()} | {"IMAGE", "PERSON"}
    for key in (JOB, PERSON):
        shown = ssh(sshd, key, "-o", f"SetEnv={foreign} A4_RUN=run-1", run=["env"]).stdout.splitlines()
        assert "A4_RUN=run-1" in shown
        assert not names & {line.partition("=")[0] for line in shown}
    assert not (sshd.directory / "rc-ran").exists()


LOGINS = 100


def test_a_hundred_logins_at_once_all_come_in(sshd: Sshd) -> None:
    """All have connected before the first says a word: by default sshd drops half of them."""
    clients = [socket.create_connection(("127.0.0.1", sshd.target.port)) for _ in range(LOGINS)]
    with ThreadPoolExecutor(LOGINS) as threads:
        results = list(threads.map(lambda client: handshake(client, sshd.target, seconds=DEADLINE_SECONDS), clients))
    for client, result in zip(clients, results, strict=True):
        if not isinstance(result, Problem):
            client.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads
            result[0].close()
    assert [result.text for result in results if isinstance(result, Problem)] == []
