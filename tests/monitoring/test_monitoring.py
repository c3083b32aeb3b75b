"""monitoring/ as Prometheus' own promtool judges it; tests/cluster/test_metrics.py has a Prometheus that scrapes."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from agent.decide.metrics import METRICS

MONITORING = Path(__file__).resolve().parents[2] / "monitoring"
RULES, DASHBOARD = MONITORING / "rules.yaml", MONITORING / "dashboard.json"


def promtool(*words: str) -> str:
    done = subprocess.run(["promtool", *words], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shown() -> list[str]:
    """All queries of the dashboard, of one job."""
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return [one["expr"].replace("$job", "my-job") for panel in dashboard["panels"] for one in panel["targets"]]


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_each_alert_fires_when_it_should_and_only_then() -> None:
    cases = yaml.safe_load(Path(__file__).with_name("rules_test.yaml").read_text())["tests"]
    looks = [one for case in cases for one in case["alert_rule_test"]]
    alerts = {rule["alert"] for rule in rules()}
    for fires in (True, False):
        assert {one["alertname"] for one in looks if bool(one["exp_alerts"]) is fires} == alerts
    assert "SUCCESS" in promtool("test", "rules", "rules_test.yaml")


def test_the_queries_of_the_dashboard_are_queries(tmp_path: Path) -> None:
    recorded = [{"record": f"query:{number}", "expr": expr} for number, expr in enumerate(shown())]
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    assert f"{len(recorded)} rules found" in promtool("check", "rules", str(tmp_path / "queries.yaml"))


def test_rules_and_dashboard_know_the_metrics() -> None:
    """And the dashboard shows them all."""
    names = {each.name for each in METRICS}
    asked = set(re.findall(r"\ba4_\w+", " ".join(rule["expr"] for rule in rules())))
    assert asked < names
    assert set(re.findall(r"\ba4_\w+", " ".join(shown()))) == names
