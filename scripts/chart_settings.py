"""The chart refuses what the agent would: this writes chart/files/settings.yaml, what each setting takes.

.venv/bin/python -m scripts.chart_settings
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from agent.decide.setting_values import Parser
from agent.settings import SETTINGS

PATH = Path(__file__).resolve().parent.parent / "chart" / "files" / "settings.yaml"
COMMAND = ".venv/bin/python -m scripts.chart_settings"


def text() -> str:
    """The content of the file: a line for each setting, of those that only the agent can read without a pattern."""
    lines = [f"{setting.name}: {json.dumps(taken(setting.parse), ensure_ascii=False)}" for setting in SETTINGS]
    return "\n".join(["# scripts/chart_settings.py writes this file from agent/settings.py.", *lines]) + "\n"


def taken(parse: object) -> dict[str, Any]:
    if not isinstance(parse, Parser):
        return {}
    limits = {"least": parse.least or None, "most": parse.most if parse.most < math.inf else None}
    found = {"pattern": parse.pattern, "wanted": parse.wanted, **limits, "orZero": parse.or_zero or None}
    return {name: value for name, value in found.items() if value is not None}


if __name__ == "__main__":
    PATH.write_text(text())
