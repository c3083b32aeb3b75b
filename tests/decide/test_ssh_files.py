"""Files for sshd and ssh, judged by OpenSSH itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.keys import JobKeys
from agent.decide.plan import Plan, PlannedPeer
from agent.lifecycle.pod.ssh_files import (
    BEGIN_BLOCK,
    END_BLOCK,
    OLDEST_OPENSSH,
    addresses,
    authorized_keys,
    known_hosts,
    ssh_config,
    sshd_config,
    with_block,
    without_block,
)

KEYS = JobKeys(b"s" * 32, "epoch")
PEER = "job-workload-0-3.job.local"


def settings_of(text: str) -> dict[str, list[str]]:
    """What `sshd -T` and `ssh -G` print: keyword → values."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        keyword, _, value = line.partition(" ")
        found.setdefault(keyword.lower(), []).append(value)
    return found


def sshd_says(tmp_path: Path, session_env: dict[str, str]) -> dict[str, list[str]]:
    """The configuration as the daemon understands it; fails when it refuses it."""
    key = tmp_path / "host_key"
    key.write_text(KEYS.host_private(0))
    key.chmod(0o600)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    path = tmp_path / "sshd_config"
    addresses = ["10.1.2.3", "127.0.0.1"]
    path.write_text(sshd_config(port=2222, addresses=addresses, directory=str(tmp_path), session_env=session_env))
    tested = subprocess.run(["/usr/sbin/sshd", "-t", "-f", str(path)], capture_output=True, text=True)
    assert (tested.returncode, tested.stderr) == (0, "")
    shown = subprocess.run(["/usr/sbin/sshd", "-T", "-f", str(path)], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    return settings_of(shown.stdout)


def test_sshd_takes_the_configuration(tmp_path: Path) -> None:
    said = sshd_says(tmp_path, {})
    assert sorted(said["listenaddress"]) == ["10.1.2.3:2222", "127.0.0.1:2222"]
    assert "setenv" not in said
    assert said["authorizedkeysfile"] == [f"{tmp_path}/authorized_keys"]
    assert said["permitrootlogin"] == ["without-password"]
    assert said["acceptenv"] == ["A4_RUN"]
    others = ("kbdinteractiveauthentication", "x11forwarding", "permituserrc", "usepam")
    assert {keyword: said[keyword] for keyword in ("passwordauthentication", *others) if said[keyword] != ["no"]} == {}
    methods = said["kexalgorithms"][0].split(",")
    assert {"curve25519-sha256", "curve25519-sha256@libssh.org"} <= set(methods)
    assert all("25519" in method for method in methods), "strangers get no costly key exchange"


VALUES = ["", "a b", 'say "x"', "back\\slash", "\\", "#no comment", "a'b", "$(x)`y`", "end\\", "tab\there", "%h"]


def test_a_session_gets_any_value_as_it_is(tmp_path: Path) -> None:
    """But for one with a line break, which would become configuration."""
    given = {f"V{at}": value for at, value in enumerate(VALUES)}
    said = sshd_says(tmp_path, {"FIRST": "x\nPermitRootLogin yes", **given, "LAST": "x"})
    assert said["setenv"] == [*(f"{name}={value}" for name, value in given.items()), "LAST=x"]
    assert said["permitrootlogin"] == ["without-password"]


WORDS_SINCE = {
    (8, 5): "pubkeyacceptedalgorithms hostbasedacceptedalgorithms logverbose persourcemaxstartups persourcenetblocksize"
    " knownhostscommand permitremoteopen sntrup761x25519-sha512@openssh.com",
    (8, 7): "modulifile skeyauthentication forkafterauthentication sessiontype stdinnull",
    (9, 2): "channeltimeout requiredrsasize unusedconnectiontimeout enableescapecommandline",
    (9, 9): "pamservicename persourcepenalties persourcepenaltyexemptlist refuseconnection sshdsessionpath tag"
    " obscurekeystroketiming sntrup761x25519-sha512 mlkem768x25519-sha256",
    (10, 0): "sshdauthpath versionaddendum",
}
"""Keywords and algorithms of OpenSSH's sources that a release before these does not know."""


def test_no_supported_openssh_meets_a_word_that_it_does_not_know() -> None:
    used = set()
    server = sshd_config(port=1, addresses=["10.0.0.1"], directory="/d", session_env={"PATH": "/bin"})
    for line in [*server.splitlines(), *client_config(Path("/d")).splitlines()]:
        keyword, values = line.split(None, 1)
        # What a list leaves out need not be known.
        used |= {keyword.lower(), *([] if values.startswith("-") else values.lower().split(","))}
    oldest = tuple(int(part) for part in OLDEST_OPENSSH.split("."))
    assert oldest == (8, 2)
    assert not used & {word for since, words in WORDS_SINCE.items() if since > oldest for word in words.split()}


def ssh_says(path: Path, host: str) -> dict[str, list[str]]:
    shown = subprocess.run(["ssh", "-G", "-F", str(path), host], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    return settings_of(shown.stdout)


def client_config(directory: Path, *, replaced: bool = False) -> str:
    directory_text = str(directory)
    return ssh_config(
        prefix="job-workload-", domain="job.local", pods=12, port=2345, directory=directory_text, replaced=replaced
    )


def test_ssh_uses_it_for_peers(tmp_path: Path) -> None:
    path = tmp_path / "ssh_config"
    path.write_text(client_config(tmp_path))
    said = ssh_says(path, PEER)
    expected = {
        "user": "root",
        "port": "2345",
        "identityfile": f"{tmp_path}/client_key",
        "userknownhostsfile": f"{tmp_path}/known_hosts",
        "identitiesonly": "yes",
        "identityagent": "none",
        "batchmode": "yes",
        "hostkeyalgorithms": "ssh-ed25519",
        "forwardagent": "no",
        "connectionattempts": "3",
        "sendenv": "A4_RUN",
    }
    assert {keyword: said[keyword] for keyword in expected} == {k: [v] for k, v in expected.items()}
    assert said["stricthostkeychecking"] in (["true"], ["yes"])


def test_ssh_completes_short_names_and_leaves_other_hosts_alone(tmp_path: Path) -> None:
    ours, none = tmp_path / "ssh_config", tmp_path / "empty"
    ours.write_text(client_config(tmp_path))
    none.write_text("")
    for name in ("job-workload-0-3", "job-workload-0-11"):
        said = ssh_says(ours, name)
        assert (said["hostname"], said["port"]) == ([f"{name}.job.local"], ["2345"])
    for host in ("github.com", "job-workload-0-3.other", "job-workload-1-3.job.local", "job.local"):
        assert ssh_says(ours, host) == ssh_says(none, host)


def test_ssh_goes_to_the_address_of_the_plan_and_keeps_the_key_of_the_name(tmp_path: Path) -> None:
    """DNS may still name the address of a pod that was replaced."""
    path = tmp_path / "ssh_config"
    path.write_text(client_config(tmp_path, replaced=True))
    name = "job-workload-0-3.job.local"
    peer = PlannedPeer(3, name, "10.9.0.3", "node-3")
    assert ssh_says(path, name)["hostname"] == [name], "without a plan, by name"
    (tmp_path / "addresses").write_text(addresses(Plan("e", 8, (peer,)), 2345))
    for called in peer.names:
        said = ssh_says(path, called)
        assert (said["hostname"], said["hostkeyalias"], said["port"]) == (["10.9.0.3"], [f"[{name}]:2345"], ["2345"])


@pytest.mark.parametrize("port", [22, 2222])
def test_ssh_finds_the_host_keys(port: int, tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(known_hosts(port, {PEER: KEYS.host_public(3), "other.local": KEYS.host_public(4)}))
    wanted = PEER if port == 22 else f"[{PEER}]:{port}"
    found = subprocess.run(["ssh-keygen", "-F", wanted, "-f", str(path)], capture_output=True, text=True)
    assert KEYS.host_public(3) in found.stdout
    assert KEYS.host_public(4) not in found.stdout


def test_the_jobs_key_is_restricted_and_peoples_are_not() -> None:
    text = authorized_keys("ssh-ed25519 JOB", " ssh-ed25519 ME me \n\n  ecdsa-sha2-nistp256 YOU\n")
    assert text.splitlines() == [
        "restrict,pty ssh-ed25519 JOB a4-agent",
        "ssh-ed25519 ME me",
        "ecdsa-sha2-nistp256 YOU",
    ]
    assert authorized_keys("k", "") == "restrict,pty k a4-agent\n"


others = st.text().filter(lambda text: BEGIN_BLOCK not in text)
blocks = st.text("abc /\n", max_size=40)


@given(others, blocks, blocks)
def test_a_block_comes_first_is_replaced_and_can_be_taken_out_again(text: str, first: str, block: str) -> None:
    whole = with_block(text, block)
    assert whole.startswith(f"{BEGIN_BLOCK}\n")
    assert whole.count(BEGIN_BLOCK) == whole.count(END_BLOCK) - text.count(END_BLOCK) == 1
    assert with_block(with_block(text, first), block) == whole
    assert without_block(whole) == text
    assert without_block("Host mine\n" + whole) == "Host mine\n" + text, "lines that were put before it stay"


@given(st.lists(st.sampled_from([BEGIN_BLOCK + "\n", END_BLOCK + "\n", "Host a\n", "  User b\n", "\n"]), max_size=8))
def test_nothing_is_lost_that_is_not_between_our_marks(lines: list[str]) -> None:
    """People edit their files: marks may be doubled, turned around or half deleted."""
    text = "".join(lines)
    kept = without_block(text)
    if END_BLOCK not in text.partition(BEGIN_BLOCK)[2]:
        assert kept == text
    assert with_block(with_block(text, "x"), "x").endswith(kept)
