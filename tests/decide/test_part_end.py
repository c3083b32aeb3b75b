"""A part's end fits into a message, whatever was printed; why a run cannot begin, in the words of all its pods."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.messages import Done, encode, message
from agent.decide.part_end import MOST_BYTES, PartEnd, bounded, refusal
from agent.decide.ranks import RankEnd
from agent.decide.series import PodSeries
from agent.machine import stream
from agent.wire import to_json

texts = st.text() | st.binary(max_size=400).map(lambda data: data.decode(errors="replace")) | st.just("\ufffd" * 300)
ends = st.builds(
    PartEnd,
    status=st.none() | st.integers(-64, 255),
    code=st.integers(0, 255),
    what=st.just(""),
    launch=st.none(),
    record=texts,
    output=texts,
    error=texts,
    notes=st.dictionaries(st.text(max_size=3), texts, max_size=2),
    versions=st.just({"torch": "2.8.0"}),
    series=st.none() | texts.map(lambda text: PodSeries(quote=text)),
    ranks=st.dictionaries(st.integers(0, 9), st.integers(0, 255).map(RankEnd), max_size=3),
)


def size(end: PartEnd) -> int:
    return len(json.dumps(to_json(end)))


@given(ends, st.integers(1000, 3000))
def test_it_fits_and_says_as_much_as_fits(end: PartEnd, most: int) -> None:
    found = bounded(end, most)
    assert size(found) <= most
    assert (found.status, found.code, found.ranks) == (end.status, end.code, end.ranks)
    assert end.output.endswith(found.output) and end.error.startswith(found.error)
    assert end.record.startswith(found.record)
    assert found == end or size(end) > most
    if size(end) > most and found.output:
        # Nothing else was cut, and one more line would be too much, or where lines are too long one more character.
        cut = end.output[: -len(found.output)]
        at = cut.rfind("\n", 0, -1) + 1 if cut.endswith("\n") else len(cut) - 1
        assert found._replace(output="") == end._replace(output="")
        assert size(found._replace(output=end.output[at:])) > most


@pytest.mark.parametrize("text", ["\ufffd", "\x00", "\x1b", "é", "x"])
def test_the_message_fits_into_a_line(text: str) -> None:
    end = PartEnd(1, 1, record=text * (2 << 20), output=text * (1 << 20), error=text * (64 << 10))
    line = encode({**message(Done("collectives-1a2b", bounded(end))), "seq": 10**9, "seen": 10**9})
    assert len(line) < stream.MOST_BYTES
    assert MOST_BYTES < stream.MOST_BYTES


ABSENT = PartEnd(None, 66, "./a.out cannot be started: No such file or directory")
TAKEN = PartEnd(None, 71, "MASTER_PORT 6002 is taken by python\nend it")


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ({}, None),
        ({0: PartEnd(0), 1: PartEnd(None)}, None),
        ({2: ABSENT}, (66, "./a.out cannot be started: No such file or directory", "pod 2, c", "")),
        (
            {3: ABSENT, 1: ABSENT, 0: PartEnd(None)},
            (66, "./a.out cannot be started: No such file or directory", "pods 1,3", ""),
        ),
        ({1: TAKEN}, (71, "MASTER_PORT 6002 is taken by python", "pod 1, b", "end it")),
        (
            {3: ABSENT, 2: ABSENT, 1: TAKEN},
            (71, "MASTER_PORT 6002 is taken by python", "pod 1, b", f"end it\npods 2-3: {ABSENT.what}"),
        ),
    ],
)
def test_the_reason_of_the_first_pod_and_who_shares_it(
    ends: dict[int, PartEnd], told: tuple[int, str, str, str] | None
) -> None:
    end = refusal(ends, lambda index: f"pod {index}, {'abcd'[index]}")
    assert (None if end is None else (end.code, end.what, end.where, end.why)) == told
