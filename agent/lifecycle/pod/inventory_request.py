"""The inventory of a pod: what is looked for, and what follows from it for the fabric."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent.decide.inventory import fabric_variables, flat
from agent.fabrics import needs, problems
from agent.fabrics.profiles import NONE
from agent.lifecycle.pod.pod import Pod
from agent.machine.api import Search


def gather(pod: Pod, done: Callable[[Mapping[str, Any], Mapping[str, str]], None]) -> None:
    """`done` gets the whole inventory, for facts.json, and the texts that others get."""
    environ, profile = pod.known.environ, pod.known.profile.name

    def have(found: Mapping[str, Any]) -> None:
        whole = {**found, "environ": fabric_variables(environ), "profile": profile}
        found_wrong = problems(profile, whole, pod.settings.nnodes)
        told = {**flat(whole), **({"profile_problems": "\n".join(found_wrong)} if found_wrong else {})}
        done({**whole, "profile_problems": found_wrong}, told)

    wanted = needs(profile, environ)
    search = Search(
        path=pod.known.search_path,
        environ=environ,
        python=pod.settings.python,
        fabric=profile != NONE,
        libraries=wanted.libraries,
        files=wanted.files,
        socket_dir="" if pod.alone else wanted.socket_dir,
    )
    pod.machine.gather_inventory(search, pod.log.info, have)
