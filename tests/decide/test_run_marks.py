"""What marks the processes of a run, by what pods are told of themselves in /proc."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.run_marks import group_of, may_take, own_cgroup

V1 = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices
"""
HYBRID = V1 + "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V2 = "26 23 0:24 {root} {point} {access},nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate\n"
POD = "/kubepods.slice/kubepods-pod1f.slice/cri-containerd-7a.scope"


def v2(root: str = "/", point: str = "/sys/fs/cgroup", access: str = "rw") -> str:
    return V2.format(root=root, point=point, access=access)


@pytest.mark.parametrize(
    ("mountinfo", "cgroup", "expected"),
    [
        # A privileged pod: the node's whole tree.
        (v2(), f"0::{POD}\n", f"/sys/fs/cgroup{POD}"),
        # In a cgroup namespace of its own.
        (v2(), "0::/\n", "/sys/fs/cgroup"),
        # Without privileges.
        (v2(access="ro"), "0::/\n", ""),
        # Its own part of the tree, mounted without a namespace.
        (v2(root=POD), f"0::{POD}\n", "/sys/fs/cgroup"),
        (v2(root=POD), f"0::{POD}/inner\n", "/sys/fs/cgroup/inner"),
        # Another's part, and one whose name only begins alike.
        (v2(root="/kubepods.slice/other"), f"0::{POD}\n", ""),
        (v2(root=POD), f"0::{POD}2\n", ""),
        # A mount from outside of the namespace; a process that was moved out of it; a cgroup that is gone.
        (v2(root="/../.."), "0::/\n", ""),
        (v2(), "0::/../other\n", ""),
        (v2(), "0::/gone (deleted)\n", ""),
        # Version 1 alone; both, as systemd's hybrid mode has them.
        (V1, "5:devices:/x\n0::/x\n", ""),
        (HYBRID, "5:devices:/y\n0::/x\n", "/sys/fs/cgroup/unified/x"),
        # Two mounts: one that can be written counts, of two at one place the upper one.
        (v2(access="ro") + v2(point="/mnt/cgroup"), "0::/x\n", "/mnt/cgroup/x"),
        (v2(root="/x") + v2(), "0::/x\n", "/sys/fs/cgroup/x"),
        (v2(point="/odd\\040place"), "0::/x\n", "/odd place/x"),
        # No cgroups in the kernel.
        ("", "", ""),
    ],
)
def test_the_cgroup_in_which_that_of_a_run_is_made(mountinfo: str, cgroup: str, expected: str) -> None:
    assert own_cgroup(mountinfo, cgroup) == expected


@given(st.text(min_size=1, max_size=40))
def test_the_group_of_a_run_is_above_those_of_systems(run_id: str) -> None:
    assert 1 << 30 <= group_of(run_id) < 1 << 31
    assert group_of(run_id) == group_of(run_id)


def test_runs_have_groups_of_their_own() -> None:
    assert len({group_of(f"exec-{number:08x}") for number in range(1000)}) == 1000


EVERYTHING = "Name:\tpython\nCapPrm:\t0\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n"
DEFAULT = "CapEff:\t00000000a80425fb\n"
WITHOUT_SETGID = "CapEff:\t00000000a80425bb\n"
ALL_GROUPS = "         0          0 4294967295\n"


@pytest.mark.parametrize(
    ("status", "gid_map", "expected"),
    [
        (EVERYTHING, ALL_GROUPS, True),
        (DEFAULT, ALL_GROUPS, True),
        (WITHOUT_SETGID, ALL_GROUPS, False),
        (DEFAULT, "0 100000 65536\n", False),
        (DEFAULT, "0 100000 1000\n1000 500000 2147483648\n", True),
        (DEFAULT, "", False),
        ("", ALL_GROUPS, False),
    ],
)
def test_whether_the_group_can_be_given(status: str, gid_map: str, expected: bool) -> None:
    assert may_take(group_of("script-1a2b3c4d"), status, gid_map) is expected
