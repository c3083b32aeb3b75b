"""The API server, over HTTP: single requests, and watches that survive what servers do."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

from tests.kubernetes.kubelet.fields import Object

RETRY_SECONDS = 0.5
REQUEST_SECONDS = 30.0
WATCH_SECONDS = 240
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
_GONE = 410
_LATER = {429, 500, 502, 503, 504}


class Refusal(Exception):
    """What the API server says no to."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Change(NamedTuple):
    """`kind` is ADDED, MODIFIED, DELETED, or LISTED for all objects there are (`objects`) after a gap."""

    kind: str
    objects: list[Object]


class Api:
    def __init__(self, kubeconfig: Object) -> None:
        server = kubeconfig["clusters"][0]["cluster"]
        user = kubeconfig["users"][0]["user"]
        self.host = urlsplit(server["server"]).netloc
        self._context = ssl.create_default_context(cadata=_decoded(server["certificate-authority-data"]))
        # Only files can be loaded.
        with tempfile.NamedTemporaryFile("w") as pair:
            pair.write(_decoded(user["client-certificate-data"]) + _decoded(user["client-key-data"]))
            pair.flush()
            self._context.load_cert_chain(pair.name)
        self._local = threading.local()

    def ask(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        """Its answer; while there is no server, this asks again. Raises Refusal."""
        while True:
            try:
                return self._once(method, path, json.dumps(body) if body is not None else None, kind)
            except Refusal as refusal:
                if refusal.code not in _LATER:
                    raise
            except (OSError, http.client.HTTPException):
                self._forget()
            time.sleep(RETRY_SECONDS)

    def find(self, path: str) -> Object | None:
        """The object there, if there is one."""
        try:
            return self.ask("GET", path)
        except Refusal as refusal:
            if refusal.code != 404:
                raise
            return None

    def watch(self, path: str) -> Iterator[Change]:
        """What is there, then each change, for ever. What was missed is made up for by a new list."""
        while True:
            listed = self.ask("GET", path)
            yield Change("LISTED", listed.get("items") or [])
            version = listed["metadata"]["resourceVersion"]
            while version:
                try:
                    for event in self._events(path, version):
                        if event["type"] == "ERROR":
                            raise Refusal(event["object"].get("code", _GONE), event["object"].get("message", ""))
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            yield Change(event["type"], [event["object"]])
                except (Refusal, ValueError):
                    version = ""  # 410: that version is no longer known
                except (OSError, http.client.HTTPException):
                    time.sleep(RETRY_SECONDS)

    def _events(self, path: str, version: str) -> Iterator[Object]:
        query = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": WATCH_SECONDS,
        }
        connection = http.client.HTTPSConnection(self.host, context=self._context, timeout=WATCH_SECONDS + 30)
        try:
            connection.request("GET", f"{path}?{urlencode(query)}")
            response = connection.getresponse()
            if response.status != 200:
                raise Refusal(response.status, response.read().decode(errors="replace"))
            while line := response.readline():
                yield json.loads(line)
        finally:
            connection.close()

    def _once(self, method: str, path: str, body: str | None, kind: str) -> Object:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(self.host, context=self._context, timeout=REQUEST_SECONDS)
            self._local.connection = connection
        connection.request(method, path, body, {"Content-Type": kind, "Accept": "application/json"})
        response = connection.getresponse()
        text = response.read()
        if response.status >= 300:
            raise Refusal(response.status, text.decode(errors="replace")[:2000])
        answer: Object = json.loads(text)
        return answer

    def _forget(self) -> None:
        with suppress(AttributeError):
            self._local.connection.close()
            del self._local.connection


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
