"""What a run leaves for people: the table on stdout, its log file, result.json and report.html."""

from __future__ import annotations

import json

from agent import __version__, wire
from agent.decide import result
from agent.decide.part_end import PartEnd, loaded_versions
from agent.decide.plan import PlannedPeer
from agent.fabrics.profiles import NONE
from agent.launch import Started, repacked
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.merged_series import merged
from agent.lifecycle.runs.reporting import Reporting
from agent.lifecycle.runs.running import Run
from agent.paths import RESULT
from agent.workloads.base import Judgement, Measurements

DOUBT_SECONDS = 15.0
"""torch's recorder takes a collective that has failed for one that is complete. So long, at most, after the failure of
the first a run has ended because of it."""
STARTUP = (
    "agent-started",
    "sshd-listening",
    "facts-ready",
    "coordinator-connected",
    "peers-ready",
    "plan-ready",
)
"""Events that are the same for every run of a cluster."""


def keep_early(pod: Pod, run: Run) -> str:
    """Show the table, or the rest of it, and store result.json, whose path is returned: in the pod at once, in the
    results directory as soon as that takes it. Called again it stores what is known by then."""
    judgement = run.verdict.judgement
    assert judgement is not None
    if more := judgement.text.removeprefix(run.verdict.shown):
        pod.run_logs.print(more)
    run.verdict.shown = judgement.text
    data = wire.to_json(run_result(pod, run, judgement))
    data["gate"] = judgement.measurements.gate  # with all that the workload adds to it
    for name in ("trainings", "warnings", "series", "findings", "lives"):
        if not data[name]:
            del data[name]
    text = json.dumps(pod.log.masker.value(data), indent=1) + "\n"
    path = f"{pod.dir.run(run.run_id)}/{RESULT}"
    pod.state.attempt(path, lambda: pod.machine.write(path, text, 0o600))
    pod.run_logs.keep(RESULT, text)
    return path


def keep_results(pod: Pod, run: Run, seconds: float) -> None:
    """Store all that a run that is over leaves. `seconds`: how long files of the user's elsewhere are tried."""
    path, judgement = keep_early(pod, run), run.verdict.judgement
    assert judgement is not None
    if judgement.log_name:
        output = run.verdict.ends.get(run.context.lead, PartEnd(None)).output
        table = f"{judgement.text}\noutput of the run:\n{output}" if output else judgement.text
        pod.run_logs.keep(judgement.log_name, pod.log.masked(table))
    for name, content in judgement.files.items():
        if name.startswith("/"):
            # Only a file that was read can be added to: what is in another would be lost.
            pod.run_logs.keep_elsewhere(name, pod.log.masked(content), seconds, new=name not in run.context.baselines)
        else:
            pod.run_logs.keep(name, pod.log.masked(content))
    if pod.settings.report and not run.workload.starts_nothing:
        Reporting(pod, path)


def run_result(pod: Pod, run: Run, judgement: Judgement) -> result.Result:
    """The result of a run that is over."""
    spec, plan, measurements, profile = run.context.spec, run.context.plan, judgement.measurements, pod.known.profile
    # What a program says itself is better: of what it has loaded it may not use all.
    loaded = {} if "torch" in measurements.versions else loaded_versions(run.verdict.ends.values())
    return result.Result(
        version=result.VERSION,
        agent=__version__,
        job=pod.settings.job_identifier,
        epoch=pod.settings.epoch,
        run=run.run_id,
        workload=spec.workload,
        args=spec.args,
        by=spec.by,
        since=run.since,
        until=run.until or run.since,
        verdict=result.verdict(judgement.end, measurements.reasons),
        slots=plan.slots,
        order=result.Order(plan.source, plan.warnings),
        pods=tuple(_pod_result(pod, run, peer, measurements) for peer in plan.peers),
        differences=tuple(run.preparations.compared(run.context, run.workload).found),
        launch=_masked_launch(pod, run.verdict.ends.get(run.context.lead, PartEnd(None)).launch),
        versions={"a4-agent": __version__, **loaded, **measurements.versions},
        limits=result.Limits(spec.timeout or 0.0, spec.stall or 0.0),
        tables=tuple(measurements.tables),
        sweeps=tuple(measurements.sweeps),
        profile=None if profile.name == NONE else result.FabricProfile(profile.name, profile.why),
        gate=result.Gate(measurements.gate["status"], measurements.gate["reason"]) if measurements.gate else None,
        record=measurements.record,
        trainings=run.verdict.lives.with_trainings(measurements.trainings),
        warnings=tuple(measurements.warnings),
        diagnosis=run.why.stored(judgement.end),
        image=pod.settings.image,
        name=spec.name,
        note=spec.note,
        series=merged(run.verdict.series_of_all_lives),
        findings=(*measurements.found, *(run.gated or ()), *run.afterwards.findings),
        lives=tuple(
            result.Life(
                life.since,
                life.noticed,
                life.until,
                result.verdict(life.end, ()),
                life.lost,
                life.joined,
                life.next,
            )
            for life in run.verdict.lives.earlier
        ),
    )


def _masked_launch(pod: Pod, launch: Started | None) -> Started | None:
    """Without secrets where whoever masks the result's texts does not see them."""
    value = pod.log.masker.value
    return launch and launch._replace(argv=tuple(repacked(word, value) for word in launch.argv))


def _pod_result(pod: Pod, run: Run, peer: PlannedPeer, measurements: Measurements) -> result.Pod:
    end = run.verdict.ends.get(peer.index, PartEnd(None))
    known = pod.state.phases if peer.index == 0 else run.preparations.phases.get(peer.index, {})
    # Where the output shows it, only the lead prints.
    printing = run.verdict.ends.get(run.context.lead, end) if run.workload.shows_collective else end
    collective = end.collective or printing.collective
    if collective and not run.workload.shows_collective and run.verdict.end.code:
        until = run.until or run.since
        collective = collective if until - collective > DOUBT_SECONDS else None
    own = {"process-started": end.began, "first-collective": collective, "process-ended": end.ended}
    phases = {name: known[name] for name in STARTUP if name in known}
    return result.Pod(
        index=peer.index,
        name=peer.name,
        node=peer.node,
        address=peer.address,
        place=peer.place,
        status=end.status,
        lost=run.course.lost.get(peer.index, ""),
        phases={**phases, **{name: when for name, when in own.items() if when is not None}, **measurements.phases},
        inventory=run.preparations.inventories.get(peer.index, {}),
        pod_name=peer.pod_name,
    )
