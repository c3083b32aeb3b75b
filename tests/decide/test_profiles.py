"""Env files, the choice of a profile, and the scripts that go with it."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import MissingProgram
from agent.fabrics import FABRICS
from agent.fabrics.a3_tcpx import MARK as TCPX
from agent.fabrics.a4_deepep import MARK as DEEPEP
from agent.fabrics.a4_deepep import SCRIPT as DEEPEP_SCRIPT
from agent.fabrics.a4_gib import MARK as GIB
from agent.fabrics.a4_gib import SCRIPT as GIB_SCRIPT
from agent.fabrics.profiles import CHOICES, PROFILES, Profile, choose, parse, vendor_scripts
from tests.decide.profiles import profile, text

MARKS = {fabric.mark: name for name, fabric in FABRICS.items()}
HERE = Profile("here", "it is a test")


def test_a_line_is_taken_as_it_stands() -> None:
    found = parse(HERE, "# comment\n\nA=1\nB= $x `y` \"z\" 'a';b # c \\\nunset C\nD=\nE==\n")
    assert found.values == {"A": "1", "B": " $x `y` \"z\" 'a';b # c \\", "D": "", "E": "="}
    assert (found.unset, found.name, found.why) == (("C",), "here", "it is a test")


@given(st.text(st.characters(exclude_characters="\n\r")))
def test_any_value_arrives(value: str) -> None:
    assert parse(HERE, f"A={value}\n").values == {"A": value}


@pytest.mark.parametrize("line", ["A", "=1", " A=1", "export A=1", "1A=2", "unset", "unset A B", "unset A=1", "A-B=1"])
def test_what_is_no_line(line: str) -> None:
    with pytest.raises(ValueError, match="line 2 is neither"):
        parse(HERE, f"A=1\n{line}\n")


FORM = """\
it begins with comments that say what the fabric is; after an empty line, for each variable:

# why, in one line or more
NAME=VALUE          (or: unset NAME)

"""


def misshapen(text: str) -> list[str]:
    """What of an env file is not as we write ours, though the agent would read it."""
    introduction, *rest = (part.splitlines() for part in re.split(r"\n\n+", text.strip()))
    found = [line for line in introduction if not line.startswith("#")]
    for *comment, line in rest:
        explained = comment and all(each.startswith("# ") for each in comment)
        name, is_value, value = line.partition("=")
        good = value == value.strip() != "" if is_value else name.startswith("unset ")
        if not (explained and good and len(line) <= 220):
            found.append("\n".join([*comment, line]))
    return found


@pytest.mark.parametrize("name", PROFILES)
def test_every_line_of_the_shipped_profiles_has_its_reason(name: str) -> None:
    shipped = profile(name)
    assert misshapen(text(name)) == [], f"env/{name}.env: {FORM}"
    assert len(re.split(r"\n\n+", text(name).strip())) > len(shipped.values) + len(shipped.unset)


def test_the_bindings_of_tcpx_are_whole() -> None:
    values = profile("a3-tcpx").values
    for name in ("NCCL_GPUDIRECTTCPX_TX_BINDINGS", "NCCL_GPUDIRECTTCPX_RX_BINDINGS"):
        assert [part.split(":")[0] for part in values[name].split(";")] == ["eth1", "eth2", "eth3", "eth4"]
    assert values["NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX"] == TCPX


def test_no_core_both_sends_and_receives() -> None:
    values = profile("a3-tcpx").values
    sending, receiving = (_cores(values[f"NCCL_GPUDIRECTTCPX_{way}_BINDINGS"]) for way in ("TX", "RX"))
    assert sending & receiving == set()


def _cores(bindings: str) -> set[int]:
    ranges = [part.split("-") for binding in bindings.split(";") for part in binding.split(":")[1].split(",")]
    return {core for low, high in ranges for core in range(int(low), int(high) + 1)}


@pytest.mark.parametrize("there", [set(c) for n in range(4) for c in itertools.combinations(MARKS, n)])
def test_auto_goes_by_what_is_there(there: set[str]) -> None:
    """The first in the order of FABRICS whose mark is there."""
    marks = [mark for mark in MARKS if mark in there]
    found = choose("auto", there)
    assert (found.name, found.asked) == (MARKS[marks[0]] if marks else "none", False)
    assert all((mark in found.why) == (mark in marks[:1] or not there) for mark in MARKS)


@pytest.mark.parametrize("name", [name for name in CHOICES if name != "auto"])
def test_what_is_asked_for_is_taken(name: str) -> None:
    assert choose(name, set(MARKS)) == Profile(name, f"A4_PROFILE={name}", asked=True)


ALL = {GIB, DEEPEP, GIB_SCRIPT, DEEPEP_SCRIPT}


@pytest.mark.parametrize(
    ("wanted", "init", "there", "run"),
    [
        ("auto", "", {GIB, GIB_SCRIPT}, [GIB_SCRIPT]),
        ("auto", GIB_SCRIPT, {GIB, GIB_SCRIPT}, [GIB_SCRIPT]),
        ("auto", "", ALL, [DEEPEP_SCRIPT, GIB_SCRIPT]),
        ("auto", "", {DEEPEP, DEEPEP_SCRIPT}, [DEEPEP_SCRIPT]),
        ("auto", "", {TCPX}, []),
        ("auto", "/own.sh", {"/own.sh"}, ["/own.sh"]),
        ("auto", "/own.sh", {*ALL, "/own.sh"}, [DEEPEP_SCRIPT, GIB_SCRIPT, "/own.sh"]),
        ("a4-gib", "", ALL, [GIB_SCRIPT]),
        ("none", GIB_SCRIPT, ALL, []),
        ("none", GIB_SCRIPT, set(), []),
    ],
)
def test_scripts_to_run(wanted: str, init: str, there: set[str], run: list[str]) -> None:
    found, notes = vendor_scripts(choose(wanted, there), init, there)
    assert found == run
    assert bool(notes) == (wanted == "none" or there == {DEEPEP, DEEPEP_SCRIPT})


@pytest.mark.parametrize(
    ("wanted", "init", "there", "missing"),
    [
        ("auto", "", {GIB}, GIB_SCRIPT),
        ("auto", "", {DEEPEP, GIB, GIB_SCRIPT}, DEEPEP_SCRIPT),
        ("auto", "", {DEEPEP, DEEPEP_SCRIPT, GIB}, GIB_SCRIPT),
        ("auto", GIB_SCRIPT, set(), GIB_SCRIPT),
        ("a4-gib", "", set(), GIB_SCRIPT),
        ("a4-deepep", "", {DEEPEP, DEEPEP_SCRIPT}, GIB_SCRIPT),
    ],
)
def test_a_script_that_should_be_there(wanted: str, init: str, there: set[str], missing: str) -> None:
    with pytest.raises(MissingProgram, match=missing):
        vendor_scripts(choose(wanted, there), init, there)
