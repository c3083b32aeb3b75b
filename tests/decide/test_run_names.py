"""What runs can be called, and what is shown of their commands."""

from __future__ import annotations

import pytest

from agent.decide.run_names import MOST_NAME, MOST_NOTE, check_labels, command_line, free_name, one_line
from agent.decide.runspec import RunSpec
from agent.errors import UsageError


@pytest.mark.parametrize("name", ["a", "lr-0.1", "7", "nightly-20261125", "x" * MOST_NAME, "ddp-0123abc", "a..b", ""])
def test_names(name: str) -> None:
    check_labels(RunSpec("ddp", name=name))


@pytest.mark.parametrize(
    "name",
    [".", "..", ".a", "-a", "a/b", "A", "a b", "é", "a\n", "x" * (MOST_NAME + 1), "ddp-0123abcd", "exec-00000000"],
)
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(UsageError, match=r"the run's name .* is not a name"):
        check_labels(RunSpec("ddp", name=name))


@pytest.mark.parametrize("note", ["a\nb", "\x1b[2J", "\u202e", "\udcff", "x" * (MOST_NOTE + 1)])
def test_what_is_no_note(note: str) -> None:
    with pytest.raises(UsageError, match=r"the run's note .* is not a note of one line"):
        check_labels(RunSpec("ddp", note=note))


@pytest.mark.parametrize(
    ("name", "taken", "free"),
    [
        ("lr", "", "lr"),
        ("lr", "lr", "lr-2"),
        ("lr", "lr lr-2 lr-4", "lr-3"),
        ("lr-2", "lr-2", "lr-2-2"),
        ("x" * 40, "x" * 40, "x" * 38 + "-2"),
        ("x" * 37 + "-.x", "x" * 37 + "-.x", "x" * 37 + "-2"),
    ],
)
def test_the_second_of_a_name(name: str, taken: str, free: str) -> None:
    assert free_name(name, taken.split()) == free


@pytest.mark.parametrize(
    ("spec", "command"),
    [
        (RunSpec("torchrun", ("train.py", "a b"), per_node=2), "torchrun --nproc-per-node 2 train.py 'a b'"),
        (RunSpec("mpirun", ("./a.out",), ranks=4, per_node=1), "mpirun -np 4 -N 1 ./a.out"),
        (RunSpec("script", ("a\n\tb\x1b", "\udcff")), "script 'a\\n\\tb\\x1b' '\\udcff'"),
    ],
)
def test_commands_are_one_line(spec: RunSpec, command: str) -> None:
    assert one_line(command_line(spec)) == command


def test_a_long_command_is_cut() -> None:
    shown = one_line(command_line(RunSpec("script", ("x" * 1_000_000,))))
    assert shown.startswith("script xxx") and shown.endswith("x …") and len(shown) < 2100
