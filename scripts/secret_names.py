"""The chart's words for names of secrets are the agent's: this writes chart/templates/_secret_names.tpl.

.venv/bin/python -m scripts.secret_names
"""

from __future__ import annotations

from pathlib import Path

from agent.decide.secret_variables import NOT_SECRET, SAY_NOTHING, SECRET

PATH = Path(__file__).resolve().parent.parent / "chart" / "templates" / "_secret_names.tpl"
WORDS = {
    "a4.secretEnds": ("What names of secrets end in.", SECRET),
    "a4.plainEnds": ("What names of other things end in, though they end so.", NOT_SECRET),
    "a4.saysNothing": ("Last words that do not count.", SAY_NOTHING),
}


def text() -> str:
    """The content of the file."""
    shown = ["{{- /* scripts/secret_names.py writes this file from agent/decide/secret_variables.py. */}}"]
    for name, (what, words) in WORDS.items():
        shown.append(f'{{{{- /* {what} */}}}}\n{{{{- define "{name}" }}}}{"|".join(words)}{{{{ end -}}}}')
    return "\n".join(shown) + "\n"


if __name__ == "__main__":
    PATH.write_text(text())
