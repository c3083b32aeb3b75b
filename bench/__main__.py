"""`make bench`: every figure of docs/performance.md that one machine can give, and the curve of pods to seconds."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench import exec as commands
from bench import figures, lives, single, startup, sync, why
from bench.curve import svg

CURVE = Path(__file__).resolve().parent.parent / "docs" / "performance.json"
"""Curves that were measured before: those of other machines stay as they are."""


def main() -> int:
    args = parse_args()
    found = single.figures()
    rows = [startup.measure(pods, args.repeats) for pods in args.pods]
    found += startup.figures(rows, args.repeats)
    found += [one for pods in args.exec_pods for one in commands.figures(pods, args.repeats)]
    found += [one for pods in args.exec_pods for one in why.figures(pods, args.repeats)]
    found += [one for pods in args.exec_pods for one in lives.figures(pods, args.repeats)]
    found += sync.figures(args.repeats)
    machine = figures.machine()
    if args.curve:
        keep_curve(f"{machine['cores']} cores, {machine['date']}", rows)
    if args.json:
        told = {**machine, "figures": [one.to_json() for one in found], "clusters": rows}
        print(json.dumps(told, indent=1))
    else:
        print(f"{machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']}\n")
        print(startup.table(rows), figures.table(found), sep="\n")
    return 0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pods", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64], help="sizes of clusters")
    parser.add_argument("--exec-pods", type=int, nargs="*", default=[16, 64], help="sizes in which commands are run")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each; the median counts")
    parser.add_argument("--json", action="store_true", help="JSON instead of tables")
    parser.add_argument("--curve", action="store_true", help="keep the curve in docs/performance.json and .svg")
    return parser.parse_args()


def keep_curve(name: str, rows: list[dict[str, float]]) -> None:
    """Replace the curve of whole clusters among those that are kept, and draw them all."""
    kept = json.loads(CURVE.read_text())
    kept["whole cluster"] = {"where": name, "seconds": {row["pods"]: round(row["seconds"], 2) for row in rows}}
    CURVE.write_text(json.dumps(kept, indent=1) + "\n")
    CURVE.with_suffix(".svg").write_text(picture(kept))


def picture(kept: dict[str, Any]) -> str:
    return svg(
        {
            f"{title}: {curve['where']}": [(int(pods), seconds) for pods, seconds in curve["seconds"].items()]
            for title, curve in kept.items()
        }
    )


if __name__ == "__main__":
    sys.exit(main())
