"""NCCL's debug logs: the variables that ask for them, and what they say of the network that was really used."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.cutting import cut_at_word
from agent.decide.subset import pods_text
from agent.decide.words import at_most
from agent.fabrics import FABRICS

MOST_WARNINGS = 20

USING = re.compile(r"NCCL INFO Using network (.{1,100}?)\s*$", re.MULTILINE)
LISTED = re.compile(r"NCCL INFO NET/([^:\n]+?) ?: Using ((?:\[\d+\]\S+\s*)+)")
VIA = re.compile(r" via NET/([^/\n]+)/(\d+)(\S*)")
CHANNELS = re.compile(r"NCCL INFO (\d+) coll channels")
WARNING = re.compile(r"NCCL WARN (.+?)\s*$", re.MULTILINE)
VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)")


class Transport(NamedTuple):
    """How the ranks of one pod went through one test."""

    networks: tuple[str, ...] = ()
    """As NCCL calls them; more than one if ranks disagree. Empty: no log says it."""
    nics: int = 0
    """Devices that the network found; 0: not known."""
    used: int = 0
    """Devices that connections go through; 0: none goes over the network."""
    channels: int = 0
    direct: bool | None = None
    """Whether all connections go from GPU memory to the NIC; None: there are none."""


@dataclass(frozen=True)
class Logged:
    """What the logs on one pod say; travels to the coordinator."""

    transport: Mapping[str, Transport] = field(default_factory=dict)
    """How the ranks of this pod went, by step."""
    warnings: Sequence[str] = ()
    nccl: str = ""
    """Version of the library."""


def log_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables with which NCCL logs what is read here, but for NCCL_DEBUG_FILE, over those in `environ`."""
    # TRACE prints what INFO does, and more.
    given = {"NCCL_DEBUG": "TRACE" if environ.get("NCCL_DEBUG", "").upper() == "TRACE" else "INFO"}
    subsystems = environ.get("NCCL_DEBUG_SUBSYS", "")
    if subsystems and not {"INIT", "ALL"} & set(subsystems.upper().split(",")):
        # Which network is used is said in INIT alone.
        given["NCCL_DEBUG_SUBSYS"] = "INIT,ENV" if subsystems.startswith("^") else f"INIT,{subsystems}"
    return given


def read_logs(files: Mapping[str, str]) -> Logged:
    """What the logs among `files` (name → text) say; their names are <step>.<host>.<process>.log."""
    logs: dict[str, list[str]] = {}
    for name in sorted(files):
        if name.endswith(".log"):
            logs.setdefault(name.partition(".")[0], []).append(files[name])
    every = [text for texts in logs.values() for text in texts]
    transports = {step: transport(texts) for step, texts in logs.items()}
    return Logged(transports, tuple(warnings(every)), version(every))


def transport(texts: Iterable[str]) -> Transport:
    """The transport of one pod's ranks in one test, from the log of each."""
    networks: dict[str, None] = {}
    listed: dict[str, int] = {}
    devices: dict[tuple[str, str], None] = {}
    direct: set[bool] = set()
    channels = 0
    for text in texts:
        networks.update(dict.fromkeys(USING.findall(text)))
        for name, found in LISTED.findall(text):
            listed[name] = max(listed.get(name, 0), len(re.findall(r"\[\d+\]", found)))
        for name, device, how in VIA.findall(text):
            devices[name, device] = None
            direct.add("GDR" in how)
        channels = max([channels, *map(int, CHANNELS.findall(text))])
    # Before NCCL 2.6 only the connections name it.
    used = tuple(networks) or tuple(dict.fromkeys(name for name, _ in devices))
    nics = max((listed.get(name, 0) for name in used), default=0)
    return Transport(used, nics, len(devices), channels, all(direct) if direct else None)


def warnings(texts: Iterable[str]) -> list[str]:
    """What NCCL warned of, each once, with how often; at most MOST_WARNINGS and a line that says so."""
    counts = Counter(cut_at_word(line, 500) for text in texts for line in WARNING.findall(text))
    lines = [f"{line} ({count} times)" if count > 1 else line for line, count in counts.items()]
    return at_most(lines, MOST_WARNINGS, "… and {} others")


def version(texts: Iterable[str]) -> str:
    """The version of the NCCL library; empty when no log says it."""
    return next((found[1] for text in texts if (found := VERSION.search(text))), "")


def is_expected(profile: str, network: str) -> bool:
    fabric = FABRICS.get(profile)
    return fabric is None or network.lower().startswith(fabric.network.lower())


def wrong_networks(profile: str, of_pods: Mapping[int, Transport], test: str) -> list[str]:
    """A sentence for each network that the profile does not mean; `of_pods` by completion index."""
    odd: dict[str, list[int]] = {}
    for index, one in of_pods.items():
        for network in one.networks:
            if not is_expected(profile, network):
                odd.setdefault(network, []).append(index)
    return [
        f"profile {profile} expects NCCL's network {FABRICS[profile].network}, but {test} went over {network} on "
        f"{pods_text(pods)}"
        for network, pods in odd.items()
    ]


def described(found: Sequence[Transport]) -> str:
    """The transport of all pods in a few words; empty when no log says anything."""
    networks = list(dict.fromkeys(name for one in found for name in one.networks))
    if not networks:
        return ""
    parts = [f"{_span(one.used for one in found)} NICs used", f"{_span(one.channels for one in found)} channels"]
    nics = _span(one.nics for one in found)
    if nics != "0":
        parts.insert(0, f"{nics} NICs found")
    if any(one.direct for one in found):
        parts.append("GPUDirect" if all(one.direct for one in found) else "GPUDirect on some pods only")
    return f"{' and '.join(networks)} ({', '.join(parts)})"


def uneven(of_pods: Mapping[int, Transport]) -> list[str]:
    """A sentence when some pods have fewer NICs than others: one may be missing there."""
    most = max((one.nics for one in of_pods.values()), default=0)
    fewer = {index: one.nics for index, one in of_pods.items() if 0 < one.nics < most}
    return [f"pod {index} has {nics} NICs, others {most}" for index, nics in sorted(fewer.items())]


def _span(numbers: Iterable[int]) -> str:
    values = sorted(set(numbers))
    return str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"
