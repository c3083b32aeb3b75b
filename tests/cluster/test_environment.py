"""One environment: in every rank on every pod and, without the secrets, in every shell of it."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.fabrics.a4_gib import MARK as GIB
from agent.fabrics.a4_gib import SCRIPT as GIB_SCRIPT
from agent.paths import shipped
from tests.cluster.conftest import RUN_DIR, Start, Trial
from tests.cluster.fabric import gib_files, library_of_bash
from tests.cluster.test_own_programs import with_mpi
from tests.cluster.work import agent, asleep, sleeping
from tests.decide.profiles import profile

PODS = range(2)
NASTY = (
    "it's", '"', "$(touch /tmp/executed)", "`touch /tmp/executed`", "a b  c ", "=", "a=b", ";", "a;b;c", "\n",
    "two\nlines\n", "\\", "\\n", "%s", "!", "*", "~", "é", "\udcff\udc80", "\x01\x7f\t", "'; touch /tmp/executed; '",
    "", " ", "-x", "--", ",", ":", "#", "&", "|", "eth1:8-21,112-125;eth2:8-21", "{}", "[[", "x" * 9000,
)  # fmt: skip
HOSTILE_PATH = '/a b:/it\'s:/"q":/$(touch /tmp/executed):/x\\y=z;#:/é'
OWN = {"A4_USER_ENV": "NCCL_DEBUG NCCL_CROSS_NIC", "NCCL_DEBUG": "INFO", "NCCL_CROSS_NIC": "2", "NCCL_NET": "Socket"}
OWN |= {"TORCH_NCCL_USE_COMM_NONBLOCKING": "0", "HF_TOKEN": "canary-of-the-environment", "PYTHONPATH": "/image"}
EXPECTED: dict[str, str | None] = {
    **profile("a4-gib").values,
    "NCCL_IB_TC": "52",
    "NCCL_DEBUG": "INFO",
    "NCCL_CROSS_NIC": "2",
    "PYTHONPATH": "/image",
    "TORCH_NCCL_USE_COMM_NONBLOCKING": None,
}


def dumped(trial: Trial, directory: str) -> dict[str, dict[str, str]]:
    """Files in a directory of /mnt that dump_environment.py has filled, on whatever pods."""
    listed = trial.cluster.exec(0, ["ls", directory])
    found = {name: json.loads(trial.cluster.read(0, f"{directory}/{name}")) for name in listed.stdout.split()}
    trial.cluster.exec(0, ["rm", "-r", directory])
    return found


def check(env: dict[str, str], wanted: dict[str, str | None]) -> None:
    assert {name: env.get(name) for name in wanted} == wanted


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    with asleep(len(PODS), gpus_per_pod=2, env=OWN, files=gib_files()) as trial:
        yield trial


def test_every_rank_and_every_shell_has_it(trial: Trial) -> None:
    token = {"HF_TOKEN": OWN["HF_TOKEN"]}
    for words, count in ((("mpirun", "--"), 4), (("run", "script", "--"), 2), (("exec", "--"), 2)):
        done = agent(trial, 1, *words, "/job/dump", "/mnt/dump")
        assert done.returncode == 0, done
        ranks = dumped(trial, "/mnt/dump")
        assert len(ranks) == count
        for env in ranks.values():
            if words[0] == "mpirun":  # Open MPI puts its own libraries first
                env["LD_LIBRARY_PATH"] = env["LD_LIBRARY_PATH"].removeprefix("/usr/lib:")
            if words[0] != "exec":  # the agent puts its hook first, which says why a run stands still
                env["PYTHONPATH"] = env["PYTHONPATH"].removeprefix(f"{shipped('entrypoints', 'hook')}:")
            check(env, {**EXPECTED, **token})
    shells = [
        ["bash", "-ic", "/job/dump /mnt/dump"],
        ["bash", "-lc", "/job/dump /mnt/dump"],
        ["bash", "-c", "source /tmp/export_init_env.sh && /job/dump /mnt/dump"],
        ["sh", "-c", ". /tmp/export_init_env.sh && /job/dump /mnt/dump"],
    ]
    without_token = ["env", "-u", "HF_TOKEN"]
    for shell in shells:
        for index in PODS:
            done = trial.cluster.exec(index, [*without_token, *shell])
            assert done.returncode == 0, done
        found = dumped(trial, "/mnt/dump")
        assert len(found) == len(PODS)
        for env in found.values():
            check(env, {**EXPECTED, "HF_TOKEN": None})
    for index in PODS:
        env_sh = trial.cluster.read(index, f"{RUN_DIR}/env.sh")
        assert "canary" not in env_sh
        assert trial.cluster.exec(index, ["stat", "-c", "%a", f"{RUN_DIR}/env.sh"]).stdout == "600\n"
        look = "echo $PATH; echo $LD_LIBRARY_PATH; nproc >/dev/null && echo found"
        over = trial.cluster.exec(index, ["ssh", trial.cluster.spec.pod_name(1 - index), look])
        path = trial.cluster.exec(index, ["bash", "-c", "echo $PATH"]).stdout
        assert over.stdout == f"{path}{EXPECTED['LD_LIBRARY_PATH']}\nfound\n", over
    # A value that the user of a shell has changed stays, also in shells inside it and in a run from it.
    inside = "export NCCL_NET=mine; exec bash -ic '/job/dump /mnt/dump'"
    trial.cluster.exec(1, ["bash", "-ic", inside])
    ((_, env),) = dumped(trial, "/mnt/dump").items()
    assert (env["NCCL_NET"], env["NCCL_IB_TC"]) == ("mine", "52")
    done = agent(trial, 0, "mpirun", "--", "bash", "-lc", "/job/dump /mnt/dump", env={"NCCL_NET": "mine"})
    ranks = dumped(trial, "/mnt/dump")
    assert [env["NCCL_NET"] for env in ranks.values()] == ["mine"] * 4, done
    assert trial.log().count(f"NCCL_CROSS_NIC=2 (A4_USER_ENV) overrules NCCL_CROSS_NIC=0 ({GIB_SCRIPT})") == len(PODS)
    assert "canary" not in trial.log()


def test_a_bare_binary_finds_its_libraries(trial: Trial) -> None:
    name, _ = library_of_bash()
    shown = trial.cluster.exec(0, ["ldd", "/bin/bash"], env={"LD_LIBRARY_PATH": ""})
    assert f"{name} => {GIB}/lib64/{name} " in shown.stdout


def test_what_the_command_shows(trial: Trial) -> None:
    table = agent(trial, 0, "env")
    assert table.returncode == 0
    rows = {line.split()[0]: line.split()[1:] for line in table.stdout.splitlines()[2:]}
    assert rows["NCCL_NET"] == ["gIB", "profile", "a4-gib"]
    assert rows["NCCL_IB_TC"] == ["52", GIB_SCRIPT]
    assert rows["HF_TOKEN"] == ["***", "the", "pod"]
    data = json.loads(agent(trial, 0, "env", "--json").stdout)
    assert (data["profile"], data["unset"]) == ("a4-gib", ["TORCH_NCCL_USE_COMM_NONBLOCKING"])
    check(data["variables"], {**EXPECTED, "HF_TOKEN": "***"})
    shown = trial.cluster.exec(
        0, ["env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin", "bash", "-c", 'eval "$(a4-agent env --shell)" && env -0']
    )
    env = dict(entry.split("=", 1) for entry in shown.stdout.split("\0") if entry)
    check(env, {**EXPECTED, "HF_TOKEN": None})
    dry = agent(trial, 0, "mpirun", "--dry-run", "--", "true")
    assert "-x NCCL_IB_TC" in dry.stdout.replace("\\\n", ""), dry


def test_any_value_arrives_whole(start: Start, ompi5: Path) -> None:
    draw = random.Random(4)
    values = [*NASTY, *(_draw(draw) for _ in range(60))]
    env = {f"V{number}": value for number, value in enumerate(values)}
    env["LD_LIBRARY_PATH"] = HOSTILE_PATH
    typed = {f"W{number}": value for number, value in enumerate(values)}
    setup = with_mpi("5", ompi5)
    setup["files"] = {**setup["files"], "/job/dump": gib_files()["/job/dump"]}
    trial = sleeping(start, 2, gpus_per_pod=1, **{**setup, "env": {**setup.get("env", {}), **env}})
    done = agent(trial, 1, "mpirun", "--", "/job/dump", "/mnt/dump", env=typed)
    assert done.returncode == 0, done
    ranks = dumped(trial, "/mnt/dump")
    assert len(ranks) == 2
    for found in ranks.values():
        assert found["LD_LIBRARY_PATH"].endswith(HOSTILE_PATH)
        check({**found, "LD_LIBRARY_PATH": HOSTILE_PATH}, {**env, **typed})
    for words in (
        ["bash", "-lc", "/job/dump /mnt/dump"],
        ["sh", "-c", ". /tmp/export_init_env.sh; /job/dump /mnt/dump"],
    ):
        # As ssh does it: a session has nothing but what sshd gives, and env.sh brings the rest.
        over = trial.cluster.exec(1, ["ssh", trial.cluster.spec.pod_name(0), shlex.join(words)])
        assert over.returncode == 0, over
        ((_, found),) = dumped(trial, "/mnt/dump").items()
        check(found, env)  # type: ignore[arg-type]
    over = trial.cluster.exec(1, ["ssh", trial.cluster.spec.pod_name(0), "printenv LD_LIBRARY_PATH"])
    assert over.stdout == f"{HOSTILE_PATH}\n"
    for index in range(2):
        assert trial.cluster.exec(index, ["ls", "/tmp/executed"]).returncode != 0


def _draw(draw: random.Random) -> str:
    data = bytes(draw.randrange(1, 256) for _ in range(draw.randrange(1, 40)))
    return data.decode(errors="surrogateescape")
