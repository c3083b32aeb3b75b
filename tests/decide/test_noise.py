"""Which lines on stderr wait for the end of a run. The texts are those of torch 2.13 and Python 3.11."""

from __future__ import annotations

import pytest

from agent.decide.ending import JobEnd
from agent.decide.noise import (
    WAITS_SECONDS,
    Noise,
    SaidOnce,
    tells_enough,
    without_peers,
)
from agent.decide.tracebacks import HeldLines, own_errors, was_ended
from tests.decide.test_torch_failures import entry, summary

RANK = """\
[rank3]: Traceback (most recent call last):
[rank3]:   File "/t/raises.py", line 7, in <module>
[rank3]:     step(1)
[rank3]: ValueError: the loss is nan
"""
TORCHRUN = f"""\
W1125 22:16:23.743000 8 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 91 closing signal SIGTERM
E1125 22:16:23.808000 86 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
    return f(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^
{summary(entry(0, 3, 1), entry(1, 2, -15))}"""
CHAINED = """\
Traceback (most recent call last):
  File "a.py", line 1, in <module>
bdb.BdbQuit

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 2, in <module>
torch.cuda.OutOfMemoryError: CUDA out of memory
"""
LOGGING = """\
--- Logging error ---
Traceback (most recent call last):
  File "/usr/lib/python3.11/logging/__init__.py", line 1114, in emit
    self.flush()
RuntimeError: reentrant call inside <_io.BufferedWriter name='<stderr>'>
Call stack:
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/t/torch/distributed/elastic/multiprocessing/api.py", line 1028, in _close
    logger.warning("Sending process %s closing signal %s", pid, sig.name)
Message: 'Sending process %s closing signal %s'
Arguments: (91, 'SIGINT')
"""
PROGRAM = """\
step 31: loss 0.25
  learning rate: 0.1

[rank0]: ready
Failures: 0
a4-agent: torchrun-1, 12 s: all_reduce
"""


def held(noise: Noise) -> bytes:
    return b"".join(one.text for one in noise.rest())


@pytest.mark.parametrize("text", [RANK, TORCHRUN, CHAINED, LOGGING], ids=["rank", "torchrun", "chained", "logging"])
def test_lines_that_wait(text: str) -> None:
    noise = Noise(lambda: 0.0)
    assert noise.passed(0, text.encode()) == b""
    assert held(noise) == text.encode()


def test_lines_of_the_program_pass() -> None:
    noise = Noise(lambda: 0.0)
    assert noise.passed(0, PROGRAM.encode()) == PROGRAM.encode()
    noise.passed(0, RANK.encode())
    assert noise.passed(1, PROGRAM.encode()) == PROGRAM.encode(), "the trouble is another pod's"
    assert noise.passed(0, b"saved /mnt/model.pt\nstep: 5\n") == b"saved /mnt/model.pt\nstep: 5\n"


def test_tracebacks_that_come_line_by_line_and_mixed() -> None:
    noise = Noise(lambda: 0.0)
    lines = [line for pair in zip(CHAINED.splitlines(), TORCHRUN.splitlines(), strict=False) for line in pair]
    assert b"".join(noise.passed(0, f"{line}\n".encode()) for line in lines) == b""


def test_a_run_that_goes_on_shows_them_later() -> None:
    now = 0.0
    noise = Noise(lambda: now)
    assert noise.next() is None
    noise.passed(0, RANK.encode())
    now = 1.0
    noise.passed(1, CHAINED.encode())
    assert (noise.due(), noise.next()) == ([], WAITS_SECONDS - 1)
    now = WAITS_SECONDS
    assert b"".join(one.text for one in noise.due()) == RANK.encode()
    assert (noise.next(), {one.pod for one in noise.rest()}) == (1.0, {1})
    assert noise.passed(0, b"  indented\n") == b"  indented\n", "the trouble is over"


@pytest.mark.parametrize(
    ("end", "enough"),
    [
        (JobEnd(0, "torchrun done", origin="workload"), False),
        (JobEnd(1, "rank 3 failed", why="Traceback (most recent call last):\n …", origin="workload"), True),
        (JobEnd(1, "rank 3 failed", why="last lines of its output:\n  no", origin="workload"), True),
        (JobEnd(1, "it failed", why="pod 1 ended because of it", origin="workload"), False),
        (JobEnd(124, "a time limit"), True),
        (JobEnd(130, "told to end by SIGINT"), True),
    ],
)
def test_ends_that_tell_enough(end: JobEnd, enough: bool) -> None:
    assert tells_enough(end) == enough


INTERRUPTED = """\
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    step()
KeyboardInterrupt
"""
NOT_SAVED = """\
[rank{0}]: Traceback (most recent call last):
[rank{0}]:   File "a.py", line 1, in <module>
[rank{0}]: KeyboardInterrupt

[rank{0}]: During handling of the above exception, another exception occurred:

[rank{0}]: Traceback (most recent call last):
[rank{0}]:   File "a.py", line 9, in save
[rank{0}]: OSError: [Errno 28] No space left on device: '/mnt/{0}.pt'
"""
CLOSED = """\
[rank2]: Traceback (most recent call last):
[rank2]:   File "a.py", line 3, in <module>
[rank2]: RuntimeError: [/pytorch/gloo/pair.cc:534] Connection closed by peer [198.18.0.2]:41000
"""
SIGNAL = """\
Traceback (most recent call last):
  File "/t/torch/distributed/elastic/multiprocessing/api.py", line 1, in _terminate
torch.distributed.elastic.multiprocessing.api.SignalException: Process 91 got signal: 15
"""


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (INTERRUPTED + CLOSED + SIGNAL + LOGGING + TORCHRUN, ""),
        (SIGNAL + CLOSED + NOT_SAVED.format(3) + INTERRUPTED + TORCHRUN + NOT_SAVED.format(11), NOT_SAVED.format(3)),
        (TORCHRUN + CHAINED, CHAINED),
        (INTERRUPTED + LOGGING + "queue.Full\nOSError: late\n" + CHAINED, CHAINED),
    ],
    ids=["of the interrupt", "a checkpoint", "chained", "after another's lines"],
)
def test_what_failed_while_a_run_was_ended_is_shown_once(said: str, shown: str) -> None:
    lines = [HeldLines(0, 0.0, line) for line in said.encode().splitlines(keepends=True)]
    assert b"".join(one.text for one in own_errors(lines)).rstrip() == shown.encode().rstrip()


def test_tracebacks_of_ranks_that_come_mixed_are_told_apart() -> None:
    """And one of another pod that is equal is not shown a second time."""
    saving, closed = (text.encode().splitlines(keepends=True) for text in (NOT_SAVED.format(0), CLOSED))
    mixed = [line for pair in zip(saving, closed, strict=False) for line in pair] + saving[len(closed) :]
    shown = own_errors(HeldLines(pod, 0.0, line) for pod in (0, 1) for line in mixed)
    assert [one for one in shown if one.text.strip()] == [HeldLines(0, 0.0, line) for line in saving if line.strip()]


@pytest.mark.parametrize("code", [130, 143, 124])
def test_ends_that_a_run_was_told(code: int) -> None:
    end = JobEnd(code, "told to end")
    assert was_ended(end) and not was_ended(end._replace(origin="workload"))
    assert not was_ended(JobEnd(75, "pod 1 was lost"))


def test_what_all_pods_say_is_said_once() -> None:
    """Equal lines of one pod stay, and so do those of programs, and warnings."""
    once, shown = SaidOnce(), b""
    for pod in range(64):
        stamp = f"2026-11-25T22:42:{pod % 60:02}Z a4-agent [{pod}/64]"
        said = f"{stamp} error: no\n" * 2 + f"{stamp} done: ddp is good\n" + f"{stamp} warning: slow\nhere\n"
        shown += once.passed(pod, said.encode())
    assert shown.count(b"error: no") == 2
    assert shown.count(b"done: ddp is good") == 1
    assert (shown.count(b"warning: slow"), shown.count(b"here")) == (64, 64)
    assert once.others == set(range(1, 64))
    once = SaidOnce()
    assert [bool(once.passed(pod, b"2026-11-25T22:42:01Z a4-agent [0/2] done: a\n")) for pod in (1, 0)] == [True, False]
    assert not once.others


def test_what_a_program_goes_on_with_does_not_wait() -> None:
    """It has caught its error: only lines directly below those of the traceback are taken for a part of it."""
    noise = Noise(lambda: 0.0)
    caught = b'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: once\n'
    assert noise.passed(0, b"ERROR it failed\n" + caught) == b"ERROR it failed\n"
    assert noise.passed(0, b"INFO once more\n    a table\n\n") == b"INFO once more\n    a table\n\n"
    assert [one.text for one in noise.rest()] == caught.splitlines(keepends=True)


def test_what_torch_says_of_peers_that_have_ended() -> None:
    """As torch 2.13 words it; all of it waits, and after a success it is not shown."""
    said = b"""\
[rank2]:[W1126 00:12:01.000000000 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=4): reset by peer
Exception raised from recvBytes at /pytorch/torch/csrc/distributed/c10d/Utils.hpp:682 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x80 (0x7f00 in libc10.so)
[W1126 00:12:01.000000000 TCPStore.cpp:138] [c10d] recvValueWithTimeout failed on SocketImpl(fd=4): got 0 bytes
Exception raised from recvBytes at /pytorch/torch/csrc/distributed/c10d/Utils.hpp:787 (most recent call first):
frame #9: <unknown function> + 0x3f3aa5 (0x7f00 in libtorch_python.so)
<omitting python frames>
frame #34: _start + 0x21 (0x5600 in python)

W1126 00:12:01.000000 123 torch/distributed/elastic/agent/server/api.py:963] Error waiting on exit barrier
"""
    noise = Noise(lambda: 0.0)
    assert noise.passed(0, said) == b""
    assert without_peers(noise.rest()) == []
    own = (b"[rank0]:[W1126 00:12:01.0 ProcessGroupNCCL.cpp:1538] destroy_process_group()", b"Traceback:", b"\n")
    kept = [HeldLines(0, 0.0, line) for line in own]
    assert without_peers(kept) == kept
