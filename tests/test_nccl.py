"""What `nccl` starts, and what it makes of steps, tables, logs and ranks."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from agent import wire
from agent.decide.ending import JobEnd
from agent.decide.plan import Plan
from agent.decide.ranks import RankEnd
from agent.errors import Exit, MissingProgram, SettingsError, UsageError
from agent.paths import shipped
from agent.workloads.base import NO_BASELINES, Judgement, Outcome, RunContext
from agent.workloads.nccl import Nccl
from agent.workloads.nccl.options import TESTS as ALL
from tests.decide import test_connectivity
from tests.decide.rank_records import TOKENS, text
from tests.test_workloads import PEERS, TIMED_OUT, context, launched

SHIPPED = {shipped("env", "baselines.json"): Path(shipped("env", "baselines.json")).read_text()}
CONNECTED = text(test_connectivity.lines())
WELL = dict.fromkeys(range(6), RankEnd(0))
TESTS = ("all_reduce", "all_gather")
LOST = "ORTE has lost communication with a remote daemon."


def nccl(*args: str, index: int = 2, profile: str = "none", **changes: Any) -> RunContext:
    return context("nccl", *args, index=index, profile=profile, baselines=changes.pop("baselines", SHIPPED), **changes)


def table(test: str, *, ranks: int = 6, wrong: int = 0, speed: float = 344.0, footer: bool = True, n: int = 20) -> str:
    lines = [
        f"# Collective test starting: {test}_perf",
        f"# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: {n} agg iters: 1",
        *(f"#  Rank {rank:2} Group  0 Pid 9 on host device  0 [0000:8f:00] NVIDIA B200" for rank in range(ranks)),
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw",
        f"  8589934592 2147483648 float none -1 9.00 {speed} {speed} {wrong} 9.00 {speed} {speed} 0",
    ]
    if footer:
        lines += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {speed} "]
    return "\n".join(lines) + "\n"


def log(network: str) -> str:
    """Empty: the log of a pod that is silent."""
    if not network:
        return "NCCL version 2.28.9+cuda13.0\n"
    return f"h:1:1 [0] NCCL INFO Using network {network}\nh:1:1 [0] misc.cc:1 NCCL WARN said on {network}\n"


def outcome(
    outputs: Mapping[str, str] | None = None,
    *,
    statuses: Mapping[str, int | None] | None = None,
    networks: tuple[str, str, str] = ("gIB", "gIB", "gIB"),
    connected: str = CONNECTED,
    stuck: tuple[str, ...] = (),
    **changes: Any,
) -> Outcome:
    """A run that went well but for what is given: step → output, step → status (None: it had not ended)."""
    steps = {"programs": "", "connectivity": "", **({t: table(t) for t in TESTS} if outputs is None else outputs)}
    record = []
    for step in steps:
        status = (statuses or {}).get(step, 0)
        record.append(json.dumps({"step": "begin", "name": step}))
        if status is not None:
            record.append(json.dumps({"step": "done", "name": step, "status": status, "stuck": step in stuck}))
    files: dict[str, str] = {"connectivity.jsonl": connected}
    workload, some = Nccl(), nccl()
    notes = {}
    for index, network in enumerate(networks):
        logs = {f"{test}.h.1.log": log(network) for test in TESTS if test in steps}
        notes[index] = json.loads(json.dumps(wire.to_json(workload.inspect(some, {**files, **logs}))))
    last = next((s for s in [(statuses or {}).get(step, 0) for step in steps] if s), 0)
    output = "".join(f"# a4-agent: step {step}\n{text}" for step, text in steps.items())
    of_last = {rank: end._replace(step=end.step or [*steps][-1]) for rank, end in changes.pop("ranks", WELL).items()}
    return Outcome(
        last, "\n".join(record) + "\n", output, **{"tokens": TOKENS, "notes": notes, "ranks": of_last, **changes}
    )


def judged(found: Outcome, *args: str, **changes: Any) -> Judgement:
    return Nccl().judge(nccl(*args, **changes), found)


# What is started


def test_the_steps_on_the_lead() -> None:
    made = launched(nccl("--tests", "all_gather", "-e", "8G", "--repeat", "2"))
    assert [list(names) for names, _ in made.steps] == [["programs"], ["connectivity"], ["all_gather", "all_gather-2"]]
    script = shipped("entrypoints", "nccl-test.sh")
    assert made.steps[0][1] == ["sh", script, "--find", "all_gather"]
    argv = list(made.steps[2][1])
    assert argv[argv.index("-np") + 1] == "6"
    program = argv[argv.index("/run/a4-agent/rank.sh") - 1 :]
    notes = "/run/a4-agent/runs/x/notes"
    options = ["-b", "2M", "-f", "2", "-g", "1", "-n", "20", "-w", "5", "-e", "8G"]
    assert program == ["sh", "/run/a4-agent/rank.sh", "sh", script, "all_gather", notes, *options]
    told = unpacked(made.argv[-1])
    assert told[1]["env"]["A4_RECORD"] == told[1]["record"] == "/run/a4-agent/runs/x/notes/connectivity.jsonl"
    assert told[2]["result"] == f"{notes}/{{step}}.json" and told[2]["ends"] == "# Avg bus bandwidth"
    assert told[2]["ranks"] == made.env["A4_RANKS_DIR"] and "A4_STEP" in argv
    assert [step["names"] for step in told] == [names for names, _ in made.steps]
    assert made.env["A4_RECORD"] == "/run/a4-agent/runs/x/record.jsonl"
    assert made.env["NCCL_DEBUG"] == "INFO" and "NCCL_DEBUG" in argv and "canary" not in json.dumps(told)
    assert made.env["A4_NCCL_TESTS_PATH"] == "/third_party/nccl-tests/build:/third_party/nccl-tests-mpi/build"
    text = str(made)
    assert text.count("/usr/bin/mpirun --allow-run-as-root") == 2 and "steps.py" not in text
    assert text.count("# 2 times: all_gather to all_gather-2\n") == 1


def test_on_the_cores_that_tcpx_leaves_free() -> None:
    argv = list(launched(nccl(profile="a3-tcpx")).steps[2][1])
    program = argv[argv.index("/run/a4-agent/rank.sh") - 4 :]
    assert program[:4] == ["taskset", "-c", "0-7,104-111,52-59,156-163", "sh"]


def unpacked(word: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(word)))


def test_many_runs_and_variables_fit_into_one_argument() -> None:
    """Linux takes 128 KiB."""
    environ = {sha256(str(number).encode()).hexdigest()[:40].upper(): "x" for number in range(400)}
    environ = {f"V{name[1:]}": value for name, value in environ.items()}
    made = launched(nccl("--tests", ",".join(ALL), "--repeat", "100", environ={"PATH": "/bin", **environ}))
    assert max(len(word) for word in made.argv) < 64 << 10
    told = unpacked(made.argv[-1])
    assert sum(len(step["names"]) for step in told) == 2 + 11 * 100
    assert set(environ) <= set(told[-1]["argv"]) and str(made).count("# 100 times: ") == 11


def test_no_step_gets_what_ranks_must_not_have() -> None:
    kept_out = ("MPIEXEC_TIMEOUT", "PRTE_MCA_rmaps_default_mapping_policy", "OMPI_MCA_plm", "RANK", "BASH_ENV", "ENV")
    made = launched(nccl(environ={"PATH": "/bin", "HF_TOKEN": "canary", **dict.fromkeys(kept_out, "1")}))
    every = {name for step in unpacked(made.argv[-1]) for name in step["env"]} | set(made.env)
    assert not every & set(kept_out) and {"PATH", "HF_TOKEN", "A4_RUN"} <= set(made.env)


def test_one_process_may_have_all_gpus_of_a_pod() -> None:
    argv = list(launched(nccl("-g", "2")).steps[2][1])
    assert argv[argv.index("-np") + 1] == "3" and "/run/a4-agent/runs/x/hostfile-1pernode" in argv
    ranks = dict.fromkeys(range(3), RankEnd(0))
    assert judged(outcome(ranks=ranks), "-g", "2").end.code == 0
    alone = outcome({t: table(t, ranks=2) for t in TESTS}, ranks=ranks)
    assert "without MPI" in judged(alone, "-g", "2").end.what


def test_only_the_lead_starts_something() -> None:
    assert [Nccl().launch(nccl(index=index)) is None for index in (2, 0, 1)] == [False, True, True]


@pytest.mark.parametrize(
    ("env", "wanted", "note"),
    [
        ({"NCCL_DEBUG": "WARN"}, {"NCCL_DEBUG": "INFO"}, ""),
        ({"NCCL_DEBUG": "TRACE"}, {"NCCL_DEBUG": "TRACE"}, ""),
        ({"NCCL_DEBUG_SUBSYS": "NET,GRAPH"}, {"NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH"}, ""),
        ({"NCCL_DEBUG_SUBSYS": "^INIT"}, {"NCCL_DEBUG_SUBSYS": "INIT,ENV"}, ""),
        ({"NCCL_DEBUG_SUBSYS": "ALL"}, {"NCCL_DEBUG_SUBSYS": "ALL"}, ""),
        ({"A4_NCCL_TESTS_DIR": "/own/"}, {"A4_NCCL_TESTS_DIR": "/own/"}, ""),
        ({"NCCL_DEBUG_FILE": "/tmp/x"}, {}, "NCCL_DEBUG_FILE is not used"),
    ],
)
def test_what_nccl_is_told_to_say(env: dict[str, str], wanted: dict[str, str], note: str) -> None:
    made = launched(nccl(environ={"PATH": "/bin", **env}))
    assert wanted.items() <= made.env.items()
    assert note in "".join(made.notes)
    if "A4_NCCL_TESTS_DIR" in env:
        assert made.env["A4_NCCL_TESTS_PATH"].startswith("/own:/own/build:/third_party/")


def test_notes() -> None:
    assert "-n 1: so few iterations" in launched(nccl("-n", "1")).notes[-1]
    assert "secrets" in launched(nccl("-J", "/x.json")).notes[-1]
    assert launched(nccl()).notes == []


def test_what_cannot_be_started_is_refused_on_every_pod() -> None:
    for index in (0, 1, 2):
        with pytest.raises(UsageError, match="all_reduc"):
            Nccl().check(nccl("--tests", "all_reduc", index=index))
    with pytest.raises(MissingProgram, match="mpirun"):
        Nccl().launch(nccl(mpi=None))
    assert judged(outcome(), "--tests", "all_reduc").end.code == 2
    assert judged(outcome(), mpi=None).end.code == 66


@pytest.mark.parametrize(("text", "what"), [("", "cannot be read on pod 0"), ("{}", '"version": 1')])
def test_baselines_that_cannot_be_used_are_said_before_anything_starts(text: str, what: str) -> None:
    given = {**SHIPPED, "/own.json": text}
    with pytest.raises(SettingsError, match=r"A4_BASELINES=/own\.json") as caught:
        Nccl().launch(nccl(index=0, baselines=given))
    assert what in caught.value.what
    assert Nccl().launch(nccl(index=2, baselines=given)) is not None, "they are needed on pod 0"
    found = judged(outcome(), baselines=given)
    assert found.end.code == 0 and found.measurements.gate and "/own.json" in found.measurements.gate["reason"]


# What its end means


def test_a_good_run() -> None:
    found = judged(outcome())
    assert found.end == JobEnd(0, "nccl is good: all_reduce, all_gather on 6 ranks of 3 pods", origin="workload")
    assert found.measurements.reasons == []
    assert found.measurements.gate and found.measurements.gate["status"] == "not judged"
    assert [sweep.collective for sweep in found.measurements.sweeps] == list(TESTS)
    assert "network: gIB" in found.text and "NCCL on pod 1: said on gIB (2 times)" in found.text
    assert found.log_name == "nccl-test-results.txt" and list(found.files) == ["connectivity-test.log"]


OWN = {"name": "own", "profile": "none", "collective": "all_gather", "nodes": 3, "gpus_per_node": 2, "source": "x"}
OWN |= {"iterations": 20, "warmup": 5, "busbw": {"8G": 400}}
BESIDE = {**SHIPPED, "/own.json": json.dumps({"version": 1, "baselines": [OWN]})}


@pytest.mark.parametrize(
    ("found", "args", "code", "what", "reason"),
    [
        (outcome(), ["--min-percent", "80"], 0, "nccl is good", ""),
        (outcome(), [], 65, "below its gate", "344.00 GB/s are 86.0 % of 400.00 GB/s (own)"),
        (outcome({t: table(t, n=4) for t in TESTS}), [], 0, "nccl is good", ""),
        (outcome({t: table(t, wrong=7) for t in TESTS}), [], 65, "results of nccl-tests are wrong", "7 wrong elements"),
        (outcome({t: table(t, ranks=1) for t in TESTS}), [], 65, "all_reduce_perf was built", "without MPI"),
        (outcome({t: table(t, ranks=1) * 6 for t in TESTS}), [], 65, "built without MPI", "without MPI"),
        (outcome({t: table(t, ranks=4) for t in TESTS}), [], 65, "not complete", "all_reduce had 4 ranks, 6 were"),
        (outcome({t: table(t, footer=False) for t in TESTS}), [], 65, "not complete", "of all_reduce ends early"),
        (outcome({"all_reduce": table("all_reduce")}), [], 65, "not complete", "all_gather did not run"),
        (outcome(dict.fromkeys(TESTS, "")), [], 65, "not complete", "all_reduce measured nothing"),
        (outcome({t: f"{t}: USAGE: x\n" for t in TESTS}), [], 65, "not complete", "it printed its usage"),
    ],
)  # fmt: skip
def test_ends(found: Outcome, args: list[str], code: int, what: str, reason: str) -> None:
    judgement = judged(found, *args, baselines=BESIDE)
    assert (judgement.end.code, what in judgement.end.what) == (code, True), judgement.end
    assert any(reason in each for each in judgement.measurements.reasons) or not reason, judgement.measurements.reasons
    assert "400" not in judgement.text or "400.00" in judgement.text


def test_a_table_that_does_not_say_its_ranks() -> None:
    """As that of the guide: nobody knows them, and that is no fault."""
    text = (Path(__file__).parent / "decide/nccl_tests/tcpx_all_gather.txt").read_text()
    assert judged(outcome(dict.fromkeys(TESTS, text))).end.code == 0


def test_output_that_was_not_kept_is_no_end_of_the_program() -> None:
    whole = outcome()
    found = judged(replace(whole, output=whole.output[whole.output.index("# Out of") :]))
    assert found.end.code == 65 and "all_reduce is not in the last MiB of the output" in found.end.why


def test_connectivity_is_not_judged_by_what_came_later() -> None:
    """Its part of the output has fallen out of what is kept."""
    whole = outcome({t: table(t) for t in TESTS}, ranks={**WELL, 5: RankEnd(3, 1.0)}, statuses=STATUS)
    later = SIGNALLED.format(11)
    for output in (f"# a4-agent: step all_gather\n{later}", f"lost\n{later}"):
        found = judged(replace(whole, output=output))
        assert (found.end.code, "rank 5" in found.end.what) == (3, True), found.end
        assert found.files["connectivity-test.log"].startswith("connectivity of 6 ranks")


@pytest.mark.parametrize(
    "late", [{"cause": JobEnd(Exit.TIME_LIMIT, "nccl hit its limit")}, {"lost": {1: "it is gone"}}]
)
def test_what_came_after_connectivity_does_not_make_it_bad(late: dict[str, Any]) -> None:
    found = judged(outcome({TESTS[0]: table(TESTS[0])}, statuses={TESTS[0]: None}, **late))
    assert found.end.code in (75, 124)
    assert "Open MPI 4.1.4): every rank is where the plan puts it" in found.text.partition("\n")[0]


def test_sockets_where_the_profile_means_gib() -> None:
    found = judged(outcome(networks=("gIB", "Socket", "gIB")), profile="a4-gib")
    assert (found.end.code, found.end.what) == (65, "NCCL did not use the network of the profile")
    assert "all_reduce went over Socket on pod 1" in found.measurements.reasons[0]
    assert found.measurements.gate and found.measurements.gate["status"] == "not judged"
    assert judged(outcome(networks=("Socket",) * 3)).end.code == 0, "no profile means nothing"
    unknown = outcome(notes={2: {"connectivity": CONNECTED}})
    found = judged(unknown, profile="a4-gib")
    assert found.end.code == 0 and found.measurements.gate and "no log of NCCL" in found.measurements.gate["reason"]


@pytest.mark.parametrize(
    ("networks", "dropped", "where"),
    [(("gIB", "", "gIB"), [], "pod 1"), (("gIB", "", ""), [], "pods 1-2"), (("gIB", "gIB", "gIB"), [0, 1], "pods 0-1")],
)
def test_pods_of_which_nobody_knows_the_network(networks: tuple[str, str, str], dropped: list[int], where: str) -> None:
    """Their logs are there and name none, or came too late to be read."""
    whole = outcome(networks=networks)
    found = judged(
        replace(whole, notes={i: one for i, one in whole.notes.items() if i not in dropped}),
        "--save-baseline",
        "mine",
        profile="a4-gib",
        baselines={"/own.json": json.dumps({"version": 1, "baselines": [OWN | {"profile": "a4-gib"}]})},
    )
    why = f"the network is not known on {where}: no log of NCCL there names it"
    assert found.end.code == 0 and found.measurements.warnings == [why] and why in found.text
    assert "/own.json" not in found.files
    assert found.measurements.reasons == [f"--save-baseline mine: nothing is saved: {why}"]
    assert found.measurements.gate and found.measurements.gate["status"] == "not judged"
    assert f"all_gather not judged: {why}" in found.measurements.gate["reason"]
    assert judged(whole).measurements.warnings == [], "without a profile it could be any"


def test_programs_that_are_missing() -> None:
    said = "alltoall_perf of nccl-tests is in none of /a, PATH\n"
    end = judged(Outcome(66, *steps("programs", 66, said), tokens=TOKENS)).end
    assert (end.code, end.origin, end.where) == (66, "agent", "pod 2, job-workload-0-2-x7k2p, node node-2")
    assert end.what == said.strip() and "run collectives" in end.why and "/third_party/nccl-tests/build" in end.why
    only_there = outcome(
        {"all_reduce": ""}, statuses={"all_reduce": 66}, ranks={**WELL, 3: RankEnd(66, 1.0)}, networks=("", "", "")
    )
    end = judged(only_there).end
    assert (end.code, end.origin, end.where) == (66, "agent", "pod 0, job-workload-0-0-x7k2p, node node-0")
    assert "rank 3 failed" in end.what and "run collectives" in end.why


def steps(name: str, status: int, text: str) -> tuple[str, str]:
    """Record and output of one step."""
    record = [{"step": "begin", "name": name}, {"step": "done", "name": name, "status": status, "stuck": False}]
    return "".join(json.dumps(line) + "\n" for line in record), f"# a4-agent: step {name}\n{text}"


def test_without_connectivity_nothing_else_counts() -> None:
    cut = CONNECTED[: CONNECTED.index('{"step": "sum"')]
    record, output = steps("connectivity", 1, "")
    told = Outcome(1, record, output, tokens=TOKENS, notes={2: {"connectivity": cut}})
    found = judged(told)
    assert found.end.code == 1 and list(found.files) == ["connectivity-test.log"]
    found = judged(replace(told, lost={0: "not heard for 30 s"}))
    assert found.end.code == 75 and "node node-0: not heard for 30 s" in found.end.why


def test_of_a_pod_that_is_lost_before_any_rank_is_started_nothing_else_is_said() -> None:
    end = judged(Outcome(143, *steps("programs", -15, ""), tokens=TOKENS, lost={0: "not heard for 30 s"})).end
    assert (end.code, end.what) == (75, "pods were lost during the run")
    assert end.why == "pod 0, job-workload-0-0-x7k2p, node node-0: not heard for 30 s"


STATUS = {"all_gather": 1}
FAILED = {**WELL, 3: RankEnd(3, 1.0)}
SIGNALLED = "mpirun noticed that process rank 3 with PID 9 on node h exited on signal {} (x).\n"
TOLD = {"all_reduce": table("all_reduce") + SIGNALLED.format(11), "all_gather": table("all_gather")}
TOLD_LAST = {**TOLD, "all_gather": TOLD["all_reduce"]}
ENDED = {**TOLD, "all_reduce": table("all_reduce") + SIGNALLED.format(15)}
HALF = {"all_reduce": table("all_reduce"), "all_gather": "h: Test NCCL failure x.cu:1 'unhandled'\n"}


@pytest.mark.parametrize(
    ("found", "code", "origin", "text"),
    [
        (outcome(HALF, statuses=STATUS, ranks=FAILED), 3, "workload", "rank 3 failed (pod 0, "),
        (outcome(HALF, statuses=STATUS, ranks=FAILED), 3, "workload", "Test NCCL failure"),
        (outcome(HALF, statuses=STATUS, ranks=FAILED), 3, "workload", "pod 0: said on gIB"),
        (outcome(HALF, statuses={"all_gather": -9}, ranks={**WELL, 3: RankEnd(None)}), 137, "agent", "SIGKILL"),
        (outcome(HALF, statuses={"all_gather": None}, cause=TIMED_OUT), 124, "agent", "hit the time limit"),
        (outcome(HALF, statuses=STATUS, lost={1: "gone"}), 75, "agent", "node node-1: gone"),
        # Printed words alone are no lost daemon: mpirun ended 0, and so did every rank.
        (outcome({**HALF, "all_gather": LOST}), 65, "workload", "all_gather measured nothing"),
        (outcome({**HALF, "all_gather": LOST}, statuses=STATUS), 1, "workload", "a rank ended with exit code 1"),
        (outcome({**HALF, "all_gather": LOST}, statuses={"all_gather": 255}), 75, "agent", "daemon was lost"),
        (outcome(HALF), 65, "workload", "all_gather measured nothing"),
        (outcome(ranks={**WELL, 5: RankEnd(None)}), 65, "agent", "rank 5 (pod 1)"),
        (outcome(ranks={**WELL, 5: RankEnd(0, step="all_reduce")}), 65, "agent", "never started: rank 5 (pod 1)"),
        (outcome(HALF, ranks={**WELL, 5: RankEnd(3, 1.0, step="all_reduce")}, statuses=STATUS), 1, "workload", "never"),
        (outcome(stuck=("all_gather",), ranks={**WELL, 5: RankEnd(143, 1.0)}), 0, "workload", "nccl is good"),
        (outcome(HALF, stuck=("all_gather",), ranks={**WELL, 5: RankEnd(143, 1.0)}), 143, "workload", "rank 5"),
        (outcome(stuck=("all_gather",), ranks={**WELL, 4: RankEnd(143, 1.0), 5: RankEnd(None)}), 0, "workload", "good"),
        (outcome(stuck=("all_gather",), ranks={4: RankEnd(143, 1.0), 5: RankEnd(139, 1.5)}), 139, "workload", "rank 5"),
        (outcome(stuck=("all_gather",), ranks={**WELL, 5: RankEnd(137, 1.0)}), 137, "workload", "rank 5"),
        (outcome(TOLD, stuck=("all_gather", "all_reduce")), 139, "workload", "all_reduce: rank 3 on h"),
        (outcome(TOLD, stuck=("all_reduce",)), 139, "workload", "all_reduce: rank 3 on h"),
        (outcome(TOLD, stuck=("all_reduce",), statuses=STATUS, ranks=FAILED), 139, "workload", "all_reduce: rank 3"),
        (outcome(TOLD_LAST, stuck=("all_gather",)), 0, "workload", "nccl is good"),  # rank 3 has recorded another end
        (outcome(TOLD_LAST, stuck=("all_gather",), ranks={**WELL, 3: RankEnd(None)}), 139, "workload", "rank 3 on h"),
        (outcome(ENDED, stuck=("all_reduce",)), 0, "workload", "nccl is good"),
        (outcome(lost={1: "gone"}), 75, "agent", "node node-1: gone"),
    ],
)  # fmt: skip
def test_ends_of_ranks(found: Outcome, code: int, origin: str, text: str) -> None:
    end = judged(found).end
    assert (end.code, end.origin) == (code, origin), end
    assert text in str(end)


def test_what_is_being_done() -> None:
    begun = (
        '{"step": "begin", "name": "all_reduce"}\n{"step": "done", "name": "all_reduce", "status": 0, "stuck": false}\n'
    )
    assert Nccl().progress("") == Nccl().progress(begun) == ""
    assert Nccl().progress(begun + '{"step": "begin", "name": "all_gather"}\n{"st') == "all_gather"
    assert not Nccl().is_ending("# Avg bus bandwidth : 1\n", "", {}), "each step sees to itself"


def test_a_good_run_can_be_saved_as_a_baseline() -> None:
    (path, text) = next((p, t) for p, t in judged(outcome(), "--save-baseline", "mine").files.items() if "base" in p)
    assert path == "baselines.json"
    entries = json.loads(text)["baselines"]
    assert [(one["name"], one["collective"], one["nodes"], one["gpus_per_node"]) for one in entries] == [
        ("mine", test, 3, 2) for test in TESTS
    ]
    files = judged(outcome(), "--save-baseline", "mine", "--min-percent", "1", baselines=BESIDE).files
    assert [one["name"] for one in json.loads(files["/own.json"])["baselines"]] == ["own", "mine", "mine"]
    assert "/new.json" in judged(outcome(), "--save-baseline", "/new.json").files
    files = judged(outcome(), "--save-baseline", "mine", baselines={**SHIPPED, "/own.json": NO_BASELINES}).files
    assert [one["name"] for one in json.loads(files["/own.json"])["baselines"]] == ["mine", "mine"], "a new file"
    assert list(judged(outcome(), "--save-baseline", "mine", baselines=BESIDE).files) == ["connectivity-test.log"]


def test_each_operation_and_root_is_saved_for_itself() -> None:
    """As with `-o all`, and with `-r -1`, which measures every root."""
    tables = {"all_reduce": ["sum   -1", "prod   -1", "mulsum  -1"], "broadcast": ["none    0", "none    1"]}
    outputs = {
        test: "\n".join(
            line.replace("none -1", kind)
            for line in table(test).splitlines()
            for kind in kinds[: 1 + 9 * ("float" in line)]
        )
        for test, kinds in tables.items()
    }
    found = judged(outcome(outputs), "--tests", "all_reduce,broadcast", "-o", "all", "--save-baseline", "mine")
    gate = found.measurements.gate
    assert found.end.code == 0 and gate
    assert "there is no baseline for all_reduce mulsum on 3 nodes of 2 × NVIDIA B200" in gate["reason"]
    entries = json.loads(found.files["baselines.json"])["baselines"]
    assert [(one["collective"], one["operation"], one["root"], one["gpu_model"]) for one in entries] == [
        ("all_reduce", "sum", 0, "NVIDIA B200"),
        ("all_reduce", "prod", 0, "NVIDIA B200"),
        ("all_reduce", "mulsum", 0, "NVIDIA B200"),
        ("broadcast", "sum", 0, "NVIDIA B200"),
        ("broadcast", "sum", 1, "NVIDIA B200"),
    ]


@pytest.mark.parametrize("wanted", ["mine", "/own.json"])
def test_a_baseline_that_cannot_be_saved_is_a_note(wanted: str) -> None:
    found = judged(outcome(), "--save-baseline", wanted, baselines={**SHIPPED, "/own.json": "{"})
    assert found.end.code == 0 and "/own.json" not in found.files
    (note,) = found.measurements.reasons
    assert (
        note.startswith(f"--save-baseline {wanted}: /own.json is left as it is: it is not JSON") and note in found.text
    )


def test_one_pod_needs_no_hostfile() -> None:
    assert "localhost:2" in launched(nccl(plan=Plan("epoch", 2, PEERS[:1]))).steps[2][1]
