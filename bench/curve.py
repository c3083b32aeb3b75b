"""The picture of seconds over pods: both axes by their logarithm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 360, 60, 50, 20, 30
COLORS = ("#0b6bcb", "#15803d", "#c2410c", "#6b7280")
MOST_PODS, LEAST, MOST = 1024, 0.1, 100.0
Line = Sequence[tuple[int, float]]


def along(pods: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log(pods) / math.log(MOST_PODS)


def up(seconds: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * math.log(seconds / LEAST) / math.log(MOST / LEAST)


def svg(lines: Mapping[str, Line]) -> str:
    """Each line with its name below its beginning: lines rise, so that none crosses its own name."""
    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for number in range(int(math.log2(MOST_PODS)) + 1):
        x = along(2**number)
        parts.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{2**number:,}</text>')
    for seconds in (0.1, 1, 10, 100):
        y = up(seconds)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{seconds:g} s</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">pods</text>')
    for (name, line), color in zip(lines.items(), COLORS, strict=True):
        places = [(along(pods), up(seconds)) for pods, seconds in line]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        parts.append(f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in places]
        x, y = places[0]
        parts.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" fill="{color}">{name}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return "\n".join([f'{head} font-family="sans-serif" font-size="12">', *parts, "</svg>", ""])
