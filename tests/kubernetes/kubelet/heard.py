"""What a pod's worker hears: from its containers and probes, from the API server, and about its node."""

from __future__ import annotations

from typing import NamedTuple

from tests.kubernetes.kubelet.fields import Object
from tests.kubernetes.runtime import Ended


class HasEnded(NamedTuple):
    name: str
    how: Ended


class Probed(NamedTuple):
    name: str
    kind: str
    well: bool


class Changed(NamedTuple):
    pod: Object


class Gone(NamedTuple):
    """The API server has forgotten the pod."""


class Died(NamedTuple):
    """The node has: nobody is told anything any more."""


class Rebooted(NamedTuple):
    """The node is there again, without its containers."""


class Frozen(NamedTuple):
    """The node's kernel stands still, as while its machine is paused: the kubelet hears nothing either."""


class Thawed(NamedTuple):
    """Containers go on, and the kubelet is still behind."""


class Refreshed(NamedTuple):
    """What the pod names may have changed."""


Heard = HasEnded | Probed | Changed | Gone | Died | Rebooted | Frozen | Thawed | Refreshed
