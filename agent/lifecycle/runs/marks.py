"""What will mark the processes of a run on this pod.

Two of the three marks are the kernel's and hold whatever a program does; which of them a pod allows depends on how
privileged it is (docs/decisions/0010-whose-a-process-is.md).
"""

from __future__ import annotations

from agent.decide.run_marks import group_of, mark_name, may_take, own_cgroup, run_cgroup
from agent.lifecycle.pod.pod import Pod
from agent.machine.api import RunMarks


def make_marks(pod: Pod, run_id: str) -> RunMarks:
    """All that this pod allows. The cgroup is made: `sweep` removes it."""
    machine = pod.machine
    name = mark_name(run_id, pod.settings.index)
    mountinfo, cgroup, status, gid_map = (
        machine.read(f"/proc/self/{file}") or "" for file in ("mountinfo", "cgroup", "status", "gid_map")
    )
    group = group_of(name)
    own = own_cgroup(mountinfo, cgroup)
    path = run_cgroup(own, name)
    marks = RunMarks(
        run_id,
        group if may_take(group, status, gid_map) else 0,
        path if own and machine.make_cgroup(path) else "",
    )
    ways = [f"cgroup {marks.cgroup}"] if marks.cgroup else []
    ways += [f"group {marks.group}"] if marks.group else []
    pod.log.debug(f"processes of {run_id} are known by {', '.join([*ways, 'A4_RUN in their environment'])}")
    return marks
