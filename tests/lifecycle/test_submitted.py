"""Runs submitted to a sleeping cluster: from any pod, one at a time, and what becomes of them when things go wrong."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from agent.connection import ANSWER_SECONDS
from agent.lifecycle.channel.command_socket import FAREWELL_SECONDS
from agent.lifecycle.runs.preparations import INVENTORY_SECONDS
from tests.fake.pod import INVENTORY
from tests.fake.process import FOREVER, STUBBORN, FakeChild, Life
from tests.fake.world import FakeWorld, first_run

TERM, KILL = 15, 9


def sleeping(
    pods: int = 4, env: dict[str, str] | None = None, *, last: dict[str, str] | None = None, **each: Any
) -> FakeWorld:
    """A cluster that sleeps after a first run of `none`. `last`: what the last pod alone has in its environment;
    `each`: attributes of every pod."""
    world = FakeWorld(pods, "none", {"SLEEP_INFINITY": "true", **(env or {})}, **each)
    world.pods[-1].env = last or world.pods[-1].env
    world.until(world.asleep)
    return world


def running(
    workload: str = "script",
    pods: int = 4,
    env: dict[str, str] | None = None,
    *,
    exclude: Sequence[str] = (),
    **each: Any,
) -> tuple[FakeWorld, str]:
    """A sleeping cluster in which a run of pod 1 has been going on for 5 s, for ever unless `each` says otherwise; its
    id."""
    world = sleeping(pods, env, **{"life": FOREVER, **each})
    args = ["./program"] if workload in ("mpirun", "torchrun", "exec") else []
    run_id = world.submit(1, workload, args=args, exclude=list(exclude))
    world.wait(5)
    return world, run_id


def greet(world: FakeWorld, seconds: float = 10.0) -> None:
    """Each pod's process says from where."""
    for pod in world.pods:
        pod.life = Life(seconds=seconds, output=f"hello from {pod.index}\n".encode())


def ends(world: FakeWorld, index: int, run_id: str) -> dict[str, Any]:
    """The answer to `wait`, asked in that pod."""
    answer = world.ask(index, "wait", run=run_id)
    assert "ok" in answer, answer
    told: dict[str, Any] = answer["ok"]
    return told


def printed(world: FakeWorld, index: int, run_id: str, pod: int, **fields: Any) -> bytes:
    """All that a pod printed on stdout and stderr during a run, or has in a file of it, read in another pod."""
    data, offset, asked = b"", 0, {"run": run_id, "pod": pod, "most": 65536, "wait": True, **fields}
    while True:
        answer = world.ask(index, "read", offset=offset, **asked)["ok"]
        data += b"".join(base64.b64decode(text) for stream, text in answer["frames"] if stream in (1, 2))
        offset = answer["next"]
        if answer["over"]:
            return data


@pytest.mark.parametrize("index", [0, 2])
def test_a_run_from_any_pod(index: int) -> None:
    world = sleeping()
    greet(world)
    run_id = world.submit(index, "script")
    told = ends(world, index, run_id)
    assert told["end"]["code"] == 0 and told["codes"] == {str(i): 0 for i in range(4)}, world.dump()
    assert [printed(world, index, run_id, pod) for pod in range(4)] == [f"hello from {i}\n".encode() for i in range(4)]
    world.wait(5)
    assert world.asleep(), world.dump()
    results = "/run/a4-agent/results"
    for pod in world.pods:
        past = pod.state()["runs"]
        assert [run["workload"] for run in past] == ["none", "script"]
        assert past[-1]["by"] == f"pod {index}" and past[-1]["code"] == 0
        assert "run" not in pod.state()
        log = f"pod-logs/{f'worker-{pod.index}' if pod.index else 'coordinator'}.log"
        assert f"hello from {pod.index}" in pod.stored[f"{results}/runs/{run_id}/{log}"]
        assert "hello" not in pod.stored[f"{results}/{log}"]
    assert {f"{results}/result.json", f"{results}/runs/{run_id}/result.json"} <= world.pod(0).stored.keys()


@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize("workload", ["script", "exec", "torchrun"])
def test_a_reader_may_come_before_the_run_begins(index: int, workload: str) -> None:
    world = sleeping()
    greet(world, 3)
    client = world.pod(index).agent.client()
    client.ask("submit", spec={"workload": workload, "args": ["x"]})
    world.until(lambda: 1 in client.answers)
    run_id = client.answers[1]["ok"]["run"]
    numbers = [client.ask("read", run=run_id, pod=of, offset=0, most=9999, wait=True) for of in range(4)]
    world.until(lambda: set(numbers) <= set(client.answers))
    for of, number in enumerate(numbers):
        printed: list[bytes] = []
        while not printed:  # what the agent said comes first
            piece = client.answers[number]["ok"]
            assert not piece["over"]
            printed = [base64.b64decode(text) for stream, text in piece["frames"] if stream == 1]
            number = client.ask("read", run=run_id, pod=of, offset=piece["next"], most=9999, wait=True)
            world.until(partial(client.answers.__contains__, number))
        assert printed == [f"hello from {of}\n".encode()]


@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize("workload", ["script", "exec"])
def test_a_pod_that_cannot_prepare_its_part(index: int, workload: str) -> None:
    """`exec` tells of it and goes on with the others; what needs all pods ends before anything begins."""
    world = sleeping()
    greet(world)
    world.pod(index).out_of_descriptors = True
    run_id = world.submit(1, workload, args=["hostname"])
    told = ends(world, 1, run_id)
    why = f"{run_id} cannot be prepared: Too many open files"
    if workload == "script":
        assert (told["end"]["code"], told["end"]["what"], told["codes"]) == (71, why, {}), world.dump()
        return
    assert told["codes"] == {str(i): 71 if i == index else 0 for i in range(4)}, world.dump()
    assert told["end"]["what"] == f"hostname ended with exit code 71 on pod {index}"
    assert f"{world.pod(index).where}: {why}" in told["end"]["why"] and "ulimit -n" in told["end"]["why"]
    assert printed(world, 1, run_id, 3) == b"hello from 3\n"


def test_what_readers_wait_for_leaves_nothing_behind() -> None:
    """A run that prints much is read thousands of times in the time that one reader may wait."""
    world = sleeping()
    world.pod(0).life = FOREVER
    run_id = world.submit(0, "script")
    client, children = world.pod(0).agent.client(), world.pod(0).agent.children
    world.until(lambda: children[-1].launch.argv[0] == "bash")
    offset, pending = 0, 0
    for line in range(50):
        number = client.ask("read", run=run_id, pod=0, offset=offset, most=9999, wait=True)
        world.wait(0.1)
        if number not in client.answers:
            children[-1].output(1, b"line %d\n" % line)
        world.until(partial(client.answers.__contains__, number))
        offset = client.answers[number]["ok"]["next"]
        pending = pending or world.clock.pending
    assert world.clock.pending < pending + 10


def test_who_waits_hears_of_the_end_when_it_is_written() -> None:
    """A command reads the state as soon as it has its answer."""
    world = sleeping()
    pod = world.pod(0)
    run_id = world.submit(0, "script")
    client, seen = pod.agent.client(), []
    number = client.ask("wait", run=run_id)
    client.answered = lambda: seen.append(pod.state())
    world.until(lambda: number in client.answers)
    assert [state["phase"] for state in seen] == ["sleeping"] and seen[0]["runs"][-1]["id"] == run_id


def test_a_second_one_meanwhile_is_refused() -> None:
    world, run_id = running()
    world.wait(600)
    for index in (0, 1, 3):
        error = world.ask(index, "submit", spec={"workload": "script"})["error"]
        assert (error["code"], error["busy"]) == (75, True)
        assert run_id in error["what"] and "pod 1 has been running" in error["what"] and "10 min" in error["what"]
    for wrong in ({"workload": "ddp", "args": ["--steps", "0"]}, {"workload": "script", "hosts": ["7"]}):
        assert world.ask(1, "submit", spec=wrong)["error"]["code"] == 2, "what is wrong is told before who is at work"
    world.ask(3, "cancel", run=run_id, why="Ctrl-C in pod 3")
    told = ends(world, 0, run_id)
    assert told["end"]["code"] == 130 and told["end"]["why"].splitlines()[0] == "Ctrl-C in pod 3"
    world.wait(3)
    assert world.asleep(), world.dump()


def test_a_run_that_there_is_not() -> None:
    world = sleeping(2)
    known = world.pod(0).state()["runs"][0]["id"]
    error = world.ask(1, "find", run=f"n{known}")["error"]
    assert (error["code"], error["what"]) == (66, f"there is no run 'n{known}'; did you mean {known}?")
    error = world.ask(1, "find", run="x")["error"]
    assert error["what"] == "there is no run 'x'" and f"the newest: {known}; a4-agent status" in error["hint"]
    for wrong in ({"offset": 10**400}, {"pod": float("inf")}, {"pod": 99}):
        world.ask(1, "read", **{"run": known, "pod": 1, "offset": 0, "most": 10, "wait": False, **wrong})
    assert world.asleep(), world.dump()


def test_before_the_cluster_is_formed_there_are_no_runs() -> None:
    world = FakeWorld(3, "script", {"SLEEP_INFINITY": "true"})
    world.pod(2).starts = 100
    world.wait(20)
    for index in (0, 1):
        assert world.ask(index, "submit", spec={"workload": "script"})["error"]["code"] == 69


def test_a_lost_worker_ends_the_run_and_not_the_cluster() -> None:
    world, run_id = running()
    world.pod(2).kill_agent()
    told = ends(world, 1, run_id)
    assert told["end"]["code"] == 75 and told["lost"].keys() == {"2"}, world.dump()
    world.wait(5)
    for index in (0, 1, 3):
        state = world.pod(index).state()
        assert state["phase"] == "sleeping" and state["lost"].keys() == {"2"}, world.dump()
    error = world.ask(3, "submit", spec={"workload": "script"})["error"]
    assert error["code"] == 75 and "2" in error["what"] and "--exclude 2" in error["hint"]
    world.every(life=Life())
    told = ends(world, 3, world.submit(3, "script", exclude=["2"]))
    assert told["end"]["code"] == 0 and told["codes"].keys() == {"0", "1", "3"}


def test_a_lost_coordinator_ends_the_parts_and_the_pods() -> None:
    world, _ = running()
    world.pod(0).kill_agent()
    codes = world.run()
    assert {codes[index] for index in (1, 2, 3)} == {75}, world.dump()
    assert all(pod.workloads()[-1][1] for pod in world.others(0)), "their processes were ended"


# Subsets


@pytest.mark.parametrize(
    ("wish", "pods"),
    [({"nodes": 2}, 2), ({"hosts": ["1", "3"]}, 2), ({"exclude": ["0"]}, 3), ({"hosts": ["1-3"], "nodes": 1}, 1)],
)
def test_subsets_in_plan_order(wish: dict[str, Any], pods: int) -> None:
    world = sleeping()
    about = world.ask(1, "submit", spec={"workload": "script", **wish})["ok"]
    assert len(about["pods"]) == pods and about["lead"] == about["pods"][0]
    told = ends(world, 1, about["run"])
    assert told["codes"].keys() == {str(index) for index in about["pods"]}, world.dump()
    started = [pod.index for pod in world.pods if pod.workloads()]
    assert started == sorted(about["pods"])
    lead = world.pod(about["lead"])
    child = next(child for child in lead.agent.children if child.launch.argv[0] == "bash")
    assert child.launch.env["NODE_RANK"] == "0" and child.launch.env["MASTER_ADDR"] == lead.name


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("ddp", {"args": ["--steps", "0"]}, "ddp: argument --steps: '0' is not a whole number"),
    ("collectives", {"args": ["--tests", "all_reduc"]}, "collectives: no test all_reduc"),
    ("collectives", {"args": ["-r", "32"]}, "no rank 32 for --root: there are 32 ranks"),
    ("script", {"hosts": ["7"]}, ""),
    ("script", {"nodes": 9}, ""),
    ("script", {"exclude": ["0-3"]}, ""),
    ("exec", {"args": ["a\0b"]}, ""),
    ("script", {"name": "a/b"}, ""),
]


def test_what_cannot_be_is_refused_before_anything_begins() -> None:
    world = sleeping()
    for index in (0, 1):
        for workload, wish, said in REFUSED:
            error = world.ask(index, "submit", spec={"workload": workload, **wish})["error"]
            assert error["code"] == 2 and said in error["what"], wish
            assert not said or f"a4-agent run {workload} --help" in error["hint"]
    assert world.asleep() and all(len(pod.state()["runs"]) == 1 for pod in world.pods)


@pytest.mark.parametrize(("sleeps", "code"), [("true", 0), ("false", 75)])
@pytest.mark.parametrize("index", [0, 2])
def test_a_run_that_is_submitted_as_soon_as_there_is_a_plan(index: int, sleeps: str, code: int) -> None:
    """It begins when the cluster sleeps; a job that does not stay says that it ends."""
    world = FakeWorld(4, "none", {"SLEEP_INFINITY": sleeps})
    world.until_event("plan-ready", 0)
    answer = world.ask(index, "submit", spec={"workload": "script"})
    assert answer.get("error", {"code": 0})["code"] == code, answer


@pytest.mark.parametrize(
    ("index", "sleeps", "moment", "code"),
    [
        *((index, "always", "plan-ready", 0) for index in (0, 2)),
        *((index, "always", "result-known", 7) for index in (0, 2)),
        *((index, "always", "asleep", code) for index in (0, 2) for code in (0, 7)),
        *((0, "never", *moment) for moment in (("plan-ready", 0), ("result-known", 7))),
    ],
)
def test_a_release_ends_it_with_the_recorded_code(index: int, sleeps: str, moment: str, code: int) -> None:
    """Also in the moment before the cluster sleeps, or would not stay."""
    world = FakeWorld(4, "none" if moment == "plan-ready" else "script", {"A4_SLEEP_ON": sleeps})
    world.pod(3).life = Life(code)
    if moment == "asleep":
        world.until(world.asleep)
    else:
        world.until_event(moment, 0)
    released = world.seconds
    assert world.ask(index, "release")["ok"] == {"code": code}
    assert set(world.run().values()) == {code}, world.dump()
    assert world.last() < released + 15


@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize("workload", ["script", "exec"])
@pytest.mark.parametrize("first", ["none", "script"])
def test_a_run_that_is_submitted_while_the_pods_hear_the_first_one_s_end(first: str, workload: str, index: int) -> None:
    world = FakeWorld(4, first, {"SLEEP_INFINITY": "true"})
    world.until_event("result-known", 0)
    assert ends(world, index, world.submit(index, workload, args=["x"]))["end"]["code"] == 0, world.dump()


@pytest.mark.parametrize("index", [0, 2])
def test_a_run_does_not_wait_for_the_first_one_longer_than_its_command_for_an_answer(index: int) -> None:
    world = FakeWorld(4, "none", {"SLEEP_INFINITY": "true"})
    world.pod(3).inventory = None
    world.until_event("plan-ready", 0)
    before = world.seconds
    error = world.ask(index, "submit", spec={"workload": "script"})["error"]
    assert (error["code"], error["busy"]) == (75, True) and world.seconds < before + ANSWER_SECONDS
    world.until(world.asleep)
    world.wait(5)
    assert world.asleep() and [run["workload"] for run in world.pod(0).state()["runs"]] == ["none"], world.dump()


# exec


def test_exec_runs_beside_a_run_and_waits_for_all() -> None:
    world = sleeping(life=FOREVER)
    run_id = world.submit(0, "script")
    world.wait(1)
    world.every(life=Life(0, 3, output=b"node\n"))
    world.pod(2).life = Life(4, 1, output=b"oops\n")
    beside = world.submit(1, "exec", args=["hostname"])
    told = ends(world, 1, beside)
    assert told["end"]["code"] == 4 and told["codes"] == {"0": 0, "1": 0, "2": 4, "3": 0}, world.dump()
    assert printed(world, 1, beside, 3) == b"node\n"
    assert all(b"node" not in pod.agent.emitted[1] for pod in world.pods), "it is not in the pods' own logs"
    assert [run["workload"] for run in world.pod(0).state()["runs"]] == ["none"], "it is not recorded"
    world.ask(0, "cancel", run=run_id)
    assert ends(world, 0, run_id)["end"]["code"] == 130


@pytest.mark.parametrize("inventory", [INVENTORY, None])
def test_exec_goes_on_where_a_pod_is_lost(inventory: dict[str, str] | None) -> None:
    """Also while it waits for what another pod has."""
    world = FakeWorld(4, "none", {"SLEEP_INFINITY": "true"}, life=Life(0, 60))
    world.pod(3).inventory = inventory
    world.until(world.asleep)
    run_id = world.submit(1, "exec", args=["sleep", "60"])
    world.wait(2)
    world.pod(2).kill()
    told = ends(world, 1, run_id)
    assert (told["end"]["code"], list(told["lost"])) == (75, ["2"])
    assert told["codes"] == {"0": 0, "1": 0, "3": 0}, world.dump()


# MPI runs


def test_mpirun_starts_on_the_lead_alone() -> None:
    world = sleeping(life=Life(3, 5, output=b"ranks say hello\n"))
    about = world.ask(2, "submit", spec={"workload": "mpirun", "args": ["./bin"], "exclude": ["0"]})["ok"]
    assert about["outputs"] == [about["lead"]] and about["lead"] != 0
    told = ends(world, 2, about["run"])
    assert told["end"]["code"] == 3, told
    assert printed(world, 2, about["run"], about["lead"]) == b"ranks say hello\n"
    assert [pod.index for pod in world.pods if pod.workloads()] == [about["lead"]]


# Limits


def test_the_time_limit_ends_a_run_and_keeps_evidence() -> None:
    world = first_run(3, {"A4_WORKLOAD_TIMEOUT_SECONDS": "60"})
    for pod in world.pods:
        run = pod.state()["run"]["id"]
        pod.agent.files[f"/run/a4-agent/runs/{run}/ranks-output/0"] = "last words, not masked"
    assert set(world.run().values()) == {124}, world.dump()
    assert world.last() < 60 + 20
    assert not any("/ranks-output/" in name for pod in world.pods for name in pod.files_now)
    for pod in world.pods:
        assert "time limit of 60 s" in pod.said()["what"] and f"rank {pod.index} hangs" in pod.said()["why"]
        run = pod.state()["runs"][-1]["id"]
        assert f"stacks of pod {pod.index}" in pod.files_now[f"/run/a4-agent/runs/{run}/evidence.txt"]
        assert any(f"stacks of pod {pod.index}" in text for text in pod.stored.values()), pod.stored.keys()


def test_pods_that_do_not_say_what_hangs_are_named_and_do_not_hold_up_the_end() -> None:
    world = FakeWorld(4, "script", {"A4_WORKLOAD_TIMEOUT_SECONDS": "60"}, life=FOREVER)
    world.pod(1).evidence_seconds = None
    world.pod(2).hangs = "rank 4: pid 7 a.out: S poll\npid 9 last-words.py /run/x: T"
    world.at(60, lambda: world.pod(3).pause(25))
    assert set(world.run().values()) == {124}, world.dump()
    said = world.pod(2).said()["why"].splitlines()
    assert said[:3] == [
        "cannot tell: no pod showed a rank of the run (pod 3: it did not answer in time)",
        "pod 2: pid 9 last-words.py /run/x: T",
        "pod 0: rank 0 hangs",
    ]
    assert "pod 1: the look at the processes did not finish in time" in said
    assert "pods 3 did not say in time what they do" in said


def test_words_of_a_worker_that_are_known_with_its_next_beat_count() -> None:
    world = first_run(2, {"A4_STALL_TIMEOUT_SECONDS": "20"}, life=Life(0, 400))
    world.wait(2)
    child = world.pod(1).agent.children[-1]
    for number in range(1, 20):
        world.at(world.seconds + 19.9 * number, lambda: child.output(1, b"step\n"))
    assert set(world.run().values()) == {0}, world.dump()


@pytest.mark.parametrize("exclude", [(), ("0",)])
def test_silence_ends_a_run_and_talk_does_not(exclude: tuple[str, ...]) -> None:
    """Also on nodes that are up for longer than the limit, before anybody can have heard a word."""
    world = first_run(3, {"A4_STALL_TIMEOUT_SECONDS": "100"}, wish={"exclude": exclude})
    world.wait(2)
    for second in (50, 120, 200):
        world.at(second, lambda: world.pod(2).agent.children[-1].output(1, b"step\n"))
    assert set(world.run().values()) == {124}, world.dump()
    assert 300 < world.last() < 330, "a hundred seconds after the last word of the last pod that spoke"


def test_a_limit_of_ones_own() -> None:
    world = sleeping(life=FOREVER)
    before = world.seconds
    told = ends(world, 1, world.submit(1, "script", timeout=20))
    assert told["end"]["code"] == 124 and 20 < world.seconds - before < 40


# Before the run


def test_pods_that_differ_are_refused_by_name() -> None:
    world = FakeWorld(4, "script")
    world.pod(2).env = {"GPUS_PER_NODE": "4"}
    assert set(world.run().values()) == {78}, world.dump()
    said = world.pod(1).said()
    assert "pod 2" in said["what"] + said["why"] and "4" in said["why"]
    assert not any(pod.workloads() for pod in world.pods)


def test_a_pod_that_never_says_what_it_has_holds_nothing_up_for_ever() -> None:
    world = FakeWorld(3, "script")
    world.pod(1).inventory = None
    assert set(world.run().values()) == {0}, world.dump()
    assert INVENTORY_SECONDS < world.last() < 500


# The idle cluster


@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize("grace", [0.0, 5.0])
def test_the_end_waits_for_a_command_that_says_what_it_was_answered(grace: float, index: int) -> None:
    """But no longer than the pod has that is told to end meanwhile."""
    world = sleeping(env={"A4_GRACE_SECONDS": f"{grace:g}"} if grace else {})
    client = world.pod(index).agent.client()
    number = client.ask("release", force=False)
    world.until(lambda: number in client.answers)
    over = world.seconds + FAREWELL_SECONDS
    world.wait(1 if grace else FAREWELL_SECONDS - 1)
    assert [pod.index for pod in world.pods if pod.living] == [index]
    if grace:
        over = world.seconds + grace - 3
        world.pod(index).signal()
    else:
        client.leave()
    assert set(world.run().values()) == {0}, world.dump()
    assert world.last() <= over


def test_the_log_is_stored_while_a_command_stays() -> None:
    world = first_run(3, {"A4_RESULTS_DIR": "/mnt/results"})
    lead = world.pod(0)
    client = lead.agent.client()
    number = client.ask("release", force=True)
    world.until(lambda: number in client.answers)
    world.wait(FAREWELL_SECONDS - 1)
    assert lead.living
    assert "the job ends with exit code 130" in lead.stored["/mnt/results/pod-logs/coordinator.log"]
    assert set(world.run().values()) == {130}, world.dump()


@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize("workload", ["exec", "script"])
def test_a_second_release_is_told_the_same(workload: str, index: int) -> None:
    world, run_id = running(workload, life=STUBBORN)
    refused = world.ask(1, "release")
    assert workload == "exec" or (refused["error"]["code"] == 75 and run_id in refused["error"]["what"]), refused
    for pod, force in ((1, True), (index, False)):
        assert world.ask(pod, "release", force=force)["ok"] == {"code": 0}
    world.wait(5)
    assert world.ask(index, "release")["ok"] == {"code": 0}, "while what runs is being ended"
    assert set(world.run().values()) == {0}, world.dump()


def test_a_run_is_refused_while_the_first_goes_on_and_a_second_release_while_that_is_ended() -> None:
    world = first_run(3, {"SLEEP_INFINITY": "true"}, life=STUBBORN)
    world.wait(1)
    error = world.ask(2, "submit", spec={"workload": "script"})["error"]
    assert error["code"] == 75 and "ENTRYPOINT has been running script-" in error["what"]
    assert world.ask(1, "release")["error"]["code"] == 75
    for force in (True, False):
        assert world.ask(1, "release", force=force)["ok"] == {"code": 130}
    assert set(world.run().values()) == {130}, world.dump()


@pytest.mark.parametrize(("when", "code", "stays"), [("failure", 0, False), ("failure", 7, True), ("never", 7, False)])
def test_when_it_stays(when: str, code: int, stays: bool) -> None:
    world = FakeWorld(3, "script", {"SLEEP_INFINITY": "true", "A4_SLEEP_ON": when})
    world.pod(1).life = Life(code)
    world.wait(200)
    assert [pod.living for pod in world.pods] == [stays] * 3, world.dump()
    assert stays or set(world.codes().values()) == {code}


def test_idle_hours_are_counted_and_limited() -> None:
    world = sleeping(2, {"A4_SLEEP_MAX_HOURS": "3"})
    world.wait(2.5 * 3600)
    text = world.pod(0).log.getvalue()
    assert "16 GPUs have been idle for 1 h" in text and "16 GPUs have been idle for 2 h" in text
    world.every(life=Life())
    ends(world, 1, world.submit(1, "script"))
    world.wait(2.9 * 3600)
    assert world.asleep(), "the count begins anew after a run"
    world.every(life=Life(seconds=1000))
    assert ends(world, 1, world.submit(1, "exec", args=["x"]))["end"]["code"] == 0, world.dump()
    assert set(world.run(40_000).values()) == {0}, world.dump()


def test_commands_beside_wait_for_the_results_directory_too() -> None:
    world = FakeWorld(1, "script", {"A4_RESULTS_DIR": "/gcs/results"})
    world.pod(0).storage = "stuck"
    world.until_event("plan-ready", 0)
    world.submit(0, "exec", args=["hostname"])
    assert set(world.run().values()) == {73}, world.dump()
    assert not world.pod(0).workloads()


def test_a_master_port_that_is_taken_is_found_before_the_start() -> None:
    world = sleeping()
    about = world.ask(2, "submit", spec={"workload": "torchrun", "args": ["train.py"], "exclude": ["1"]})["ok"]
    assert ends(world, 2, about["run"])["end"]["code"] == 0
    world.pod(about["lead"]).busy["6002"] = "process 7 (jupyter)"
    before = [len(pod.workloads()) for pod in world.pods]
    end = ends(world, 2, world.submit(2, "torchrun", args=["train.py"], exclude=["1"]))["end"]
    assert end["code"] == 71 and "6002" in end["what"] and "jupyter" in end["what"], world.dump()
    assert len(world.pod(about["lead"]).workloads()) == before[about["lead"]]


# What went wrong once


def test_a_pod_that_goes_while_a_run_is_prepared() -> None:
    world = FakeWorld(4, "script", {"A4_SLEEP_ON": "always"})
    world.pod(1).inventory = None  # the run waits for it, 20 s
    world.until_event("run-started")
    world.at(5, world.pod(2).signal)
    world.wait(60)
    codes = [pod.state()["runs"][-1]["code"] for pod in world.others(2)]
    assert codes == [75, 75, 75], world.dump()


def test_many_commands_beside_push_out_no_run() -> None:
    world = sleeping(2, life=Life(seconds=0.1, output=b"of the run\n"), storage="stuck")
    run_id = world.submit(0, "script")
    ends(world, 0, run_id)
    beside = [world.submit(1, "exec", args=["x"])]
    for _ in range(70):
        ends(world, 1, beside[-1])
        beside.append(world.submit(1, "exec", args=["x"]))
    assert world.ask(0, "find", run=beside[0])["error"]["code"] == 66, "the oldest of them are forgotten"
    assert world.ask(1, "find", run="")["ok"]["run"] == run_id
    assert printed(world, 0, run_id, 1) == b"of the run\n", "it is not stored yet"
    for pod in world.pods:
        assert len(pod.agent.spools) < 40
        pod.storage = ""
    world.wait(60)
    for pod in world.pods:
        assert any("of the run" in text for text in pod.stored.values())


@pytest.mark.parametrize(
    "message",
    [
        {"type": "done", "end": {"ranks": {}}},
        {"type": "answer", "id": float("inf"), "answer": {}},
        {"type": "stopping", "end": {"code": "x", "what": ""}},
    ],
)
def test_a_worker_that_talks_nonsense_is_lost_and_the_cluster_stays(message: dict[str, Any]) -> None:
    world = sleeping()
    world.slip_in(message, 2)
    world.wait(5)
    assert "a message this release cannot read" in world.pod(0).state()["lost"]["2"]["why"], world.dump()
    world.every(life=Life())
    assert ends(world, 1, world.submit(1, "script", exclude=["2"]))["end"]["code"] == 0


SAID = b"mpirun noticed that process rank 1 with PID 9 on node x exited on signal 9\n"


def mpi_run(world: FakeWorld, *hosts: int) -> tuple[str, FakeChild, Callable[[int, str], None]]:
    """A run with a rank on each of these pods: its id, its mpirun, and what notes how a rank goes."""
    spec = {"workload": "mpirun", "args": ["./bin"], "per_node": 1, "hosts": [str(host) for host in hosts]}
    run: str = world.ask(0, "submit", spec=spec)["ok"]["run"]
    world.wait(1)
    mpiruns = (child for child in world.pod(hosts[0]).agent.children if child.launch.argv[0].endswith("mpirun"))

    def note(rank: int, record: str) -> None:
        world.pod(hosts[rank]).agent.files[f"/run/a4-agent/runs/{run}/ranks/{rank}"] = record

    return run, next(mpiruns), note


@pytest.mark.parametrize(
    ("seconds", "record", "code"),
    [(60.0, "started\n", 0), (None, "started\nended 137\n", 137), (8.0, "started\nended 0\n", 0)],
)
def test_the_words_of_mpirun_end_it_only_when_no_rank_runs_any_more(
    seconds: float | None, record: str, code: int
) -> None:
    """A rank that prints them goes on; an Open MPI 5 that hangs after them is ended; one that ends soon was not."""
    world = sleeping(2, life=Life(0, seconds, output=SAID))
    run, mpirun, note = mpi_run(world, 0)
    note(0, record)
    if "ended" not in record:
        world.at(world.seconds + 55, lambda: note(0, "started\nended 0\n"))
    told = ends(world, 0, run)
    assert told["end"]["code"] == code, told
    assert bool(mpirun.signals) == (seconds is None), world.dump()


def test_a_rank_of_another_pod_that_prints_keeps_a_run_from_being_ended() -> None:
    """That pod's records are not known here, and what mpirun seems to say of its rank may be a rank's own words."""
    world = sleeping(2, life=Life(0, 60, output=SAID))
    run, mpirun, note = mpi_run(world, 0, 1)
    for rank in range(2):
        note(rank, "started 9\nended 0\n")
    for seconds in range(5, 60, 5):
        world.at(world.seconds + seconds, lambda: mpirun.output(1, b"step\n"))
    assert ends(world, 0, run)["end"]["code"] == 0
    assert mpirun.signals == [], world.dump()


@pytest.mark.parametrize("index", [0, 1])
def test_a_pod_without_more_threads_fails_its_part_alone(index: int) -> None:
    world = sleeping()
    world.pod(index).threadless = True
    run_id = world.submit(2, "exec", args=["hostname"])
    assert ends(world, 2, run_id)["codes"] == {str(i): 71 if i == index else 0 for i in range(4)}, world.dump()
    assert b"no more threads" in printed(world, 2, run_id, index)
    world.pod(index).threadless = False
    assert ends(world, 2, world.submit(2, "script"))["end"]["code"] == 0, world.dump()


@pytest.mark.parametrize(("codes", "talks"), [((0, 0), 20), ((0, 7), 20), ((0, 0), 1000)])
@pytest.mark.parametrize("hosts", [(0, 2), (1, 3)], ids=["coordinator-leads", "worker-leads"])
def test_an_mpirun_that_stays_when_every_rank_has_ended_is_ended(
    hosts: tuple[int, int], codes: tuple[int, int], talks: int
) -> None:
    """What a rank left behind holds its stdout, and mpirun waits for that. All that was printed is kept. One that
    prints on has a minute."""
    world = sleeping(life=FOREVER)
    run, mpirun, note = mpi_run(world, *hosts)
    note(0, f"started 9\nended {codes[0]}\n")
    world.wait(60)
    assert mpirun.signals == [], "a rank still runs"
    note(1, f"started 9\nended {codes[1]}\n")
    for seconds in range(3, talks, 3):
        world.at(world.seconds + seconds, lambda: None if mpirun.over else mpirun.output(1, b"late\n"))
    before = world.seconds
    told = ends(world, 0, run)
    assert world.seconds - before < 80
    assert told["end"]["code"] == codes[1] and mpirun.signals == [TERM], world.dump()
    assert printed(world, 0, run, hosts[0]).startswith(6 * b"late\n")


@pytest.mark.parametrize("words", [b"", SAID], ids=["ranks are over", "it said so"])
def test_an_mpirun_that_waits_for_who_reads_the_pod_s_log_is_not_ended(words: bytes) -> None:
    """What it prints stays in its pipe, and it cannot end before that is read: no sign that it hangs."""
    world = sleeping(2, life=Life(0, 84, output=words))
    run, mpirun, note = mpi_run(world, 0)
    note(0, "started 9\nended 0\n")
    mpirun.is_paused = True
    world.wait(80)
    mpirun.is_paused = False
    mpirun.output(1, b"the rest\n")
    assert ends(world, 0, run)["end"]["code"] == 0
    assert mpirun.signals == [] and printed(world, 0, run, 0) == words + b"the rest\n", world.dump()


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"type": "prepare", "run": "x"}, "cannot read"),
        ({"type": "result", "end": {}}, "cannot read"),
        ({"type": "end"}, "without reporting the job's result"),  # as after a bug of the coordinator
    ],
)
def test_a_coordinator_that_talks_nonsense_is_a_lost_peer_and_no_bug(message: dict[str, Any], said: str) -> None:
    world = first_run(2)
    world.slip_in(message, 0, 1)
    assert set(world.run().values()) == {75}, world.dump()
    assert said in world.pod(1).state()["end"]["what"]


def test_a_worker_is_asked_for_nothing_but_what_it_printed() -> None:
    world = sleeping(2)
    roster, answers = world.pod(0).agent.role.roster, list[dict[str, Any]]()  # type: ignore[union-attr]
    world.pod(0).agent.post(0, lambda: roster.peers[1].questions.ask("cancel", {"run": "none-1"}, answers.append))
    world.until(lambda: bool(answers))
    assert answers[0]["error"]["what"].startswith("the agent does not support the request 'cancel'"), answers


def test_runs_have_names() -> None:
    world = sleeping(2)
    secret = "s3cret-of-the-user"
    wish = {"args": ["--api-key", secret], "name": "lr-0.1", "note": f"with {secret}"}
    first = world.submit(1, "script", **wish)
    busy = world.ask(0, "submit", spec={"workload": "script", "name": "lr-0.2"})
    assert f"pod 1 has been running {first} (lr-0.1)" in busy["error"]["what"]
    ends(world, 0, "lr-0.1")
    second = world.submit(0, "script", name="lr-0.1")
    ends(world, 1, second)
    third = world.submit(0, "script", name="lr-0.2")  # the refused one has not taken it
    ends(world, 1, "lr-0.2")
    found = {name: world.ask(1, "find", run=name)["ok"] for name in ("lr-0.1", "lr-0.1-2", "lr-0.2")}
    assert [found[name]["run"] for name in found] == [first, second, third]
    assert (found["lr-0.1"]["command"], found["lr-0.1"]["note"]) == ("script --api-key ***", "with ***")
    assert printed(world, 1, "lr-0.1-2", 0) == printed(world, 1, second, 0)
    for pod in world.pods:
        past = pod.state()["runs"][1:3]
        assert [(run["id"], run["name"]) for run in past] == [(first, "lr-0.1"), (second, "lr-0.1-2")]
        assert past[0]["note"] == "with ***" and secret not in str(past)
