"""What follows from an errno."""

from __future__ import annotations

import errno
import os

import pytest

from agent.decide.os_refusals import not_started, refused


@pytest.mark.parametrize(
    ("name", "code", "hint"),
    [
        ("ENOENT", 66, ""),
        ("EACCES", 66, ""),
        ("ENOEXEC", 66, ""),
        ("ENOTDIR", 66, ""),
        ("EMFILE", 71, "limit of open files"),
        ("ENFILE", 71, "fs.file-max"),
        ("EAGAIN", 71, "pids.max"),
        ("ENOMEM", 71, "memory limit"),
        ("E2BIG", 71, "put long ones into a file"),
        ("ENOSPC", 71, "make room"),
        ("EIO", 71, ""),
    ],
)
def test_a_program_that_is_not_started(name: str, code: int, hint: str) -> None:
    number = getattr(errno, name)
    error = not_started("exec", OSError(number, os.strerror(number), "bash"), "/", "python3")
    assert (error.code, error.what) == (code, f"bash cannot be started: {os.strerror(number)}")
    assert hint in error.hint and bool(hint) == bool(error.hint)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("EROFS", "readOnlyRootFilesystem: false"), ("ENOSPC", "make room"), ("EDQUOT", "make room"), ("EACCES", "")],
)
def test_a_file_that_is_not_written(name: str, hint: str) -> None:
    number = getattr(errno, name)
    error = refused("/etc/x cannot be written", OSError(number, os.strerror(number)))
    assert (error.code, error.what) == (71, f"/etc/x cannot be written: {os.strerror(number)}")
    assert hint in error.hint and bool(hint) == bool(error.hint)


def test_an_error_without_a_number() -> None:
    assert refused("/x cannot be used", OSError("it is closed")).what == "/x cannot be used: it is closed"
    assert not_started("x", OSError("it is closed"), "/", "python3").code == 71
