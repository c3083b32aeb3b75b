"""Messages of the control channel: one JSON object per line (docs/maintainers/control-channel.md)."""

# Annotations are not postponed here: a NamedTuple compiles each that is a text, at every start.

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from agent import wire
from agent.cutting import first_of
from agent.decide.ending import JobEnd
from agent.decide.facts import Facts, Finding
from agent.decide.part_end import PartEnd
from agent.decide.pod_state import Loss, RunSummary
from agent.decide.runspec import RunSpec
from agent.decide.series import PodSeries
from agent.errors import AgentError

CHANNEL_VERSION = 8
Message = dict[str, Any]
"""A line as JSON: the fields of one of the classes below, `type`, and what a Link adds."""


class Hello(NamedTuple):
    """First on every new connection, from both sides."""

    v: int
    """Version of the channel."""
    nonce: str
    version: str = ""
    """Version of a4-agent."""
    epoch: str | None = None
    """From the coordinator."""
    index: int | None = None  # type: ignore[assignment]  # nobody needs that of tuple
    """From the coordinator: the pod for which it takes the worker."""
    knows: str | None = None
    """From the coordinator: the nonce of the worker that `seen` counts for."""


class Beat(NamedTuple):
    """I live."""

    quiet: float | None = None
    """From a worker: seconds since its part of a run last printed something."""
    clock: float | None = None
    """What time it is here, in seconds since 1970. A worker answers one that says it, at once, with a beat."""
    echo: float | None = None
    """In that answer: the `clock` that is answered."""
    number: int | None = None
    """From a worker that has a part of a run with lives: how many beats it has numbered, with this one. The coordinator
    acknowledges it at once, with a beat."""
    heard: int | None = None
    """In that acknowledgement: the `number` that was received."""


class Ask(NamedTuple):
    """A question of a command, passed on."""

    id: int
    op: str
    fields: Mapping[str, Any] = {}


class Answer(NamedTuple):
    """The answer to the question of that number."""

    id: int
    answer: Mapping[str, Any]


class TellPlan(NamedTuple):
    """The order of all pods."""

    plan: str
    """See agent.decide.plan.to_wire."""


class Prepare(NamedTuple):
    """Make everything ready for your part of this run, and start nothing."""

    run: str
    spec: RunSpec
    pods: tuple[int, ...]
    """Who takes part, in rank order."""


class Go(NamedTuple):
    """Begin your part: whoever has to be ready is."""

    run: str


class Stop(NamedTuple):
    """End your part."""

    run: str
    hurry: bool = False
    """At once."""
    told: bool = False
    """From outside: with the grace time. In an MPI run another one follows, when its ranks are over on all pods."""
    ranks_over: bool = False
    """To the lead of an MPI run: every rank has ended on all pods. An mpirun that hangs all the same is ended."""


class AskEvidence(NamedTuple):
    """Say what the processes of this run do."""

    run: str
    seconds: float = 9.0
    """How long the look may take."""


class AskAlive(NamedTuple):
    """A process of this run has failed. Answer at once: a pod that does not may be why."""

    run: str


class AskReadings(NamedTuple):
    """Look at yourself as doctor does: this run is to begin."""

    run: str
    seconds: float
    """How long that may take."""


class TellRun(NamedTuple):
    """A run that has the cluster for itself has begun or, with `until`, ended."""

    run: RunSummary


class Cluster(NamedTuple):
    """Which pods have gone since this was last said, or which are missing while the cluster forms."""

    lost: Mapping[int, Loss] | None = None
    missing: Mapping[int, str] | None = None
    """The first of them: many may be missing, and this is said again and again."""
    found: int | None = None
    """A pod that was lost and is there again, or another in its place."""


class TellResult(NamedTuple):
    """The job's one result."""

    end: JobEnd
    run: str = ""
    stay: bool = False
    """Sleep; else leave now."""


class End(NamedTuple):
    """Leave now, after a `result` with `stay`."""

    told: JobEnd | None = None
    """Why, if the cluster was not released: a signal, or what is broken in pod 0."""


class Retire(NamedTuple):
    """End, so that another pod comes in your place."""

    why: str


class TellFacts(NamedTuple):
    """Place, addresses, GPUs."""

    facts: Facts
    secrets: tuple[str, ...] = ()
    """What the coordinator is to mask in this pod's texts, which come as they are: it judges before it masks."""


class Planned(NamedTuple):
    """The plan and the hostfiles are written."""


class Inventory(NamedTuple):
    """Versions and the like, and when this pod reached each phase of its start-up."""

    inventory: Mapping[str, str]
    phases: Mapping[str, float] = {}
    secrets: tuple[str, ...] = ()
    """As in TellFacts, with those that vendors' scripts have set since."""


class Prepared(NamedTuple):
    """My part can begin. One that cannot is `Done`."""

    run: str


class Done(NamedTuple):
    """My part is over and nothing of it is left."""

    run: str
    end: PartEnd


class RanksOver(NamedTuple):
    """The ranks here are over, or were told to end and had their time."""

    run: str


class Evidence(NamedTuple):
    """What my processes do, in a few lines."""

    run: str
    summary: str
    records: Mapping[str, Any] = {}
    """A PodRecords of agent.clinic.why.records, 32 KiB at most; empty: this pod has no part that goes on."""


class TellReadings(NamedTuple):
    """What doctor has read here; empty: it could not."""

    run: str
    readings: Mapping[str, Any]


class TellSeries(NamedTuple):
    """What my part has written into A4_SERIES_FILE so far."""

    run: str
    series: PodSeries


class TellHealth(NamedTuple):
    """What changed in my devices during my part."""

    run: str
    findings: tuple[Finding, ...]


class Alive(NamedTuple):
    """The answer to AskAlive."""

    run: str


class Stopping(NamedTuple):
    """I end by myself."""

    end: JobEnd


class Bye(NamedTuple):
    """I have the result."""


Said = (
    Hello | Beat | Ask | Answer | TellPlan | Prepare | Go | Stop | AskEvidence | AskAlive | TellRun | Cluster
    | TellResult | End | TellFacts | Planned | Inventory | Prepared | Done | RanksOver | Evidence | Alive | Stopping
    | Bye | Retire | TellSeries | AskReadings | TellReadings | TellHealth
)  # fmt: skip
SaidOfPart = Prepared | RanksOver | Evidence | Alive | TellSeries | TellReadings | TellHealth | Done
"""What a pod says of its part of a run."""
# A type is the name of its class in snake case, without a leading Tell, and no type has two classes. Tell stands before
# the name of what a message carries where something else is called that already: TellFacts carries Facts.
COORDINATOR_SAYS: Mapping[str, type[Any]] = {
    "hello": Hello, "plan": TellPlan, "prepare": Prepare, "go": Go, "stop": Stop,
    "ask_evidence": AskEvidence, "ask_alive": AskAlive, "ask_readings": AskReadings, "run": TellRun, "cluster": Cluster,
    "ask": Ask, "answer": Answer, "result": TellResult, "end": End, "retire": Retire, "beat": Beat,
}  # fmt: skip
WORKER_SAYS: Mapping[str, type[Any]] = {
    "hello": Hello, "facts": TellFacts, "planned": Planned, "inventory": Inventory, "prepared": Prepared, "done": Done,
    "ranks_over": RanksOver, "evidence": Evidence, "alive": Alive, "ask": Ask, "answer": Answer,
    "series": TellSeries, "readings": TellReadings, "health": TellHealth, "stopping": Stopping, "bye": Bye,
    "beat": Beat,
}  # fmt: skip
_TYPES = {kind: name for names in (COORDINATOR_SAYS, WORKER_SAYS) for name, kind in names.items()}


def message(said: Said) -> Message:
    """What is said, as JSON."""
    fields = {name: one for name, one in wire.to_json(said).items() if one is not None}
    return {"type": _TYPES[type(said)], **fields}


def heard(message: Message, kinds: Mapping[str, type[Any]]) -> Said | None:
    """What a message says; None for a type that is not known. Raises ValueError for fields that are not as they
    should be."""
    kind = kinds.get(message["type"])
    said: Said | None = None if kind is None else wire.from_json(kind, message)
    return said


def encode(message: Message) -> bytes:
    """One line, newline included."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The message in one line. Raises ValueError."""
    message = wire.json_object(line)
    if not isinstance(message.get("type"), str):
        raise ValueError(repr(line[:80]))
    return message


# A line that is too long would break the connection, be sent again after the next reconnection, and break that one too.

MOST_BYTES = (4 << 20) - 64
"""A line has 4 MiB at most, with what is added when it is sent."""
SHORTENED = ("answer", "cluster", "done", "evidence", "inventory", "result", "run", "stopping")
"""Messages whose long texts are for people: the beginning of each will do."""
SHORTEST = 16


def line_of(message: Message, most: int = MOST_BYTES) -> bytes:
    """The message as a line of at most `most` bytes, its longest texts cut if need be. Raises AgentError for one that
    must arrive whole, and whose sender should have refused it."""
    line = encode(message)
    if len(line) <= most:
        return line
    if message["type"] not in SHORTENED or len(encode(_shortened(message, SHORTEST))) > most:
        what = f"a message {message['type']!r} of {len(line)} bytes cannot be sent: the limit is {most}"
        raise AgentError(what, "please report this: what it is made of should have been refused before")
    limit = most // 2
    while len(line := encode(_shortened(message, limit))) > most:
        limit = max(SHORTEST, limit // 2)
    return line


def brief(said: Said) -> Said | None:
    """The same without what is only good to know, for a message that is too long; None: it must arrive whole."""
    match said:
        case TellReadings(run):
            return TellReadings(run, {})
        case TellHealth(run):
            return TellHealth(run, ())
        case Evidence(run, summary):
            return Evidence(run, summary)
        case TellSeries(run):
            return TellSeries(run, PodSeries())
    return None


def _shortened(value: Any, most: int) -> Any:
    """JSON with no text of more than so many bytes."""
    if isinstance(value, str):
        return first_of(value, most, "…")
    if isinstance(value, dict):
        return {name: _shortened(one, most) for name, one in value.items()}
    return [_shortened(one, most) for one in value] if isinstance(value, list) else value
