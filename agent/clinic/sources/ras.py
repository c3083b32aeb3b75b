"""NCCL's RAS, which listens in one process of each pod: text since NCCL 2.24, JSON since 2.28.7.

The JSON's shape and the text's words are those of NCCL's sources; answers seen: OK, INCOMPLETE and MISMATCH of 2.28.9.
RAS lists the ranks that are in a minority, which are often the innocent: here those with the fewest operations count.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from agent.clinic.sources.question import NoAnswer
from agent.clinic.sources.source import DUMP_SHARE, Job, Look, WhySource
from agent.clinic.why.deciding import Decision
from agent.clinic.why.ras_view import ALL, numbers
from agent.clinic.why.records import PodRecords, Ras, RasCommunicator, RasCount, RasRank, RasStatus
from agent.decide.diagnosis import SourceSaid, SourceState
from agent.decide.subset import grouped, ranges
from agent.wire import json_object

DEFAULT_ADDRESS = "localhost:28028"
MOST_ANSWER = 16 << 20
MOST_COMMUNICATORS = 64
MOST_ODD = 16
"""Ranks of a communicator that are kept, each with its process."""
_IN_PROGRESS = 7
"""ncclInProgress"""
_NO_COMMA = re.compile(r'("nvml_dev": -?\d+)(\s+"status")')
"""NCCL 2.28.7 to 2.28.9 leave the comma out in what they say of a missing rank."""
_COMMUNICATOR = re.compile(r"\s*#(\d+-\d+) \(([0-9a-f]+)\) (.*\S)\s*")
_DIFFERENT = re.compile(r"\s*Communicator ranks have different (\w+) operation counts\s*")
_COUNT = r"launched (?:up to operation (?P<count>\d+)|any operations)"
_COUNTED = re.compile(rf"\s*(?:Rank (?P<rank>\d+) has|\d+ ranks have) (?:not )?{_COUNT}(?: -- (?P<where>.*))?")
_RANK = re.compile(r"\s*Rank (\d+)\b.* -- GPU .*managed by process (\d+) on node (\S+)\s*")
_PROCESS = re.compile(r"\s*Process (\d+) on node (\S+) managing GPUs? .*")
_MISSING = re.compile(r"\s*The missing ranks?: (.*\S)\s*")


class RasSource(WhySource):
    name = "ras"

    def __init__(self, look: Look) -> None:
        super().__init__(look)
        self._answer: Ras | None = None

    def jobs(self) -> Iterator[Job]:
        """One answer is about all processes of the job."""
        if self.look.ranks and self.look.question.prepared:
            yield partial(self._ask, min(one.ras or DEFAULT_ADDRESS for one in self.look.ranks))

    def _ask(self, address: str) -> None:
        """Twice: with a stopped process the first question gets no answer, and one answer says not what moves."""
        look = self.look
        found: list[Ras] = []
        why = ""
        for _ in range(2):
            try:
                text = ask_ras(address, look.at_most(DUMP_SHARE))
            except NoAnswer as error:
                why = why or str(error)
                # Nobody listens there, and asking again would not change that.
                if "refused" in why:
                    break
                continue
            look.keep("ras.txt", text.encode())
            read = read_ras(text, look.question.pod.hosts)
            if isinstance(read, str):
                why = why or read
            else:
                found.append(read)
                look.wait_between_looks()
        if found:
            self._answer = since(found[-1], found[0])._replace(is_of_run=address == look.question.ras)
        else:
            self.says("unavailable", f"nobody answers at {address}: {why}")

    def add_to(self, pod: PodRecords) -> PodRecords:
        return pod._replace(ras=self._answer)

    @classmethod
    def tell(cls, decision: Decision) -> list[SourceSaid]:
        ras = decision.ras
        if ras is None:
            return cls.unavailable(decision)
        state: SourceState = "found"
        text = ras.text
        if ras.is_ours is None:
            text = f"{text}; it names no process, so another job on the node may be meant"
        elif not ras.is_ours:
            state, text = "unavailable", "it answered for another job on the node: its processes are not ours"
        elif ras.behind and decision.blamed and not ras.behind & decision.blamed:
            named = ", ".join(decision.members[key].name for key in sorted(ras.behind))
            state, text = "contradicts", f"{text}; so {named} would be behind, which the others do not confirm"
        return [SourceSaid(cls.name, state, text)]


def parse_address(text: str) -> tuple[str, int]:
    """NCCL_RAS_ADDR as host and port. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not re.fullmatch(r"[0-9]{1,5}", port):
        raise ValueError(f"{text!r} has no port")
    return (host.strip("[]") or "localhost"), int(port)


def ask_ras(address: str, seconds: float) -> str:
    """The answer to STATUS, as JSON where this NCCL has it, else as text; `seconds` may pass without a byte of it. NCCL
    closes the connection after it. Raises NoAnswer."""
    # NCCL's limit is shorter than ours, so that it still tells of the ranks that answer.
    asked = b"CLIENT PROTOCOL 2\nTIMEOUT %d\nSET FORMAT json\nVERBOSE STATUS\n" % max(1, int(seconds) - 1)
    try:
        with socket.create_connection(parse_address(address), timeout=seconds) as peer, peer.makefile("rb") as answer:
            peer.sendall(asked)
            data = answer.read(MOST_ANSWER + 1)
    except TimeoutError:
        raise NoAnswer(f"no answer within {seconds:g} s") from None
    except (OSError, ValueError) as error:
        raise NoAnswer(getattr(error, "strerror", None) or str(error)) from None
    if len(data) > MOST_ANSWER:
        raise NoAnswer(f"more than {MOST_ANSWER} bytes")
    return data.decode(errors="replace")


def read_ras(text: str, hosts: Collection[str] = ()) -> Ras | str:
    """The answer to STATUS, whichever format it has, or why it is none; "OK" lines that answer other commands may stand
    before it. `hosts`: addresses of the pod that asked."""
    if not text.strip():
        return "RAS accepted the question and answered nothing"
    start = text.find("{")
    if start >= 0 and (data := json_object(_NO_COMMA.sub(r"\1,\2", text[start:]))):
        return _from_json(data, hosts)
    if "Communicators..." in text or "NCCL version" in text:
        return _from_text(text)
    return f"RAS answered something else: {' '.join(text.split())[:80]!r}"


def since(ras: Ras, before: Ras) -> Ras:
    """The answer, and whether its counts have grown since an earlier one."""
    old = _launched(before)
    return ras._replace(moves=any(count > old.get(key, count) for key, count in _launched(ras).items()))


def _launched(ras: Ras) -> dict[tuple[str, str, int], int]:
    """(communicator, operation, rank) → how many."""
    return {
        (one.name, count.operation, rank): count.count
        for one in ras.communicators
        for count in one.counts
        for rank in numbers(count.ranks)
    }


def _from_json(data: Mapping[str, Any], hosts: Collection[str]) -> Ras:
    found = _records(data.get("communicators"))
    communicators = tuple(_communicator(one) for one in found)
    here = (_rank(one) for each in found for one in _records(each.get("ranks")) if one.get("host") in hosts)
    worst = sorted(communicators, key=lambda one: one.status == "OK")[:MOST_COMMUNICATORS]
    status = ",".join(dict.fromkeys(one.status for one in worst if one.status != "OK")) or "OK"
    return Ras(status, tuple(worst), here=tuple(islice({one.pid: one for one in here}.values(), MOST_ODD)))


def _records(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value or () if isinstance(one, Mapping)]


def _communicator(data: Mapping[str, Any]) -> RasCommunicator:
    ranks = _records(data.get("ranks"))
    missing = [_rank(one) for one in _records(data.get("missing_ranks"))]
    counts = {_int(one.get("rank")): _counts(one) for one in ranks}
    totals = {rank: sum(of_rank.values()) for rank, of_rank in counts.items()}
    differ = len({tuple(sorted(of_rank.items())) for of_rank in counts.values()}) > 1
    least = min(totals.values(), default=0)
    behind = {rank for rank, total in totals.items() if differ and total == least}
    known = [_rank(one) for one in ranks]
    odd = [one for one in known if one.rank in behind or one.status != "running"]
    words = ["INCOMPLETE"] * bool(missing) + ["MISMATCH"] * differ
    return RasCommunicator(
        name=str(data.get("hash", "")),
        size=_int(data.get("size")),
        counts=_grouped(counts),
        odd=tuple(odd[:MOST_ODD]),
        missing=tuple(missing[:MOST_ODD]),
        status=",".join(words) or "OK",
    )


def _counts(rank: Mapping[str, Any]) -> dict[str, int]:
    counts = rank.get("collective_counts")
    return {str(name): _int(one) for name, one in counts.items()} if isinstance(counts, Mapping) else {}


def _grouped(counts: Mapping[int, Mapping[str, int]]) -> tuple[RasCount, ...]:
    """Which ranks launched how many of each operation, and of all operations together."""
    with_all = {rank: {ALL: sum(one.values()), **one} for rank, one in counts.items()}
    operations = [ALL, *dict.fromkeys(name for one in counts.values() for name, count in one.items() if count)]
    found: list[RasCount] = []
    for operation in operations:
        of_rank = {rank: one.get(operation, 0) for rank, one in with_all.items()}
        found += [RasCount(operation, count, ranges(ranks)) for count, ranks in sorted(grouped(of_rank).items())]
    return tuple(found)


def _rank(data: Mapping[str, Any]) -> RasRank:
    status = data.get("status")
    return RasRank(
        rank=_int(data.get("rank")),
        pid=_int(data.get("pid")),
        host=str(data.get("host", "")),
        status=_status(status if isinstance(status, Mapping) else {}),
    )


def _status(status: Mapping[str, Any]) -> RasStatus:
    if "unresponsive" in status:
        return "dead" if status.get("considered_dead") else "unresponsive" if status["unresponsive"] else "no_comm"
    if status.get("abort_flag"):
        return "abort"
    if status.get("finalize_called") or status.get("destroy_flag"):
        return "finalize"
    return "init" if status.get("init_state") == _IN_PROGRESS else "running"


def _from_text(text: str) -> Ras:
    lines = text.splitlines()
    blocks: dict[str, tuple[str, str, list[str]]] = {}
    current, heading = "", ""
    gone: list[RasRank] = []
    for line in lines:
        if found := _COMMUNICATOR.fullmatch(line):
            current = found[1]
            known = blocks.get(current, ("", "", []))
            blocks[current] = (found[2], ",".join(filter(None, [known[1], found[3]])), known[2])
        elif re.fullmatch(r"[A-Z]{4,}", line.strip()) and not line.startswith("   "):
            current, heading = "", line.strip()
        elif (found := _PROCESS.fullmatch(line)) and heading:
            gone.append(RasRank(-1, int(found[1]), found[2], "dead" if heading == "DEAD" else "unresponsive"))
        elif current:
            blocks[current][2].append(line)
    # Columns: group, comms, nodes, ranks per node, ranks per comm, ranks in group, status, errors.
    size = max((int(one) for one in re.findall(r"(?m)^ +\d+ +\d+ +\d+ +[\d-]+ +(\d+) +\d+ +[A-Z]", text)), default=0)
    communicators = tuple(_block(name, status, size, body) for name, status, body in blocks.values())
    table = re.findall(r"(?m)^ +\d+ +\d+ +\d+ +[\d-]+ +[\d-]+ +[\d-]+ +\S+ +([A-Z,]+) *$", text)
    status_words = [word for one in table for word in one.split(",") if word != "OK"]
    worst = ",".join(dict.fromkeys([*status_words, *(["INCOMPLETE"] if gone else [])])) or "OK"
    missing = (RasCommunicator("", 0, missing=tuple(gone), status="INCOMPLETE"),) if gone else ()
    return Ras(worst, (*communicators, *missing))


def _block(name: str, status: str, size: int, lines: Sequence[str]) -> RasCommunicator:
    counts: list[RasCount] = []
    odd: list[RasRank] = []
    missing: list[RasRank] = []
    listed: dict[int, list[int]] = {}
    operation = ALL
    for line in lines:
        if found := _DIFFERENT.fullmatch(line):
            operation = ALL if found[1] == "collective" else found[1]
        elif found := _COUNTED.fullmatch(line):
            counts.append(RasCount(operation, int(found["count"] or 0), found["rank"] or ""))
        elif found := _MISSING.fullmatch(line):
            missing += [RasRank(rank, -1, "", "unresponsive") for rank in numbers(found[1])]
        if found := _RANK.fullmatch(line):
            odd.append(RasRank(int(found[1]), int(found[2]), found[3], "running"))
            if counts and not counts[-1].ranks:
                listed.setdefault(len(counts) - 1, []).append(int(found[1]))
    named = [one._replace(ranks=one.ranks or ranges(listed.get(at, []))) for at, one in enumerate(counts)]
    return RasCommunicator(f"0x{name}", size, _filled(named, size), tuple(odd[:MOST_ODD]), tuple(missing), status)


def _filled(counts: Sequence[RasCount], size: int) -> tuple[RasCount, ...]:
    """The text lists no ranks of a majority: they are all others, if only one count has none listed."""
    filled = []
    for count in counts:
        same = [one for one in counts if one.operation == count.operation]
        known = {rank for one in same for rank in numbers(one.ranks)}
        alone = sum(not one.ranks for one in same) == 1
        others = ranges(set(range(size)) - known) if alone and not count.ranks else count.ranks
        filled.append(count._replace(ranks=others))
    return tuple(filled)


def _int(value: Any) -> int:
    return value if isinstance(value, int) else -1
