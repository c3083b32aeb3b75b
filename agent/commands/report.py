"""`a4-agent report`: result.json as a page for people; several on one page, compared or over time."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence

from agent.commands.pod import read_state
from agent.commands.printing import json_text, write_file
from agent.decide.result import Result
from agent.decide.result_reader import NotAResult, read_result
from agent.errors import MissingProgram, UsageError
from agent.machine import files
from agent.output import STDOUT, say, write_all
from agent.paths import RESULT, RunDir
from agent.workbench.comparing.comparison import MOST_COMPARED, comparison_json

DESCRIPTION = """\
Makes a page of the results of runs: one HTML file that needs no network.
RESULT is a result.json, a directory that has one, the name or id of a run of this pod, or - for standard input;
by default the newest run of this pod. A directory without a result.json stands for all results below it, by time.
Two to four are compared with the first; more are listed, with their measurements over time.
"""
EXAMPLES = """\
a4-agent report
a4-agent report night-1 night-2
a4-agent report a4-results/ -o nightly.html
"""
RUN_ID = r"[A-Za-z0-9][A-Za-z0-9._-]*"
EXAMPLE = "for example: a4-agent report results/result.json"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", nargs="*", metavar="RESULT", help="what to report on")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write to FILE, or - for stdout (default: report.html beside the result; in the current directory, "
        "comparison.html for two to four, trend.html for more)",
    )
    parser.add_argument("--json", action="store_true", help="the comparison as JSON, on stdout unless -o says where")


def run(args: argparse.Namespace) -> int:
    """Make the page and say where it is. Raises UsageError, MissingProgram and DirectoryUnusable."""
    groups = [_find(name) for name in args.results] or [[_newest(RunDir())]]
    paths = [path for group in groups for path in group]
    if args.json and len(paths) < 2:
        raise UsageError("--json compares several results", "the JSON of one run is its result.json")
    results, unread = _read_all(groups, strict=len(paths) <= MOST_COMPARED)
    for why in unread:
        say(f"skipped: {why}")
    text = json_text(comparison_json(results)) if args.json else _page(results, unread, many=len(paths) > MOST_COMPARED)
    output = args.output or _default_output(paths, args.json)
    if output == "-":
        write_all(STDOUT, text.encode())
    else:
        write_file(output, text, "write it elsewhere with -o FILE, or to stdout with -o -")
        say(f"the report is in {os.path.abspath(output)}")
    return 0


def _find(name: str) -> list[str]:
    """Paths of what is meant, or -. Raises MissingProgram."""
    if os.path.isdir(name):
        return _in_directory(name)
    if name == "-" or os.path.exists(name):  # a file, or a pipe, as of <(…)
        return [name]
    directory = RunDir()
    state = read_state(directory)
    run_id = state.run_id(name) if state else name
    stored = [run.results for run in (state.known_runs if state else ()) if run.id == run_id and run.results]
    for place in (directory.run(run_id), *stored):
        if re.fullmatch(RUN_ID, name) and os.path.exists(kept := os.path.join(place, RESULT)):
            return [kept]
    if name.startswith("gs://"):
        raise MissingProgram(f"{name} is in a bucket", f"copy it first: gcloud storage cp {name} .")
    what = f"{name} is not a file, a directory or a run that this pod has a {RESULT} of"
    raise MissingProgram(what, "a4-agent status lists runs; pod 0 has their results, and a4-agent get RUN fetches one")


def _in_directory(name: str) -> list[str]:
    """Its result.json; else each one below it; else the JSON files in it. Its result.json where it has none of these:
    reading it says so."""
    own = os.path.join(name, RESULT)
    if os.path.exists(own):
        return [own]
    below = [os.path.join(place, RESULT) for place, _, names in os.walk(name) if RESULT in names]
    return sorted(below) or [os.path.join(name, one) for one in files.list_dir(name) if one.endswith(".json")] or [own]


def _newest(directory: RunDir) -> str:
    """The newest of the runs that this pod has a result of. Raises UsageError when there is none."""
    found = (os.path.join(directory.run(name), RESULT) for name in reversed(files.list_dir(directory.runs)))
    path = next((path for path in found if os.path.exists(path)), "")
    if not path:
        what = f"this pod has no result of a run (pod 0 has them): say which {RESULT} to report on"
        raise UsageError(what, "a4-agent get fetches one; then a4-agent report a4-results/RUN")
    return path


def _read_all(groups: Sequence[Sequence[str]], strict: bool) -> tuple[list[Result], list[str]]:
    """The results, those of each group by time, and what could not be read, a line each. Raises UsageError and
    MissingProgram: if `strict` for any of them, else when none can be read."""
    results, unread = [], []
    for paths in groups:
        read = []
        for path in paths:
            try:
                read.append(_read(path))
            except (MissingProgram, UsageError) as error:
                if strict:
                    raise
                unread.append(error.what)
        results += sorted(read, key=lambda result: result.since)
    if not results:
        raise UsageError(f"none of the {len(unread)} results can be read", unread[0])
    return results, unread


def _read(path: str) -> Result:
    """Raises MissingProgram when it cannot be read, UsageError when it is not a result."""
    name = "standard input" if path == "-" else path
    try:
        text = sys.stdin.read() if path == "-" else files.read(path)
    except OSError as error:
        raise MissingProgram(f"{name} cannot be read: {error.strerror}") from error
    if text is None:
        raise MissingProgram(f"{os.path.dirname(path) or '.'} has no {os.path.basename(path)}", EXAMPLE)
    try:
        return read_result(json.loads(text))
    except NotAResult as error:
        raise UsageError(f"{name} cannot be reported on: {error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON: {error}") from error


def _page(results: Sequence[Result], unread: Sequence[str], many: bool) -> str:
    """Raises MissingProgram when a library of the report is not installed."""
    from agent.report.page import render_run
    from agent.workbench.comparing.page import render_comparison, render_series

    try:
        if many:
            return render_series(sorted(results, key=lambda result: result.since), unread)
        return render_run(results[0]) if len(results) == 1 else render_comparison(results)
    except ImportError as error:
        library = {"jinja2": "Jinja2", "markupsafe": "Jinja2"}.get((error.name or "").split(".")[0], "matplotlib")
        what = f"a report needs {library}, which this Python cannot import: {error}"
        raise MissingProgram(what, f"{sys.executable} -m pip install Jinja2 matplotlib") from error


def _default_output(paths: Sequence[str], as_json: bool) -> str:
    """Never a place where another kind of report would be: a comparison does not replace the report of a run."""
    if as_json:
        return "-"
    if len(paths) > 1:
        return "comparison.html" if len(paths) <= MOST_COMPARED else "trend.html"
    return os.path.join(os.path.dirname(paths[0]), "report.html")
