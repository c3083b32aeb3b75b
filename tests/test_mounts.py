"""agent/mounts.py: lines as kernels write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.mounts import MountPoint, escaped, parse_mounts

ROW = "32 31 0:29 {root} {point} {ours} - {theirs}\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            ROW.format(root="/", point="/sys/fs/cgroup/cpu", ours="rw,relatime master:11", theirs="cgroup c rw,cpu"),
            [MountPoint("/", "/sys/fs/cgroup/cpu", True, "cgroup", ("rw", "cpu"))],
        ),
        (
            ROW.format(root="/a\\040b", point="/mnt\\134x", ours="ro", theirs="nfs4 server:/my\\040dir rw,hard"),
            [MountPoint("/a b", "/mnt\\x", False, "nfs4", ("rw", "hard"))],
        ),
        (
            ROW.format(root="/", point="/x", ours="ro,rw_not", theirs="tmpfs none ro"),
            [MountPoint("/", "/x", False, "tmpfs", ("ro",))],
        ),
        ("strange - x\n", []),
        ("32 31 0:29 / /x rw\n", []),
        ("\n", []),
    ],
)
def test_a_line(line: str, expected: list[MountPoint]) -> None:
    assert list(parse_mounts(line)) == expected


@given(st.text(" \t\n\\/ab04é", min_size=1))
def test_a_path_as_the_kernel_writes_it_is_read_back(path: str) -> None:
    line = ROW.format(root="/", point=escaped(f"/{path}"), ours="rw", theirs="nfs4 server:/ rw")
    assert [mount.point for mount in parse_mounts(line)] == [f"/{path}"]
