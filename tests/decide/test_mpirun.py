"""The mpirun command line and the meaning of its status."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide import mpirun
from agent.decide.mpirun_end import mpirun_end, reported_end
from agent.decide.runspec import MpirunOptions
from agent.errors import UsageError
from agent.launch import Launch

FOUR = mpirun.MpiVersion(4, 1, 4)
FIVE = mpirun.MpiVersion(5, 0, 11)
SIX = mpirun.MpiVersion(6, 0, 0)
BOTH = pytest.mark.parametrize("version", [FOUR, FIVE], ids=str)


def launch(version: mpirun.MpiVersion, **changes: Any) -> Launch:
    values: dict[str, Any] = {
        "version": version,
        "mpirun": "/usr/bin/mpirun",
        "hostfile": "/etc/job-worker-services.txt",
        "hosts": 2,
        "ranks": 16,
        "interface": "eth0",
        "ssh_command": ["ssh", "-F", "/run/a4-agent/ssh/ssh_config"],
        "program": ["/bin/program", "-x", "argument"],
        "env": {"PATH": "/bin", "HF_TOKEN": "hf_canary", "HOSTNAME": "pod-0"},
        "cwd": "/work",
        "oversubscribed": False,
    }
    return mpirun.mpirun_launch(**{**values, **changes})


def options(made: Launch, name: str) -> list[str]:
    """What follows each `name` among mpirun's own words."""
    own = list(made.argv[: made.argv.index("/bin/program")])
    return [own[i + 1] for i, word in enumerate(own) if word == name]


def parameters(made: Launch, option: str) -> dict[str, str]:
    own = list(made.argv[: made.argv.index("/bin/program")])
    return {own[i + 1]: own[i + 2] for i, word in enumerate(own) if word == option}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/\n", FIVE),
        ("mpirun (Open MPI) 4.1.7rc1\n", mpirun.MpiVersion(4, 1, 7)),
        ("mpirun (Open MPI) 6.0.0rc1\n", SIX),
        ("mpirun (Open MPI) 5.1\n", mpirun.MpiVersion(5, 1, 0)),
        ("warning: something\nmpirun (Open MPI) 4.0.0\n", mpirun.MpiVersion(4, 0, 0)),
    ],
)
def test_versions(text: str, version: mpirun.MpiVersion) -> None:
    """What has none is no Open MPI (below)."""
    assert mpirun.parse_version(text) == version


@given(st.builds(mpirun.MpiVersion, *[st.integers(0, 10**6)] * 3))
def test_a_version_is_read_as_it_is_printed(version: mpirun.MpiVersion) -> None:
    assert mpirun.parse_version(f"mpirun (Open MPI) {version}") == version


@pytest.mark.parametrize(
    ("inventory", "mpi"),
    [
        (None, None),
        ({}, None),
        ({"problem": "KeyError: 'x'"}, None),
        ({"mpirun": "/b/mpirun", "mpirun_version_text": "mpirun (Open MPI) 4.1.4\n"}, mpirun.Mpi("/b/mpirun", FOUR)),
        ({"mpirun_problem": "not on PATH"}, mpirun.Mpi("mpirun", problem="not on PATH")),
        (
            {"mpirun": "/b/mpirun", "mpirun_problem": "did not answer within 20 s"},
            mpirun.Mpi("/b/mpirun", problem="did not answer within 20 s"),
        ),
    ],
)
def test_the_mpirun_of_an_inventory(inventory: dict[str, str] | None, mpi: mpirun.Mpi | None) -> None:
    assert mpirun.mpi_of(inventory) == mpi


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mpirun (Open MPI) 5.0.11\n", ""),
        ("mpirun (Open MPI) 3.1.6\n", "/m is Open MPI 3.1.6"),
        ("\nHYDRA build details:\nVersion: 4.1.2\n", "/m is not Open MPI's mpirun: it says 'HYDRA build details:'"),
        ("", "/m is not Open MPI's mpirun: it says 'nothing'"),
    ],
)
def test_an_mpirun_that_cannot_be_used(text: str, problem: str) -> None:
    assert mpirun.read_mpi("/m", text).problem == problem


@BOTH
def test_variables_that_mpirun_cannot_carry_are_noted(version: mpirun.MpiVersion) -> None:
    assert launch(version).notes == []
    (note,) = launch(version, env={"A": "1", "my.token": "canary", "b-c": "2"}).notes
    assert note == "MPI ranks do not get 'b-c', 'my.token': mpirun's -x takes names of letters, digits and _ only"


@BOTH
def test_no_value_of_the_environment_stands_on_the_command_line(version: mpirun.MpiVersion) -> None:
    made = launch(version)
    assert options(made, "-x") == ["HF_TOKEN", "PATH"]
    assert made.env == {"PATH": "/bin", "HF_TOKEN": "hf_canary", "HOME": "/root"}, "without HOSTNAME, with a home"
    assert not any("hf_canary" in word for word in made.argv)
    own = launch(version, env={"OMPI_MCA_btl_tcp_links": "2", "HOME": "/home/me"})
    assert options(own, "-x") == ["HOME"], "Open MPI forwards parameters of its own"
    assert own.env == {"OMPI_MCA_btl_tcp_links": "2", "HOME": "/home/me"}


@BOTH
def test_hosts_ranks_mapping_and_directory(version: mpirun.MpiVersion) -> None:
    made = launch(version)
    assert made.argv[0] == "/usr/bin/mpirun" and "--allow-run-as-root" in made.argv and made.cwd == "/work"
    told = {"--hostfile": "/etc/job-worker-services.txt", "-np": "16", "--map-by": "slot", "--wdir": "/work"}
    assert {name: options(made, name) for name in told} == {name: [value] for name, value in told.items()}
    assert list(made.argv[-3:]) == ["/bin/program", "-x", "argument"]
    assert "mpi_yield_when_idle" not in parameters(made, "--mca")
    assert parameters(launch(version, oversubscribed=True), "--mca")["mpi_yield_when_idle"] == "1"


SSH = "ssh -F /run/a4-agent/ssh/ssh_config"


@pytest.mark.parametrize(
    ("version", "launcher", "expected", "mpi"),
    [
        (
            FOUR,
            "--mca",
            {"plm_rsh_agent": SSH, "plm_rsh_no_tree_spawn": "1", "plm_rsh_num_concurrent": "300", "routed": "direct"}
            | {"plm_rsh_pass_environ_mca_params": "0", "orte_keep_fqdn_hostnames": "1", "oob_tcp_if_include": "eth0"},
            {"btl_tcp_if_include": "eth0", "pml": "ob1", "btl": "self,vader,tcp"},
        ),
        (
            FIVE,
            "--prtemca",
            {"plm_ssh_agent": SSH, "plm_ssh_no_tree_spawn": "1", "plm_ssh_num_concurrent": "300"}
            | {"routed_radix": "300", "prte_keep_fqdn_hostnames": "1", "prte_if_include": "eth0"},
            {"btl_tcp_if_include": "eth0", "pml": "ob1", "btl": "self,sm,tcp"},
        ),
        (SIX, "--prtemca", {"plm_ssh_agent": SSH, "prte_if_include": "eth0"}, {"btl": "self,sm,tcp"}),
    ],
    ids=str,
)
def test_parameters_of_the_launcher(
    version: mpirun.MpiVersion, launcher: str, expected: dict[str, str], mpi: dict[str, str]
) -> None:
    made = launch(version, hosts=300)
    values = parameters(made, launcher)
    assert expected.items() <= values.items() and mpi.items() <= parameters(made, "--mca").items()
    prefix = "prte_" if version == SIX else "oob_tcp_"
    time, interval, probes = (int(values[f"{prefix}keepalive_{name}"]) for name in ("time", "intvl", "probes"))
    assert time + interval * probes == 25, "seconds, until a dead link is noticed"


def test_open_mpi_3_is_refused() -> None:
    with pytest.raises(ValueError, match="too old"):
        launch(mpirun.MpiVersion(3, 1, 6))


@pytest.mark.parametrize(
    ("version", "name", "command"),
    [
        (FOUR, "orte_launch_agent", "sh /run/start.sh /run/x orted"),
        (FIVE, "prte_launch_agent", "sh /run/start.sh /run/x prted"),
    ],
    ids=str,
)
def test_what_starts_the_daemon_on_other_pods(version: mpirun.MpiVersion, name: str, command: str) -> None:
    option = "--mca" if version is FOUR else "--prtemca"
    starter = ["sh", "/run/start.sh", "/run/x"]
    assert parameters(launch(version, daemon_starter=starter), option)[name] == command
    assert name not in launch(version).argv
    assert name not in launch(version, hostfile=None, daemon_starter=starter).argv
    with pytest.raises(ValueError, match="cannot pass on this argument"):
        launch(version, daemon_starter=["sh", "/a b"])


@BOTH
def test_one_pod_needs_neither_ssh_nor_a_network(version: mpirun.MpiVersion) -> None:
    made = launch(version, hostfile=None, hosts=1, ranks=8, ssh_command=[])
    assert options(made, "--host") == ["localhost:8"]
    words = " ".join(made.argv)
    assert "agent" not in words and "tcp" not in words and "eth0" not in words


@pytest.mark.parametrize("word", ["", "a b", "a\tb", "a:b", "it's", 'a"b', "a\\b", "a\nb"])
def test_ssh_words_that_mpirun_would_split_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match="cannot pass on this argument"):
        mpirun.one_text(["ssh", "-o", word])


@given(st.lists(st.text("abc/._-=,@%", min_size=1), min_size=1))
def test_other_ssh_words_survive(words: list[str]) -> None:
    assert mpirun.one_text(words).split(" ") == words


FOUR_SIGNAL = """\
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).
"""
FIVE_SIGNAL = "prterun noticed that process rank 3 with PID 25 on node node-1 exited on\nsignal 6 (Aborted).\n"
FIVE_CODE = """\
prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-vm-1186@1,1]
   Exit code:    7
"""
LOST = "ORTE has lost communication with a remote daemon.\n  HNP daemon: [[1,0],0]"
NOT_STARTED_5 = "A daemon failed to report back after being spawned. This could\nbe due to"


@pytest.mark.parametrize(
    ("version", "status", "output", "started", "code"),
    [
        (FOUR, 0, "", False, 0),
        (FIVE, 0, "PRTE has lost communication with a remote\ndaemon.", True, 75),
        (FOUR, 205, LOST, True, 75),
        (FIVE, 255, NOT_STARTED_5, True, 75),
        (FIVE, 255, NOT_STARTED_5, False, 71),
        (FOUR, 255, "rank 3 said goodbye", False, 255),
        (FOUR, 132, "Illegal instruction", False, 132),
        (FIVE, 213, 'via the "execve" system call but\nfailed.', False, 66),
        (FOUR, 1, '/usr/bin/mpirun: Error: unknown option "--no"', False, 70),
        (FIVE, -9, FIVE_SIGNAL.replace("signal 6", "signal 11"), True, 139),
        (FIVE, -9, FIVE_CODE, True, 7),
        (FIVE, 0, FIVE_CODE, True, 7),
        (FIVE, 14, FIVE_SIGNAL, True, 14),
        (mpirun.MpiVersion(6, 0, 0), 241, "", False, 124),
    ],
)
def test_ends(version: mpirun.MpiVersion, status: int, output: str, started: bool, code: int) -> None:
    """And what follows from the status alone: tests/golden/test_surface.py."""
    assert mpirun_end(version, status, output, started=started)[0] == code


@given(st.sampled_from([FOUR, FIVE]), st.integers(-64, 255).filter(bool), st.text(), st.booleans())
def test_an_end_other_than_0_never_becomes_0(
    version: mpirun.MpiVersion, status: int, output: str, started: bool
) -> None:
    code, sentence, _ = mpirun_end(version, status, output, started=started)
    assert 0 < code < 256 and sentence


@pytest.mark.parametrize(
    ("output", "end"),
    [
        (FOUR_SIGNAL, (137, "rank 1 on vm was killed by signal 9")),
        (FIVE_SIGNAL, (134, "rank 3 on node-1 was killed by signal 6")),
        (FIVE_CODE, (7, "rank 1 ended with exit code 7")),
        ("Process name: [[10566,1],3]\n  Exit code:    7\n", (7, "rank 3 ended with exit code 7")),
        ("", None),
        ("exited on time with signal", None),
    ],
)
def test_what_mpirun_reports_of_a_rank(output: str, end: tuple[int, str] | None) -> None:
    assert reported_end(f"before\n{output}after\n") == end


@pytest.mark.parametrize(("version", "tag"), [(FOUR, ["--tag-output"]), (FIVE, ["--output", "tag"])], ids=str)
def test_options_of_the_user(version: mpirun.MpiVersion, tag: list[str]) -> None:
    own = MpirunOptions("core", "slot:PE=4", (("btl", "self,tcp"), ("pml", "ucx")), tag=True)
    made = launch(version, options=own)
    assert options(made, "--bind-to") == ["core"]
    assert options(made, "--map-by") == ["slot:PE=4"]
    assert parameters(made, "--mca")["btl"] == "self,tcp"
    assert options(made, "--mca").count("btl") == options(made, "--mca").count("pml") == 1
    words = list(made.argv)
    assert words[words.index(tag[0]) :][: len(tag)] == tag
    assert tag[0] not in launch(version).argv


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (MpirunOptions(map_by="core"), ""),
        (MpirunOptions(map_by="slot:PE=4"), ""),
        (MpirunOptions(map_by="numa:oversubscribe,PE=2"), ""),
        (MpirunOptions(mca=(("btl_tcp_if_include", "eth1"),)), ""),
        (MpirunOptions(map_by="node"), "-N N puts N on each pod"),
        (MpirunOptions(map_by="ppr:2:node"), "-N N puts N on each pod"),
        (MpirunOptions(map_by="socket:span"), "in the order of the plan"),
        (MpirunOptions(mca=(("plm_rsh_agent", "rsh"),)), "how mpirun reaches the pods"),
    ],
)
def test_options_that_are_not_passed_on(given: MpirunOptions, words: str) -> None:
    said = ""
    try:
        mpirun.check_options(given)
    except UsageError as error:
        said = str(error)
    assert words in said and bool(words) == bool(said)
