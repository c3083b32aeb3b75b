"""What a coordinator takes for 1,024 peers, beside a bare loop of 64 threads that logs into each: bench/peers.py.

The coordinator is a real `a4-agent run`. Each peer is a real sshd with its derived host key on an address of its own
in 127/8, and behind it a stand-in that speaks the control channel (bench/stand_in.py): no agent is there, so that one
machine can hold a thousand. All of it is in namespaces of its own and gone with them. Prints a table and, with --json,
the same as JSON. Needs root, sshd, dnsmasq and about 4 GiB of memory.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from agent.client import Client
from agent.connection import Connection
from agent.decide.keys import JobKeys
from agent.decide.messages import CHANNEL_VERSION
from agent.decide.plan import peer_name
from agent.decide.runspec import RunSpec
from agent.lifecycle.pod.ssh_files import authorized_keys, sshd_config
from agent.machine.api import Problem, Target
from agent.machine.ssh import handshake
from agent.paths import RunDir, agent_command, shipped
from agent.workbench.local.host_survey import find_program
from agent.workbench.local.netlink import Netlink
from bench import figures

PREFIX, DOMAIN, PORT, EPOCH = "bench-workload-", "bench.default.svc.cluster.local", 2222, "bench"
OWN_ADDRESS = "198.18.0.1"
RUN_DIR = "/run/a4-agent"
PEERS = "/run/a4-peers"
SECRET = b"0123456789abcdef0123456789abcdef"
THREADS = 64
START_SECONDS, FORM_SECONDS, LOSS_SECONDS = 120.0, 300.0, 120.0
VARIABLE = "x" * 100_000
ASK_SECONDS = 0.02


def main() -> int:
    args = parse_args()
    if args.inside:
        os.write(3, json.dumps(measure(args.peers, args.lost)).encode())
        return 0
    result = {**figures.machine(), "bare_python": figures.bare()._asdict(), **in_namespaces(args)}
    print(json.dumps(result, indent=1) if args.json else as_text(result))
    return 0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peers", type=int, default=1024)
    parser.add_argument("--lost", type=int, default=256, help="how many of them are killed at once")
    parser.add_argument("--json", action="store_true", help="JSON instead of the table")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def in_namespaces(args: argparse.Namespace) -> dict[str, Any]:
    """Run this program again where its addresses, mounts and processes are its own; what it found."""
    own = ["unshare", "--net", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
    told = ["--inside", "--peers", str(args.peers), "--lost", str(args.lost)]
    source, target = os.pipe()
    script = 'exec 3>&"$0"; exec "$@"'
    argv = [*own, "bash", "-c", script, str(target), sys.executable, "-m", "bench.peers", *told]
    with subprocess.Popen(argv, pass_fds=[target], stdin=subprocess.DEVNULL) as process:
        os.close(target)
        with open(source, encoding="ascii") as found:
            text = found.read()
    if process.returncode or not text:
        sys.exit(f"the measurement ended with {process.returncode}")
    result: dict[str, Any] = json.loads(text)
    return result


# Inside


def measure(peers: int, lost: int) -> dict[str, Any]:
    addresses = [f"127.1.{index >> 8}.{index & 255}" for index in range(1, peers + 1)]
    prepare(addresses)
    keys = JobKeys(SECRET, EPOCH)
    with name_server(), stand_ins(addresses):
        began = time.monotonic()
        daemons = start_daemons(addresses)
        result: dict[str, Any] = {"peers": peers, "sshds_start": round(time.monotonic() - began, 2)}
        result["bare_loop"] = round(bare_loop(addresses, keys), 2)
        result.update(coordinator(peers, daemons[:lost]))
    return result


def prepare(addresses: list[str]) -> None:
    """The network, /run and the peers' directories."""
    netlink = Netlink()
    netlink.set_link(socket.if_nametoindex("lo"), True)
    netlink.add_bridge("pods0", bytes([2, 0, 0, 0, 0, 1]))
    link = socket.if_nametoindex("pods0")
    netlink.add_address(link, OWN_ADDRESS, 15)
    netlink.set_link(link, True)
    run("mount", "--make-rprivate", "/")
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    for directory in (RUN_DIR, PEERS, "/run/sshd"):
        os.makedirs(directory, 0o755)
    for directory in ("/etc", "/root", "/tmp"):  # the agent writes there, as in the pod that it takes this for
        upper, work = f"/run/own{directory}", f"/run/work{directory}"
        os.makedirs(upper)
        os.makedirs(work)
        options = f"lowerdir={directory},upperdir={upper},workdir={work}"
        run("mount", "-t", "overlay", "overlay", "-o", options, directory)
    Path("/etc/resolv.conf").unlink(missing_ok=True)
    Path("/etc/resolv.conf").write_text("nameserver 127.0.0.1\n")
    Path("/root/.bashrc").unlink(missing_ok=True)  # bash reads it in each session of sshd, and it may do anything
    names = [peer_name(PREFIX, index, DOMAIN) for index in range(len(addresses) + 1)]
    hosts = (f"{address} {name}\n" for address, name in zip([OWN_ADDRESS, *addresses], names, strict=True))
    Path("/run/hosts").write_text("".join(hosts))
    Path("/run/secret").write_bytes(SECRET)
    os.chmod("/run/secret", 0o600)


def run(*argv: str) -> None:
    subprocess.run(argv, check=True)


@contextlib.contextmanager
def name_server() -> Iterator[None]:
    argv = [
        find_program("dnsmasq"),
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--log-facility=/dev/null",
        "--pid-file=",
    ]
    argv += ["--user=root", "--group=root", "--no-resolv", "--no-hosts", "--addn-hosts=/run/hosts", "--local=/#/"]
    argv += ["--listen-address=127.0.0.1", "--bind-interfaces", "--cache-size=10000"]
    with subprocess.Popen(argv) as process:
        yield
        process.terminate()


@contextlib.contextmanager
def stand_ins(addresses: list[str]) -> Iterator[None]:
    for index in range(1, len(addresses) + 1):
        os.makedirs(f"{PEERS}/{index}/channels", 0o700)
    argv = [sys.executable, "-m", "bench.stand_in", PEERS, *addresses]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            sys.exit("the stand-ins do not start")
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield
        process.terminate()


def start_daemons(addresses: list[str]) -> list[subprocess.Popen[bytes]]:
    """Every peer's sshd; returns when all accept connections."""
    keys = JobKeys(SECRET, EPOCH)
    sshd, channel = find_program("sshd"), shipped("entrypoints", "control-channel.sh")
    daemons = []
    for index, address in enumerate(addresses, start=1):
        directory = f"{PEERS}/{index}"
        text = sshd_config(port=PORT, addresses=[address], directory=directory, session_env={})
        Path(f"{directory}/sshd_config").write_text(f"{text}ForceCommand {channel} {directory}\n")
        Path(f"{directory}/authorized_keys").write_text(authorized_keys(keys.client_public(), ""))
        with open(os.open(f"{directory}/host_key", os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write(keys.host_private(index))
        argv = [sshd, "-D", "-e", "-f", f"{directory}/sshd_config"]
        daemons.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    deadline = time.monotonic() + START_SECONDS
    for address in addresses:
        while True:
            try:
                socket.create_connection((address, PORT), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    sys.exit(f"sshd at {address} does not start")
                time.sleep(0.01)
    return daemons


def bare_loop(addresses: list[str], keys: JobKeys) -> float:
    """Seconds in which 64 threads of paramiko log into each peer, start its command and read its first answer."""
    client_key = keys.client_private()
    hello = json.dumps({"type": "hello", "v": CHANNEL_VERSION, "nonce": "loop"}).encode() + b"\n"

    def log_in(index: int) -> None:
        target = Target(index, f"pod {index}", addresses[index - 1], PORT, keys.host_public(index), client_key, "true")
        connection = handshake(socket.create_connection((target.address, PORT), 30), target, 60.0)
        if isinstance(connection, Problem):
            sys.exit(connection.text)
        transport, channel = connection
        channel.settimeout(60.0)
        channel.sendall(hello)
        reader = channel.makefile("rb")
        if b"hello" not in reader.readline():
            sys.exit(f"peer {index} does not answer")
        transport.close()

    began = time.monotonic()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(log_in, range(1, len(addresses) + 1)))
    return time.monotonic() - began


def coordinator(peers: int, doomed: list[subprocess.Popen[bytes]]) -> dict[str, Any]:
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": "/root",
        "NNODES": str(peers + 1),
        "JOB_COMPLETION_INDEX": "0",
        "GPUS_PER_NODE": "8",
        "HOSTNAME_PREFIX": PREFIX,
        "DOMAIN_NAME": DOMAIN,
        "JOB_IDENTIFIER": "bench",
        "A4_EPOCH": EPOCH,
        "A4_SECRET_FILE": "/run/secret",
        "A4_SSH_PORT": str(PORT),
        "A4_INTERFACE": "pods0",
        "A4_LOCATION": "/block-0/sub-block-0/host-0",
        "A4_WORKLOAD": "none",
        "SLEEP_INFINITY": "true",
        "A4_RUN_DIR": RUN_DIR,
        "A4_RESULTS_DIR": "/run/results",
    }
    argv = agent_command(sys.executable, "run")
    log = open("/run/log", "w+", encoding="utf-8")  # noqa: SIM115
    with subprocess.Popen(argv, env=environ, stdout=log, stderr=log, cwd="/") as process:
        found = psutil.Process(process.pid)
        result: dict[str, Any] = {"formed": seconds_to("plan-ready", process, log)}
        while state()["phase"] != "sleeping":
            time.sleep(0.05)
        result["cpu_formed"] = round(sum(found.cpu_times()[:2]), 2)
        result["memory_formed_mib"] = found.memory_info().rss >> 20
        result["run"] = round(one_run({}), 2)
        result["run_100_kb"] = round(one_run({"BIG": VARIABLE}), 2)
        result.update(lose(doomed, found))
        began = time.monotonic()
        with Client(RUN_DIR) as client:
            client.release(force=True)
        process.wait(60)
        result["end"] = round(time.monotonic() - began, 2)
        return result


def seconds_to(event: str, process: subprocess.Popen[bytes], log: io.TextIOBase) -> float:
    """From the agent's start to an event of it."""
    deadline = time.monotonic() + FORM_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            lines = [json.loads(line) for line in Path(f"{RUN_DIR}/events.jsonl").read_text().splitlines()]
            at: dict[str, float] = {line["event"]: line["monotonic"] for line in reversed(lines)}
            if event in at:
                return round(at[event] - at["agent-started"], 2)
        time.sleep(0.05)
    log.seek(0)
    sys.exit(f"no {event}:\n{log.read()[-4000:]}")


def state() -> dict[str, Any]:
    """What the coordinator says of itself."""
    found: dict[str, Any] = json.loads(Path(f"{RUN_DIR}/state.json").read_text())
    return found


def one_run(environ: dict[str, str]) -> float:
    """Seconds that a command on every pod takes, as far as the coordinator makes them: no pod starts a process."""
    began = time.monotonic()
    with Client(RUN_DIR) as client:
        told = client.submit(RunSpec("exec", args=("true",), env=environ, by="bench"))
        ended = client.wait(told.id)
    if ended.end.code:
        sys.exit(f"a run failed: {ended.end}")
    return time.monotonic() - began


def lose(doomed: list[subprocess.Popen[bytes]], agent: psutil.Process) -> dict[str, Any]:
    """Kill peers with all their sessions, and ask the coordinator all the while how soon it answers."""
    daemons = [psutil.Process(daemon.pid) for daemon in doomed]
    sessions = [one for daemon in daemons for one in daemon.children(recursive=True)]
    cpu = sum(agent.cpu_times()[:2])
    slowest, asked = 0.0, Connection(RunDir(RUN_DIR).socket)
    began = time.monotonic()
    for one in [*daemons, *sessions]:  # a daemon that lives would take the coordinator's next call
        # Not by psutil, which compares times of starts and may find those of another process.
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)
    lost = 0
    while lost < len(doomed) and time.monotonic() < began + LOSS_SECONDS:
        at = time.monotonic()
        asked.answer(asked.send("find", {"run": "nobody"}), LOSS_SECONDS)
        slowest = max(slowest, time.monotonic() - at)
        lost = len(state().get("lost") or {})
        time.sleep(ASK_SECONDS)
    seconds = time.monotonic() - began
    return {
        "lost": lost,
        "lost_after": round(seconds, 2),
        "slowest_answer": round(slowest, 3),
        "cpu_lost": round(sum(agent.cpu_times()[:2]) - cpu, 2),
        "memory_lost_mib": agent.memory_info().rss >> 20,
    }


def as_text(result: dict[str, Any]) -> str:
    bare = {"s": result["bare_python"]["wall"], "s of CPU": result["bare_python"]["cpu"]}
    rows: list[tuple[str, str, str, float | None]] = [
        ("sshds_start", "s", "all sshds listen", None),
        ("bare_loop", "s", "64 threads of paramiko log in, start a command, read a line", None),
        ("formed", "s", "the coordinator has the plan, from its start", round(1.3 * result["bare_loop"], 2)),
        ("cpu_formed", "s of CPU", "the coordinator until then", None),
        ("memory_formed_mib", "MiB", "memory of the coordinator then", 64 if result["peers"] <= 64 else 128),
        ("run", "s", "a command on all peers, without its processes", None),
        ("run_100_kb", "s", "the same with 100 KB of variables", None),
        ("lost", "peers", "lost at once", None),
        ("lost_after", "s", "until all of them are known to be lost", None),
        ("slowest_answer", "s", "the longest that the coordinator took to answer meanwhile", 1),
        ("cpu_lost", "s of CPU", "the coordinator meanwhile", None),
        ("memory_lost_mib", "MiB", "memory of the coordinator then", result["memory_formed_mib"] + 64),
        ("end", "s", "the end of all", None),
    ]
    found = [figures.Figure(text, result[name], unit, bare.get(unit, 0), budget) for name, unit, text, budget in rows]
    where = f"{result['cores']} cores, Python {result['python']}, Linux {result['kernel']}"
    ratio = result["formed"] / result["bare_loop"]
    table = figures.table(found)
    return f"{result['peers']} peers on {where}\n{table}forming takes {ratio:.2f} times as long as the bare loop\n"


if __name__ == "__main__":
    sys.exit(main())
