"""What the docs list is what the code has; so is what lists workloads or fabrics elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from agent.catalogue import RUNNABLE, WORKLOADS
from agent.commands import VERBS
from agent.decide.grace import LEAST_TERM_SECONDS, MOST_STORE_SECONDS, RESERVED_SECONDS, USUAL, divided
from agent.decide.messages import CHANNEL_VERSION, COORDINATOR_SAYS, WORKER_SAYS
from agent.errors import Exit
from agent.fabrics import FABRICS
from agent.fabrics.profiles import CHOICES
from agent.lifecycle.channel.link import beat_seconds
from agent.lifecycle.waits import PROBE_SECONDS
from agent.machine.api import SERVER_SECONDS
from agent.machine.output_writer import UNREAD_SECONDS
from agent.settings import SETTINGS
from agent.workloads import find_workload
from scripts import chart_names

ROOT = Path(__file__).parents[1]
# The program that stores logs is none that can be imported.
(PIECE_SECONDS,) = map(
    float, re.findall(r"^PIECE_SECONDS = (.*)$", (ROOT / "entrypoints/keep-results.py").read_text(), re.M)
)


def doc(name: str) -> str:
    return (ROOT / name).read_text()


def test_settings_are_documented_with_their_defaults() -> None:
    cells = dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) \|", doc("docs/settings.md"), re.MULTILINE))
    missing = [one.name for one in SETTINGS if one.name not in cells]
    assert missing == [], f"docs/settings.md has no row for {', '.join(missing)}"
    told = {one.name: (cells[one.name], f"`{one.default}`") for one in SETTINGS if one.default}
    other = {name: both for name, both in told.items() if both[0] != both[1]}
    assert other == {}, "docs/settings.md has other defaults"  # what has none, or an empty one, has its words there


@pytest.mark.parametrize("page", ["docs/exit-codes.md", "docs/troubleshooting.md"])
def test_every_exit_code_is_documented(page: str) -> None:
    cells = re.findall(r"^\| ([\d, ]+) \|", doc(page), re.MULTILINE)
    missing = {f"{code:d}" for code in Exit if code} - set(", ".join(cells).split(", "))
    assert missing == set(), f"{page} has no row for them"


LISTED = [
    ("docs/maintainers/control-channel.md", r"^\| `(\w+)` +\|", [*COORDINATOR_SAYS, *WORKER_SAYS]),
    ("README.md", r"\ba4-agent ([\w-]+)", VERBS),
    ("README.md", r"^\| \[?`([^`]+)`", RUNNABLE),
    ("docs/workloads.md", r"^\| \[?`([^`]+)`", RUNNABLE),
    (
        "docs/environment.md",
        r"^(\| `.*?` \| `.*?` \|)",
        [f"| `{name}` | `{one.mark}` |" for name, one in FABRICS.items()],
    ),
]


@pytest.mark.parametrize(("page", "row", "names"), LISTED, ids=[page for page, *_ in LISTED])
def test_the_docs_list_all(page: str, row: str, names: Iterable[str]) -> None:
    missing = set(names) - set(re.findall(row, doc(page), re.MULTILINE))
    assert missing == set(), f"{page} has no row for them"


WORDS = [
    "DNS does not know its name yet",
    "did not answer within",
    "does not answer",
    "refuses the job's SSH key",
    "shows a host key that is not pod",
    "gIB is not installed in this pod",
    "active RDMA NICs in /sys/class/infiniband",
    "expects NCCL's network",
    "no socket of the TCPX daemon",
    "the GPU-NIC mapping is at fault",
    "mpirun found fewer slots than ranks",
    "these values cannot be used",
]


def test_troubleshooting_has_the_words_of_the_agent_and_the_chart() -> None:
    said = "\n".join(path.read_text() for path in (*ROOT.glob("agent/**/*.py"), *ROOT.glob("chart/templates/*.tpl")))
    assert [words for words in WORDS if words not in doc("docs/troubleshooting.md") or words not in said] == []


@pytest.mark.parametrize("lease", [3.0, 12.0, 30.0, 600.0])
def test_beats_are_as_often_as_documented(lease: float) -> None:
    found = re.search(
        r"a beat every (\d+) s, .* and never fewer than six per lease", doc("docs/maintainers/control-channel.md")
    )
    assert found is not None and beat_seconds(lease) == min(float(found[1]), lease / 6)


(LEASE,) = (float(one.default or 0) for one in SETTINGS if one.name == "A4_LEASE_SECONDS")
QUOTES = [
    ("README.md", f"every pod learns of it within {LEASE + beat_seconds(LEASE):g} s"),
    ("docs/maintainers/faults.md", f"a lease ({LEASE:g} s) and a beat ({beat_seconds(LEASE):g} s)"),
    ("docs/performance.md", f"Pods are lost when their lease of {LEASE:g} s is over"),
    ("docs/performance.md", f"is noticed after a lease ({LEASE:g} s) and a beat"),
    ("docs/runs.md", f"at most for a lease ({LEASE:g} s)"),
    ("docs/sync.md", f"`A4_LEASE_SECONDS` ({LEASE:g})"),
]


def test_pages_quote_the_lease_and_the_beat() -> None:
    other = [(page, words) for page, words in QUOTES if words not in re.sub(r"\s+", " ", doc(page))]
    assert other == [], "another lease or beat is quoted there"


def test_every_fault_has_a_test() -> None:
    table = [
        line
        for line in doc("docs/maintainers/faults.md").splitlines()
        if line.startswith("| ") and "| fault |" not in line
    ]
    named = [re.findall(r"`(tests/[^`]+)`", line.rpartition(" | ")[2]) for line in table]
    assert table and all(named), [line for line, tests in zip(table, named, strict=True) if not tests]
    for test in sorted(set().union(*named)):
        path, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", doc(path), re.MULTILINE), f"there is no {test}"


PAGES = [
    *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/**/*.md")),
    *("README.md", "CONTRIBUTING.md", "chart/README.md", "examples/README.md"),
]


def test_the_recipe_for_lives_is_that_of_the_example() -> None:
    (recipe,) = re.findall(r"^```python\n(.*?)^```", doc("docs/lives.md"), re.MULTILINE | re.DOTALL)
    lines = [line.strip() for line in recipe.splitlines() if line and not line.startswith("#")]
    example = {line.strip() for line in doc("examples/train.py").splitlines()}
    assert [line for line in lines if line not in example] == [], "examples/train.py has other lines"


def test_rows_have_the_columns_of_their_table() -> None:
    tables = [(page, table) for page in PAGES for table in re.findall(r"(?:^\|.*\n)+", doc(page), re.MULTILINE)]
    columns = r"(?<!\\)\|"
    assert [one for one in tables if len({len(re.findall(columns, row)) for row in one[1].splitlines()}) > 1] == []


def test_the_paths_of_contributing_exist() -> None:
    folders = [path.name for path in ROOT.iterdir() if path.is_dir()]
    named = re.findall(rf"`((?:{'|'.join(map(re.escape, folders))})/[\w./-]+)`", doc("CONTRIBUTING.md"))
    assert [path for path in named if not (ROOT / path).exists()] == ["env/NAME.env"]


@pytest.mark.parametrize("grace", [120, 30])
def test_the_docs_have_the_shares_of_the_grace_time(grace: int) -> None:
    table = re.findall(r"^\| ([\w' ]+) \| (\d+) \| (\d+) \|", doc("docs/grace.md"), re.MULTILINE)
    told = {name: float(one if grace == 120 else other) for name, one, other in table}
    warn, term, kill, answer, announce, store = divided(grace)
    assert told == {
        "the workload's": warn + term,
        "kill": kill,
        "answer": answer,
        "announce": announce,
        "store": store,
        "Kubernetes'": RESERVED_SECONDS,
    }


@pytest.mark.parametrize(
    ("page", "words", "seconds"),
    [
        ("grace.md", r"Below (\d+) s the agent's shares shrink", USUAL.leave + RESERVED_SECONDS),
        ("grace.md", r"the last (\d+) s stay", RESERVED_SECONDS),
        ("grace.md", r"If less than (\d+) s remained", LEAST_TERM_SECONDS),
        ("grace.md", r"get SIGTERM and (\d+) s later SIGKILL", USUAL.term),
        ("files.md", r"Storing is retried at the end for (\d+) s", MOST_STORE_SECONDS),
        ("files.md", r"are stored every (\d+) s, so that", PIECE_SECONDS),
        ("runs.md", r"it waits at most (\d+) s; the output is then cut", UNREAD_SECONDS),
        ("settings.md", r"no answer within (\d+) s is a warning", PROBE_SECONDS),
        ("settings.md", r"it is tried once more, for (\d+) s", SERVER_SECONDS),
        ("maintainers/control-channel.md", r"and a worker, version (\d+),", CHANNEL_VERSION),
    ],
)
def test_the_docs_have_the_times_of_the_code(page: str, words: str, seconds: float) -> None:
    told = re.findall(words.replace(" ", r"\s+"), doc(f"docs/{page}"))
    assert told == [f"{seconds:g}"], f"docs/{page} says {words}"


# Workloads and fabrics


def test_every_room_has_a_row() -> None:
    places = ("agent/workloads/**/*.py", "agent/clinic/find_slow/*.py")
    rooms = "".join(path.read_text() for place in places for path in ROOT.glob(place))
    named = set(re.findall(r'^class \w+\(\w+\):\n    name = "([^"]+)"', rooms, re.MULTILINE))
    assert named == set(WORKLOADS), "agent/catalogue.py has a row for each workload, and only for those"


@pytest.mark.parametrize("path", chart_names.FILES, ids=lambda path: path.name)
def test_the_chart_takes_these_workloads_and_fabrics(path: Path) -> None:
    text = path.read_text()
    assert text == chart_names.FILES[path](text), f"to give the chart the agent's names: {chart_names.COMMAND}"


def test_the_docs_tell_the_limits_of_silence() -> None:
    limits = {entry.stall_seconds for entry in WORKLOADS.values()} - {0.0}
    (told,) = re.findall(r"`auto`: (\d+) for (.*?), else never", doc("docs/settings.md"))
    assert (limits, set(re.findall(r"`(\w+)`", told[1]))) == (
        {float(told[0])},
        {name for name, entry in WORKLOADS.items() if entry.stall_seconds},
    )


def test_the_settings_page_has_each_fabric() -> None:
    (cell,) = re.findall(r"^\| `A4_PROFILE` \|.*", doc("docs/settings.md"), re.MULTILINE)
    assert set(CHOICES) <= set(re.findall(r"`([^`]+)`", cell)), "docs/settings.md, the row of A4_PROFILE"


def test_every_file_of_variables_is_a_fabrics() -> None:
    """And every fabric has one."""
    assert {path.stem for path in ROOT.glob("env/*.env")} == set(FABRICS)


def test_the_docs_have_the_options_of_each_workload() -> None:
    missing = []
    for name in RUNNABLE:
        page = doc({"nccl": "docs/nccl.md", "deepep": "docs/deepep.md"}.get(name, "docs/workloads.md"))
        for option in find_workload(name).options:
            names = ", ".join(f"`{one}`" for one in (*option.names[:-1], f"{option.names[-1]} {option.value}"))
            defaults = "".join(f" {one} |" for one in (option.default, option.on_gloo) if one)
            row = f"| {names} | {option.help} |{defaults}"
            missing += [f"{name}: {row}"] if row not in page else []
    assert missing == [], "they have no row in the docs"


def test_the_workflow_has_a_job_for_each_stage_of_ci() -> None:
    (matrix,) = re.findall(r"target: \[(.*)\]", doc(".github/workflows/ci.yml"))
    assert set(matrix.split(", ")) == set(re.findall(r"\bmake (test[\w-]*)", re.sub("(?m)^#.*", "", doc(".ci/run"))))
