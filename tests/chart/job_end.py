"""What Kubernetes makes of pods that have failed: the Job controller's podFailurePolicy, and JobSet's failurePolicy.

Only what decides between "started anew", "at its end" and, with lives, "replaced" is here, for Jobs as the chart has
them: Indexed, and without lives tried once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tests.chart.helm import Object

DISRUPTED = {"type": "DisruptionTarget", "status": "True"}
"""Condition of a pod that Kubernetes itself ends: evicted, preempted, deleted with its node."""
STARTED_ANEW, ENDED, REPLACED = "started anew", "ended", "replaced"


@dataclass(frozen=True)
class Failed:
    """A pod that has failed."""

    codes: Mapping[str, int]
    """Its containers' codes, by their names; one that has never run has none."""
    conditions: tuple[Object, ...] = ()


def pod(code: int, *, evicted: bool = False) -> Failed:
    return Failed({"workload": code}, (DISRUPTED,) if evicted else ())


def what_follows(jobset: Object, pods: list[Failed], restarts: int = 0, losses: int = 0) -> str:
    """What becomes of a JobSet that has been started anew so often, when the Job controller sees these pods failed, and
    has counted so many `losses` of each of their indices before."""
    (job,) = jobset["spec"]["replicatedJobs"]
    reason, message = failure_of(job["template"]["spec"], pods, losses)
    if not reason:
        return REPLACED
    action = action_of(jobset["spec"]["failurePolicy"], reason, message)
    assert action in ("RestartJobSet", "FailJobSet"), action
    counts = restarts < jobset["spec"]["failurePolicy"].get("maxRestarts", 0)
    return STARTED_ANEW if action == "RestartJobSet" and counts else ENDED


def failure_of(spec: Object, pods: list[Failed], losses: int = 0) -> tuple[str, str]:
    """Reason and message of the Job's failure; empty if it goes on. Any pod that is to fail the Job does, whatever the
    others say."""
    actions = [policy_action(spec["podFailurePolicy"]["rules"], pod) for pod in pods]
    if "FailJob" in actions:
        code = pods[actions.index("FailJob")].codes["workload"]
        said = f"Container workload for pod a/b failed with exit code {code} matching FailJob rule at index 1"
        return "PodFailurePolicy", said
    if "backoffLimitPerIndex" in spec:
        assert set(actions) <= {"Count", "Ignore"} and spec["maxFailedIndexes"] == 0
        if "Count" in actions and losses >= spec["backoffLimitPerIndex"]:
            return "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"
        return "", ""
    assert actions and set(actions) == {"Count"}, actions
    assert spec["backoffLimit"] == 0
    return "BackoffLimitExceeded", "Job has reached the specified backoff limit"


def policy_action(rules: list[Object], pod: Failed) -> str:
    """By the first rule that matches; Count if none does."""
    return next((str(rule["action"]) for rule in rules if matches(rule, pod)), "Count")


def matches(rule: Object, pod: Failed) -> bool:
    if "onPodConditions" in rule:
        return any(condition in pod.conditions for condition in rule["onPodConditions"])
    wanted = rule["onExitCodes"]
    codes = [code for name, code in pod.codes.items() if wanted.get("containerName") in (None, name) and code]
    return any((code in wanted["values"]) == (wanted["operator"] == "In") for code in codes)


def action_of(policy: Object, reason: str, message: str) -> str:
    """By the first rule for this reason and message; a restart if there is none."""
    fitting = (
        rule
        for rule in policy.get("rules", [])
        if reason in rule.get("onJobFailureReasons", [reason])
        and any(re.search(pattern, message) for pattern in rule.get("onJobFailureMessagePatterns", [""]))
    )
    return next((str(rule["action"]) for rule in fitting), "RestartJobSet")
