"""What the docs list is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.catalogue import RUNNABLE
from agent.commands import VERBS
from agent.decide.grace import LEAST_TERM_SECONDS, MOST_STORE_SECONDS, RESERVED_SECONDS, USUAL, divided
from agent.decide.messages import COORDINATOR_SAYS, WORKER_SAYS
from agent.errors import Exit
from agent.lifecycle.channel.link import beat_seconds
from agent.lifecycle.waits import PROBE_SECONDS
from agent.machine.api import SERVER_SECONDS
from agent.settings import SETTINGS, Setting

ROOT = Path(__file__).parents[1]
# The program that stores logs is none that can be imported.
(PIECE_SECONDS,) = map(
    float, re.findall(r"^PIECE_SECONDS = (.*)$", (ROOT / "entrypoints/keep-results.py").read_text(), re.M)
)


def doc(name: str) -> str:
    return (ROOT / name).read_text()


def rows(text: str) -> list[str]:
    """First cells of all table rows."""
    return re.findall(r"^\| `?([^`|]+?)`? *\|", text, re.MULTILINE)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_setting_is_documented_with_its_default(setting: Setting) -> None:
    cells = dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) \|", doc("docs/settings.md"), re.MULTILINE))
    assert setting.name in cells, f"docs/settings.md has no row for {setting.name}"
    if setting.default:  # what has none, or an empty one, has its words there
        assert cells[setting.name] == f"`{setting.default}`", f"docs/settings.md, the default of {setting.name}"


@pytest.mark.parametrize("page", ["docs/exit-codes.md", "docs/troubleshooting.md"])
def test_every_exit_code_is_documented(page: str) -> None:
    listed = {int(number) for cell in rows(doc(page)) for number in re.findall(r"\d+", cell)}
    missing = [f"{code.name}, {code}" for code in Exit if code and int(code) not in listed]
    assert missing == [], f"{page} has no row for {'; '.join(missing)}"


@pytest.mark.parametrize(
    "message",
    [
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
    ],
)
def test_troubleshooting_has_the_words_of_the_agent_and_the_chart(message: str) -> None:
    assert message in doc("docs/troubleshooting.md")
    sources = [*ROOT.glob("agent/**/*.py"), *ROOT.glob("chart/templates/*.tpl")]
    assert any(message in path.read_text() for path in sources)


def test_every_message_is_documented() -> None:
    listed = set(rows(doc("docs/control-channel.md")))
    missing = (set(COORDINATOR_SAYS) | set(WORKER_SAYS)) - listed
    assert missing == set(), "docs/control-channel.md has no row for them"


@pytest.mark.parametrize("lease", [3.0, 12.0, 30.0, 600.0])
def test_beats_are_as_often_as_documented(lease: float) -> None:
    found = re.search(r"a beat every (\d+) s, .* and never fewer than six per lease", doc("docs/control-channel.md"))
    assert found is not None and beat_seconds(lease) == min(float(found[1]), lease / 6)
    assert f"a lease (30 s) and a beat ({found[1]} s)" in doc("docs/faults.md")


def test_the_readme_names_every_verb_and_workload() -> None:
    text = doc("README.md")
    missing = {verb for verb in VERBS if f"a4-agent {verb}" not in text} | set(RUNNABLE) - set(rows(text))
    assert missing == set(), "README.md does not name them"


def test_every_fault_has_a_test() -> None:
    table = [line for line in doc("docs/faults.md").splitlines() if line.startswith("| ") and "| fault |" not in line]
    named = [re.findall(r"`(tests/[^`]+)`", line.rpartition(" | ")[2]) for line in table]
    assert table and all(named), [line for line, tests in zip(table, named, strict=True) if not tests]
    for test in sorted(set().union(*named)):
        path, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", doc(path), re.MULTILINE), f"there is no {test}"


PAGES = [
    *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/**/*.md")),
    *("README.md", "CONTRIBUTING.md", "chart/README.md", "examples/README.md"),
]


def anchors(text: str) -> set[str]:
    """What GitHub makes of the headings."""
    titles = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", doc(page)):
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), f"{page} links to {target}"
        assert not anchor or anchor in anchors(path.read_text()), f"{page} links to {target}#{anchor}"


@pytest.mark.parametrize("page", PAGES)
def test_rows_have_the_columns_of_their_table(page: str) -> None:
    for table in re.findall(r"(?:^\|.*\n)+", doc(page), re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1, table


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
        ("settings.md", r"no answer within (\d+) s is a warning", PROBE_SECONDS),
        ("settings.md", r"it is tried once more, for (\d+) s", SERVER_SECONDS),
    ],
)
def test_the_docs_have_the_times_of_the_code(page: str, words: str, seconds: float) -> None:
    told = re.findall(words.replace(" ", r"\s+"), doc(f"docs/{page}"))
    assert told == [f"{seconds:g}"], f"docs/{page} says {words}"
