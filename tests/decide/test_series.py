"""What programs write of themselves: which lines are records, what is kept of them, and what all pods make together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import wire
from agent.decide import series
from agent.decide.messages import MOST_BYTES, TellSeries, encode, message
from agent.lifecycle.runs.merged_series import merged, series_notes
from tests.laws import examples

GOOD = '{"name": "loss", "step": 1, "value": 2.5}'


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (GOOD, series.SeriesRecord("loss", 1, 2.5)),
        ('{"name": "loss", "step": 0, "value": -3, "time": 7}', series.SeriesRecord("loss", 0, -3.0)),
        ('{"name": "é", "step": 1, "value": 2, "unit": "µs", "rank": 3}', series.SeriesRecord("é", 1, 2.0, "µs", 3)),
        *(
            (f'{{"name": "loss", "step": 1, "value": {value}}}', series.SeriesRecord("loss", 1, None))
            for value in ("NaN", "Infinity", "-Infinity", "null", "1e999", "1e305", "1" + "0" * 400)
        ),
    ],
)
def test_a_record(line: str, record: series.SeriesRecord) -> None:
    assert series.read_record(line.encode()) == record


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\xfe\x00",
        b"[1]",
        b"[" * 4000,
        GOOD[:-1].encode(),
        b'{"step": 1, "value": 2.5}',
        b'{"name": "", "step": 1, "value": 2.5}',
        b'{"name": 1, "step": 1, "value": 2.5}',
        b'{"name": "%s", "step": 1, "value": 2.5}' % (b"x" * (series.MOST_NAME + 1)),
        b'{"name": "loss", "value": 2.5}',
        b'{"name": "loss", "step": -1, "value": 2.5}',
        b'{"name": "loss", "step": 1.5, "value": 2.5}',
        b'{"name": "loss", "step": true, "value": 2.5}',
        b'{"name": "loss", "step": 9007199254740993, "value": 2.5}',
        b'{"name": "loss", "step": 1}',
        b'{"name": "loss", "step": 1, "value": "2.5"}',
        b'{"name": "loss", "step": 1, "value": true}',
        b'{"name": "loss", "step": 1, "value": 2.5, "rank": "0"}',
        b'{"name": "loss", "step": 1, "value": 2.5, "unit": 3}',
    ],
)
def test_no_record(line: bytes) -> None:
    assert series.read_record(line) is None


def line(name: str, step: int, value: Any, **more: Any) -> bytes:
    return json.dumps({"name": name, "step": step, "value": value, **more}).encode() + b"\n"


def read(*pieces: bytes, pods: int = 1) -> series.PodSeries:
    reader = series.SeriesReader(pods)
    for piece in pieces:
        reader.take(piece)
    reader.finish()
    return reader.told()


good_lines = st.builds(
    line,
    st.sampled_from(["loss", "µ"]),
    st.integers(0, 50),
    st.none() | st.floats(allow_nan=True, allow_infinity=True),
    rank=st.none() | st.integers(0, 2),
)
bad_lines = st.binary(max_size=20).map(lambda data: data + b"\n") | st.just(b"x" * (series.MOST_LINE + 9) + b"\n")


@given(st.lists(good_lines | bad_lines, max_size=20), st.lists(st.integers(1, 5000), max_size=6))
def test_it_does_not_matter_in_which_pieces_the_file_comes(lines: list[bytes], lengths: list[int]) -> None:
    data = b"".join(lines)
    places = sorted({0, len(data), *(length for length in lengths if length < len(data))})
    assert read(*(data[begin:end] for begin, end in pairwise(places))) == read(data)


points = st.dictionaries(st.integers(0, 10**6), st.none() | st.floats(-1e9, 1e9), min_size=1).map(
    lambda found: sorted(found.items())
)


@given(points, st.integers(8, 40))
def test_thinned_points_keep_what_matters(given: list[series.Point], most: int) -> None:
    found = series.thinned(given, most)
    assert len(found) <= most and set(found) <= set(given)
    assert found == sorted(found, key=lambda point: point[0])
    assert (found[0], found[-1]) == (given[0], given[-1])
    assert extremes(found) == extremes(given)


def extremes(points: Sequence[series.Point]) -> list[float]:
    values = [value for _, value in points if value is not None]
    return [min(values), max(values)] if values else []


def test_of_a_long_series_every_rank_keeps_the_same_steps_and_its_own_extremes() -> None:
    long = 7 * series.MOST_POINTS
    peaks = {0: 3331, 1: 5007}
    data = b"".join(
        line("loss", step, 99.0 if step == peaks[rank] else step / 1e4, rank=rank, unit="nats")
        for step in range(long)
        for rank in peaks
    )
    one, other = read(data).lines
    steps = [{step for step, _ in each.points} for each in (one, other)]
    assert steps[0] - set(peaks.values()) == steps[1] - set(peaks.values())
    assert (one.records, one.unit, one.points[0][0], one.points[-1][0]) == (long, "nats", 0, long - 1)
    assert [max(each.points, key=lambda point: point[1] or 0) for each in (one, other)] == [(3331, 99.0), (5007, 99.0)]
    assert series.MOST_POINTS / 4 < len(one.points) <= series.MOST_POINTS


def test_of_a_step_that_came_twice_the_later_value_counts() -> None:
    (found,) = read(line("loss", 1, 5.0) + line("loss", 2, 3.0) + line("loss", 1, 4.0) + line("loss", 2, 3.5)).lines
    assert dict(found.points)[1] == 4.0 and found.records == 4


@given(st.lists(good_lines, max_size=20), st.lists(good_lines, min_size=1, max_size=20))
def test_what_a_run_wrote_in_an_earlier_life_counts_up_to_where_it_began_anew(
    before: list[bytes], after: list[bytes]
) -> None:
    """Also where ranks have moved: those of pod 0 run on pod 1 then."""
    earlier, later = read(*before), read(*after)
    found = series.continued({0: earlier}, {1: later})
    whole = {(one.name, one.rank): one for one in [*found[1].lines, *found[0].lines] if one.rank is not None}
    lives = [{(one.name, one.rank): one for one in life.lines if one.rank is not None} for life in (earlier, later)]
    assert whole.keys() == lives[0].keys() | lives[1].keys()
    for writer, one in whole.items():
        first, second = (dict(life[writer].points) if writer in life else {} for life in lives)
        kept = {step: value for step, value in first.items() if step < min(second, default=51)}
        assert one.points == (*kept.items(), *second.items())
        assert one.records == sum(life[writer].records for life in lives if writer in life)
    assert [one for one in found[0].lines if one.rank is None] == [one for one in earlier.lines if one.rank is None]


def test_a_curve_over_several_lives_has_as_many_points_as_one() -> None:
    lives = [read(b"".join(line("loss", step, 1.0) for step in steps)) for steps in (range(1, 19), range(19, 31))]
    (found,) = series.continued({0: lives[0]}, {0: lives[1]})[0].lines
    assert [step for step, _ in found.points] == [*range(1, 31)]
    long = [read(b"".join(line("loss", step, 1.0) for step in steps)) for steps in (range(900), range(900, 1800))]
    (found,) = series.continued({0: long[0]}, {0: long[1]})[0].lines
    assert series.MOST_POINTS / 2 <= len(found.points) <= series.MOST_POINTS


@pytest.mark.parametrize(("letter", "pods", "steps"), [("é", 1, 100), ("x", 2000, 20)])
def test_the_most_that_a_pod_can_write_fits_into_a_message(letter: str, pods: int, steps: int) -> None:
    ranks = series.MOST_LINES // series.MOST_NAMES
    names = [str(number).rjust(series.MOST_NAME, letter) for number in range(series.MOST_NAMES + 1)]
    more = {"unit": letter * series.MOST_UNIT}
    written = (
        line(name, (1 << 53) - step, -1.2345678901234567e-100 * (step + 1), rank=rank, **more)
        for rank in range(ranks)
        for name in names
        for step in range(steps)
    )
    told = read(b"".join(written), pods=pods)
    assert len(encode(message(TellSeries("torchrun-1a2b3c4d", told)))) < MOST_BYTES
    assert (len(told.lines), told.left_out) == (series.MOST_LINES, ranks * steps)


# All pods


def of_ranks(count: int, steps: int = 50) -> series.PodSeries:
    return read(
        b"".join(line("loss", step, rank + step / 100, rank=rank) for rank in range(count) for step in range(steps))
    )


def test_few_ranks_have_a_curve_each_and_of_many_there_is_the_median() -> None:
    (few,) = merged({1: of_ranks(4, 5000), 0: read(line("loss", 3, 1.0))})
    assert [(one.pod, one.rank) for one in few.curves] == [(1, 0), (1, 1), (1, 2), (1, 3), (0, None)]
    assert (few.ranks, few.pods, few.records) == (5, 2, 20_001)
    assert sum(len(one.steps) for one in few.curves) <= series.MOST_POINTS
    (many,) = merged({0: of_ranks(9)})
    assert [one.of for one in many.curves] == ["median", "least", "greatest"]
    assert [one.values[10] for one in many.curves] == [4.1, 0.1, 8.1]
    assert (many.first, many.last, many.least, many.greatest) == (4.0, 4.49, 0.0, 8.49)


@examples(40)
@given(st.dictionaries(st.integers(0, 20), st.lists(good_lines, max_size=40).map(b"".join), min_size=1, max_size=4))
def test_what_is_merged_is_json_and_loses_nothing_that_it_counts(files: dict[int, bytes]) -> None:
    pods = {pod: wire.from_json(series.PodSeries, wire.to_json(read(data))) for pod, data in files.items()}
    found = merged(pods)
    json.dumps(wire.to_json(found), allow_nan=False)
    assert sum(one.records for one in found) == sum(data.count(b"\n") for data in files.values())
    for one in found:
        values = [value for curve in one.curves for value in curve.values if value is not None]
        assert one.nans or values
        if values:
            assert (min(values), max(values)) == (one.least, one.greatest)


def test_more_names_than_are_kept() -> None:
    pods = {pod: read(b"".join(line(f"{pod}-{at}", 1, 1.0) for at in range(40))) for pod in range(2)}
    assert len(merged(pods)) == series.MOST_NAMES
    assert series_notes(pods) == [f"80 names are in A4_SERIES_FILE of all pods: the first {series.MOST_NAMES} are kept"]


def test_what_was_not_read_is_said_once_for_all_pods() -> None:
    pods = {2: read(b"\x1b \xff\n\nx\n"), 0: read(line("loss", 1, 1.0)), 1: read(b"\x1b[2J 1\n" + b"x" * 5000)}
    assert series_notes(pods) == [
        "4 lines of A4_SERIES_FILE on pods 1-2 cannot be read as a record, the first on pod 1: \\x1b[2J 1"
    ]
    assert series_notes({0: series.PodSeries(empty=True), 3: series.PodSeries(cut=True, left_out=1)}) == [
        f"A4_SERIES_FILE on pod 3 has more than {series.MOST_NAMES} names, or {series.MOST_LINES} pairs of "
        "name and rank: the others are left out",
        "A4_SERIES_FILE on pod 3 has more than 64 MiB: the rest was not read",
        "A4_SERIES_FILE on pod 0 is empty, or no regular file",
    ]
