"""Every colour of the page, for light and dark: the style sheet and the charts know them by name only."""

from __future__ import annotations

LIGHT = {
    "page": "#f7f8fa",
    "paper": "#ffffff",
    "raised": "#eef1f5",
    "ink": "#171c24",
    "soft": "#525c6b",
    "line": "#d5dae2",
    "grid": "#e3e7ed",
    "link": "#0b57b0",
    "good": "#0f6b35",
    "good-wash": "#e6f4ea",
    "bad": "#b3201b",
    "bad-wash": "#fdecea",
    "warn": "#7d5200",
    "warn-wash": "#fdf3dc",
    "ended": "#4b5566",
    "ended-wash": "#eceff3",
    "series-1": "#0b5cad",
    "series-2": "#a84300",
    "series-3": "#0f7052",
    "series-4": "#86309c",
    "series-5": "#8a6100",
    "series-6": "#b01f5b",
    "series-7": "#2f6f80",
    "series-8": "#59606b",
    "reference": "#5b6472",
    "phase-1": "#4c78a8",
    "phase-2": "#8a5fb0",
    "phase-3": "#2c7f6b",
    "phase-4": "#b0582a",
    "phase-5": "#5c6f2a",
    "phase-6": "#a8436f",
    "phase-7": "#3f7391",
    "on-phase": "#ffffff",
}
DARK = {
    "page": "#11151b",
    "paper": "#171c24",
    "raised": "#212832",
    "ink": "#e8ecf2",
    "soft": "#a9b3c1",
    "line": "#353e4b",
    "grid": "#2a323d",
    "link": "#7db8ff",
    "good": "#6fd394",
    "good-wash": "#15301f",
    "bad": "#ff9b90",
    "bad-wash": "#3a1b1a",
    "warn": "#f0c366",
    "warn-wash": "#332811",
    "ended": "#b4bdca",
    "ended-wash": "#262d38",
    "series-1": "#6db3ff",
    "series-2": "#ffa266",
    "series-3": "#5fcfa6",
    "series-4": "#d79bea",
    "series-5": "#e0bb58",
    "series-6": "#ff8fb9",
    "series-7": "#7cc7da",
    "series-8": "#b6bfcb",
    "reference": "#a3adbb",
    "phase-1": "#7fb2e5",
    "phase-2": "#c09be6",
    "phase-3": "#63c2a8",
    "phase-4": "#e99a67",
    "phase-5": "#a9bd67",
    "phase-6": "#e68bb0",
    "phase-7": "#7fbcd8",
    "on-phase": "#11151b",
}
SERIES = tuple(name for name in LIGHT if name.startswith("series-"))


def variables(colours: dict[str, str]) -> str:
    """Declarations for a style sheet."""
    return "".join(f"--{name}:{value};" for name, value in colours.items())


def contrast(one: str, other: str) -> float:
    """WCAG's ratio of two colours such as #12ab9f, from 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
