"""The network that NCCL used, by the logs of all pods: what it should have been, and what follows if it was another."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from agent import wire
from agent.decide.ending import JobEnd
from agent.decide.result import Table, table
from agent.decide.subset import pods_text
from agent.decide.words import at_most
from agent.errors import Exit, SettingsError
from agent.fabrics import FABRICS
from agent.workloads import nccl_logs
from agent.workloads.base import Measurements, Outcome, RunContext
from agent.workloads.nccl_logs import Logged, Transport, log_variables

SETTING = "A4_WRONG_NETWORK"
FAIL = "fail"
WRONG = "NCCL did not use the network of the profile"
PRESET = ("WARN", "VERSION")
"""Values of NCCL_DEBUG that the chart, old values files and images set for everybody. Neither says which network is
used, so whoever sets one has no other plan with the logs."""


def is_judged(context: RunContext) -> bool:
    """Is there a network that must be used, and something that goes over it?"""
    return context.profile in FABRICS and len(context.plan.peers) > 1


def own_logs(context: RunContext) -> dict[str, str]:
    """Variables for a program of a4-agent, whose logs of NCCL are files in the notes of each pod; none where nothing
    follows from them."""
    if not is_judged(context):
        return {}
    file = f"{context.notes_dir}/{context.spec.workload}.%h.%p.log"
    return {**log_variables(context.environ), "NCCL_DEBUG_FILE": file}


def users_logs(context: RunContext) -> dict[str, str]:
    """The same for a program of the user's; none where the user has other plans with NCCL's logs. Raises
    SettingsError."""
    environ = context.environ
    demand = environ.get(SETTING, "")
    if demand.lower() not in ("", "warn", FAIL):
        raise SettingsError([f"{SETTING}={demand!r} should be one of warn, {FAIL}"])
    plans = {name: environ[name] for name in ("NCCL_DEBUG", "NCCL_DEBUG_FILE") if environ.get(name)}
    if plans.get("NCCL_DEBUG", "").upper() in PRESET:
        del plans["NCCL_DEBUG"]
    if not plans:
        return own_logs(context)
    if demand.lower() == FAIL and is_judged(context):
        kept = " and ".join(f"{name}={value}" for name, value in plans.items())
        raise SettingsError([f"{SETTING}={FAIL} needs the logs of NCCL, which {kept} keeps from a4-agent: unset one"])
    return {}


def not_used(context: RunContext) -> list[str]:
    """A note for the user whose NCCL_DEBUG_FILE gives way to ours."""
    file = context.environ.get("NCCL_DEBUG_FILE")
    return [f"NCCL_DEBUG_FILE is not used: NCCL's logs are in {context.notes_dir} on each pod"] if file else []


class NcclNetwork(NamedTuple):
    """What all pods found in NCCL's logs."""

    transports: Mapping[str, Mapping[int, Transport]]
    """Step → completion index → how its ranks went."""
    warnings: Sequence[str]
    nccl: str
    """Version of the library."""

    @staticmethod
    def of(logged: Mapping[int, Logged], steps: Iterable[str] = ()) -> NcclNetwork:
        """`logged`: completion index → what that pod found; `steps`: in their order, as far as it is known."""
        pods = sorted(logged.items())
        every = dict.fromkeys([*steps, *(step for _, one in pods for step in one.transport)])
        seen = ((step, {index: one.transport[step] for index, one in pods if step in one.transport}) for step in every)
        warnings = dict.fromkeys(f"pod {index}: {line}" for index, one in pods for line in one.warnings)
        version = next((one.nccl for _, one in pods if one.nccl), "")
        transports = {step: of_pods for step, of_pods in seen if of_pods}
        return NcclNetwork(transports, at_most(list(warnings), nccl_logs.MOST_WARNINGS), version)

    def __str__(self) -> str:
        """In a few words; empty when no log says anything."""
        return nccl_logs.described([one for pods in self.transports.values() for one in pods.values()])

    def wrong(self, profile: str) -> list[str]:
        """A sentence for each network that the profile does not mean, and each step."""
        found = self.transports.items()
        return [line for step, of_pods in found for line in nccl_logs.wrong_networks(profile, of_pods, step)]

    def silent(self, steps: Collection[str], indices: Collection[int]) -> list[int]:
        """Those of the pods for which no log names the network of one of the steps."""
        known = {(step, i) for step, of_pods in self.transports.items() for i, one in of_pods.items() if one.networks}
        return [i for i in indices if any((step, i) not in known for step in steps)]

    @property
    def versions(self) -> dict[str, str]:
        return {"nccl": self.nccl} if self.nccl else {}

    def tables(self) -> list[Table]:
        columns = {"test": "", "pod": "", "network": "", "NICs": "", "NICs used": "", "channels": "", "GPUDirect": ""}
        found = [
            [step, index, ", ".join(one.networks), one.nics or None, one.used, one.channels, one.direct]
            for step, pods in self.transports.items()
            for index, one in pods.items()
        ]
        return [table("transport", "What NCCL's logs say of the network", columns, found)] if found else []


def unknown_on(indices: Collection[int]) -> list[str]:
    """A sentence on pods whose logs are silent, if there are any."""
    return [f"the network is not known on {pods_text(indices)}: no log of NCCL there names it"] if indices else []


class NetworkVerdict(NamedTuple):
    """What follows from NCCL's logs for a run of one program."""

    network: NcclNetwork
    wrong: Sequence[str]
    """A sentence for each network that the profile does not mean."""
    unknown: Sequence[str]
    """A sentence on the pods of which no log names it."""
    must: bool
    """Does a wrong network fail the run?"""

    def end(self, end: JobEnd) -> JobEnd:
        """A wrong network fails a run that went well otherwise."""
        if end.code or not (self.must and self.wrong):
            return end
        return JobEnd(Exit.WRONG_RESULT, WRONG, why="\n".join(at_most(self.wrong)), origin="workload")

    def measurements(self, measurements: Measurements) -> Measurements:
        """With what is known of the network."""
        if not self.network.transports and not self.unknown:
            return measurements  # nothing used NCCL, or nobody asked for its logs
        reasons, warnings = (self.wrong, self.unknown) if self.must else ((), [*self.wrong, *self.unknown])
        return measurements._replace(
            reasons=[*measurements.reasons, *reasons],
            warnings=[*measurements.warnings, *warnings],
            tables=[*measurements.tables, *self.network.tables()],
            versions={**measurements.versions, **self.network.versions},
            record={**measurements.record, "network": str(self.network), "warnings": list(self.network.warnings)},
        )

    def lines(self) -> list[str]:
        """What people should know of it: nothing where all is as it should be."""
        return [*at_most(self.wrong), *self.unknown, *(f"NCCL on {line}" for line in self.network.warnings)]

    def text(self) -> str:
        """The same, each on a line of its own."""
        return "".join(f"{line}\n" for line in self.lines())


def seen_network(
    context: RunContext, outcome: Outcome, logged: Mapping[int, Logged], *, step: str, used: bool, must: bool
) -> NetworkVerdict:
    """`logged`: completion index → what that pod found in its logs. `used`: every pod certainly used NCCL; else those
    without any log did not. `must`: a wrong network fails the run."""
    network = NcclNetwork.of(logged)
    if not is_judged(context):
        return NetworkVerdict(network, (), (), must)
    pods = [index for index in context.indices if index not in outcome.lost]
    if not used:
        some = bool(network.transports)
        pods = [index for index in pods if some and (index not in logged or step in logged[index].transport)]
    silent = network.silent([step], pods)
    return NetworkVerdict(network, network.wrong(context.profile), unknown_on(silent), must)


def users_network(context: RunContext, outcome: Outcome, logged: Mapping[int, Logged]) -> NetworkVerdict:
    """What follows for a program of the user's, whose pods noted `logged`."""
    must = context.environ.get(SETTING, "").lower() == FAIL
    return seen_network(context, outcome, logged, step=context.spec.workload, used=False, must=must)


def logs_of(outcome: Outcome) -> dict[int, Logged]:
    """What the pods noted of their logs, and of nothing else."""
    return {index: wire.from_json(Logged, found) for index, found in outcome.notes.items()}
