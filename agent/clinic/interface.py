"""What the rest of the agent asks of the clinic: only the verb `doctor` imports another module of it.

- Looks at ranks that stand still: each pod answers a `Question` in a process of its own (`look_argv`, `read_look`,
  `as_evidence`), pod 0 has what all pods saw (`Collected`) and decides (`diagnose`).
- How far ranks are while they run: `RankSteps`, `Steps` and `Pace`; the files that torch's watchdog leaves.
- Devices: `judge_gate` before a run, `counters_argv`, `compare` and `unseen` around it, `health_sentence` after it.
"""

from __future__ import annotations

from agent.clinic.doctor.deltas import compare, counters_argv, health_sentence, unseen
from agent.clinic.doctor.gate import GateVerdict, judge_gate
from agent.clinic.sources.dump import is_dump
from agent.clinic.sources.question import APART_SECONDS, LookAnswer, Question, as_evidence, look_argv, read_look
from agent.clinic.sources.rank_steps import RankSteps
from agent.clinic.why.pace import Pace, Steps
from agent.clinic.why.records import Collected, PodRecords
from agent.decide.diagnosis import Diagnosis

__all__ = [
    "APART_SECONDS",
    "Collected",
    "GateVerdict",
    "LookAnswer",
    "Pace",
    "PodRecords",
    "Question",
    "RankSteps",
    "Steps",
    "as_evidence",
    "compare",
    "counters_argv",
    "diagnose",
    "health_sentence",
    "is_dump",
    "judge_gate",
    "look_argv",
    "read_look",
    "unseen",
]


def diagnose(collected: Collected) -> Diagnosis:
    """Who holds the run up, and what each source gave. Raises whatever a bug in the decision raises."""
    from agent.clinic.sources.catalogue import told  # most runs never stand still
    from agent.clinic.why.deciding import decide

    decision = decide(collected)
    return decision.diagnosis._replace(sources=told(decision))
