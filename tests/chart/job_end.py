"""What Kubernetes makes of pods that have failed: the Job controller's podFailurePolicy, and JobSet's failurePolicy.

Only what decides between "started anew" and "at its end" is here, for Jobs as the chart has them: tried once, Indexed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.chart.helm import Object

DISRUPTED = {"type": "DisruptionTarget", "status": "True"}
"""Condition of a pod that Kubernetes itself ends: evicted, preempted, deleted with its node."""
STARTED_ANEW, ENDED = "started anew", "ended"


@dataclass(frozen=True)
class Failed:
    """A pod that has failed."""

    codes: Mapping[str, int]
    """Its containers' codes, by their names; one that has never run has none."""
    conditions: tuple[Object, ...] = ()


def pod(code: int, *, evicted: bool = False) -> Failed:
    return Failed({"workload": code}, (DISRUPTED,) if evicted else ())


def what_follows(jobset: Object, pods: list[Failed], restarts: int = 0) -> str:
    """What becomes of a JobSet that has been started anew so often, when the Job controller sees these pods failed."""
    (job,) = jobset["spec"]["replicatedJobs"]
    reason = reason_of(job["template"]["spec"], pods)
    action = action_of(jobset["spec"]["failurePolicy"], reason)
    assert action in ("RestartJobSet", "FailJobSet"), action
    counts = restarts < jobset["spec"]["failurePolicy"].get("maxRestarts", 0)
    return STARTED_ANEW if action == "RestartJobSet" and counts else ENDED


def reason_of(spec: Object, pods: list[Failed]) -> str:
    """Why the Job has failed. Any pod that is to fail the Job does, whatever the others say."""
    actions = [policy_action(spec["podFailurePolicy"]["rules"], pod) for pod in pods]
    if "FailJob" in actions:
        return "PodFailurePolicy"
    assert actions and set(actions) == {"Count"}, actions
    assert spec["backoffLimit"] == 0
    return "BackoffLimitExceeded"


def policy_action(rules: list[Object], pod: Failed) -> str:
    """By the first rule that matches; Count if none does."""
    return next((str(rule["action"]) for rule in rules if matches(rule, pod)), "Count")


def matches(rule: Object, pod: Failed) -> bool:
    if "onPodConditions" in rule:
        return any(condition in pod.conditions for condition in rule["onPodConditions"])
    wanted = rule["onExitCodes"]
    codes = [code for name, code in pod.codes.items() if wanted.get("containerName") in (None, name) and code]
    return any((code in wanted["values"]) == (wanted["operator"] == "In") for code in codes)


def action_of(policy: Object, reason: str) -> str:
    """By the first rule for this reason; a restart if there is none."""
    rules = policy.get("rules", [])
    fitting = (rule for rule in rules if reason in rule.get("onJobFailureReasons", [reason]))
    return next((str(rule["action"]) for rule in fitting), "RestartJobSet")
