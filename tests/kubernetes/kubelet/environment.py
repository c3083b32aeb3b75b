"""A container's environment and command, as Kubernetes defines them. Pure functions over the pod's JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.kubernetes.kubelet.fields import Object, field
from tests.kubernetes.kubelet.sources import Sources, keys_of

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.\-][\w.\-]*)\)", re.ASCII)


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` is replaced by that variable, and `$$` by `$`; an unknown name stays as it is."""

    def replaced(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else env.get(match[1], match[0])

    return _REFERENCE.sub(replaced, text)


def environment(pod: Object, container: Object, image: Mapping[str, str], sources: Sources) -> dict[str, str]:
    """All variables: the image's and env's. Raises Missing for a Secret, a ConfigMap or a key of one that is
    not there."""
    env = dict(image)
    own = dict[str, str]()
    for entry in container.get("env") or ():
        if "valueFrom" in entry:
            value = _value_from(entry["valueFrom"], pod, sources)
            if value is None:
                continue
        else:
            value = expand(str(entry.get("value", "")), {**env, **own})
        own[entry["name"]] = value
    return {**env, **own}


def _value_from(source: Object, pod: Object, sources: Sources) -> str | None:
    """None: it is optional and not there."""
    ((kind, reference),) = source.items()
    if kind == "fieldRef":
        return field(pod, reference["fieldPath"])
    found = keys_of(sources, kind.removesuffix("KeyRef"), reference, reference["key"])
    return found[reference["key"]].decode() if found else None


def command(container: Object, env: Mapping[str, str]) -> list[str]:
    """The images of nodes have none of their own."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    return [expand(str(word), env) for word in words]
