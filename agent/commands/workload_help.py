"""What `a4-agent run WORKLOAD --help` says: the workload's own arguments."""

from __future__ import annotations

import argparse

from agent.catalogue import WORKLOADS


def workload_parser(name: str) -> argparse.ArgumentParser:
    """The options of a workload, for help and completion. What is typed is read by the workload itself."""
    from agent.workloads import find_workload

    workload = find_workload(name)
    rest = f"All other arguments go to {workload.passes_on}. " if workload.passes_on else ""
    parser = argparse.ArgumentParser(
        prog=f"a4-agent run {name}",
        usage=f"a4-agent run [options] {name}{' [-- ARGUMENT ...]' if workload.options or rest else ''}",
        description=WORKLOADS[name].help,
        epilog=f"{rest}a4-agent run --help has the options of every run.",
        add_help=False,
    )
    group = parser.add_argument_group("arguments, after --")
    for one in workload.options:
        default = f" (default: {one.defaults})" if one.default else ""
        group.add_argument(*one.names, metavar=one.value, help=one.help.replace("%", "%%") + default)
    return parser
