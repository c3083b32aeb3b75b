"""A run from Python, in a pod of a cluster that sleeps: a program on every pod, its output, its end."""

from __future__ import annotations

import agent

with agent.Client() as client:
    program = ("sh", "-c", "echo one of $NNODES")
    run = client.submit(agent.RunSpec("mpirun", args=program, per_node=1, by="submit.py"))
    ended = client.follow(run, agent.Lines())
pods = " and ".join(map(str, sorted(run.pods)))
print(f"exit code {ended.end.code}, pods {pods}")
