"""What the rest of the agent asks of the clinic: only the verb `doctor` imports another module of it.

- Looks at ranks that stand still: each pod answers a `Question` in a process of its own (`look_argv`, `read_look`,
  `as_evidence`), pod 0 has what all pods saw (`Collected`) and decides (`diagnose`).
- How far ranks are while they run: `RankSteps`, `Steps` and `Pace`; the files that torch's watchdog leaves.
- Devices: `judge_gate` before a run, `counters_argv`, `compare` and `unseen` around it, `health_sentence` after it,
  `gpu_memory_argv` before it starts again.
"""

from __future__ import annotations

from agent.clinic.doctor.deltas import compare as compare
from agent.clinic.doctor.deltas import counters_argv as counters_argv
from agent.clinic.doctor.deltas import gpu_memory_argv as gpu_memory_argv
from agent.clinic.doctor.deltas import health_sentence as health_sentence
from agent.clinic.doctor.deltas import unseen as unseen
from agent.clinic.doctor.gate import GateVerdict as GateVerdict
from agent.clinic.doctor.gate import judge_gate as judge_gate
from agent.clinic.sources.dump import is_dump as is_dump
from agent.clinic.sources.question import APART_SECONDS as APART_SECONDS
from agent.clinic.sources.question import LookAnswer as LookAnswer
from agent.clinic.sources.question import Question as Question
from agent.clinic.sources.question import as_evidence as as_evidence
from agent.clinic.sources.question import look_argv as look_argv
from agent.clinic.sources.question import read_look as read_look
from agent.clinic.sources.rank_steps import RankSteps as RankSteps
from agent.clinic.why.pace import Pace as Pace
from agent.clinic.why.pace import Steps as Steps
from agent.clinic.why.records import Collected as Collected
from agent.clinic.why.records import PodRecords as PodRecords
from agent.decide.diagnosis import Diagnosis


def diagnose(collected: Collected) -> Diagnosis:
    """Who holds the run up, and what each source gave. Raises whatever a bug in the decision raises."""
    from agent.clinic.sources.catalogue import told  # most runs never stand still
    from agent.clinic.why.deciding import decide

    decision = decide(collected)
    return decision.diagnosis._replace(sources=told(decision))
