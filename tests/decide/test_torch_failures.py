"""Which failure of a run under torchrun is its cause. The texts are those of torch 2.13."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.workloads.torch_failures import Failure, all_victims, did_not_come, pod_failures, root_cause, sentence

T = 1795272768
CLOSED = "RuntimeError: [/pytorch/third_party/gloo/gloo/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:1436"
RESET = "RuntimeError: [/pytorch/third_party/gloo/gloo/tcp/pair.cc:537] Read error: Connection reset by peer."
LATE = "RuntimeError: [/pytorch/gloo/tcp/unbound_buffer.cc:78] Timed out waiting 15000ms for recv operation to complete"
OOM = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
WATCHDOG = (
    "[rank{0}]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600004 milliseconds."
)
NCCL2 = """\
[rank0]:[E1129 12:37:01.516266739 WorkNCCL.cpp:372] [TC][rank=0][name=0] Operation timed out after 15767 ms
[rank0]:[E1129 12:37:01.516497457 FlightRecorderHook.cpp:600] FlightRecorderHook: dumping trace on collective failure
[rank0]:[E1129 12:37:08.478256307 ProcessGroupNCCL.cpp:638] [TC][rank=0][name=0] Aborting process on rank 0 due to \
timeout - timeout watchdog detected operation timeout
[rank0]:[E1129 12:37:08.478325097 ProcessGroupNCCL.cpp:643] [TC][rank=0][name=0] Waiting 15000ms for health check and \
flight recorder dump before aborting
"""
"""From torch 2.15."""
SIGNALS = {-6: " (SIGABRT)", -9: " (SIGKILL)", -11: " (SIGSEGV)", -15: " (SIGTERM)"}


def entry(number: int, rank: int, code: int, error: str = "", after: int = 0) -> str:
    """One process in torchrun's summary; `error`: what its error file says."""
    text = f"Signal {-code} received by PID {100 + rank}" if code < 0 else "To enable traceback see: …"
    if error:
        text = f"Traceback (most recent call last):\n    File t.py, line 20\n      work.wait()\n  {error}\n  "
    return (
        f"[{number}]:\n  time      : 2026-11-21_14:52:{48 + after}\n  host      : localhost\n"
        f"  rank      : {rank} (local_rank: {rank % 2})\n"
        f"  exitcode  : {code} (pid: {100 + rank}) {SIGNALS.get(code, '')}\n"
        f"  error_file: {f'/tmp/torchelastic_x/{rank}/error.json' if error else '<N/A>'}\n  traceback : {text}"
    )


def summary(root: str, *others: str) -> str:
    line = "-" * 60
    rest = "\n".join(others) or "  <NO_OTHER_FAILURES>"
    return (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        f"{'=' * 60}\nt.py FAILED\n{line}\nFailures:\n{rest}\n{line}\n"
        f"Root Cause (first observed failure):\n{root}\n{'=' * 60}\n"
    )


def error_file(message: str, code: int = 1, time: int = T) -> str:
    extra = {"py_callstack": f"Traceback (most recent call last):\n  …\n{message}\n", "timestamp": str(time)}
    return json.dumps({"message": {"message": message, "extraInfo": extra, "errorCode": code}})


def raised(error: str, mark: str = "") -> str:
    return "".join(f"{mark}{line}\n" for line in ("Traceback (most recent call last):", "  File …", error))


ONE_FAILED = summary(entry(0, 1, 1))


def other_pod() -> list[Failure]:
    """Two ranks of pod 1 that lost their peer."""
    output = summary(entry(0, 2, 1, CLOSED), entry(1, 3, -15, RESET))
    return pod_failures(1, 1, output, error_file(CLOSED))


def test_all_ranks_of_a_pod_are_read_torchruns_root_first() -> None:
    first, second = pod_failures(1, 1, summary(entry(0, 3, 1, OOM), entry(1, 2, -15, CLOSED)), error_file(OOM))
    assert (first.index, first.rank, first.exit_code, first.message, first.timestamp) == (1, 3, 1, OOM, T)
    assert first.trace.startswith("Traceback") and not first.victim
    assert (second.rank, second.exit_code, second.victim) == (2, -15, True)
    assert second.trace.endswith(CLOSED)


@pytest.mark.parametrize(
    ("printed", "cause"),
    [
        # rank 0 saves its state when it is told to end, and ends with a code of its own
        ("[rank1]: ValueError: no\n{told}", 1),
        ("[rank1]: ValueError: no\n{told}[rank0]: RuntimeError: interrupted\n", 1),
        # it had failed, too, and was told while it was ending
        ("[rank0]: ValueError: no\n{told}", 0),
    ],
)
def test_a_rank_that_was_told_to_end_is_no_cause(printed: str, cause: int) -> None:
    told = "W1125 22:16:23.743000 86 torch/distributed/elastic/x.py:1028] Sending process 100 closing signal SIGTERM\n"
    output = printed.format(told=told) + summary(entry(0, 0, 143), entry(1, 1, 1))
    assert root_cause(pod_failures(0, 1, output)).rank == cause


@pytest.mark.parametrize(
    ("output", "error", "said"),
    [
        # SIGKILL: torchrun has no error file to copy
        (summary(entry(0, 1, -9), entry(1, 0, -15, RESET)), "", "rank 1 was killed by SIGKILL"),
        # torchrun's own "root cause" is the victim: the other has no error file, and so a later time
        (summary(entry(1, 0, -15, CLOSED), entry(0, 1, 65, after=1)), error_file(CLOSED, -15), "exit code 65"),
        (summary(entry(1, 0, -15, CLOSED), entry(0, 1, -6, after=1)), error_file(CLOSED, -15), "by SIGABRT"),
        (summary(entry(0, 0, -11), entry(1, 1, -15)), "", "rank 0 was killed by SIGSEGV"),
        (summary(entry(0, 1, 1, OOM)), error_file(OOM), f"rank 1 failed: {OOM}"),
        # torchrun ended a rank that had failed and not ended yet
        (summary(entry(0, 1, -15, OOM)), error_file(OOM, -15), f"rank 1 failed: {OOM}"),
        # a watchdog of NCCL that aborts because the GPU has failed
        (
            "  what():  [PG ID 0 PG GUID 0 Rank 1] Process group watchdog thread terminated with exception: CUDA "
            "error: an illegal memory access was encountered\n" + summary(entry(0, 1, -6)),
            "",
            "rank 1 was killed by SIGABRT: CUDA error: an illegal memory access was encountered",
        ),
        # an exception of the program, and a thread of torch that still works while Python ends
        (
            raised("ValueError: no", "[rank1]: ") + "terminate called …\n" + summary(entry(0, 1, -6), entry(1, 0, -15)),
            "",
            "rank 1 was killed by SIGABRT: ValueError: no",
        ),
        # a main that is not decorated with @record
        (raised("ValueError: no data", "[rank1]: ") + ONE_FAILED, "", "rank 1 failed: ValueError: no data"),
        # one that failed before it joined the others: torch marks nothing yet
        (f"{raised('ImportError: x')}{CLOSED}\n{ONE_FAILED}", "", "rank 1 failed: ImportError: x"),
        # its own socket, no peer of torch's
        (raised("BrokenPipeError: [Errno 32] no") + ONE_FAILED, "", "rank 1 failed: BrokenPipeError: [Errno 32] no"),
        # the summary is cut off, the error file is there
        (f"[rank1]: {OOM}\n…", error_file(OOM), f"rank 1 failed: {OOM}"),
        ("", error_file(OOM), f"torchrun failed: {OOM}"),
        ("", "", "torchrun failed"),
        ("", '{"message": "old format"}', "torchrun failed: old format"),
        ("Root Cause (first observed failure):\n?", "{garbage", "torchrun failed"),
        ("DistNetworkError: port: 29500, name: EADDRINUSE, message: address already in use", "", "already in use"),
        # a download is no peer
        (summary(entry(0, 1, 1, "ConnectionError: Connection reset by peer")), "", "ConnectionError"),
    ],
)
def test_the_cause_among_victims(output: str, error: str, said: str) -> None:
    failures = [*other_pod(), *pod_failures(0, 1, output, error)]
    cause = root_cause(failures)
    assert cause is not None and cause.index == 0
    assert said in sentence(cause)
    assert not all_victims(failures)


@pytest.mark.parametrize(
    "message",
    [
        CLOSED,
        RESET,
        LATE,
        "RuntimeError: Socket Timeout",
        "DistStoreError: Socket Timeout",
        "DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        "DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (10.0.0.1, 2).",
        "DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown?",
        "RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.",
        "DistBackendError: NCCL error in: NCCLUtils.hpp:268, remote process exited or there was a network error",
        "DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3763, internal error, NCCL version 2.28.8\n"
        "ncclInternalError: Internal check failed.\nLast error:\nNet : Connection closed by remote peer pod<502>",
        "RuntimeError: NCCL operation timed out",
        "SignalException: Process 6063 got signal: 15",
    ],
)
def test_what_says_only_that_a_peer_is_away(message: str) -> None:
    failures = pod_failures(0, 1, "", error_file(message))
    assert all_victims(failures)
    assert failures[0].message == message.splitlines()[0]


def test_a_watchdog_that_waited_in_vain_is_a_victim() -> None:
    failures = pod_failures(0, 1, WATCHDOG.format(0) + "\n" + summary(entry(0, 0, -6), entry(1, 1, -15)))
    assert all_victims(failures)
    assert failures[0].message.startswith("Watchdog caught collective operation timeout")
    assert not all_victims(pod_failures(0, 1, WATCHDOG.format(10) + "\n" + summary(entry(0, 0, -6)))), "another rank's"


def test_a_rank_that_torch_2_15_ends_since_it_waited_in_vain_is_a_victim() -> None:
    (failure,) = pod_failures(0, 1, NCCL2 + summary(entry(0, 0, -6)))
    assert failure.victim
    assert failure.message == (
        "Aborting process on rank 0 due to timeout - timeout watchdog detected operation timeout"
    )


def test_a_rank_that_torchrun_had_to_kill_is_a_victim() -> None:
    log = "W1121 Unable to shutdown process 101 via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL\n"
    assert [one.victim for one in pod_failures(0, 1, log + summary(entry(0, 0, -9), entry(1, 1, -9)))] == [False, True]


def test_who_did_not_come_when_all_others_waited() -> None:
    first = pod_failures(0, 1, summary(entry(0, 0, 1, LATE), entry(1, 1, 1, LATE)), error_file(LATE))
    second = pod_failures(1, 1, summary(entry(0, 2, 1, LATE), entry(1, 3, -15)), error_file(LATE))
    assert all_victims([*first, *second])
    assert did_not_come([*first, *second]) == [3]
    assert did_not_come(other_pod()) == []


def test_pods_that_were_ended_from_outside_are_victims() -> None:
    assert all_victims([*pod_failures(0, -15, ""), *pod_failures(1, 143, "")])
    assert not all_victims(pod_failures(0, -9, ""))
    log = "Traceback…\ntorch.distributed.elastic.multiprocessing.api.SignalException: Process 6063 got signal: 15\n"
    assert all_victims(pod_failures(0, 1, log))


def test_of_two_causes_the_earlier_counts_then_the_first() -> None:
    late, early, unknown = (Failure(index, index, 1, timestamp=time) for index, time in ((0, 9.0), (1, 3.0), (2, None)))
    assert root_cause([late, unknown, early]) is early
    assert root_cause([unknown, late]) is late
    assert root_cause([unknown]) is unknown
    assert not all_victims([])


def test_times_without_a_zone_are_put_right_by_the_error_file() -> None:
    """It names the class of an error without its module."""
    output = summary(entry(0, 0, 1, f"torch.{OOM}"), entry(1, 1, 7, after=2))
    there = pod_failures(0, 1, output, error_file(OOM, time=T + 7200))
    assert [one.timestamp for one in there] == [T + 7200, T + 7202]
    assert there[0].message == f"torch.{OOM}"
    assert [one.timestamp for one in pod_failures(0, 1, output)] == [T, T + 2]


def test_sentences() -> None:
    assert sentence(Failure(2, 5, -9)) == "rank 5 was killed by SIGKILL"
    assert sentence(Failure(2, 5, None)) == "rank 5 failed"
    assert len(sentence(Failure(2, 5, 1, "E: " + 1000 * "x"))) < 350


@given(st.text(), st.text(), st.integers(-64, 255).filter(bool))
def test_any_text_gives_a_failure(output: str, error: str, status: int) -> None:
    assert pod_failures(0, status, output, error)


def test_a_progress_bar_in_one_line_costs_nothing() -> None:
    bar = "".join(f"\r {i}%|#####     | {i}/9999 [00:0{i % 10}<00:10, 9.9it/s]" for i in range(1500))
    output = f"{bar}\n{WATCHDOG.format(3)}\n{summary(*(entry(i, i, -6) for i in range(8)))}"
    found = {one.rank: one for one in pod_failures(0, 1, output)}
    assert found[3].message.startswith("Watchdog caught") and found[3].victim
