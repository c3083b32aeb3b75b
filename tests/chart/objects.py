"""What the tests' API server keeps (tests/chart/api.py): the objects, and all that happened to them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import unquote

Object = dict[str, Any]

VERSION = {"major": "1", "minor": "31", "gitVersion": "v1.31.7"}
RESOURCES = {
    "v1": {
        "configmaps": "ConfigMap",
        "persistentvolumeclaims": "PersistentVolumeClaim",
        "persistentvolumes": "PersistentVolume",
        "pods": "Pod",
        "secrets": "Secret",
        "services": "Service",
    },
    "batch/v1": {"jobs": "Job"},
    "jobset.x-k8s.io/v1alpha2": {"jobsets": "JobSet"},
    "resource.k8s.io/v1": {"resourceclaimtemplates": "ResourceClaimTemplate"},
}
CLUSTER_WIDE = {"persistentvolumes"}
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


class Refused(Exception):
    def __init__(self, code: int, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.code, self.reason = code, reason


@dataclass(frozen=True)
class Place:
    """What a path names: a kind of objects, where they are, and which one, if one."""

    version: str
    resource: str
    namespace: str = ""
    name: str = ""

    @property
    def kind(self) -> str:
        return RESOURCES[self.version][self.resource]


@dataclass
class Store:
    """The objects, and all that happened to them."""

    job_ends: str = "Complete"
    """Or Failed: the condition of every new Job."""
    objects: dict[Place, Object] = field(default_factory=dict)
    events: list[tuple[str, Place, Object]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    closed: bool = False
    made: Iterator[int] = field(default_factory=lambda: count(1))

    def names(self, *, helms_own: bool = False) -> set[str]:
        """Kind/name of all objects; those in which Helm keeps its releases only if asked."""
        with self.changed:
            return {
                f"{place.kind}/{place.name}"
                for place, kept in self.objects.items()
                if helms_own or not str(kept.get("type")).startswith("helm.sh/")
            }

    def object(self, kind: str, name: str) -> Object:
        with self.changed:
            (found,) = [kept for place, kept in self.objects.items() if (place.kind, place.name) == (kind, name)]
        return found

    def get(self, place: Place) -> Object:
        if place not in self.objects:
            raise Refused(404, "NotFound", f"{place.resource} {place.name!r} not found")
        return self.objects[place]

    def put(self, place: Place, body: Object) -> Object:
        """Make it, or put `body` in its place."""
        old = self.objects.get(place)
        if old:
            refuse_what_cannot_change(place.kind, old, body)
        metadata = {**body.get("metadata", {}), "name": place.name, "resourceVersion": str(len(self.events) + 1)}
        if place.namespace:
            metadata["namespace"] = place.namespace
        metadata["uid"] = old["metadata"]["uid"] if old else f"00000000-0000-4000-8000-{next(self.made):012}"
        metadata.setdefault("creationTimestamp", "2025-01-01T00:00:00Z")
        kept = {**body, "apiVersion": place.version, "kind": place.kind, "metadata": metadata}
        if place.kind == "Job" and not old:
            ended = "succeeded" if self.job_ends == "Complete" else "failed"
            kept["status"] = {ended: 1, "conditions": [{"type": self.job_ends, "status": "True"}]}
        self.objects[place] = kept
        self._happened("MODIFIED" if old else "ADDED", place, kept)
        if place.kind == "JobSet" and not old:
            self._make_service_of(place, kept)
        return kept

    def delete(self, place: Place) -> Object:
        gone = self.get(place)
        del self.objects[place]
        self._happened("DELETED", place, gone)
        for at, kept in list(self.objects.items()):
            if any(owner["uid"] == gone["metadata"]["uid"] for owner in kept["metadata"].get("ownerReferences", [])):
                self.delete(at)
        return gone

    def _make_service_of(self, place: Place, jobset: Object) -> None:
        """As JobSet's controller does: one that has the name already is taken for its own."""
        name = jobset["metadata"]["name"]
        at = Place("v1", "services", place.namespace, jobset["spec"]["network"]["subdomain"])
        owner = {"kind": "JobSet", "name": name, "uid": jobset["metadata"]["uid"]}
        if at not in self.objects:
            spec = {"clusterIP": "None", "selector": {"jobset.sigs.k8s.io/jobset-name": name}}
            self.put(at, {"metadata": {"ownerReferences": [owner]}, "spec": spec})

    def news(self, seen: int) -> list[tuple[str, Place, Object]]:
        """What has happened since so many events, as soon as there is something."""
        with self.changed:
            self.changed.wait_for(lambda: self.closed or len(self.events) > seen)
            return self.events[seen:]

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def _happened(self, what: str, place: Place, kept: Object) -> None:
        self.events.append((what, place, kept))
        self.changed.notify_all()


def refuse_what_cannot_change(kind: str, old: Object, new: Object) -> None:
    """As the API server does, and JobSet's webhook with a JobSet that is not suspended."""
    if old.get("immutable") and old["data"] != new.get("data"):
        raise Refused(422, "Invalid", "data: Forbidden: field is immutable when `immutable` is set")
    started = kind == "JobSet" and not old["spec"].get("suspend")
    if started and old["spec"]["replicatedJobs"] != new["spec"]["replicatedJobs"]:
        raise Refused(403, "Forbidden", "admission webhook denied the request: spec.replicatedJobs: field is immutable")


def merged(old: Any, patch: Any) -> Any:
    """A JSON merge patch. A list is taken whole; the directives of strategic patches are refused, not misread."""
    if not isinstance(patch, dict):
        return patch
    if any(key.startswith("$") for key in patch):
        raise Refused(415, "UnsupportedMediaType", f"directives in a patch: {sorted(patch)}")
    base = old if isinstance(old, dict) else {}
    changed = {key: merged(base.get(key), value) for key, value in patch.items()}
    return {key: value for key, value in {**base, **changed}.items() if value is not None}


def selected(place: Place, kept: Object, at: Place, query: dict[str, str]) -> bool:
    if (place.version, place.resource) != (at.version, at.resource) or at.namespace not in ("", place.namespace):
        return False
    if query.get("fieldSelector", "") not in ("", f"metadata.name={place.name}"):
        return False
    labels = kept["metadata"].get("labels") or {}
    wanted = [term.split("=", 1) for term in query.get("labelSelector", "").split(",") if term]
    return all(labels.get(key) == value for key, value in wanted)


def discovery(path: str) -> Object | None:
    if path == "/version":
        return VERSION
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        offered = [{"groupVersion": one, "version": one.split("/")[1]} for one in RESOURCES if "/" in one]
        groups = [
            {"name": one["groupVersion"].split("/")[0], "versions": [one], "preferredVersion": one} for one in offered
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    version = path.removeprefix("/apis/").removeprefix("/api/")
    if version not in RESOURCES:
        return None
    resources = [
        {"name": name, "kind": kind, "singularName": "", "namespaced": name not in CLUSTER_WIDE, "verbs": VERBS}
        for name, kind in RESOURCES[version].items()
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}


def place_of(path: str) -> Place:
    parts = [unquote(part) for part in path.strip("/").split("/")]
    version, rest = (parts[1], parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    if version not in RESOURCES or not rest or rest[0] not in RESOURCES[version] or len(rest) > 2:
        raise Refused(404, "NotFound", path)
    return Place(version, rest[0], namespace, *rest[1:])
