"""The network that NCCL used: how its logs are asked for, and what follows from them for each kind of program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from agent import wire
from agent.decide.ending import JobEnd
from agent.decide.plan import Plan
from agent.decide.ranks import RankEnd
from agent.errors import SettingsError
from agent.workloads import find_workload
from agent.workloads.base import Judgement, Outcome, RunContext
from agent.workloads.nccl_logs import Logged, Transport
from agent.workloads.network import NcclNetwork
from tests.decide import test_ddp, test_nccl_logs
from tests.decide.rank_records import Line, common, end, text
from tests.test_nccl import table
from tests.test_workloads import PEERS, context, launched

USERS = ["torchrun", "mpirun"]
OURS = ["ddp", "collectives"]
PAI = "pai-megatron-qwen3"
FILE = "/run/a4-agent/runs/x/notes/{}.%h.%p.log"


def of(name: str, profile: str = "a4-gib", **changes: Any) -> RunContext:
    args = ["program"] if name in USERS else []
    plan = Plan("epoch", 8 if name == PAI else 2, PEERS)
    return context(name, *args, **{"profile": profile, "plan": plan, **changes})


def asked(some: RunContext) -> dict[str, str]:
    """What the program is told of NCCL's logs."""
    made = launched(some)
    assert {name for name in made.added if name.startswith("NCCL_DEBUG")} <= set(made.env)
    return {name: made.env[name] for name in made.added if name.startswith("NCCL_DEBUG")}


def wanted(name: str, level: str = "INFO") -> dict[str, str]:
    return {"NCCL_DEBUG": level, "NCCL_DEBUG_FILE": FILE.format(name)}


# How they are asked for


@pytest.mark.parametrize("name", [*USERS, *OURS, PAI])
def test_logs_are_asked_for_where_a_network_must_be_used(name: str) -> None:
    assert asked(of(name)) == wanted(name)
    assert asked(of(name, "none")) == asked(of(name, "")) == {}
    assert asked(of(name, plan=Plan("epoch", 8 if name == PAI else 2, PEERS[:1]))) == {}, "nothing goes between pods"


CHOICES: list[dict[str, Any]] = [
    {"environ": {"NCCL_DEBUG": "INFO"}},
    {"environ": {"NCCL_DEBUG": "trace"}},
    {"environ": {"NCCL_DEBUG_FILE": "/tmp/nccl.%p"}},
]


@pytest.mark.parametrize("choice", CHOICES)
def test_the_users_choice_stands_in_programs_of_the_user(choice: dict[str, Any]) -> None:
    for name in (*USERS, PAI):
        assert asked(of(name, **choice)) == {}
        with pytest.raises(SettingsError, match="A4_WRONG_NETWORK=fail needs the logs of NCCL, which NCCL_DEBUG"):
            launched(of(name, environ={**choice["environ"], "A4_WRONG_NETWORK": "fail"}))
        assert asked(of(name, "none", environ={**choice["environ"], "A4_WRONG_NETWORK": "fail"})) == {}
    for name in OURS:
        level = "TRACE" if choice["environ"].get("NCCL_DEBUG") == "trace" else "INFO"
        assert asked(of(name, **choice)) == wanted(name, level)
        told = "NCCL_DEBUG_FILE is not used: NCCL's logs are in /run/a4-agent/runs/x/notes on each pod"
        assert (told in launched(of(name, **choice)).notes) == ("NCCL_DEBUG_FILE" in choice["environ"])


@pytest.mark.parametrize("level", ["WARN", "version", ""])
def test_what_is_set_for_everybody_is_no_choice(level: str) -> None:
    """Old values files preset it, and so have it in A4_USER_ENV."""
    for name in (*USERS, PAI, *OURS):
        for environ in ({}, {"A4_USER_ENV": "HF_HOME, NCCL_DEBUG"}, {"A4_WRONG_NETWORK": "fail"}):
            assert asked(of(name, environ={"NCCL_DEBUG": level, **environ})) == wanted(name)


@pytest.mark.parametrize("name", [*USERS, PAI])
def test_a_mistyped_setting_is_refused_before_anything_starts(name: str) -> None:
    with pytest.raises(SettingsError, match="A4_WRONG_NETWORK='refuse' should be one of warn, fail"):
        launched(of(name, environ={"A4_WRONG_NETWORK": "refuse"}))


# What follows


def log(network: str) -> str:
    """What NCCL 2.28 writes; "": it came to nothing, "?": a log of a level that does not say it."""
    if network == "":
        return ""
    if network == "?":
        return "NCCL version 2.28.9+cuda13.0\n"
    channel = f"Channel 00/0 : 1[0] -> 0[0] [receive] via NET/{network}/0"
    said = ("NCCL version 2.28.9+cuda13.0", f"Using network {network}", channel)
    return test_nccl_logs.log(*(f"NCCL INFO {line}" for line in said))


def judged(
    name: str, networks: Mapping[int, str | None], *, backend: str = "nccl", code: int = 0, **changes: Any
) -> Judgement:
    """A run that ended with `code`; pods that are not in `networks` have no log."""
    some, workload = of(name, **changes), find_workload(name)
    notes = {
        index: json.loads(json.dumps(wire.to_json(workload.inspect(some, files(name, network)))))
        for index, network in networks.items()
    }
    found = Outcome(
        code,
        record=record(name, backend) if name in OURS else "",
        output=table("all_reduce") if name == "collectives" else "",
        tokens=["aa", "bb", "cc"],
        notes=notes,
        statuses={2: code, 0: 0, 1: 0},
        first=2 if code else None,
        ranks={rank: RankEnd(code) for rank in range(6)},
    )
    return workload.judge(some, found)


def files(name: str, network: str | None) -> dict[str, str]:
    """None: NCCL has not written any."""
    return {} if network is None else {f"{name}.node-0.91.log": log(network)}


def record(name: str, backend: str) -> str:
    """The record of a run of ours in which all is right."""
    begun: Line = {"step": "sweep", "collective": "all_reduce"}
    lines = test_ddp.lines() if name == "ddp" else [*common(name), begun, end()]
    lines[0]["backend"] = backend
    return text(lines)


EVERYWHERE = {0: "gIB", 1: "gIB", 2: "gIB"}
ON_TWO = {0: "gIB", 1: "Socket", 2: "Socket"}
SAID = "profile a4-gib expects NCCL's network gIB, but {} went over Socket on pods 1-2"


@pytest.mark.parametrize("name", [*USERS, PAI])
def test_a_fallback_in_a_program_of_the_user_is_a_warning(name: str) -> None:
    found, said = judged(name, ON_TWO), SAID.format(name)
    assert found.end.code == 0 and found.measurements.reasons == []
    assert found.measurements.warnings == [said] and said in found.text.splitlines()
    assert found.measurements.record["network"].startswith("gIB and Socket (")
    assert found.measurements.versions["nccl"] == "2.28.9"
    assert [one.name for one in found.measurements.tables if one.name == "transport"]
    failed = judged(name, ON_TWO, environ={"A4_WRONG_NETWORK": "Fail"})
    assert failed.end == JobEnd(65, "NCCL did not use the network of the profile", why=said, origin="workload")
    assert failed.measurements.reasons == [said] and failed.measurements.warnings in ((), [])


@pytest.mark.parametrize("name", OURS)
def test_a_fallback_in_a_program_of_ours_is_65(name: str) -> None:
    found, said = judged(name, ON_TWO), SAID.format(name)
    assert (found.end.code, found.end.why) == (65, said)
    assert said in found.measurements.reasons and said in found.text and "is good" not in found.text


@pytest.mark.parametrize("name", [*USERS, PAI, *OURS])
def test_the_right_network_is_nothing_to_warn_of(name: str) -> None:
    found = judged(name, EVERYWHERE)
    assert not found.measurements.warnings and "network" not in found.text
    assert found.measurements.record["network"] == "gIB (1 NICs used, 0 channels)"


@pytest.mark.parametrize("name", USERS)
def test_a_failure_keeps_its_own_code(name: str) -> None:
    found = judged(name, ON_TWO, code=3, environ={"A4_WRONG_NETWORK": "fail"})
    assert found.end.code == 3 and SAID.format(name) in found.measurements.reasons


@pytest.mark.parametrize(
    ("networks", "where"),
    [
        ({0: "gIB", 1: "", 2: "?"}, "pods 1-2"),
        ({0: "gIB", 2: "gIB"}, "pod 1"),
        ({0: "gIB", 1: None, 2: None}, "pods 1-2"),
        ({0: None, 1: None, 2: None}, "pods 0-2"),
        ({}, "pods 0-2"),
    ],
)
@pytest.mark.parametrize("name", [*USERS, *OURS])
def test_pods_of_which_nobody_knows_the_network(name: str, networks: dict[int, str | None], where: str) -> None:
    """A program of the user's need not use NCCL on every pod."""
    found = judged(name, networks)
    some = name in OURS or (networks and None not in networks.values())
    assert list(found.measurements.warnings) == (
        [f"the network is not known on {where}: no log of NCCL there names it"] if some else []
    )
    assert "the network is not known" not in found.end.why


@pytest.mark.parametrize("name", OURS)
def test_gloo_has_no_logs(name: str) -> None:
    found = judged(name, {}, backend="gloo")
    assert not found.measurements.warnings and "network" not in found.measurements.record
    assert judged(name, {}, profile="none").measurements.warnings in ((), [])


def test_a_pod_whose_logs_name_the_network_of_some_steps_alone_is_silent() -> None:
    gib = Transport(("gIB",))
    logged = {
        0: Logged({"a": gib, "b": gib}),
        1: Logged({"a": gib, "b": Transport()}),
        2: Logged({"b": gib}),
    }
    network = NcclNetwork.of(logged)
    assert network.silent(["a", "b"], [0, 1, 2]) == [1, 2]
    assert network.silent(["a"], [0, 1]) == []


def test_tests_are_told_in_the_order_in_which_they_ran() -> None:
    gib = Transport(("gIB",))
    network = NcclNetwork.of({0: Logged({"b": gib}), 1: Logged({"b": gib, "a": gib})}, ["a", "left out", "b"])
    assert list(network.transports) == ["a", "b"]
