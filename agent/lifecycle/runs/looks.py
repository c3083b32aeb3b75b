"""What the processes of a run do in this pod: a look at them, kept here, summed up for the coordinator."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from agent.clinic.interface import LookAnswer, PodRecords, Question, as_evidence, look_argv, read_look
from agent.decide.messages import Evidence
from agent.decide.run_names import life_parts
from agent.decide.tail import last_words
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.part import RunPart
from agent.machine.api import Network
from agent.paths import package_home
from agent.workloads.why_variables import RAS_PORTS, ras_address

MOST_LAST_WORDS = 65536
"""Bytes at the end of what each rank has printed that are looked at."""
MOST_TRIES = 50


def ras_port(network: Network, run_id: str) -> int:
    """One that is free now, another for each run as far as that is possible: with hostNetwork pods share a node's. 0
    where none is."""
    first = zlib.crc32(run_id.encode())
    tried = (RAS_PORTS[(first + number) % len(RAS_PORTS)] for number in range(MOST_TRIES))
    return next((port for port in tried if not network.port_holder("127.0.0.1", port)), 0)


def look_at(pod: Pod, part: RunPart, seconds: float, say: Callable[[Evidence], None]) -> None:
    """Look for at most so long, write evidence.txt, and say what was found. When the part is over, evidence.txt stays
    as it is."""
    context = part.context
    own = context.plan.peers[context.plan.node_rank(context.index)]
    hosts = (pod.known.interface.address, pod.machine.hostname())
    question = Question(
        PodRecords(context.index, own.pod_name or own.name, node="", hosts=hosts),
        part.marks,
        why_dir=context.why_dir,
        ranks_dir=context.ranks_dir,
        path=pod.known.search_path,
        seconds=seconds,
        prepared=context.why,
        ras=ras_address(context),
    )
    argv = look_argv(pod.job.python, question)
    part.steps.look()  # what ranks have entered since the last time counts
    deadline = seconds + 1.0  # the process keeps to `seconds` itself, and may be a little late
    pod.machine.ask_process(argv, package_home(), deadline, lambda answer: say(_kept(pod, part, question, answer)))


def _kept(pod: Pod, part: RunPart, question: Question, answer: str) -> Evidence:
    seen = read_look(question, answer)
    if not part.over:
        _write(pod, part, seen)
    masker, pods = pod.log.masker, len(part.context.plan.peers)
    records = as_evidence(question, seen.records, part.steps.paces(), part.pace(), masker.value, pods)
    return Evidence(part.context.run_id, masker.text(seen.summary), records)


def _write(pod: Pod, part: RunPart, seen: LookAnswer) -> None:
    masker, (run, life) = pod.log.masker, life_parts(part.context.run_id)
    # Masked before lines are cut: the beginning of a secret must not stay.
    words = last_words(masker.value(pod.machine.read_tails(part.context.ranks_output, MOST_LAST_WORDS)))
    text = masker.text(seen.text) + (f"\n{words}" if words else "")
    path = f"{pod.dir.run(run)}/evidence.txt"
    pod.state.attempt(path, lambda: pod.machine.write(path, text, 0o600))
    pod.run_logs.keep(f"evidence/{pod.run_logs.log_name}{f'-life-{life}' if life > 1 else ''}.txt", text)
