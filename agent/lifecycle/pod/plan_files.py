"""The plan, and every file that follows its order."""

from __future__ import annotations

import json

from agent.decide.os_refusals import hint_of
from agent.decide.plan import Plan, hostfile, rank_order
from agent.errors import SystemFault
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.pod.ssh_files import ADDRESSES, addresses
from agent.paths import HOSTFILE, HOSTFILE_ONE_PER_NODE, HOSTNAMES_ORDER, RANK_ORDER

WRITTEN = (HOSTFILE, HOSTFILE_ONE_PER_NODE, RANK_ORDER, HOSTNAMES_ORDER)


def check_places(pod: Pod) -> None:
    """See that the plan's files can be written, before the cluster forms. Raises SystemFault that names all that
    cannot."""
    failed: dict[str, OSError] = {}
    for path in WRITTEN:
        try:
            pod.machine.check_writable(path)
        except OSError as error:
            failed[path] = error
    if failed:
        listed = ", ".join(f"{path} ({error.strerror})" for path, error in failed.items())
        hints = dict.fromkeys(filter(None, (hint_of(error) for error in failed.values())))
        raise SystemFault(f"this pod cannot write the files of the plan: {listed}", "\n".join(hints))


def keep_plan(pod: Pod, plan: Plan) -> None:
    """Know the plan, and write its files. Raises SystemFault."""
    pod.learn(plan=plan)
    names = [peer.name for peer in plan.peers]
    pod.write(HOSTFILE, hostfile(names, plan.slots))
    pod.write(HOSTFILE_ONE_PER_NODE, hostfile(names, 1))
    pod.write(RANK_ORDER, rank_order(plan))
    pod.write(HOSTNAMES_ORDER, "".join(f"{name}\n" for name in names))
    # DNS may name the address of a pod that was replaced until its TTL is over.
    if pod.settings.lives and not pod.alone:
        pod.write(f"{pod.dir.ssh}/{ADDRESSES}", addresses(plan, pod.settings.ssh_port), 0o600)
    pod.write(pod.dir.plan, json.dumps(plan.to_json(), indent=1) + "\n", 0o600)
    pod.state.event("plan-ready")
