"""Serves to Prometheus what the agent of this pod has written of itself (A4_METRICS_PORT):
python -Es -m agent.exporter PORT RUN_DIR JOB_NAME POD_NAME NODE_NAME.

A process of its own, of the lowest priority: whatever a scraper does, the agent and the ranks do not notice. It reads a
few files of the run directory for each scrape, and asks nobody. It ends when nobody reads its stdout any more: then the
agent is gone.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import BoundedSemaphore, Thread, Timer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import MetricsHandler
from prometheus_client.registry import Collector

from agent.decide.metrics import METRICS, OF_ALL, Written, label, last_measured, last_over, samples
from agent.decide.pod_state import PodState, RunSummary
from agent.environment import load, stored
from agent.errors import AgentError
from agent.machine.inventory import port_holder
from agent.paths import RESULT, RunDir
from agent.wire import from_json

AGAIN_SECONDS = 30.0
"""Between two tries to take a port that another process has."""
MOST_SCRAPES = 8
"""At the same time; further ones are closed at once."""
MOST_RESULT = 64 << 20
"""Bytes of a result.json that is read: its memory counts as the pod's."""
SCRAPE_SECONDS = 10.0
"""A scraper that has not read its answer by then is cut off."""


class PodCollector(Collector):
    """Reads what the agent has written, anew for each scrape."""

    def __init__(self, run_dir: str, of_all: tuple[str, ...]) -> None:
        self._dir = RunDir(run_dir)
        self._of_all = [label(text) for text in of_all]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        families = {
            each.name: GaugeMetricFamily(each.name, each.help, labels=[*OF_ALL, *each.labels]) for each in METRICS
        }
        with suppress(ValueError, KeyError, TypeError):  # a result of another release: what is known before it is told
            for name, labels, value in samples(self._written()):
                families[name].add_metric([*self._of_all, *map(label, labels)], value)
        return (family for family in families.values() if family.samples)

    def _written(self) -> Written:
        alive = state = None
        with suppress(OSError):
            alive = os.stat(self._dir.alive).st_mtime
        with suppress(OSError, AgentError):
            state = stored(self._dir.state, partial(from_json, PodState))
        if state is None or state.index != 0:
            return Written(state, alive)
        return Written(state, alive, self._result(last_over(state)), self._result(last_measured(state)))

    def _result(self, run: RunSummary | None) -> Mapping[str, Any]:
        if run is None:
            return {}
        path = f"{self._dir.run(run.id)}/{RESULT}"
        try:
            found = os.stat(path)
            return _result_of(path, found.st_mtime_ns) if found.st_size <= MOST_RESULT else {}
        except (OSError, AgentError):  # it makes room for newer ones
            return {}


# Two: of the last run, and of the last that has measured something.
@lru_cache(maxsize=2)
def _result_of(path: str, when: int) -> Mapping[str, Any]:
    """What is told of a result: the rest may have many MB."""
    result = load(path) or {}
    return {name: result.get(name, ()) for name in ("findings", "sweeps")}


class Server(ThreadingTCPServer):
    """Answers on all addresses of the pod, as Prometheus takes that which Kubernetes knows."""

    # Scrapes of the exporter that died may still be in TIME_WAIT.
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, handler: type[BaseRequestHandler]) -> None:
        self._places = BoundedSemaphore(MOST_SCRAPES)
        super().__init__(("", port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no more threads
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        limit = Timer(SCRAPE_SECONDS, _cut_off, [request])
        limit.daemon = True
        try:
            limit.start()
            super().process_request_thread(request, client_address)
        finally:
            limit.cancel()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scraper that goes away, or does not speak HTTP, is none of our business."""


def _cut_off(request: socket.socket) -> None:
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def served(port: int, handler: type[BaseRequestHandler]) -> Server | None:
    """The server, once the port can be had; None when the agent is gone before."""
    told = False
    while True:
        try:
            return Server(port, handler)
        except OSError as error:
            if not told:
                holder = port_holder("0.0.0.0", port)
                why = f"is taken by {holder}" if holder else f"cannot be had ({error.strerror})"
                what = "set another A4_METRICS_PORT (metrics.port of the chart) for one of the jobs on this node"
                print(
                    f"no metrics of this pod: port {port} {why}; {what}. It is tried again", file=sys.stderr, flush=True
                )
                told = True
        if agent_is_gone(AGAIN_SECONDS):
            return None


def agent_is_gone(seconds: float | None = None) -> bool:
    """Wait for that for so long; None: for ever."""
    poller = select.poll()
    poller.register(1, 0)  # that nobody reads it is always told
    return bool(poller.poll(None if seconds is None else seconds * 1000))


def yield_to_the_job() -> None:
    """The job is served first, and ended last when memory runs out."""
    with suppress(OSError):
        os.nice(19)
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")


def main(argv: list[str]) -> None:
    port, run_dir, *of_all = argv
    yield_to_the_job()
    registry = CollectorRegistry()
    registry.register(PodCollector(run_dir, tuple(of_all)))
    server = served(int(port), MetricsHandler.factory(registry))
    if server is not None:
        print(f"metrics of this pod are served on port {port}", flush=True)
        Thread(target=server.serve_forever, daemon=True).start()
        agent_is_gone()


if __name__ == "__main__":
    main(sys.argv[1:])
