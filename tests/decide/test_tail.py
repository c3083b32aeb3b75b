"""The end of what a process printed, in whole lines; the last words of every rank; marks of ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.tail import MOST_LINE, MOST_TEXT, Tail, last_lines, last_words, rank_of
from tests.decide.test_noise import TORCHRUN

LINES = st.lists(
    st.tuples(st.sampled_from([1, 2]), st.text("ab\n", min_size=1, max_size=12).map(str.encode)), max_size=40
)


def test_streams_do_not_mix_inside_a_line() -> None:
    tail = Tail(100)
    for stream, data in [(1, b"1048576  26"), (2, b"NCCL INFO\n"), (1, b"2144 float\n"), (2, b"no end")]:
        tail.add(stream, data)
    assert tail.text() == "NCCL INFO\n1048576  262144 float\nno end"


@pytest.mark.parametrize("end", ["", "\n"])
def test_no_word_is_cut(end: str) -> None:
    """The rest of a secret would not be masked."""
    for printed, shown in [
        ("hf_0123456789\nend", "end"),
        ("hf_0123456789 the end", "the end"),
        ("10 % hf_0123\r20 %", "20 %"),
    ]:
        tail = Tail(10)
        for byte in f"{'x' * 30} {printed}{end}".encode():
            tail.add(1, bytes([byte]))
        assert tail.text() == shown + end


@given(LINES, st.integers(1, 30))
def test_never_more_than_the_limit_and_always_the_newest_lines_of_one_stream(
    lines: list[tuple[int, bytes]], most: int
) -> None:
    tail = Tail(most)
    for _, data in lines:
        tail.add(1, data)
    whole = b"".join(data for _, data in lines).decode()
    newest = whole if len(whole) <= most else whole[-most - 1 :].partition("\n")[2]
    assert whole.endswith(tail.text()) and tail.text().endswith(newest) and len(tail.text()) <= most


@given(LINES)
def test_every_line_is_there_and_whole(lines: list[tuple[int, bytes]]) -> None:
    tail = Tail(10_000)
    for stream, data in lines:
        tail.add(stream, data)
    printed = [b"".join(data for one, data in lines if one == stream) for stream in (1, 2)]
    wanted = [line for text in printed for line in text.decode().split("\n")]
    assert sorted(filter(None, tail.text().split("\n"))) == sorted(filter(None, wanted))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        (" \n\n", ""),
        ("one\n\n  two \n", "last lines of its output:\n  one\n    two"),
        ("a\nb\nc\nd", "last lines of its output:\n  b\n  c\n  d"),
        ("012 456 89", "last lines of its output:\n  012 …"),
        ("0123456789", "last lines of its output:\n  …"),
    ],
)
def test_the_last_lines(text: str, shown: str) -> None:
    assert last_lines(text, most=3, width=8) == shown


RAISED = """\
rank 4 begins
Traceback (most recent call last):
  File "/srv/train.py", line 11, in <module>
    import no_such_module
ModuleNotFoundError: No module named 'no_such_module'
"""
STARS = "*" * 41
OMP = f"{STARS}\nSetting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid\n{STARS}\n"
MPIRUN = """\
[node-1:42] 3 more processes have sent help message help-mpi-btl-base.txt / btl:no-nics
[node-1:42] Set MCA parameter "orte_base_help_aggregate" to 0 to see all help / error messages
[node-1:42] plm:rsh: Warning: setpgid(97,97) failed in parent with errno=Permission denied(13)
"""


def test_what_launchers_say_is_no_cause() -> None:
    """Nor may it push the cause out of the last lines."""
    shown = "".join(f"  {line}\n" for line in [*RAISED.splitlines(), "after it"])
    said = last_lines(f"{OMP}{RAISED}{TORCHRUN}after it\n{MPIRUN}")
    assert f"{said}\n" == f"last lines of its output:\n{shown}"
    assert last_lines(TORCHRUN).endswith("\n  " + "=" * 60), "they are all there is"


def test_frames_of_c_are_left_out_of_what_torchs_watchdog_says() -> None:
    """As torch 2.11 printed it."""
    text = (
        "Exception raised from checkTimeout at /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:692\n"
        "frame #3: c10d::ProcessGroupNCCL::Watchdog::run() + 0x157 (0x7f2662aa63b7 in lib/libtorch_cuda.so)\n"
        "[rank0]: frame #4: <unknown function> + 0xecdb4 (0x7f26e6e6edb4 in /lib/x86_64-linux-gnu/libstdc++.so.6)\n"
    )
    assert last_lines(text).splitlines()[1:] == [f"  {text.splitlines()[0]}"]


def test_a_traceback_that_others_have_pushed_out_of_the_last_lines() -> None:
    trace = ["[rank4]: Traceback (most recent call last):", *(f"[rank4]:   line {i}" for i in range(30))]
    raised = "[rank4]: torch.OutOfMemoryError: tried to allocate 2 GiB"
    others = [f"step {i}: ended by SIGTERM" for i in range(25)]
    second = "Traceback (most recent call last):\n  File …\nRuntimeError: Connection closed by peer"
    told = last_lines("\n".join(["step 1", *trace, raised, *others, second])).splitlines()
    assert told == [
        "first traceback in its output:",
        *(f"  [rank4]:   line {i}" for i in range(19, 30)),
        f"  {raised}",
        "last lines of its output:",
        *(f"  {line}" for line in [*others[-5:], *second.splitlines()]),
    ]
    assert last_lines("\n".join([*trace, *others])).startswith("last lines of its output:\n  step 5"), "without an end"
    assert last_lines("\n".join([*trace, raised, *others[:19]])).splitlines()[1] == f"  {raised}"


OUTPUTS = {
    "1/rank.10/stdout": "step 1\nstep 2\nstep 3\n",
    "1/rank.2/stdout": "up\n\nwaiting for rank 10\n\n",
    "1/rank.2/stderr": "",
    "1/rank.10/stderr": "\n",
}


@pytest.mark.parametrize(
    ("outputs", "shown"),
    [
        ({}, ""),
        (
            OUTPUTS,
            "1/rank.2/stdout:\n  \n  waiting for rank 10\n\n1/rank.10/stdout:\n  step 2\n  step 3\n\n"
            "nothing in 1/rank.2/stderr, 1/rank.10/stderr\n",
        ),
        ({"0/stdout.log": "start\r\n 1%\r 2%\r 3%"}, "0/stdout.log:\n  start\n   3%\n"),
        ({"a": "x" * 100_000}, f"a:\n  {'x' * MOST_LINE} …\n"),
    ],
    ids=["no files", "ranks by number", "a progress bar", "a long line"],
)
def test_the_last_words(outputs: dict[str, str], shown: str) -> None:
    assert last_words(outputs, 2) == (f"last output of every rank\n\n{shown}" if shown else "")


def test_many_files_stay_within_bounds() -> None:
    outputs = {f"1/rank.{rank}/stdout": f"{'x' * 300}\n" * 50 for rank in range(400)}
    text = last_words(outputs, 20)
    assert len(text) <= MOST_TEXT + 2000
    assert all(f"{name}:\n  x" in text for name in outputs)


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        (b"[rank13]: Traceback (most recent call last):", 13),
        (b"[rank13]:[E1122 13:09:40.1 ProcessGroupNCCL.cpp:632] watchdog", 13),
        (b"[default5]:step 3", 13),  # torchrun counts the ranks of its pod
        (b"[1,13]<stdout>:step 3", 13),
        (b"[prterun-pod-0-7@1,13]<stdout>: step 3", 13),
        (b"step [rank13]: 3", None),
        (b"[13]: no mark", None),
        (b"[2026-03-04 12:30,13]: no mark", None),
    ],
)
def test_the_rank_that_printed_a_line(line: bytes, rank: int | None) -> None:
    assert rank_of(line, 8) == rank
