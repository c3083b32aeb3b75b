"""What the test bed's kubelet decides, as tables: no control plane is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.kubelet.environment import environment, expand
from tests.kubernetes.kubelet.execution import status as exec_status
from tests.kubernetes.kubelet.fields import field
from tests.kubernetes.kubelet.files_of_volumes import replace
from tests.kubernetes.kubelet.images import Image
from tests.kubernetes.kubelet.logs import Wanted, read
from tests.kubernetes.kubelet.names import records
from tests.kubernetes.kubelet.plan import container_spec, hosts
from tests.kubernetes.kubelet.probes import Count, counted, verdict
from tests.kubernetes.kubelet.quantity import divided
from tests.kubernetes.kubelet.sources import Missing, Source, named
from tests.kubernetes.kubelet.states import (
    End,
    Finish,
    Start,
    State,
    Step,
    Stop,
    Wait,
    back_off,
    ended,
    held,
    next_steps,
    pausing,
)
from tests.kubernetes.kubelet.status import pod_status
from tests.kubernetes.kubelet.volumes import File, files

NOW = 1_000_000.0
Object = dict[str, Any]


def pod(policy: str = "Never", init: list[Object] | None = None, **spec: Any) -> Object:
    return {
        "metadata": {
            "name": "job-0",
            "namespace": "team-a",
            "uid": "u",
            "labels": {"a": "1", "b/c": "x"},
            "annotations": {"index": "3"},
        },
        "spec": {
            "restartPolicy": policy,
            "nodeName": "node-1",
            "initContainers": init or [],
            "containers": [{"name": "main", "image": "one"}],
            **spec,
        },
        "status": {"podIP": "198.18.9.9", "hostIP": "198.18.9.1"},
    }


INIT = {"name": "init", "image": "one"}
SIDECAR = {"name": "side", "image": "one", "restartPolicy": "Always"}
UP = State("running", began=NOW - 5, started=True, ready=True)
WAITS = State()


def over(code: int, failures: int = 0) -> State:
    end = End(code, "Error" if code else "Completed", "", NOW - 5, NOW)
    return ended(State("running", began=NOW - 5, failures=failures), end)


@pytest.mark.parametrize(
    ("given", "states", "steps"),
    [
        (pod(), {"main": WAITS}, [Start("main")]),
        (pod(), {"main": UP}, []),
        (pod(), {"main": over(0)}, [Finish("Succeeded")]),
        (pod(), {"main": over(3)}, [Finish("Failed")]),
        (pod("OnFailure"), {"main": over(0)}, [Finish("Succeeded")]),
        (pod("OnFailure"), {"main": over(3)}, [Start("main")]),
        (pod("OnFailure"), {"main": over(3, 2)}, [Wait(NOW + 20)]),
        (pod("Always"), {"main": over(0, 9)}, [Wait(NOW + 300)]),
        (pod(init=[INIT]), {"init": WAITS, "main": WAITS}, [Start("init")]),
        (pod(init=[INIT]), {"init": UP, "main": WAITS}, []),
        (pod(init=[INIT]), {"init": over(0), "main": WAITS}, [Start("main")]),
        (pod(init=[INIT]), {"init": over(1), "main": WAITS}, [Finish("Failed")]),
        (pod("OnFailure", [INIT]), {"init": over(1, 1), "main": WAITS}, [Wait(NOW + 10)]),
        (pod(init=[SIDECAR, INIT]), {"side": State("running"), "init": WAITS, "main": WAITS}, []),
        (pod(init=[SIDECAR, INIT]), {"side": UP, "init": WAITS, "main": WAITS}, [Start("init")]),
        (pod(init=[SIDECAR]), {"side": over(1), "main": UP}, [Start("side")]),
        (pod(init=[SIDECAR]), {"side": UP, "main": over(0)}, [Stop(("side",))]),
        (pod(init=[SIDECAR]), {"side": over(143), "main": over(0)}, [Finish("Succeeded")]),
        (pod(init=[SIDECAR, INIT]), {"side": UP, "init": over(1), "main": WAITS}, [Stop(("side",))]),
    ],
)
def test_what_follows_from_how_containers_are(given: Object, states: dict[str, State], steps: list[Step]) -> None:
    assert next_steps(given, states, NOW) == steps


def test_a_deleted_pod_ends_its_main_containers_before_its_sidecars() -> None:
    given = pod(init=[SIDECAR])
    asked = State("running", ending=True)
    assert next_steps(given, {"side": UP, "main": UP}, NOW, True) == [Stop(("main",))]
    assert next_steps(given, {"side": UP, "main": asked}, NOW, True) == []
    assert next_steps(given, {"side": UP, "main": over(143)}, NOW, True) == [Stop(("side",))]
    assert next_steps(given, {"side": over(0), "main": over(143)}, NOW, True) == [Finish("Failed")]


def test_back_off_doubles_up_to_five_minutes() -> None:
    assert [back_off(failures) for failures in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]


def test_an_image_that_never_comes_is_shown_as_kubernetes_does() -> None:
    state = held(WAITS, "ErrImagePull", "not found", NOW)
    assert state.retry == NOW + 10 and held(state, "ErrImagePull", "not found", NOW).retry == NOW + 20
    shown = [pausing(pod(), {"main": state}, NOW + later)["main"].reason for later in (0, 2)]
    assert shown == ["ErrImagePull", "ImagePullBackOff"]
    assert pausing(pod("Always"), {"main": over(1, 1)}, NOW + 1)["main"].reason == "CrashLoopBackOff"


def test_status_tells_code_reason_and_message() -> None:
    state = ended(UP, End(65, "Error", "it says why", NOW - 5, NOW))
    status = pod_status(
        pod(), {"main": state}, phase="Failed", addresses=("h", "p"), began=NOW, now=NOW, sandboxed=False
    )
    told = status["containerStatuses"][0]["state"]["terminated"]
    assert (status["phase"], told["exitCode"], told["reason"], told["message"]) == (
        "Failed",
        65,
        "Error",
        "it says why",
    )
    assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "False"


@pytest.mark.parametrize(
    ("text", "expanded"),
    [("$(A)b", "1b"), ("$$(A)", "$(A)"), ("$(NO)", "$(NO)"), ("$$$(A)", "$1"), ("$A", "$A"), ("$(A", "$(A")],
)
def test_references_in_texts(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1"}) == expanded


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.labels['b/c']", "x"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['index']", "3"),
        ("metadata.labels", 'a="1"\nb/c="x"'),
        ("spec.nodeName", "node-1"),
        ("status.podIP", "198.18.9.9"),
    ],
)
def test_fields_of_the_pod(path: str, value: str) -> None:
    assert field(pod(), path) == value


@pytest.mark.parametrize(
    ("quantity", "divisor", "text"),
    [("500m", "1", "1"), ("500m", "1m", "500"), ("2Gi", "1Mi", "2048"), ("3", "0", "3"), ("1k", "1", "1000")],
)
def test_quantities(quantity: str, divisor: str, text: str) -> None:
    assert divided(quantity, divisor) == text


def test_environment_by_every_source() -> None:
    container: Object = {
        "name": "main",
        "resources": {"limits": {"memory": "1Gi"}},
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "map"}}],
        "env": [
            {"name": "A", "value": "1"},
            {"name": "B", "value": "$(A)$(P_k)"},
            {"name": "C", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
            {"name": "D", "valueFrom": {"secretKeyRef": {"name": "none", "key": "token", "optional": True}}},
            {"name": "E", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            {"name": "F", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        ],
    }
    given = pod(containers=[container])
    known = {Source("configMap", "map"): {"k": b"v"}, Source("secret", "keys"): {"token": b"t"}}
    assert named(given) == {*known, Source("secret", "none")}
    found = environment(given, container, {"PATH": "/bin", "A": "0"}, known, {"cpu": "8"})
    assert found == {"PATH": "/bin", "P_k": "v", "A": "1", "B": "1v", "C": "t", "E": "1024", "F": "8"}
    with pytest.raises(Missing, match='secret "keys" not found'):
        environment(given, container, {}, {**known, Source("secret", "keys"): None}, {"cpu": "8"})


def test_volumes_of_objects() -> None:
    known = {
        Source("secret", "keys"): {"one": b"1", "two": b"2"},
        Source("configMap", "map"): {"script": b"#!"},
        Source("token", ""): {"token": b"jwt"},
    }
    secret = {"secret": {"secretName": "keys", "defaultMode": 0o400, "items": [{"key": "one", "path": "a/b"}]}}
    parts = [
        {"serviceAccountToken": {"path": "token"}},
        {"configMap": {"name": "map", "items": [{"key": "script", "path": "s", "mode": 0o755}]}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    assert files({"name": "v", **secret}, pod(), known, {}) == {"a/b": File(b"1", 0o400)}
    assert files({"name": "v", "projected": {"sources": parts}}, pod(), known, {}) == {
        "token": File(b"jwt", 0o644),
        "s": File(b"#!", 0o755),
        "name": File(b"job-0", 0o644),
    }
    secret["secret"]["items"] = [{"key": "three", "path": "x"}]
    with pytest.raises(Missing, match="three"):
        files({"name": "v", **secret}, pod(), known, {})


def test_files_of_a_volume_change_all_at_once(tmp_path: Path) -> None:
    replace(tmp_path, {"one": File(b"1", 0o600), "in/two": File(b"2", 0o644)})
    was = (tmp_path / "..data").resolve()
    replace(tmp_path, {"one": File(b"1", 0o600), "in/two": File(b"2", 0o644)})
    assert (tmp_path / "..data").resolve() == was
    replace(tmp_path, {"in/two": File(b"22", 0o400)})
    assert sorted(each.name for each in tmp_path.iterdir() if not each.name.startswith("..")) == ["in"]
    assert (tmp_path / "in/two").read_bytes() == b"22" and not was.exists()


def test_a_container_as_the_runtime_takes_it(tmp_path: Path) -> None:
    container: Object = {
        "name": "main",
        "image": "one",
        "command": ["run", "$(HOSTNAME)"],
        "args": ["$(HOME)"],
        "resources": {"limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "work", "mountPath": "/work"}, {"name": "keys", "mountPath": "/etc/keys"}],
    }
    volumes = [{"name": "work", "emptyDir": {}}, {"name": "keys", "secret": {"secretName": "keys"}}]
    given = pod(containers=[container], volumes=volumes, hostNetwork=True)
    image = Image(env={"PATH": "/bin"}, files={"/opt/x": "/somewhere/x"})
    spec = container_spec(given, container, image, {}, {}, tmp_path, tmp_path / "log", ("198.18.1.1", 6443))
    assert spec.argv == ["run", "node-1", "/root"] and spec.memory == 1 << 30
    bound = {bind.target: (str(bind.source), bind.read_only) for bind in spec.binds}
    assert bound["/opt/x"] == ("/somewhere/x", True)
    assert bound["/etc/keys"] == (f"{tmp_path}/volumes/keys", True)
    assert bound["/work"] == (f"{tmp_path}/volumes/work", False)


def test_hosts_of_a_pod_with_and_without_the_network_of_its_node() -> None:
    own = hosts(pod(hostname="job-0-0", subdomain="job"), "198.18.9.9")
    assert "198.18.9.9\tjob-0-0.job.team-a.svc.cluster.local\tjob-0-0\n" in own
    assert "198.18.9.9" not in hosts(pod(hostNetwork=True), "198.18.9.9")


def test_names_of_headless_services() -> None:
    def part(service: str, *endpoints: Object) -> Object:
        labels = {"kubernetes.io/service-name": service}
        return {"metadata": {"namespace": "team-a", "labels": labels}, "endpoints": list(endpoints)}

    up = {"addresses": ["198.18.9.9"], "hostname": "job-0-0", "conditions": {"ready": True}}
    down = {"addresses": ["198.18.9.8"], "hostname": "job-0-1", "conditions": {"ready": False}}
    slices = [part("job", up, down), part("other", up)]
    assert records(slices, [("team-a", "job")]) == [
        "198.18.9.9 job-0-0.job.team-a.svc.cluster.local",
        "198.18.9.9 job.team-a.svc.cluster.local",
    ]


@pytest.mark.parametrize(
    ("answers", "said"), [([False, False], None), ([False, False, False], False), ([False, True], True)]
)
def test_thresholds_of_probes(answers: list[bool], said: bool | None) -> None:
    count = Count()
    for answer in answers:
        count = counted(count, answer)
    assert verdict({}, count) is said


LOG = b"""\
2026-01-02T03:04:05.100000000Z stdout F one
2026-01-02T03:04:06.100000000Z stderr P tw
2026-01-02T03:04:06.200000000Z stderr F o
2026-01-02T03:04:07.000000000Z stdout F three
"""


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({}, b"one\ntwo\nthree\n"),
        ({"tailLines": "1"}, b"three\n"),
        ({"sinceTime": "2026-01-02T03:04:06.15Z"}, b"o\nthree\n"),
        ({"limitBytes": "5"}, b"one\nt"),
        ({"tailLines": "1", "timestamps": "true"}, b"2026-01-02T03:04:07.000000000Z three\n"),
        ({"follow": "true"}, b"one\ntwo\nthree\n"),
    ],
)
def test_logs_as_they_are_asked_for(tmp_path: Path, query: dict[str, str], text: bytes) -> None:
    path = tmp_path / "main.0.log"
    path.write_bytes(LOG)
    assert b"".join(read(path, Wanted.of(query, NOW), lambda: True)) == text


def test_a_command_tells_kubectl_its_code() -> None:
    assert exec_status(0)["status"] == "Success"
    assert exec_status(75)["details"]["causes"] == [{"reason": "ExitCode", "message": "75"}]
