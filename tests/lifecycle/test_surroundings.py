"""A pod prepares what its workloads find around them; no run begins before every pod of it has."""

from __future__ import annotations

import errno
import json
import signal
from collections.abc import Mapping

import pytest

from agent.fabrics.a4_deepep import SCRIPT as DEEPEP_SCRIPT
from agent.fabrics.a4_gib import MARK as GIB
from agent.fabrics.a4_gib import SCRIPT as GIB_SCRIPT
from agent.paths import BASHRC, EXPORT_INIT_ENV, LIBRARY_PATHS, PROFILE_SCRIPT
from tests.decide.profiles import profile
from tests.fake.pod import DIR, FakePod
from tests.fake.process import STUBBORN, FakeChild, FakeTool, Life, tool_of
from tests.fake.world import FakeWorld

ZERO = {0: 0, 1: 0}
SETS: Mapping[str, str | None] = {"NCCL_NET": "gIB", "NCCL_IB_TC": "52", "NCCL_ALGO": None}


def gib(env: Mapping[str, str] | None = None, script: Mapping[str, str | None] = SETS) -> FakeWorld:
    """Two pods with gIB, whose script sets `script`."""
    world = FakeWorld(2, "script", env, directories={GIB, f"{GIB}/lib64"})
    for pod in world.pods:
        pod.scripts[GIB_SCRIPT] = script
    return world


def tools(pod: FakePod) -> list[str]:
    return [tool_of(child.launch) for child in pod.agent.children if isinstance(child, FakeTool)]


def given(pod: FakePod) -> Mapping[str, str]:
    """The environment of the pod's workload."""
    (env,) = [child.launch.env for child in pod.agent.children if type(child) is FakeChild]
    return env


def test_where_nothing_applies_nothing_is_started() -> None:
    world = FakeWorld(2, "script", {"NCCL_DEBUG": "WARN"})
    assert world.run() == ZERO, world.dump()
    for pod in world.pods:
        assert tools(pod) == []
        assert given(pod)["NCCL_DEBUG"] == "WARN"
        (line,) = [line for line in pod.log.getvalue().splitlines() if "profile none: " in line]
        assert f"{GIB} is in this pod; no files to place" in line
        assert "no vendor's script to run; no library paths for ldconfig" in line
        assert "there is no nvidia-smi" in pod.log.getvalue()
        assert LIBRARY_PATHS not in pod.files_now


@pytest.mark.parametrize(
    ("env", "there", "wanted"),
    [
        ({}, ["/usr/lib64"], "/usr/lib64"),
        ({"LD_LIBRARY_PATH": "relative:/own"}, ["/own", "/usr/lib64"], "/own"),
        ({"LD_LIBRARY_PATH": "/compat"}, ["/compat", "/usr/local/nvidia/lib64 linked"], "/usr/local/nvidia/lib64"),
        ({"TRITON_LIBCUDA_PATH": "/mine"}, ["/usr/lib64"], "/mine"),
        ({}, [], None),
    ],
)
def test_triton_need_not_ask_ldconfig(env: Mapping[str, str], there: list[str], wanted: str | None) -> None:
    world = FakeWorld(1, "script", env)
    for place in there:
        name, _, linked = place.partition(" ")
        world.pod(0).directories |= {f"{name}/libcuda.so.1", *([f"{name}/libcuda.so"] if linked else [])}
    assert world.run() == {0: 0}, world.dump()
    assert given(world.pod(0)).get("TRITON_LIBCUDA_PATH") == wanted
    assert world.pod(0).log.getvalue().count("triton need not ask ldconfig") == (wanted not in (None, "/mine"))


def test_the_environment_of_workloads() -> None:
    env = {
        "NCCL_NET": "Socket",
        "NCCL_ALGO": "Ring",
        "NCCL_IB_TC": "1",
        "A4_USER_ENV": "NCCL_IB_TC",
        "TORCH_NCCL_USE_COMM_NONBLOCKING": "0",
        "LD_LIBRARY_PATH": "/image",
        "HF_TOKEN": "canary-1234",
        "GLOO_SOCKET_IFNAME": "ens9",
    }
    world = gib(env)
    assert world.run() == ZERO, world.dump()
    for pod in world.pods:
        has = given(pod)
        assert has["GLOO_SOCKET_IFNAME"] == "eth0"
        assert (has["NCCL_NET"], has["NCCL_IB_TC"], has["HF_TOKEN"]) == ("gIB", "1", "canary-1234")
        assert not {"NCCL_ALGO", "TORCH_NCCL_USE_COMM_NONBLOCKING"} & has.keys()
        assert has["LD_LIBRARY_PATH"] == profile("a4-gib").values["LD_LIBRARY_PATH"] + ":/image"
        log = pod.log.getvalue()
        assert log.count("NCCL_NET=gIB (profile a4-gib) overrules NCCL_NET=Socket (the pod)") == 1
        assert f"NCCL_IB_TC=1 (A4_USER_ENV) overrules NCCL_IB_TC=52 ({GIB_SCRIPT})" in log
        files = pod.files_now
        assert files[LIBRARY_PATHS] == f"{GIB}/lib64\n"
        assert "export NCCL_NET='gIB'\n" in files[DIR.env_sh] and "unset NCCL_ALGO\n" in files[DIR.env_sh]
        assert all("canary" not in files[path] for path in (DIR.env_sh, DIR.environment))
        assert all(DIR.env_sh in files[path] for path in (PROFILE_SCRIPT, EXPORT_INIT_ENV, BASHRC))
        record = json.loads(files[DIR.environment])
        assert (record["profile"], record["changes"]["NCCL_ALGO"]) == ("a4-gib", None)
        assert f'SetEnv "PATH=/usr/sbin:/usr/bin" "LD_LIBRARY_PATH={has["LD_LIBRARY_PATH"]}"' in files[DIR.sshd_config]
        assert tools(pod) == [GIB_SCRIPT, "ldconfig"]


def test_no_run_begins_before_every_pod_is_prepared() -> None:
    world = gib()
    world.pod(1).tools[GIB_SCRIPT] = Life(seconds=40)
    world.until_event("environment-ready", 0)
    assert world.seconds < 1
    world.until_event("run-started")
    world.wait(39.9)
    assert not any(type(child) is FakeChild for pod in world.pods for child in pod.agent.children)
    assert world.run() == ZERO, world.dump()
    assert f"preparing: waiting for {GIB_SCRIPT}, 60 s at most" in world.pod(1).log.getvalue()


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize(
    ("life", "why"),
    [
        (Life(3, 0.1, output=b"some\nlast words\n"), f"{GIB_SCRIPT} failed with status 3: some / last words"),
        (STUBBORN, f"{GIB_SCRIPT} has not ended within 60 s: it said nothing"),
    ],
)
def test_a_script_that_fails_or_hangs(index: int, life: Life, why: str) -> None:
    world = gib()
    world.pod(index).tools[GIB_SCRIPT] = life
    assert world.run() == {0: 71, 1: 71}, world.dump()
    assert world.last() < 80
    for pod in world.pods:
        assert why in pod.said()["what"] and "A4_PROFILE=none" in pod.said()["why"]
        assert ("A4_VENDOR_SCRIPT_TIMEOUT_SECONDS gives it more time" in pod.said()["why"]) is (life is STUBBORN)
        assert pod.said()["where"].startswith(f"pod {index}, ")
    assert all(child.over for child in world.pod(index).agent.children)


def test_a_script_that_needs_longer_has_the_time_that_it_is_given() -> None:
    """A run waits for the pod for as long as that takes."""
    world = gib({"A4_VENDOR_SCRIPT_TIMEOUT_SECONDS": "900"})
    world.pod(1).tools[GIB_SCRIPT] = Life(seconds=800)
    assert world.run() == ZERO, world.dump()
    assert world.last() > 800


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize(("number", "code", "why"), [(0, 66, ""), (errno.ENOENT, 71, ": bash cannot be started")])
def test_a_script_that_is_missing_or_cannot_be_started(index: int, number: int, code: int, why: str) -> None:
    world = gib()
    if number:
        world.pod(index).refusing["bash"] = number
    else:
        world.pod(index).scripts.clear()
    assert world.run() == {0: code, 1: code}, world.dump()
    assert f"{GIB_SCRIPT}{why}" in world.pod(1 - index).said()["what"]


def test_scripts_come_after_the_files_one_after_the_other() -> None:
    world = gib(script={"FROM_GIB": "1", "BOTH": "gib"})
    for pod in world.pods:
        pod.directories |= {"/opt/deepep", "/dev/shm/scripts"}
        pod.scripts[DEEPEP_SCRIPT] = {"LD_PRELOAD": "/opt/x.so", "BOTH": "deepep"}
    assert world.run() == ZERO, world.dump()
    for pod in world.pods:
        assert tools(pod) == ["cp", "mv", DEEPEP_SCRIPT, GIB_SCRIPT, "ldconfig"]
        assert (given(pod)["BOTH"], given(pod)["LD_PRELOAD"]) == ("gib", "/opt/x.so")


def test_sessions_of_ssh_get_the_paths_that_a_script_adds() -> None:
    world = gib(script={"LD_LIBRARY_PATH": "/new", "NCCL_NET": "gIB"})
    world.pod(1).scripts[GIB_SCRIPT] = SETS
    assert world.run() == ZERO, world.dump()
    hups = [pod.agent.sshd.signals.count(signal.SIGHUP) for pod in world.pods if pod.agent.sshd]
    assert hups == [1, 0]
    assert "LD_LIBRARY_PATH=/new:/usr/local/gib/lib64:" in world.pod(0).files_now[DIR.sshd_config]


@pytest.mark.parametrize("name", ["scripts", "diagnostic", "third_party"])
def test_files_of_the_installer(name: str) -> None:
    world = FakeWorld(3)
    left = {f"/dev/shm/{name}", f"/dev/shm/{name}/a", f"/dev/shm/{name}/b"}
    world.pod(0).directories |= left
    world.pod(1).directories |= {*left, f"/{name}", f"/{name}/a"}
    world.pod(2).directories |= {*left, f"/{name}", f"/{name}/a", f"/{name}/b"}
    assert set(world.run().values()) == {0}, world.dump()
    assert [tools(pod) for pod in world.pods] == [["cp", "mv"], ["cp", "mv"], []]
    copied, partly = (_copied(pod) for pod in world.pods[:2])
    assert copied == [["-t", "/.a4-agent", "--", f"/dev/shm/{name}"], ["-t", "/", "--", f"/.a4-agent/{name}"]]
    aside = f"/{name}/.a4-agent"
    assert partly == [["-t", aside, "--", f"/dev/shm/{name}/b"], ["-t", f"/{name}/", "--", f"{aside}/b"]]
    assert f"/{name} is there already" in world.pod(2).log.getvalue()
    assert not any(path.endswith(".a4-agent") for pod in world.pods for path in pod.agent.directories)


def _copied(pod: FakePod) -> list[list[str]]:
    """Arguments of `cp` and `mv`, without their options."""
    argvs = [list(child.launch.argv[1:]) for child in pod.agent.children if isinstance(child, FakeTool)]
    return [argv[1:] if argv[0] == "-a" else argv for argv in argvs]


def test_files_that_cannot_be_placed() -> None:
    world = FakeWorld(2)
    world.pod(1).directories.add("/dev/shm/third_party")
    world.pod(1).tools["cp"] = Life(1, 0.1, output=b"cp: no space\n")
    assert world.run() == {0: 71, 1: 71}, world.dump()
    what = "placing /dev/shm/third_party in / failed with status 1: cp: no space"
    assert what in world.pod(0).said()["what"]


@pytest.mark.parametrize(
    ("life", "warning"),
    [
        (Life(0, 0.1), ""),
        (Life(4, 0.1, output=b"no permission\n"), "nvidia-smi ended with status 4: no permission"),
        (STUBBORN, "nvidia-smi has not ended in 60 s"),
        (None, "GPU persistence mode: nvidia-smi cannot be started: "),
    ],
)
def test_persistence_mode_holds_nothing_up(life: Life | None, warning: str) -> None:
    """Not even by what is no program."""
    world = FakeWorld(2, "script", {"SLEEP_INFINITY": "true"})
    for pod in world.pods:
        pod.programs["nvidia-smi"] = "/usr/bin/nvidia-smi"
        if life:
            pod.tools["nvidia-smi"] = life
        else:
            pod.refusing["nvidia-smi"] = errno.ENOENT
    world.until_event("result-known")
    assert world.seconds < 15
    world.wait(70)
    assert world.asleep(), world.dump()
    for pod in world.pods:
        assert tools(pod) == (["nvidia-smi"] if life else [])
        said = f"warning: GPU persistence mode is not set: {warning}"
        assert pod.log.getvalue().count(said) == bool(warning), world.dump()


def test_persistence_mode_can_be_left_alone() -> None:
    world = FakeWorld(1, "none", {"A4_GPU_PERSISTENCE": "false"})
    world.pod(0).programs["nvidia-smi"] = "/usr/bin/nvidia-smi"
    assert world.run() == {0: 0}, world.dump()
    assert tools(world.pod(0)) == []


def test_shells_are_no_reason_to_end() -> None:
    """And what others wrote in .bashrc stays."""
    world = FakeWorld(3)
    paths = (BASHRC, PROFILE_SCRIPT, EXPORT_INIT_ENV)
    for pod, path in zip(world.pods, paths, strict=True):
        pod.files[BASHRC] = "PS1='> '\n"
        pod.failing[path] = errno.EROFS
    assert set(world.run().values()) == {0}, world.dump()
    for pod in world.pods[1:]:
        assert pod.files_now[BASHRC].endswith("\nPS1='> '\n") and f". '{DIR.env_sh}'" in pod.files_now[BASHRC]
    for pod, path in zip(world.pods, paths, strict=True):
        assert f"warning: shells and commands go without {path}: Read-only" in pod.log.getvalue()


def test_the_plugin_path_of_the_chart() -> None:
    world = FakeWorld(2, "script", {"NCCL_PLUGIN_PATH": "/plugin", "LD_LIBRARY_PATH": "/image"})
    world.pod(1).directories.add("/plugin")
    assert world.run() == ZERO, world.dump()
    assert [given(pod)["LD_LIBRARY_PATH"] for pod in world.pods] == ["/image", "/plugin:/image"]
    assert "NCCL_PLUGIN_PATH=/plugin does not exist" in world.pod(0).log.getvalue()


def test_a_secret_that_a_script_sets_is_one() -> None:
    world = gib({"HF_TOKEN": "old-canary-1234"}, script={"HF_TOKEN": "new-canary-5678"})
    assert world.run() == ZERO, world.dump()
    for pod in world.pods:
        assert given(pod)["HF_TOKEN"] == "new-canary-5678"
        shown = (pod.log.getvalue(), pod.files_now[DIR.environment], pod.files_now[DIR.env_sh])
        assert not any("new-canary" in text for text in shown), shown
