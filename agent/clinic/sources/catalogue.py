"""The sources of `why`, a row each."""

from __future__ import annotations

from agent.clinic.sources.dump import DumpSource
from agent.clinic.sources.processes import ProcessSource
from agent.clinic.sources.ras import RasSource
from agent.clinic.sources.recorder import RecorderSource
from agent.clinic.sources.source import WhySource
from agent.clinic.sources.stacks import StackSource
from agent.clinic.why.deciding import Decision
from agent.decide.diagnosis import SourceSaid
from agent.decide.subset import grouped, pods_text
from agent.decide.words import at_most

SOURCES: tuple[type[WhySource], ...] = (ProcessSource, RecorderSource, DumpSource, RasSource, StackSource)
"""In the order in which they are asked and told. The first knows what the others are asked about."""


def told(decision: Decision) -> tuple[SourceSaid, ...]:
    """What each gave, over all pods; then which pods lack records."""
    silent, pods = decision.collected.silent, decision.collected.pods
    cut = {pod.pod: pod.left_out for pod in pods if pod.left_out}
    none = [f"{pods_text(found)} gave no records: {why}" for why, found in grouped(silent).items()]
    less = [f"{pods_text(found)} left out {what}" for what, found in grouped(cut).items()]
    return (
        *(said for source in SOURCES for said in source.tell(decision)),
        *(SourceSaid(ProcessSource.name, "unavailable", text) for text in at_most(none)),
        *(SourceSaid(ProcessSource.name, "found", text) for text in at_most(less)),
    )
