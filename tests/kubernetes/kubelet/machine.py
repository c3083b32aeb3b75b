"""What all pods of the test bed's nodes share: the API server, the runtime, images, and where a node's things lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes.kubelet.api import Api
from tests.kubernetes.kubelet.fields import Object
from tests.kubernetes.kubelet.images import Images
from tests.kubernetes.kubelet.reports import Reports
from tests.kubernetes.kubelet.sources import Source, content, named
from tests.kubernetes.runtime import Node, Runtime

KINDS = {"secret": "secrets", "configMap": "configmaps"}


@dataclass(frozen=True)
class Host:
    """A node, as its pods see it."""

    node: Node
    directory: Path
    """The root of its hostPath volumes."""


@dataclass(frozen=True)
class Machine:
    api: Api
    reports: Reports
    runtime: Runtime
    images: Images
    pods: Path
    """Directory of all pods' volumes and logs, by uid."""
    dns: str
    server: tuple[str, int]
    """Address and port of the API server."""

    def sources(self, pod: Object) -> dict[Source, Mapping[str, bytes] | None]:
        """What the pod names, as it is now."""
        return {source: self._source(pod, source) for source in named(pod)}

    def _source(self, pod: Object, source: Source) -> Mapping[str, bytes] | None:
        namespace = pod["metadata"]["namespace"]
        found = self.api.find(f"/api/v1/namespaces/{namespace}/{KINDS[source.kind]}/{source.name}")
        return None if found is None else content(source.kind, found)
