"""What the processes of a run do in this pod: a look at them, kept here, summed up for the coordinator."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable

from agent import wire
from agent.clinic.probes.question import LookAnswer, Question
from agent.clinic.why.fitting import compact, fit
from agent.clinic.why.records import MOST_BYTES, PodRecords, Source
from agent.decide.messages import Evidence
from agent.decide.tail import last_words
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.part import RunPart
from agent.machine.api import Machine
from agent.paths import package_home
from agent.workloads.why_variables import RAS_PORTS, ras_address

MOST_LAST_WORDS = 65536
"""Bytes at the end of what each rank has printed that are looked at."""
MOST_OF_ALL = 8 << 20
"""Bytes that the records of all pods have together: pod 0 reads them one after the other."""
MOST_TRIES = 50


def ras_port(machine: Machine, run_id: str) -> int:
    """One that is free now, another for each run as far as that is possible: with hostNetwork pods share a node's. 0
    where none is."""
    first = zlib.crc32(run_id.encode())
    tried = (RAS_PORTS[(first + number) % len(RAS_PORTS)] for number in range(MOST_TRIES))
    return next((port for port in tried if not machine.port_holder("127.0.0.1", port)), 0)


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
    argv = [pod.job.python, "-Es", "-m", "agent.clinic.probes.look", json.dumps(wire.to_json(question))]
    part.steps.look()  # what ranks have entered since the last time counts
    deadline = seconds + 1.0  # the process keeps to `seconds` itself, and may be a little late
    pod.machine.ask_process(argv, package_home(), deadline, lambda answer: say(_kept(pod, part, question, answer)))


def _kept(pod: Pod, part: RunPart, question: Question, answer: str) -> Evidence:
    try:
        seen = wire.from_json(LookAnswer, json.loads(answer))
    except ValueError:  # that the process printed nothing is a thing to say
        why = "the look at the processes did not come to its end in time"
        seen = LookAnswer(_no_records(question, why), f"{why}\n", f"{why}\n")
    if not part.over:
        _write(pod, part, seen)
    masker = pod.log.masker
    try:
        records = wire.from_json(PodRecords, masker.value(wire.to_json(_with_paces(seen.records, part))))
    except ValueError as error:  # a secret that is one of our own words cannot be taken out of them
        records = _no_records(question, f"what was found cannot be masked: {error}")
    most = min(MOST_BYTES, MOST_OF_ALL // len(part.context.plan.peers))
    return Evidence(part.context.run_id, masker.text(seen.summary), compact(fit(records, most)))


def _with_paces(records: PodRecords, part: RunPart) -> PodRecords:
    paces = part.steps.paces()
    processes = tuple(one._replace(pace=paces.get(one.pid)) for one in records.processes)
    return records._replace(processes=processes, printed=part.pace())


def _write(pod: Pod, part: RunPart, seen: LookAnswer) -> None:
    masker, directory = pod.log.masker, part.context.run_dir
    # Masked before lines are cut: the beginning of a secret must not stay.
    words = last_words(masker.value(pod.machine.read_tails(part.context.ranks_output, MOST_LAST_WORDS)))
    text = masker.text(seen.text) + (f"\n{words}" if words else "")
    path = f"{directory}/evidence.txt"
    pod.state.attempt(path, lambda: pod.machine.write(path, text, 0o600))
    pod.run_logs.keep(f"evidence/{pod.run_logs.log_name}.txt", text)


def _no_records(question: Question, why: str) -> PodRecords:
    return question.pod._replace(sources=(Source("processes", "unavailable", why),))
