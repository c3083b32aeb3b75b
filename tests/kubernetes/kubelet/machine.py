"""What all pods of the test bed's nodes share: the API server, the runtime, images, and where a node's things lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes.kubelet.api import Api
from tests.kubernetes.kubelet.fields import Object
from tests.kubernetes.kubelet.images import Image
from tests.kubernetes.kubelet.reports import Reports
from tests.kubernetes.kubelet.sources import Source, content, named
from tests.kubernetes.runtime import Node, Runtime

TOKEN_SECONDS = 3607
KINDS = {"secret": "secrets", "configMap": "configmaps"}


@dataclass(frozen=True)
class Host:
    """A node, as its pods see it."""

    node: Node
    allocatable: Mapping[str, str]
    directory: Path
    """The root of its hostPath volumes."""


@dataclass(frozen=True)
class Machine:
    api: Api
    reports: Reports
    runtime: Runtime
    images: Mapping[str, Image]
    pods: Path
    """Directory of all pods' volumes and logs, by uid."""
    dns: str
    server: tuple[str, int]
    """Address and port of the API server."""

    def sources(self, pod: Object, tokens: bool) -> dict[Source, Mapping[str, bytes] | None]:
        """What the pod names, as it is now; a token only if they are wanted."""
        wanted = [source for source in named(pod) if tokens or source.kind != "token"]
        return {source: self._source(pod, source) for source in wanted}

    def _source(self, pod: Object, source: Source) -> Mapping[str, bytes] | None:
        namespace = pod["metadata"]["namespace"]
        if source.kind == "token":
            return {"token": self._token(pod, source.name).encode()}
        found = self.api.find(f"/api/v1/namespaces/{namespace}/{KINDS[source.kind]}/{source.name}")
        return None if found is None else content(source.kind, found)

    def _token(self, pod: Object, audience: str) -> str:
        about = pod["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": about["name"], "uid": about["uid"]}
        spec = {"audiences": [audience] if audience else [], "expirationSeconds": TOKEN_SECONDS}
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {**spec, "boundObjectRef": bound},
        }
        account = pod["spec"].get("serviceAccountName", "default")
        path = f"/api/v1/namespaces/{about['namespace']}/serviceaccounts/{account}/token"
        return str(self.api.ask("POST", path, body)["status"]["token"])
