"""Numbers and times for people."""

from __future__ import annotations

import math

from agent.report import number_words

SIZES = {0: "0 B", 8: "8 B", 1023: "1023 B", 1536: "1.5 KiB", 2**33: "8 GiB", 2**20 - 64: "1 MiB", 2**99: "1024 PiB"}
NUMBERS: list[tuple[float | None, str]] = [
    (None, "–"),
    (0, "0"),
    (2**40, "1099511627776"),
    (0.0, "0"),
    (0.5, "0.5"),
    (812.04, "812.0"),
    (12345.6, "12346"),
    (3.14159, "3.142"),
    (1.2e-7, "1.2e-07"),
    (-2.5, "-2.500"),
    (math.inf, "inf"),
    (math.nan, "nan"),
]
DURATIONS = {
    0.034: "0.03 s",
    12.34: "12.3 s",
    60: "1 min",
    313.2: "5 min 13 s",
    3600: "1 h",
    7260: "2 h 01 min",
}
RATIOS = {1.0: "1.00×", 0.8: "0.80× ▼", 1.06: "1.06× ▲", math.nan: "–"}


def test_words() -> None:
    assert {size: number_words.size_text(size) for size in SIZES} == SIZES
    assert [(value, number_words.number_text(value)) for value, _ in NUMBERS] == NUMBERS
    assert {seconds: number_words.duration_text(seconds) for seconds in DURATIONS} == DURATIONS
    assert {ratio: number_words.ratio_text(ratio) for ratio in RATIOS} == RATIOS
    assert [number_words.ratio_text(ratio, "ms") for ratio in (0.14, 1.0, 1.3)] == [
        "0.14×, faster",
        "1.00×",
        "1.30×, slower",
    ]
    assert [number_words.speed_text(x) for x in (380.84, 3.456, 0.0123, None)] == ["380.8", "3.46", "0.012", "–"]


def test_decimals_of_a_column() -> None:
    assert number_words.decimals([812.0, 790.11]) == 1
    assert number_words.decimals([1.5, 0.25]) == 3
    assert number_words.decimals([1e-7, 1.0]) is None
    assert number_words.decimals([math.inf]) is None
    assert number_words.decimals([]) is None


def test_moments() -> None:
    assert number_words.moment_text(1_772_625_600.0) == "2026-03-04 12:00:00 UTC"
    assert number_words.moment_text(1e30) == "1e+30 s after 1970"
