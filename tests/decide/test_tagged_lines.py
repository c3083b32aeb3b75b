"""Lines of ranks under mpirun's tags are whole, however mpirun has cut and mixed them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.lifecycle.runs.tagged_lines import LONGEST_LINE, TaggedLines

RANKS = 3
PIECES = st.lists(st.tuples(st.integers(0, RANKS - 1), st.text("a[1,\n", min_size=1, max_size=6)), max_size=30)


def tag(rank: int) -> bytes:
    return b"[1,%d]<stdout>:" % rank


def as_open_mpi_4(pieces: list[tuple[int, str]]) -> bytes:
    """As it was seen to write them: a tag before each piece, and before each further line of it."""
    return b"".join(tag(rank) + line.encode() for rank, piece in pieces for line in piece.splitlines(keepends=True))


@given(PIECES, st.integers(1, 9))
def test_each_line_of_a_rank_is_whole(pieces: list[tuple[int, str]], size: int) -> None:
    lines, printed = TaggedLines(), as_open_mpi_4(pieces)
    out = b"".join(lines.feed(printed[at : at + size]) for at in range(0, len(printed), size)) + lines.finish()
    for rank in range(RANKS):
        said = "".join(piece for by, piece in pieces if by == rank).encode()
        shown = [line.removeprefix(tag(rank)) for line in out.split(b"\n") if line.startswith(tag(rank))]
        assert shown == said.removesuffix(b"\n").split(b"\n") if said else not shown


def test_what_open_mpi_4_was_seen_to_print() -> None:
    lines = TaggedLines()
    seen = b"[1,1]<stdout>:split SEC[1,0]<stdout>:split SEC[1,1]<stdout>:RET end\n[1,0]<stdout>:RET end\n"
    assert lines.feed(seen) == b"[1,1]<stdout>:split SECRET end\n[1,0]<stdout>:split SECRET end\n"
    printed = b"[1,0]<stdout>: hello\nmpirun noticed that\n"
    assert lines.feed(printed) == printed, "its own lines, and those of Open MPI 5"


def test_a_line_that_does_not_end_is_passed_on() -> None:
    lines = TaggedLines()
    assert lines.feed(tag(0) + b"x" * (LONGEST_LINE + 1)) == tag(0) + b"x" * (LONGEST_LINE + 1)
    assert lines.feed(tag(1) + b"half") == b""
    assert lines.finish() == tag(1) + b"half"
