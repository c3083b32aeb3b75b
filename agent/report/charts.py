"""Curves as SVG: bandwidth and time over size, how a training went, and what many runs measured over time.

Only fixed words get into a picture: names from a result are in the page around it.

Colours are drawn as placeholders and become the page's variables, so that one picture does for light and dark. The same
input gives the same bytes.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from agent.report.number_words import moment_text, number_text, size_text
from agent.report.palette import SERIES
from agent.report.ticks import duration_ticks, moment_ticks, size_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 400, 256
"""Pixels at full scale. On the narrowest phones it is drawn at three quarters of this."""
TEXT = 13.5
GAP = 16.0
"""Least distance of two labels, in pixels."""
PX = 0.75
"""Points per pixel."""
DRAWN = [*SERIES, "reference", "bad", "grid", "line", "soft", "ink", "paper"]
PLACEHOLDERS = {name: f"#a4{number:04x}" for number, name in enumerate(DRAWN)}
MARKERS = "osD^vPX*"
GLYPHS = "●□◆▲▽✚✖★"
MANY_STEPS = 1_000_000
"""From here on the axis says 2M in place of a factor that stands apart."""
MOST_MARKERS = 64
"""A curve with more points has none on them."""
MOST_TITLES = 128
"""Points of a curve that tell their numbers under the pointer; of more, an even choice."""
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (7, 2, 1.5, 2)), (0, (1.5, 1.3)))


Point = tuple[float, float]


class Scale(NamedTuple):
    """What stands at the axes. Sizes are drawn by their logarithm; moments are seconds since 1970."""

    up: str
    along: str
    kind: Literal["sizes", "iterations", "moments"] = "iterations"
    durations: bool = False
    """The curves are microseconds and drawn by their logarithm, too."""

    @property
    def upward(self) -> str:
        """What stands above the vertical axis."""
        return ", ".join(filter(None, [self.up, "log" if self.durations else "linear"]))

    @property
    def across(self) -> str:
        """What stands below the axis from left to right."""
        return f"{self.along}, log" if self.kind == "sizes" else self.along

    def words(self, point: Point) -> str:
        """A point as people read it."""
        at, value = point
        measured = number_text(float(value)) + (" µs" if self.durations else "")
        if self.kind == "moments":
            return f"{moment_text(at)}: {measured}"
        return f"{size_text(round(at)) if self.kind == 'sizes' else f'{self.along} {at:.0f}'}: {measured}"

    def drawn(self, points: Sequence[Point]) -> list[Point]:
        """What the axes can show: 0 has no logarithm."""
        shown = [(at, value) for at, value in points if math.isfinite(value) and (at > 0 or self.kind != "sizes")]
        return [(at, value) for at, value in shown if value > 0 or not self.durations]


BANDWIDTH = Scale("bus bandwidth, GB/s", "message size", "sizes")
LATENCY = Scale("time per operation", "message size", "sizes", durations=True)


class Line(NamedTuple):
    """One curve: (bytes, GB/s), or (iteration, value) each. `wrong`: where results were wrong."""

    label: str
    points: Sequence[Point]
    style: int = 0
    """Number of the colour, marker and dashes; below 0 for a reference."""
    wrong: frozenset[int] = frozenset()
    apart: Sequence[Point] = ()
    """Points that do not count: a cross each, and no curve through them."""

    @property
    def shown(self) -> list[Point]:
        """All that takes room."""
        return [*self.points, *self.apart]


class Picture(NamedTuple):
    """Curves on the same axes."""

    lines: Sequence[Line]
    id: str
    """Makes the ids in it different from those of other pictures on the page."""
    description: str
    """For those who do not see."""
    scale: Scale = BANDWIDTH
    title: str = ""
    """What tells it from other pictures of the same thing."""


def chart(picture: Picture) -> str:
    """An <svg> with curves that are labelled at their ends; empty when there is nothing to draw."""
    drawn = picture.scale.drawn
    every = [line._replace(points=drawn(line.points), apart=drawn(line.apart)) for line in picture.lines]
    lines = [line for line in every if line.shown]
    if not lines:
        return ""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": picture.id,
        "font.family": "DejaVu Sans",
        "axes.unicode_minus": False,
    }
    with rc_context(settings):  # type: ignore[arg-type]
        figure = Figure(figsize=(WIDTH / 96, HEIGHT / 96), dpi=96, facecolor="none")
        FigureCanvasSVG(figure)
        labels = 20 + 7.4 * max(len(line.label) for line in lines)
        left, bottom = 54 / WIDTH, 42 / HEIGHT
        axes = figure.add_axes((left, bottom, 1 - left - labels / WIDTH, 1 - bottom - 24 / HEIGHT), facecolor="none")
        _scales(axes, lines, picture.scale)
        for line in lines:
            _curve(axes, line)
        _labels(axes, lines)
        titles = "".join(_titles(axes, line, picture.scale) for line in lines)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _inlined(out.getvalue(), picture).removesuffix("</svg>") + titles + "</svg>"


def _scales(axes: Axes, lines: Sequence[Line], scale: Scale) -> None:
    """Axes, grid and what stands beside them."""
    along, up = zip(*(point for line in lines for point in line.shown), strict=True)
    _across(axes, min(along), max(along), scale)
    _upward(axes, min(up), max(up), scale)
    axes.minorticks_off()
    axes.tick_params(
        length=0, pad=5, labelsize=TEXT * PX, labelcolor=PLACEHOLDERS["soft"], grid_color=PLACEHOLDERS["grid"]
    )
    axes.grid(True, linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set(color=PLACEHOLDERS["line"], linewidth=1)
    words: dict[str, Any] = {"fontsize": TEXT * PX, "color": PLACEHOLDERS["soft"], "transform": axes.transAxes}
    axes.text(0, 1.03, scale.upward, ha="left", va="bottom", **words)
    axes.text(1, -0.135, scale.across, ha="right", va="top", **words)


def _across(axes: Axes, low: float, high: float, scale: Scale) -> None:
    """The axis from left to right."""
    if scale.kind == "sizes":
        first, last = math.log2(low), math.log2(high)
        room = max(0.5, (last - first) * 0.03)
        axes.set_xscale("log", base=2)
        axes.set_xlim(2 ** (first - room), 2 ** (last + room))
        axes.set_xticks(*zip(*size_ticks(first, last), strict=True))
        return
    # One point alone has whole numbers beside it: in a narrower axis matplotlib writes 0.6 and 1.4.
    room = max(0.5, (high - low) * 0.03) if low < high else 1.0
    axes.set_xlim(low - room, high + room)
    if scale.kind == "moments":
        axes.set_xticks(*zip(*moment_ticks(low, high), strict=True))
    else:
        axes.locator_params(axis="x", nbins=6, integer=True)
        if high >= MANY_STEPS:
            from matplotlib.ticker import EngFormatter

            axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _upward(axes: Axes, low: float, high: float, scale: Scale) -> None:
    """The vertical axis. It has 0, as a cut one would exaggerate differences; a logarithmic one whole powers of ten."""
    if not scale.durations:
        axes.set_ylim(1.06 * min(0, low), 1.06 * max(0, high) or (0 if low < 0 else 1))
        axes.locator_params(axis="y", nbins=5)
        return
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    axes.set_yscale("log")
    axes.set_ylim(10.0**first, 10.0 ** max(last, first + 1))
    axes.set_yticks(*zip(*duration_ticks(first, max(last, first + 1)), strict=True))


def _look(line: Line) -> dict[str, Any]:
    """Colour, dashes and marker of a curve: each alone tells curves apart, on paper and for who sees no colours."""
    if line.style < 0:
        return {"color": PLACEHOLDERS["reference"], "linestyle": (0, (4, 3)), "linewidth": 1.3}
    colour = PLACEHOLDERS[SERIES[line.style % len(SERIES)]]
    hollow = {"markerfacecolor": PLACEHOLDERS["paper"], "markeredgewidth": 1.2} if line.style % 2 else {}
    return {
        "color": colour,
        "linestyle": DASHES[line.style % len(DASHES)],
        "linewidth": 1.7,
        "marker": MARKERS[line.style % len(MARKERS)],
        "markersize": 4.2,
        **hollow,
    }


def _curve(axes: Axes, line: Line) -> None:
    """Draw one curve and, over it, a cross at each size with wrong results; as high as the point before where there is
    none of its own, as of a loss that is not a number."""
    points = sorted(line.points)
    look = _look(line)
    if len(points) > MOST_MARKERS:
        look["marker"] = ""
    axes.plot([size for size, _ in points], [speed for _, speed in points], **look, clip_on=False)
    before = {at: [speed for size, speed in points if size <= at] for at in sorted(line.wrong)}
    wrong = [(at, speeds[-1]) for at, speeds in before.items() if speeds]
    if crosses := [*wrong, *line.apart]:
        marks: dict[str, Any] = {"linestyle": "none", "marker": "x", "markersize": 9, "markeredgewidth": 2.4}
        xs, ys = zip(*crosses, strict=True)
        axes.plot(xs, ys, color=PLACEHOLDERS["bad"], **marks, clip_on=False, zorder=5)


def _labels(axes: Axes, lines: Sequence[Line]) -> None:
    """Each near its curve's last point; from the top in the order of the lines where several are near each other."""
    height = axes.get_position().height * HEIGHT
    lines = [line for line in lines[::-1] if line.label and line.points]
    place = axes.transData + axes.transAxes.inverted()
    wanted = [round(place.transform(sorted(line.points)[-1])[1] * height / GAP) * GAP for line in lines]
    for line, y in zip(lines, spread(wanted, GAP, height), strict=True):
        glyph = "┅" if line.style < 0 else GLYPHS[line.style % len(GLYPHS)]
        axes.annotate(
            f"{glyph} {line.label}",
            (1, y / height),
            xycoords="axes fraction",
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=TEXT * PX,
            color=_look(line)["color"],
            parse_math=False,
        )


def _titles(axes: Axes, line: Line, scale: Scale) -> str:
    """A circle that nobody sees over each point, which browsers explain under the pointer without a script."""
    if line.style < 0 or not line.shown:
        return ""
    points = sorted(line.shown)
    chosen = points[:: -(-len(points) // MOST_TITLES)]
    found = []
    for point, (x, y) in zip(chosen, axes.transData.transform(chosen) * PX, strict=True):
        words = ": ".join(filter(None, [line.label, scale.words(point)]))
        place = f'cx="{x:.1f}" cy="{HEIGHT * PX - y:.1f}" r="5"'
        found.append(f'<circle class="point" {place}><title>{escape(words)}</title></circle>\n')
    return "".join(found)


def spread(wanted: Sequence[float], gap: float, top: float) -> list[float]:
    """Positions near the wanted ones, in their order, at least `gap` apart and, where they fit, from 0 to `top`."""
    order = sorted(range(len(wanted)), key=lambda number: wanted[number])
    placed: list[float] = []
    for number in order:
        placed.append(max(wanted[number], placed[-1] + gap if placed else 0.0))
    limit = top
    for at in reversed(range(len(placed))):
        placed[at] = min(placed[at], limit)
        limit = placed[at] - gap
    return [placed[order.index(number)] for number in range(len(wanted))]


def _inlined(svg: str, picture: Picture) -> str:
    """The <svg> alone, as wide as its place, with the page's colours and font and with ids of its own."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(
        r"<(metadata|style).*?</\1>\s*|(?<=<g) id=\"[^\"]*\"| transform=\"rotate\(-0 [^\"]*\"", "", svg, flags=re.DOTALL
    )
    box = re.search(r'viewBox="([^"]+)"', svg)
    head = f'<svg viewBox="{box[1] if box else ""}" role="img" aria-label="{escape(picture.description)}">'
    svg = re.sub(r"<svg[^>]*>", lambda _: head, svg, count=1)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]+", r"font-size: \1px", svg)
    svg = re.sub(r"font-family: [^;\"]+;? ?", "", svg)
    svg = re.sub(r'((?:\bid|xlink:href|clip-path)="(?:url\()?#?)', rf"\g<1>{picture.id}-", svg)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'(?<==")[^"<>]*', lambda found: re.sub(r"(-?\d+\.\d{2})\d+", r"\1", found[0]), svg)  # not in labels
    for colour, placeholder in PLACEHOLDERS.items():
        svg = svg.replace(placeholder, f"var(--{colour})")
    return re.sub(r"\n\s*", "\n", svg).strip()
