"""Every colour of the page, for light and dark: the style sheet and the charts know them by name only."""

from __future__ import annotations

COLOURS = {
    "page": ("#f7f8fa", "#11151b"),
    "paper": ("#ffffff", "#171c24"),
    "raised": ("#eef1f5", "#212832"),
    "ink": ("#171c24", "#e8ecf2"),
    "soft": ("#525c6b", "#a9b3c1"),
    "line": ("#d5dae2", "#353e4b"),
    "grid": ("#e3e7ed", "#2a323d"),
    "link": ("#0b57b0", "#7db8ff"),
    "good": ("#0f6b35", "#6fd394"),
    "good-wash": ("#e6f4ea", "#15301f"),
    "bad": ("#b3201b", "#ff9b90"),
    "bad-wash": ("#fdecea", "#3a1b1a"),
    "warn": ("#7d5200", "#f0c366"),
    "warn-wash": ("#fdf3dc", "#332811"),
    "ended": ("#4b5566", "#b4bdca"),
    "ended-wash": ("#eceff3", "#262d38"),
    "series-1": ("#0b5cad", "#6db3ff"),
    "series-2": ("#a84300", "#ffa266"),
    "series-3": ("#0f7052", "#5fcfa6"),
    "series-4": ("#86309c", "#d79bea"),
    "series-5": ("#8a6100", "#e0bb58"),
    "series-6": ("#b01f5b", "#ff8fb9"),
    "series-7": ("#2f6f80", "#7cc7da"),
    "series-8": ("#59606b", "#b6bfcb"),
    "reference": ("#5b6472", "#a3adbb"),
    "phase-1": ("#4c78a8", "#7fb2e5"),
    "phase-2": ("#8a5fb0", "#c09be6"),
    "phase-3": ("#2c7f6b", "#63c2a8"),
    "phase-4": ("#b0582a", "#e99a67"),
    "phase-5": ("#5c6f2a", "#a9bd67"),
    "phase-6": ("#a8436f", "#e68bb0"),
    "phase-7": ("#3f7391", "#7fbcd8"),
    "phase-8": ("#7a5a3c", "#d3ac86"),
    "on-phase": ("#ffffff", "#11151b"),
}
"""Name → (for light, for dark)."""
LIGHT = {name: light for name, (light, _) in COLOURS.items()}
DARK = {name: dark for name, (_, dark) in COLOURS.items()}
SERIES = tuple(name for name in LIGHT if name.startswith("series-"))


def variables(colours: dict[str, str]) -> str:
    """Declarations for a style sheet."""
    return "".join(f"--{name}:{value};" for name, value in colours.items())
