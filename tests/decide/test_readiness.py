"""Why a run cannot begin, in the words of all its pods."""

from __future__ import annotations

import pytest

from agent.decide.part_end import PartEnd, refusal

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
